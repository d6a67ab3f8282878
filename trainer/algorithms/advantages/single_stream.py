"""Single-stream SPO: a single rollout per prompt, with a Beta posterior over the prompt's earlier
rollouts as the baseline.

    advantages = single_stream_spo_advantages(rewards, alpha, beta)      # before the update
    rho = single_stream_spo_memory(drift)
    alpha, beta = single_stream_spo_update(rewards, alpha, beta, rho)

Not segment policy optimisation, nor self-play preference optimisation, which share the name. Where
a prompt comes twice in a batch, both rollouts are compared with the posterior before the batch, and
only the update that is stored last is kept.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..groups import floating, group_statistics, group_std


def single_stream_spo_prior(
    successes: Tensor, attempts: int, *, rho_min: float = 0.875
) -> tuple[Tensor, Tensor]:
    """The initial (alpha, beta) from offline samples, which count as N0 rollouts together: as many
    as the least memory retains.

    `N0 = 1 / (1 - rho_min)`, `alpha = N0 (S + 0.5) / (n + 1)`, `beta = N0 (n - S + 0.5) / (n + 1)`.

    Args:
        successes: [B], S of the n samples.
        attempts: n; 8 in the recipe.
        rho_min: the least memory.

    Source: arXiv 2509.13232 and its recipe in verl.

    >>> single_stream_spo_prior(torch.tensor([2.0]), 8)
    (tensor([2.2222]), tensor([5.7778]))
    """
    weight = 1 / (1 - rho_min) / (attempts + 1)
    won = floating(successes)
    return weight * (won + 0.5), weight * (attempts - won + 0.5)


def single_stream_spo_advantages(
    rewards: Tensor, alpha: Tensor, beta: Tensor, *, ddof: int = 1, eps: float = 1e-8
) -> Tensor:
    """The reward minus the tracked success rate, normalised over the batch.

    `A_i = (d_i - mean d) / (std d + eps)`, `d_i = r_i - alpha_i / (alpha_i + beta_i)` before the
    update.

    Args:
        rewards: [B].
        alpha: [B].
        beta: [B].
        ddof: 1 or 0 in the batch's standard deviation.
        eps: added to the standard deviation.

    Returns:
        [B]; 0 for a batch of one, and where all differences are equal.

    Source: arXiv 2509.13232.

    >>> alpha, beta = torch.tensor([4.0, 2.0]), torch.tensor([4.0, 6.0])
    >>> single_stream_spo_advantages(torch.tensor([1.0, 0.0]), alpha, beta)
    tensor([ 0.7071, -0.7071])
    """
    surprise = (floating(rewards) - alpha / (alpha + beta)).detach()
    batch = torch.zeros_like(surprise, dtype=torch.long)  # a single group
    scale = group_std(surprise, batch, ddof=ddof) + eps
    return group_statistics(surprise, batch).centred / torch.where(scale == 0, 1.0, scale)


def single_stream_spo_memory(
    drift: Tensor, *, half_life: float = 0.06, low: float = 0.875, high: float = 0.96
) -> Tensor:
    """The share of the past to keep, smaller after larger policy changes:
    `clip(2^(-D / half_life), low, high)`.

    Args:
        drift: [B], D: mean over tokens of |logp_before - logp_now| on the prompt's last response (a
            mean absolute log ratio, which the paper calls KL); 0 the first time.
        half_life: nats per token.
        low: least memory.
        high: greatest memory.

    Source: arXiv 2509.13232.

    >>> single_stream_spo_memory(torch.tensor([0.006, 0.0]))
    tensor([0.9330, 0.9600])
    """
    return torch.exp2(-drift / half_life).clamp(low, high)


def single_stream_spo_update(
    rewards: Tensor, alpha: Tensor, beta: Tensor, rho: Tensor
) -> tuple[Tensor, Tensor]:
    """Forget a little, then count the new rollout: `rho alpha + r`, `rho beta + 1 - r`; with rho =
    1, Bayes' rule.

    Args:
        rewards: [B] in [0, 1].
        alpha: [B].
        beta: [B].
        rho: [B].

    Source: arXiv 2509.13232.

    >>> alpha, beta, rho = torch.tensor([4.0]), torch.tensor([4.0]), torch.tensor([0.96])
    >>> single_stream_spo_update(torch.tensor([1.0]), alpha, beta, rho)
    (tensor([4.8400]), tensor([3.8400]))
    """
    won = floating(rewards)
    return rho * alpha + won, rho * beta + 1 - won


def single_stream_spo_sampling_weights(
    alpha: Tensor, beta: Tensor, *, floor: float = 0.05
) -> Tensor:
    """Sampling weight of each prompt, high where success is uncertain: `sqrt(v (1 - v)) + floor`.

    Prompts are to be drawn without replacement.

    Args:
        alpha: [N].
        beta: [N].
        floor: every prompt keeps this much.

    Source: arXiv 2509.13232.

    >>> single_stream_spo_sampling_weights(torch.tensor([4.0]), torch.tensor([4.0]))
    tensor([0.5500])
    """
    success = alpha / (alpha + beta)
    return (success * (1 - success)).sqrt() + floor
