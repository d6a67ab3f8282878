"""The probability ratio between two policies, taken from log-probabilities: `exp(logp - old_logp)`,
never `logp / old_logp`.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..masked import blank, masked_mean

MAX_LOG_RATIO = 20.0
"""The bound of a log ratio, in nats. A ratio beyond exp(20) is cut, and its gradient is 0: float32
overflows at exp(89), and infinity times an advantage of 0 would be NaN.
"""


def log_ratio(
    logp: Tensor, old_logp: Tensor, mask: Tensor, *, max_log_ratio: float | None = MAX_LOG_RATIO
) -> Tensor:
    """`logp - old_logp` on trained tokens and 0 elsewhere; `old_logp` is detached.

    Args:
        logp: [B, T], of the current policy.
        old_logp: [B, T], of the policy the ratio is against.
        mask: [B, T] in {0, 1}.
        max_log_ratio: nats; clamp to +- this value (20 in verl, SkyRL and OpenRLHF; None, as in
            TRL, does not clamp).

    >>> log_ratio(torch.tensor([[-1.0, 0.0]]), torch.tensor([[-2.0, 5.0]]), torch.tensor([[1, 0]]))
    tensor([[1., 0.]])
    """
    difference = blank(logp - old_logp.detach(), mask)
    return difference if max_log_ratio is None else difference.clamp(-max_log_ratio, max_log_ratio)


def policy_ratio(
    logp: Tensor, old_logp: Tensor, mask: Tensor, *, max_log_ratio: float | None = MAX_LOG_RATIO
) -> Tensor:
    """`pi / old = exp(logp - old_logp)` on trained tokens and 1 elsewhere, [B, T].

    >>> policy_ratio(torch.tensor([[0.6]]).log(), torch.tensor([[0.4]]).log(), torch.tensor([[1]]))
    tensor([[1.5000]])
    """
    return log_ratio(logp, old_logp, mask, max_log_ratio=max_log_ratio).exp()


def clip(ratio: Tensor, eps_low: float, eps_high: float) -> Tensor:
    """`ratio` held within [1 - eps_low, 1 + eps_high]; `eps_low >= 1` is no lower bound, a ratio
    being positive.

    >>> clip(torch.tensor([0.25, 1.5]), 0.2, 0.28)
    tensor([0.8000, 1.2800])
    """
    return ratio.clamp(1 - eps_low, 1 + eps_high)


class RatioStatistics(NamedTuple):
    """Distance of a batch from the sampling policy; scalars over trained tokens."""

    ratio_mean: Tensor
    ratio_min: Tensor
    ratio_max: Tensor
    clip_low: Tensor
    """Share of tokens whose gradient PPO drops below 1 - eps_low (A < 0)."""
    clip_high: Tensor
    """Share of tokens whose gradient PPO drops above 1 + eps_high (A > 0)."""
    kl: Tensor
    """Estimate (k3) of KL(old || pi), nats per token."""
    variance: Tensor
    """Mean of (ratio - 1)^2, which R2VPO bounds."""


def ratio_statistics(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    eps_low: float = 0.2,
    eps_high: float = 0.2,
) -> RatioStatistics:
    """Mean and extremes of the ratio, clip fractions and an estimate of the divergence.

    Args:
        logp: [B, T].
        old_logp: [B, T].
        advantages: [B, T] or [B].
        mask: [B, T] in {0, 1}.
        eps_low: as in `ppo_clip_loss`.
        eps_high: as in `ppo_clip_loss`.

    Source: what PPO trainers log; the divergence is Schulman's k3.

    >>> pi, old = torch.tensor([[0.6, 0.1]]).log(), torch.tensor([[0.4, 0.4]]).log()
    >>> ratio_statistics(pi, old, torch.tensor([[1.0, -1.0]]), torch.ones(1, 2)).clip_high
    tensor(0.5000)
    """
    difference = log_ratio(logp.detach(), old_logp, mask)
    ratio = difference.exp()
    signs = blank(advantages.detach(), mask).sign()
    trained = mask.bool()
    any_trained = bool(trained.any())
    return RatioStatistics(
        ratio_mean=masked_mean(ratio, mask),
        ratio_min=ratio[trained].min() if any_trained else ratio.new_tensor(1.0),
        ratio_max=ratio[trained].max() if any_trained else ratio.new_tensor(1.0),
        clip_low=masked_mean(((ratio < 1 - eps_low) & (signs < 0)).to(ratio.dtype), mask),
        clip_high=masked_mean(((ratio > 1 + eps_high) & (signs > 0)).to(ratio.dtype), mask),
        kl=masked_mean(torch.expm1(difference) - difference, mask),
        variance=masked_mean((ratio - 1).square(), mask),
    )
