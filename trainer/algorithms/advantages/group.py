"""Outcome advantages: rewards of whole rollouts, compared within the group of rollouts that share a
prompt. All return [B].
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from ..groups import (
    Singleton,
    floating,
    group_index,
    group_statistics,
    group_std,
    group_sum,
    settle_singletons,
)


def grpo_advantages(
    rewards: Tensor,
    groups: Tensor,
    *,
    ddof: int = 1,
    eps: float = 1e-6,
    singleton: Singleton = "zero",
) -> Tensor:
    """GRPO: the centred reward in units of the group's standard deviation.

    `A_i = (r_i - mean_g) / (std_g + eps)`; exactly 0 in a group of equal rewards.

    Args:
        rewards: [B].
        groups: [B] int.
        ddof: 1 (verl, TRL) or 0 (open-instruct) in the standard deviation.
        eps: added to the standard deviation: 1e-6 verl, 1e-4 TRL, 1e-8 open-instruct, 1e-9
            OpenRLHF.
        singleton: a group of one gets "zero" (TRL, open-instruct) or its "raw" reward over 1 + eps
            (verl).

    Source: DeepSeekMath, arXiv 2402.03300, section 4.1.2.

    >>> r, g = torch.tensor([1.0, 0.0, 0.0, 0.0]), torch.tensor([0, 0, 0, 0])
    >>> grpo_advantages(r, g, eps=0.0)
    tensor([ 1.5000, -0.5000, -0.5000, -0.5000])
    """
    scale = group_std(rewards, groups, ddof=ddof) + eps
    centred = group_statistics(rewards, groups).centred
    # With eps = 0 a group of equal rewards would divide 0 by 0.
    advantages = torch.where(centred == 0, 0.0, centred / torch.where(scale > 0, scale, 1.0))
    return settle_singletons(advantages, floating(rewards) / (1 + eps), groups, singleton)


def dr_grpo_advantages(rewards: Tensor, groups: Tensor, *, singleton: Singleton = "zero") -> Tensor:
    """Dr. GRPO: the reward minus the group's mean, not divided by the standard deviation.

    `A_i = r_i - mean_g`. The method also divides the loss by a constant instead of the number of
    tokens; that is the aggregation `fixed_length`.

    Args:
        rewards: [B].
        groups: [B] int.
        singleton: a group of one gets "zero" or its "raw" reward.

    Source: Understanding R1-Zero-like training, arXiv 2503.20783, the objective of Dr. GRPO.

    >>> dr_grpo_advantages(torch.tensor([1.0, 0.0, 0.0, 0.0]), torch.zeros(4, dtype=torch.long))
    tensor([ 0.7500, -0.2500, -0.2500, -0.2500])
    """
    centred = group_statistics(rewards, groups).centred
    return settle_singletons(centred, rewards, groups, singleton)


def rloo_advantages(rewards: Tensor, groups: Tensor, *, singleton: Singleton = "zero") -> Tensor:
    """REINFORCE leave-one-out: the reward minus the mean of all *other* rewards in the group.

    `A_i = r_i - sum_{j != i} r_j / (K - 1) = K / (K - 1) (r_i - mean_g)`.

    Args:
        rewards: [B].
        groups: [B] int.
        singleton: a group of one gets "zero" (verl's vectorised implementation), or its "raw"
            reward (verl's loop).

    Source: Back to basics, arXiv 2402.14740.

    >>> rloo_advantages(torch.tensor([1.0, 0.0, 0.5]), torch.zeros(3, dtype=torch.long))
    tensor([ 0.7500, -0.7500,  0.0000])
    """
    statistics = group_statistics(rewards, groups)
    advantages = statistics.centred * statistics.size / (statistics.size - 1).clamp(min=1)
    return settle_singletons(advantages, rewards, groups, singleton)


def lite_ppo_advantages(
    rewards: Tensor,
    groups: Tensor,
    *,
    std_of: Literal["raw", "centred"] = "raw",
    ddof: int = 1,
    eps: float = 1e-6,
    singleton: Singleton = "zero",
) -> Tensor:
    """Lite PPO: the group's mean, but the whole batch's standard deviation.

    `A_i = (r_i - mean_g) / (std_batch + eps)`; used with the token mean.

    Args:
        rewards: [B].
        groups: [B] int.
        std_of: take the standard deviation of the "raw" rewards (ROLL, TRL), or of the "centred"
            rewards (ScaleRL, arXiv 2510.13786, section 4), which leaves out the differences between
            groups.
        ddof: 1 or 0 in the standard deviation.
        eps: added to the standard deviation: 1e-6 ROLL, 1e-4 TRL.
        singleton: a group of one gets "zero", or its "raw" reward over the same standard deviation.

    Source: Tricks or traps, arXiv 2508.08221, the Lite PPO configuration.

    >>> r, g = torch.tensor([1.0, 0.0, 1.0, 1.0]), torch.tensor([0, 0, 1, 1])
    >>> lite_ppo_advantages(r, g, eps=0.0)
    tensor([ 1., -1.,  0.,  0.])
    >>> lite_ppo_advantages(r, g, eps=0.0, std_of="centred")
    tensor([ 1.2247, -1.2247,  0.0000,  0.0000])
    """
    centred = group_statistics(rewards, groups).centred
    if std_of not in ("raw", "centred"):
        raise ValueError(f"std_of is 'raw' or 'centred', got {std_of!r}")
    compared = floating(rewards).detach() if std_of == "raw" else centred
    # The batch counts as a single group here.
    scale = _safe(group_std(compared, torch.zeros_like(groups), ddof=ddof) + eps)
    return settle_singletons(centred / scale, floating(rewards) / scale, groups, singleton)


def reinforce_advantages(rewards: Tensor, *, baseline: float | Tensor = 0.0) -> Tensor:
    """REINFORCE: the reward itself, minus a baseline that must not depend on the row's own sample.

    `A_i = r_i - b`.

    Args:
        rewards: [B].
        baseline: a number, or [B].

    Source: Williams 1992.

    >>> reinforce_advantages(torch.tensor([1.0, 0.0]), baseline=0.5)
    tensor([ 0.5000, -0.5000])
    """
    return floating(rewards).detach() - baseline


def opo_advantages(
    rewards: Tensor, groups: Tensor, lengths: Tensor, *, singleton: Singleton = "zero"
) -> Tensor:
    """OPO: a baseline that weighs rewards by length, which approximates the squared gradient norm.

    `A_i = r_i - sum_j n_j r_j / sum_j n_j` over the group; the plain mean where all lengths are 0.

    Args:
        rewards: [B].
        groups: [B] int.
        lengths: [B], trained tokens of each rollout.
        singleton: a group of one gets "zero" or its "raw" reward.

    Source: On-policy RL with optimal reward baseline, arXiv 2505.23585.

    >>> opo_advantages(torch.tensor([1.0, 0.0]), torch.tensor([0, 0]), torch.tensor([10, 30]))
    tensor([ 0.7500, -0.2500])
    """
    statistics = group_statistics(rewards, groups)
    weights = lengths.to(statistics.mean.dtype)
    total = group_sum(weights, groups)
    # The baseline relative to the mean: from centred rewards, which are exactly 0 in a group of
    # equal rewards, so that such a group has no advantage left over from rounding.
    shift = group_sum(weights * statistics.centred, groups) / _safe(total)
    advantages = statistics.centred - torch.where(total > 0, shift, 0.0)
    return settle_singletons(advantages, rewards, groups, singleton)


def remax_advantages(rewards: Tensor, greedy_rewards: Tensor) -> Tensor:
    """ReMax: the reward minus that of the greedy answer to the same prompt.

    `A_i = r_i - r_greedy`.

    Args:
        rewards: [B], of sampled answers.
        greedy_rewards: [B], of the greedy answer to each row's prompt.

    Source: ReMax, arXiv 2310.10505.

    >>> remax_advantages(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0]))
    tensor([ 1., -1.])
    """
    return floating(rewards).detach() - floating(greedy_rewards).detach()


def gpg_advantages(
    rewards: Tensor, groups: Tensor, *, norm: float = 1.0, singleton: Singleton = "zero"
) -> Tensor:
    """GPG: centred rewards, scaled up by the share of rows that earned nothing.

    `A_i = alpha (r_i - mean_g) / norm`, `alpha = B / max(1, #{r != 0})`.

    Args:
        rewards: [B].
        groups: [B] int.
        norm: the paper's F_norm.
        singleton: a group of one gets "zero", or alpha times its "raw" reward over `norm`.

    Source: GPG, arXiv 2504.02546.

    >>> gpg_advantages(torch.tensor([1.0, 0.0]), torch.tensor([0, 0]))
    tensor([ 1., -1.])
    """
    alpha = rewards.numel() / (rewards != 0).sum().clamp(min=1)
    scaled = group_statistics(rewards, groups).centred * alpha / norm
    return settle_singletons(scaled, floating(rewards) * alpha / norm, groups, singleton)


def pass_at_k_advantages(
    rewards: Tensor, groups: Tensor, *, normalise: bool = True, ddof: int = 1, eps: float = 1e-6
) -> Tensor:
    """GRPO for pass@k: only the best rollout of a group is credited, with the lead over the second.

    `A_best = (r_max - r_2nd) / (std_g + eps)`, 0 for all others; 0 for a tie at the top and for a
    group of one.

    Args:
        rewards: [B].
        groups: [B] int.
        normalise: divide by the group's standard deviation.
        ddof: 1 or 0 in the standard deviation.
        eps: added to the standard deviation.

    Source: the pass@k estimator of verl ("grpo_passk"), after arXiv 2503.19595.

    >>> r, g = torch.tensor([1.0, 0.5, 0.0]), torch.tensor([0, 0, 0])
    >>> pass_at_k_advantages(r, g, eps=0.0)
    tensor([1., 0., 0.])
    """
    values = floating(rewards).detach()
    advantages = torch.zeros_like(values)
    scale = (
        _safe(group_std(values, groups, ddof=ddof) + eps) if normalise else torch.ones_like(values)
    )
    index = group_index(groups)
    order = torch.argsort(index, stable=True)
    sizes: list[int] = torch.bincount(index).tolist() if index.numel() else []
    for rows in torch.split(order, sizes):
        if rows.numel() > 1:
            first, second = values[rows].topk(2).values
            best = rows[values[rows].argmax()]
            advantages[best] = (first - second) / scale[best]
    return advantages


def supo_advantages(
    rewards: Tensor,
    groups: Tensor,
    segments: Tensor,
    *,
    statistics_over: Literal["rollouts", "segments"] = "rollouts",
    ddof: int = 1,
    eps: float = 1e-6,
    singleton: Singleton = "zero",
) -> Tensor:
    """SUPO: GRPO over rollouts, broadcast to every segment that context summaries cut a rollout
    into.

    `A_s = (r_{j(s)} - mean_g r) / (std_g r + eps)`: a rollout with many summaries counts once in
    its group.

    Args:
        rewards: [N], one per rollout.
        groups: [N] int.
        segments: [S] int, for each training row the rollout (0..N-1) it is part of.
        statistics_over: "rollouts" (the paper's Eq. 3), or "segments" (Eq. 4), in which a rollout
            counts once for each of its segments; the paper measured it 4 to 6 points worse.
        ddof: as in `grpo_advantages`.
        eps: as in `grpo_advantages`.
        singleton: as in `grpo_advantages`.

    Returns:
        [S], one per row. Rollouts that ran out of steps or summaries are masked from the loss and
        stay in the statistics.

    Source: arXiv 2510.06727, Eq. 3 and 4; no official code, so `ddof` and `eps` are GRPO's.

    >>> r, g, segments = torch.tensor([1.0, 0.0]), torch.tensor([0, 0]), torch.tensor([0, 0, 1])
    >>> supo_advantages(r, g, segments, eps=0.0)
    tensor([ 0.7071,  0.7071, -0.7071])
    """
    if statistics_over == "segments":
        return grpo_advantages(
            rewards[segments], groups[segments], ddof=ddof, eps=eps, singleton=singleton
        )
    if statistics_over != "rollouts":
        raise ValueError(f"statistics_over is 'rollouts' or 'segments', got {statistics_over!r}")
    return grpo_advantages(rewards, groups, ddof=ddof, eps=eps, singleton=singleton)[segments]


def _safe(scale: Tensor) -> Tensor:
    return torch.where(scale > 0, scale, torch.ones_like(scale))
