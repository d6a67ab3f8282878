"""Surrogates that clip the ratio of each token. Losses are minimised; each returns (sum, weight)
and leaves the division.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..aggregation import Agg, Sum, aggregate
from ..masked import blank
from .ratio import MAX_LOG_RATIO, clip, policy_ratio


def reinforce_loss(
    logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    weights: Tensor | None = None,
    agg: Agg = "token_mean",
) -> Sum:
    """The score-function estimator: `l = -sg[w] A log pi`.

    Args:
        logp: [B, T].
        advantages: [B, T] or [B]; detached.
        mask: [B, T] in {0, 1}.
        weights: [B, T] or [B], off-policy correction; detached (else a term `log pi * grad w`
            biases the gradient).
        agg: how token losses become one number.

    Source: Williams 1992.

    >>> reinforce_loss(torch.tensor([[0.5]]).log(), torch.tensor([2.0]), torch.tensor([[1]]))
    (tensor(1.3863), tensor(1.))
    """
    return aggregate(
        -blank(advantages.detach(), mask) * blank(logp, mask), mask, agg, weights=weights
    )


def ppo_clip_loss(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    eps_low: float = 0.2,
    eps_high: float = 0.2,
    weights: Tensor | None = None,
    agg: Agg = "token_mean",
    max_log_ratio: float | None = MAX_LOG_RATIO,
) -> Sum:
    """PPO: a pessimistic bound, the worse of the plain and the clipped surrogate.

    `l = max(-A rho, -A clip(rho, 1 - eps_low, 1 + eps_high))`, `rho = pi / old`. The gradient is
    `-A rho` per unit of log pi, and 0 once the ratio has already moved out on the side the
    advantage asks for (A > 0 above, A < 0 below).

    Args:
        logp: [B, T].
        old_logp: [B, T], of the trainer's own policy when the batch was taken.
        advantages: [B, T] or [B].
        mask: [B, T] in {0, 1}.
        eps_low: how far below 1.
        eps_high: how far above 1.
        weights: [B, T] or [B], a correction such as `tis_weights`; detached.
        agg: how token losses become one number.
        max_log_ratio: see `log_ratio`.

    Source: arXiv 1707.06347, equation 7; two bounds, arXiv 2503.14476, section 3.1.

    >>> pi, old = torch.tensor([[0.6, 0.1]]).log(), torch.tensor([[0.4, 0.4]]).log()
    >>> ppo_clip_loss(pi, old, torch.tensor([[1.0, -1.0]]), torch.ones(1, 2))  # -1.2 + 0.8
    (tensor(-0.4000), tensor(2.))
    """
    ratio = policy_ratio(logp, old_logp, mask, max_log_ratio=max_log_ratio)
    return aggregate(
        _clipped(ratio, blank(advantages.detach(), mask), eps_low, eps_high),
        mask,
        agg,
        weights=weights,
    )


def dapo_loss(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    eps_low: float = 0.2,
    eps_high: float = 0.28,
    weights: Tensor | None = None,
    agg: Agg = "token_mean",
    max_log_ratio: float | None = MAX_LOG_RATIO,
) -> Sum:
    """DAPO: PPO's clip, wider above ("clip higher"), averaged over all tokens of the batch.

    The method also samples dynamically (`dynamic_sampling_mask`) and punishes overlong answers
    (`overlong_penalty_rewards`); it has no KL term.

    Args:
        logp: [B, T].
        old_logp: [B, T].
        advantages: [B, T] or [B], of `grpo_advantages`.
        mask: [B, T] in {0, 1}.
        eps_low: how far below 1.
        eps_high: how far above 1.
        weights: [B, T] or [B]; detached.
        agg: the method's own is "token_mean".
        max_log_ratio: see `log_ratio`.

    Source: arXiv 2503.14476, equation 8. (Not Direct Advantage Policy Optimization, which shares
    the name.)

    >>> pi, old = torch.tensor([[0.6, 0.1]]).log(), torch.tensor([[0.4, 0.4]]).log()
    >>> dapo_loss(pi, old, torch.tensor([1.0]), torch.ones(1, 2))  # -1.28 - 0.25
    (tensor(-1.5300), tensor(2.))
    """
    ratio = policy_ratio(logp, old_logp, mask, max_log_ratio=max_log_ratio)
    return aggregate(
        _clipped(ratio, blank(advantages.detach(), mask), eps_low, eps_high),
        mask,
        agg,
        weights=weights,
    )


def dual_clip_loss(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    eps_low: float = 0.2,
    eps_high: float = 0.2,
    dual_clip: float = 3.0,
    weights: Tensor | None = None,
    agg: Agg = "token_mean",
    max_log_ratio: float | None = MAX_LOG_RATIO,
) -> Sum:
    """PPO with a ceiling on what a single unlikely-made-likely token can cost.

    For A < 0: `l = min(max(-A rho, -A clip(rho)), -A c)`; for A >= 0, PPO. Above the ceiling the
    gradient is 0.

    Args:
        logp: [B, T].
        old_logp: [B, T].
        advantages: [B, T] or [B].
        mask: [B, T] in {0, 1}.
        eps_low: how far below 1.
        eps_high: how far above 1.
        dual_clip: c > 1: 3 in verl, 10 in SPO and DLER.
        weights: [B, T] or [B]; detached.
        agg: how token losses become one number.
        max_log_ratio: see `log_ratio`.

    Source: arXiv 1912.09729.

    >>> pi, old = torch.tensor([[0.9]]).log(), torch.tensor([[0.1]]).log()
    >>> dual_clip_loss(pi, old, torch.tensor([-1.0]), torch.ones(1, 1))  # min(9, 3)
    (tensor(3.), tensor(1.))

    Raises:
        ValueError: `dual_clip` is not above 1.
    """
    if not dual_clip > 1:
        raise ValueError(f"dual_clip must be above 1, got {dual_clip!r}")
    ratio = policy_ratio(logp, old_logp, mask, max_log_ratio=max_log_ratio)
    token_advantages = blank(advantages.detach(), mask)
    losses = _clipped(ratio, token_advantages, eps_low, eps_high)
    capped = torch.where(
        token_advantages < 0, torch.minimum(losses, -token_advantages * dual_clip), losses
    )
    return aggregate(capped, mask, agg, weights=weights)


def two_sided_clip_loss(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    eps_low: float = 0.2,
    eps_high: float = 0.2,
    delta: float = 4.0,
    weights: Tensor | None = None,
    agg: Agg = "token_mean",
    max_log_ratio: float | None = MAX_LOG_RATIO,
) -> Sum:
    """PPO whose unclipped branch is bounded too, for either sign of the advantage.

    `l = max(-A min(rho, delta), -A clip(rho))`. It binds only for A < 0 (for A > 0 the clipped
    branch already rules).

    Args:
        logp: [B, T].
        old_logp: [B, T].
        advantages: [B, T] or [B].
        mask: [B, T] in {0, 1}.
        eps_low: how far below 1.
        eps_high: how far above 1.
        delta: the greatest ratio, above 1 + eps_high.
        weights: [B, T] or [B]; detached.
        agg: how token losses become one number.
        max_log_ratio: see `log_ratio`.

    Source: INTELLECT-2, arXiv 2505.07291; TRL `delta`.

    >>> pi, old = torch.tensor([[0.8]]).log(), torch.tensor([[0.1]]).log()
    >>> two_sided_clip_loss(pi, old, torch.tensor([-1.0]), torch.ones(1, 1))  # min(8, 4)
    (tensor(4.), tensor(1.))

    Raises:
        ValueError: `delta` is not above `1 + eps_high`, so that it would undo the clip.
    """
    if not delta > 1 + eps_high:
        raise ValueError(f"delta must be above 1 + eps_high = {1 + eps_high!r}, got {delta!r}")
    ratio = policy_ratio(logp, old_logp, mask, max_log_ratio=max_log_ratio)
    token_advantages = blank(advantages.detach(), mask)
    losses = torch.maximum(
        -token_advantages * ratio.clamp(max=delta),
        -token_advantages * clip(ratio, eps_low, eps_high),
    )
    return aggregate(losses, mask, agg, weights=weights)


def r2vpo_loss(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    multiplier: float,
    delta: float,
    agg: Agg = "token_mean",
    max_log_ratio: float | None = MAX_LOG_RATIO,
) -> Sum:
    """R2VPO: no clip, but a bound on the variance of the ratio:
    `-rho A + lambda ((rho - 1)^2 - delta)`.

    Args:
        logp: [B, T].
        old_logp: [B, T].
        advantages: [B, T] or [B].
        mask: [B, T] in {0, 1}.
        multiplier: lambda, moved by dual ascent (a `dual` schedule on update/ratio_variance).
        delta: the variance allowed.
        agg: how token losses become one number.
        max_log_ratio: see `log_ratio`.

    Source: R2VPO, by its abstract: a bound on the variance of the ratio, here as its Lagrangian.

    >>> pi, one = torch.tensor([[1.5]]).log(), torch.ones(1)
    >>> r2vpo_loss(pi, torch.zeros(1, 1), one, torch.ones(1, 1), multiplier=1.0, delta=0.05)
    (tensor(-1.3000), tensor(1.))
    """
    ratio = policy_ratio(logp, old_logp, mask, max_log_ratio=max_log_ratio)
    penalty = multiplier * ((ratio - 1).square() - delta)
    return aggregate(-ratio * blank(advantages.detach(), mask) + penalty, mask, agg)


def _clipped(ratio: Tensor, advantages: Tensor, eps_low: float, eps_high: float) -> Tensor:
    return torch.maximum(-advantages * ratio, -advantages * clip(ratio, eps_low, eps_high))
