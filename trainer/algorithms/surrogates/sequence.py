"""Surrogates with a ratio per sequence: `s_i = (pi(y_i) / old(y_i))^(1 / n_i)`, the geometric mean
of the token ratios.

The loss of a row is laid on each of its tokens, so the aggregation still decides: "sequence_mean"
gives the methods' mean over sequences, "token_mean" would weigh sequences by length.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..aggregation import Agg, Sum, aggregate
from ..masked import blank
from .ratio import MAX_LOG_RATIO, clip, log_ratio, policy_ratio


def sequence_ratio(
    logp: Tensor, old_logp: Tensor, mask: Tensor, *, max_log_ratio: float | None = MAX_LOG_RATIO
) -> Tensor:
    """`exp(mean_t (logp - old_logp))` over each row's trained tokens, [B]; 1 for a row without any.

    Args:
        logp: [B, T].
        old_logp: [B, T].
        mask: [B, T] in {0, 1}.
        max_log_ratio: nats; clamp the mean to +- this (verl: at most 10).

    Source: GSPO, arXiv 2507.18071, equation 7.

    >>> pi, old = torch.tensor([[0.6, 0.1]]).log(), torch.tensor([[0.4, 0.4]]).log()
    >>> sequence_ratio(pi, old, torch.ones(1, 2))
    tensor([0.6124])
    """
    mean = log_ratio(logp, old_logp, mask, max_log_ratio=None).sum(1) / mask.sum(1).clamp(min=1)
    return (mean if max_log_ratio is None else mean.clamp(-max_log_ratio, max_log_ratio)).exp()


def gspo_loss(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    eps_low: float = 3e-4,
    eps_high: float = 4e-4,
    weights: Tensor | None = None,
    agg: Agg = "sequence_mean",
    max_log_ratio: float | None = MAX_LOG_RATIO,
) -> Sum:
    """GSPO: PPO's clip on the ratio of the whole sequence.

    `l_i = max(-A s_i, -A clip(s_i, 1 - eps_low, 1 + eps_high))`, mean over sequences.

    Args:
        logp: [B, T].
        old_logp: [B, T].
        advantages: [B] or [B, T] (constant along a row).
        mask: [B, T] in {0, 1}.
        eps_low: how far below 1; sequence ratios move far less than token ratios.
        eps_high: how far above 1.
        weights: [B, T] or [B]; detached.
        agg: "sequence_mean" counts live rows (verl, OpenRLHF), "sequence_mean_all_rows" all of them
            (TRL).
        max_log_ratio: see `sequence_ratio`.

    Source: arXiv 2507.18071, equations 5 and 7.

    >>> pi, old = torch.tensor([[0.6, 0.1]]).log(), torch.tensor([[0.4, 0.4]]).log()
    >>> gspo_loss(pi, old, torch.tensor([1.0]), torch.ones(1, 2), eps_low=0.2, eps_high=0.28)
    (tensor(-0.6124), tensor(1.))
    """
    losses = _clipped_sequences(logp, old_logp, advantages, mask, eps_low, eps_high, max_log_ratio)
    return aggregate(losses, mask, agg, weights=weights)


def gspo_token_loss(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    eps_low: float = 3e-4,
    eps_high: float = 4e-4,
    weights: Tensor | None = None,
    agg: Agg = "sequence_mean",
    max_log_ratio: float | None = MAX_LOG_RATIO,
) -> Sum:
    """GSPO-token: the value of the sequence ratio, the gradient of each token; for advantages that
    vary along a row.

    `s_it = sg[s_i] pi_t / sg[pi_t]`, then as in GSPO, averaged over the tokens of a sequence, then
    over sequences. With advantages constant along each row, value and gradient equal those of
    `gspo_loss`.

    Args:
        logp: [B, T].
        old_logp: [B, T].
        advantages: [B, T] or [B].
        mask: [B, T] in {0, 1}.
        eps_low: how far below 1.
        eps_high: how far above 1.
        weights: [B, T] or [B]; detached.
        agg: how token losses become one number.
        max_log_ratio: see `sequence_ratio`.

    Source: arXiv 2507.18071, the objective of GSPO-token.

    >>> logp = torch.tensor([[0.6, 0.1]]).log().requires_grad_()
    >>> old, mask = torch.tensor([[0.4, 0.4]]).log(), torch.ones(1, 2)
    >>> gspo_token_loss(logp, old, torch.tensor([1.0]), mask)[0].backward(); logp.grad
    tensor([[-0.3062, -0.3062]])
    """
    whole = sequence_ratio(logp.detach(), old_logp, mask, max_log_ratio=max_log_ratio).unsqueeze(1)
    # pi / sg[pi] is 1 and only carries the gradient of the token.
    ratio = whole * (blank(logp, mask) - blank(logp, mask).detach()).exp()
    token_advantages = blank(advantages.detach(), mask)
    losses = torch.maximum(
        -token_advantages * ratio, -token_advantages * clip(ratio, eps_low, eps_high)
    )
    return aggregate(losses, mask, agg, weights=weights)


def luspo_loss(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    eps_low: float = 2e-3,
    eps_high: float = 2.5e-3,
    weights: Tensor | None = None,
    agg: Agg = "sequence_sum_all_rows",
    max_log_ratio: float | None = MAX_LOG_RATIO,
) -> Sum:
    """LUSPO: GSPO with each sequence's loss multiplied by the length: `mean_B (n_i l_i)`.

    Args:
        logp: [B, T].
        old_logp: [B, T].
        advantages: [B] or [B, T] (constant along a row).
        mask: [B, T] in {0, 1}.
        eps_low: how far below 1.
        eps_high: how far above 1.
        weights: [B, T] or [B]; detached.
        agg: rows without trained tokens add 0 and stay in B (TRL); "sequence_sum" leaves them out.
        max_log_ratio: see `sequence_ratio`.

    Source: length-unbiased sequence policy optimization; TRL `loss_type="luspo"`.

    >>> pi, old = torch.tensor([[0.6, 0.1]]).log(), torch.tensor([[0.4, 0.4]]).log()
    >>> luspo_loss(pi, old, torch.tensor([1.0]), torch.ones(1, 2))
    (tensor(-1.2247), tensor(1.))
    """
    losses = _clipped_sequences(logp, old_logp, advantages, mask, eps_low, eps_high, max_log_ratio)
    return aggregate(losses, mask, agg, weights=weights)


def gmpo_loss(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    eps_low: float = 0.4,
    eps_high: float = 0.4,
    weights: Tensor | None = None,
    agg: Agg = "sequence_mean",
    max_log_ratio: float | None = MAX_LOG_RATIO,
) -> Sum:
    """GMPO: the geometric mean of individually clipped token ratios, in log space.

    `x' = sgn min(sgn x, sgn clip(x, -eps_low, eps_high))`, sgn the sign of A and x the log ratio
    (so one-sided: only the side the advantage asks for); `l_i = -A exp(mean_t x')`.

    Args:
        logp: [B, T].
        old_logp: [B, T].
        advantages: [B] or [B, T] (constant along a row).
        mask: [B, T] in {0, 1}.
        eps_low: nats below 0, in log space unlike the other losses.
        eps_high: nats above 0.
        weights: [B, T] or [B]; detached.
        agg: how sequence losses become one number.
        max_log_ratio: see `log_ratio`.

    Source: arXiv 2507.20673; verl `geo_mean`.

    >>> pi, old = torch.tensor([[0.6, 0.1]]).log(), torch.tensor([[0.4, 0.4]]).log()
    >>> gmpo_loss(pi, old, torch.tensor([1.0]), torch.ones(1, 2))  # -exp((0.4 - 1.386294) / 2)
    (tensor(-0.6107), tensor(1.))
    """
    token_advantages = blank(advantages.detach(), mask)
    sign = token_advantages.sign()
    x = log_ratio(logp, old_logp, mask, max_log_ratio=max_log_ratio)
    held = sign * torch.minimum(sign * x, sign * x.clamp(-eps_low, eps_high))
    mean = held.sum(1, keepdim=True) / mask.sum(1, keepdim=True).clamp(min=1)
    return aggregate(-token_advantages * mean.exp(), mask, agg, weights=weights)


def _clipped_sequences(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    eps_low: float,
    eps_high: float,
    max_log_ratio: float | None,
) -> Tensor:
    ratio = sequence_ratio(logp, old_logp, mask, max_log_ratio=max_log_ratio).unsqueeze(1)
    token_advantages = blank(advantages.detach(), mask)
    return torch.maximum(
        -token_advantages * ratio, -token_advantages * clip(ratio, eps_low, eps_high)
    )


def dhpo_loss(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    mixing: float,
    eps_token: tuple[float, float],
    eps_sequence: tuple[float, float],
    agg: Agg = "sequence_mean",
    max_log_ratio: float | None = MAX_LOG_RATIO,
) -> Sum:
    """DHPO: a mix of PPO's clip on the token ratio and on the sequence ratio, each clipped before
    they are mixed.

    `l = w PPO(rho_t; eps_token) + (1 - w) PPO(s_i; eps_sequence)`.

    Args:
        logp: [B, T].
        old_logp: [B, T].
        advantages: [B, T] or [B].
        mask: [B, T] in {0, 1}.
        mixing: w in [0, 1]; the same for all tokens, where the paper also has one that follows the
            entropy.
        eps_token: (low, high).
        eps_sequence: (low, high).
        agg: how token losses become one number.
        max_log_ratio: see `log_ratio`.

    Source: DHPO, by its abstract, which mixes both ratios and clips each branch by itself; the
    maximum in each branch is PPO's.

    >>> pi, old = torch.tensor([[0.6, 0.1]]).log(), torch.tensor([[0.4, 0.4]]).log()
    >>> one, mask, eps = torch.ones(1), torch.ones(1, 2), (0.2, 0.2)
    >>> dhpo_loss(pi, old, one, mask, mixing=0.5, eps_token=eps, eps_sequence=eps)
    (tensor(-0.6687), tensor(1.))
    """
    token_advantages = blank(advantages.detach(), mask)
    token = policy_ratio(logp, old_logp, mask, max_log_ratio=max_log_ratio)
    whole = sequence_ratio(logp, old_logp, mask, max_log_ratio=max_log_ratio).unsqueeze(1)
    of_token = torch.maximum(-token_advantages * token, -token_advantages * clip(token, *eps_token))
    of_sequence = torch.maximum(
        -token_advantages * whole, -token_advantages * clip(whole, *eps_sequence)
    )
    return aggregate(mixing * of_token + (1 - mixing) * of_sequence, mask, agg)
