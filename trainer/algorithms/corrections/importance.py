"""Importance weights between the sampling engine and the trainer, truncated (TIS) or masked (MIS).

`w = old / mu`, old being the trainer's own log-probabilities of the sampled tokens before the first
update, and mu the engine's. All weights are detached; hand them to a loss as `weights=`.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from ..masked import blank, masked_mean
from ..surrogates.ratio import MAX_LOG_RATIO, log_ratio

Level = Literal["token", "sequence", "geometric"]
"""The ratio of each token, of the whole sequence (their product), or their geometric mean."""


def importance_weights(
    old_logp: Tensor,
    sampler_logp: Tensor,
    mask: Tensor,
    *,
    level: Level = "token",
    max_log_ratio: float | None = MAX_LOG_RATIO,
) -> Tensor:
    """Exact weights `old / mu`: per token, or per row and spread over the tokens.

    Args:
        old_logp: [B, T], of the trainer.
        sampler_logp: [B, T], of the engine.
        mask: [B, T] in {0, 1}.
        level: "token": w_t; "sequence": prod_t w_t; "geometric": (prod_t w_t)^(1/n).
        max_log_ratio: nats; clamp the log ratio (the summed one for a sequence) to +- this.

    Returns:
        [B, T], 0 in untrained slots.

    Source: importance sampling between engine and trainer, as in verl `rollout_corr`.

    >>> old, mu = torch.tensor([[0.6, 0.1]]).log(), torch.tensor([[0.4, 0.2]]).log()
    >>> importance_weights(old, mu, torch.ones(1, 2))
    tensor([[1.5000, 0.5000]])
    >>> importance_weights(old, mu, torch.ones(1, 2), level="sequence")
    tensor([[0.7500, 0.7500]])
    """
    difference = log_ratio(old_logp.detach(), sampler_logp, mask, max_log_ratio=None)
    exponent = _at_level(difference, mask, level)
    if max_log_ratio is not None:
        exponent = exponent.clamp(-max_log_ratio, max_log_ratio)
    return blank(exponent.exp(), mask)


def tis_weights(
    old_logp: Tensor,
    sampler_logp: Tensor,
    mask: Tensor,
    *,
    cap: float = 2.0,
    floor: float | None = None,
    level: Level = "token",
    normalise: bool = False,
    max_log_ratio: float | None = MAX_LOG_RATIO,
) -> Tensor:
    """Truncated importance sampling: `min(w, cap)`, and with a floor `max(w, floor)`.

    Args:
        old_logp: [B, T], of the trainer.
        sampler_logp: [B, T], of the engine.
        mask: [B, T] in {0, 1}.
        cap: the greatest weight (verl 2); infinity makes it exact importance sampling.
        floor: the least weight; None (verl) or a number (TRL, slime and OpenRLHF have one).
        level: see `importance_weights`.
        normalise: divide by the mean weight of the batch's trained tokens. Do it before splitting
            the batch.
        max_log_ratio: see `importance_weights`.

    Source: Yao et al. 2025, "Your efficient RL framework secretly brings you off-policy RL
    training".

    >>> old, mu = torch.tensor([[0.6, 0.1]]).log(), torch.tensor([[0.4, 0.2]]).log()
    >>> tis_weights(old, mu, torch.ones(1, 2), cap=1.2)
    tensor([[1.2000, 0.5000]])
    """
    exact = importance_weights(
        old_logp, sampler_logp, mask, level=level, max_log_ratio=max_log_ratio
    )
    weights = blank(exact.clamp(min=floor, max=cap), mask)
    if not normalise:
        return weights
    mean = masked_mean(weights, mask)
    return weights / torch.where(mean > 0, mean, torch.ones_like(mean))


def mis_weights(
    old_logp: Tensor,
    sampler_logp: Tensor,
    mask: Tensor,
    *,
    low: float = 0.5,
    high: float = 5.0,
    level: Level = "token",
    max_log_ratio: float | None = MAX_LOG_RATIO,
) -> Tensor:
    """Masked importance sampling (IcePop): the weight inside [low, high], 0 outside:
    `w 1[low <= w <= high]`.

    A weight of 0 keeps the token in the denominator (TRL, AReaL). Trainers that average over the
    kept tokens only (verl, slime) also multiply the mask by `weights > 0`; their loss is larger by
    the factor N / N_kept.

    Args:
        old_logp: [B, T], of the trainer.
        sampler_logp: [B, T], of the engine.
        mask: [B, T] in {0, 1}.
        low: the least weight kept.
        high: the greatest weight kept.
        level: see `importance_weights`.
        max_log_ratio: see `importance_weights`.

    Source: IcePop (Ring-1T, 2025), bounds 0.5 and 5.

    >>> old, mu = torch.tensor([[0.6, 0.1]]).log(), torch.tensor([[0.4, 0.2]]).log()
    >>> mis_weights(old, mu, torch.ones(1, 2), low=0.6, high=2.0)
    tensor([[1.5000, 0.0000]])
    """
    weights = importance_weights(
        old_logp, sampler_logp, mask, level=level, max_log_ratio=max_log_ratio
    )
    return torch.where((weights >= low) & (weights <= high), weights, torch.zeros_like(weights))


def _at_level(difference: Tensor, mask: Tensor, level: Level) -> Tensor:
    if level == "token":
        return difference
    total = difference.sum(-1, keepdim=True)
    if level == "geometric":
        total = total / mask.sum(-1, keepdim=True).clamp(min=1)
    elif level != "sequence":
        raise ValueError(f"level is 'token', 'sequence' or 'geometric', got {level!r}")
    return total.expand_as(difference)
