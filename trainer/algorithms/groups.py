"""Statistics of the rollouts that share a prompt: `groups` names each row's group by an integer, in
any order.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

Singleton = Literal["zero", "raw"]
"""The advantage of a group with a single rollout: 0, since nothing can be compared, or the raw
reward, as some trainers leave it.
"""


class GroupStatistics(NamedTuple):
    """Statistics of each row's group, every field [B]."""

    size: Tensor
    mean: Tensor
    centred: Tensor
    """Reward minus group mean; exactly 0 in a group of equal rewards, whatever the rounding."""
    constant: Tensor
    """Whether all rewards of the group are equal (bool)."""


def floating(rewards: Tensor) -> Tensor:
    """Rewards, or counts, as floating point: integers and bools become float64 (float32 on a device
    without it), so that what is computed from them is as exact as they are.

    >>> floating(torch.tensor([1, 0]))
    tensor([1., 0.], dtype=torch.float64)
    """
    if rewards.is_floating_point():
        return rewards
    return rewards.to(torch.float32 if rewards.device.type == "mps" else torch.float64)


def group_index(groups: Tensor) -> Tensor:
    """Group ids as 0..G-1, [B].

    >>> group_index(torch.tensor([7, 3, 7]))
    tensor([1, 0, 1])
    """
    index: Tensor = torch.unique(groups, return_inverse=True)[1]
    return index


def first_rows(groups: Tensor) -> Tensor:
    """The first row of each group, in ascending order of group ids, [G] int.

    >>> first_rows(torch.tensor([7, 3, 7]))
    tensor([1, 0])
    """
    index = group_index(groups)
    rows = torch.arange(len(groups), device=groups.device)
    count = int(index.max()) + 1 if len(groups) else 0
    return rows.new_full((count,), len(groups)).scatter_reduce(0, index, rows, "amin")


def group_sum(values: Tensor, groups: Tensor) -> Tensor:
    """The sum over each row's group, [B].

    >>> group_sum(torch.tensor([1.0, 2.0, 4.0]), torch.tensor([0, 1, 0]))
    tensor([5., 2., 5.])
    """
    index = group_index(groups)
    totals = torch.zeros(values.shape, dtype=values.dtype, device=values.device).index_add(
        0, index, values
    )
    return totals[index]


def group_size(groups: Tensor) -> Tensor:
    """How many rows each row's group has, [B] int.

    >>> group_size(torch.tensor([0, 1, 0]))
    tensor([2, 1, 2])
    """
    return group_sum(torch.ones_like(groups), groups)


def group_range(values: Tensor, groups: Tensor) -> tuple[Tensor, Tensor]:
    """The least and the greatest value of each row's group, each [B].

    >>> group_range(torch.tensor([1.0, 2.0, 4.0]), torch.tensor([0, 1, 0]))
    (tensor([1., 2., 1.]), tensor([4., 2., 4.]))
    """
    index = group_index(groups)
    least = torch.full_like(values, torch.inf).scatter_reduce(0, index, values, "amin")
    greatest = torch.full_like(values, -torch.inf).scatter_reduce(0, index, values, "amax")
    return least[index], greatest[index]


def group_statistics(rewards: Tensor, groups: Tensor) -> GroupStatistics:
    """Size, mean and centred rewards of each row's group.

    >>> group_statistics(torch.tensor([1.0, 0.0, 3.0]), torch.tensor([0, 0, 1])).centred
    tensor([ 0.5000, -0.5000,  0.0000])
    """
    values = floating(rewards).detach()
    size = group_size(groups)
    mean = group_sum(values, groups) / size
    least, greatest = group_range(values, groups)
    constant = least == greatest
    # Rounding leaves a tiny remainder in a constant group, which a division by the spread would
    # blow up; set it to 0.
    return GroupStatistics(size, mean, torch.where(constant, 0.0, values - mean), constant)


def group_std(rewards: Tensor, groups: Tensor, *, ddof: int = 1) -> Tensor:
    """The standard deviation of each row's group, [B]; 0 where the group has `ddof` rows or fewer.

    >>> group_std(torch.tensor([1.0, 0.0, 0.0, 0.0]), torch.tensor([0, 0, 0, 0]), ddof=1)
    tensor([0.5000, 0.5000, 0.5000, 0.5000])
    """
    statistics = group_statistics(rewards, groups)
    squares = group_sum(statistics.centred.square(), groups)
    return (squares / (statistics.size - ddof).clamp(min=1)).sqrt()


def settle_singletons(
    advantages: Tensor, rewards: Tensor, groups: Tensor, singleton: Singleton
) -> Tensor:
    """Set the advantage in groups of a single row as `singleton` says: 0, or the raw reward.

    >>> advantages, rewards = torch.tensor([5.0, 2.0, -2.0]), torch.tensor([7.0, 1.0, 0.0])
    >>> settle_singletons(advantages, rewards, torch.tensor([0, 1, 1]), "zero")
    tensor([ 0.,  2., -2.])

    Raises:
        ValueError: `singleton` is neither "zero" nor "raw".
    """
    if singleton not in ("zero", "raw"):
        raise ValueError(f"singleton is 'zero' or 'raw', got {singleton!r}")
    alone = group_size(groups) == 1
    lone = (
        torch.zeros_like(advantages)
        if singleton == "zero"
        else floating(rewards).to(advantages.dtype)
    )
    return torch.where(alone, lone, advantages)
