"""HAPO's surrogate, in which a token's clip range and weight depend on the entropy."""

from __future__ import annotations

import torch
from torch import Tensor

from ..aggregation import Agg, Sum, aggregate
from ..masked import blank
from .ratio import MAX_LOG_RATIO, policy_ratio


def hapo_entropy_scale(
    entropy: Tensor, mask: Tensor, *, quantile: float = 0.8, least: float = 1e-8
) -> Tensor:
    """Relative entropy of each token within the batch: negative below the quantile, positive above,
    in [-1, 1].

    `h = log H - quantile(log H)`, over its root mean square, then each sign divided by its greatest
    size.

    Args:
        entropy: [B, T], nats.
        mask: [B, T] in {0, 1}.
        quantile: the quantile of log H over trained tokens; 0.8 in the recipes. The nearest token
            is taken.
        least: the lower bound of H, of the mean square, and of each divisor; keeps 0 out of the
            logarithm and the divisions.

    Returns:
        [B, T], detached; 0 in untrained slots. It looks at the tokens it is given: scale the whole
        batch before splitting it.

    Source: arXiv 2509.16591. (The authors' code divides both signs by a number of their own sign,
    so that low entropies come out positive too; this keeps the sign that their clip goes by.)

    >>> entropy = torch.tensor([[1.0, 2.0, 4.0]])
    >>> hapo_entropy_scale(entropy, torch.ones(1, 3), quantile=0.5)  # -ln 2, 0, ln 2
    tensor([[-1.,  0.,  1.]])
    """
    trained = mask.bool()
    logs = blank(entropy.detach(), mask).clamp(min=least).log()
    count = int(trained.sum())
    if not count:
        return torch.zeros_like(logs)
    pivot = logs[trained].sort().values[round(quantile * (count - 1))]
    h = blank(logs - pivot, mask)
    h = h / (h.square().sum() / count).clamp(min=least).sqrt()
    above, below = h.max().clamp(min=least), (-h).max().clamp(min=least)
    return torch.where(h > 0, h / above, h / below)


def hapo_loss(
    logp: Tensor,
    old_logp: Tensor,
    entropy: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    eps_low: float = 0.2,
    eps_high: float = 0.2,
    alpha: float = 1.0,
    beta: float = 1.0,
    quantile: float = 0.8,
    scale: Tensor | None = None,
    weights: Tensor | None = None,
    agg: Agg = "token_mean",
    max_log_ratio: float | None = MAX_LOG_RATIO,
) -> Sum:
    """HAPO (heterogeneous adaptive): PPO whose clip is wider, and whose advantage counts more,
    where it matters for exploration.

    With h of `hapo_entropy_scale`: the lower bound of tokens with h <= 0 is
    `eps_low (1 - alpha h)`, the upper one of those with h > 0 `eps_high (1 + alpha h)`. The
    advantage becomes `A (1 + beta h)` for h > 0 outside of the inner half of the clip range
    `(1 - low / 2, 1 + high / 2)`, and for h <= 0 inside of it.

    Args:
        logp: [B, T].
        old_logp: [B, T].
        entropy: [B, T], nats; detached.
        advantages: [B, T] or [B], of `hapo_advantages`.
        mask: [B, T] in {0, 1}.
        eps_low: how far below 1, before it is adapted.
        eps_high: how far above 1, before it is adapted.
        alpha: how strongly h widens the clip range; 0 gives PPO's range.
        beta: how strongly h scales the advantage; 0 leaves the advantage as it is.
        quantile: see `hapo_entropy_scale`.
        scale: [B, T], h over the whole batch; without it, h is computed from these rows alone.
        weights: [B, T] or [B]; detached.
        agg: how token losses become one number.
        max_log_ratio: see `log_ratio`.

    Source: arXiv 2509.16591 and its code.

    A token of h = 1 may rise to 1.4, and counts twice outside of (0.9, 1.2).

    >>> logp, old, one = torch.tensor([[1.3]]).log(), torch.zeros(1, 1), torch.ones(1, 1)
    >>> hapo_loss(logp, old, one, one, one, scale=one)  # -2 * 1.3
    (tensor(-2.6000), tensor(1.))
    """
    h = hapo_entropy_scale(entropy, mask, quantile=quantile) if scale is None else scale.detach()
    ratio = policy_ratio(logp, old_logp, mask, max_log_ratio=max_log_ratio)
    low = eps_low * (1 - alpha * h.clamp(max=0))
    high = eps_high * (1 + alpha * h.clamp(min=0))
    inside = (ratio.detach() > 1 - low / 2) & (ratio.detach() < 1 + high / 2)
    # True for h <= 0 inside of the half range and for h > 0 outside of it.
    scaled = inside == (h <= 0)
    factor = torch.where(scaled, 1 + beta * h, 1.0)
    token_advantages = blank(advantages.detach(), mask) * factor
    clipped = torch.minimum(torch.maximum(ratio, 1 - low), 1 + high)
    return aggregate(
        torch.maximum(-token_advantages * ratio, -token_advantages * clipped),
        mask,
        agg,
        weights=weights,
    )
