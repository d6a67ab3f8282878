"""Filters of finished groups. Each returns [B] bool (True is kept), with the same value for all
rows of a group.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..groups import first_rows, floating, group_index, group_size, group_statistics, group_std


def dynamic_sampling_mask(
    rewards: Tensor, groups: Tensor, *, keep_singletons: bool = True
) -> Tensor:
    """DAPO's dynamic sampling: keep groups whose rewards differ, `min r < max r`, and generate on
    until the batch is full.

    Args:
        rewards: [B].
        groups: [B] int.
        keep_singletons: whether groups of a single rollout are kept (DAPO's recipe). Other trainers
            drop such groups, since these have nothing to be compared with.

    Returns:
        [B] bool. The caller generates on, within a bound, and cuts the surplus.

    Source: arXiv 2503.14476.

    >>> dynamic_sampling_mask(torch.tensor([1.0, 1.0, 1.0, 0.0]), torch.tensor([0, 0, 1, 1]))
    tensor([False, False,  True,  True])
    """
    varied = ~group_statistics(rewards, groups).constant
    return varied | (group_size(groups) == 1) if keep_singletons else varied


def zero_gradient_mask(rewards: Tensor, groups: Tensor) -> Tensor:
    """Keep groups whose rewards differ, `min r < max r`, without generating more: the batch
    shrinks.

    A group of one is dropped as well, since the gradient is 0.

    Args:
        rewards: [B].
        groups: [B] int.

    Source: open-instruct's zero-gradient filtering (OLMo 3).

    >>> zero_gradient_mask(torch.tensor([1.0, 1.0, 1.0, 0.0, 1.0]), torch.tensor([0, 0, 1, 1, 2]))
    tensor([False, False,  True,  True, False])
    """
    return dynamic_sampling_mask(rewards, groups, keep_singletons=False)


def difficulty_band_mask(
    rewards: Tensor, groups: Tensor, *, low: float = 0.1, high: float = 0.95
) -> Tensor:
    """Keep groups that are neither too hard nor too easy: `low < mean < high`.

    Args:
        rewards: [B] in [0, 1].
        groups: [B] int.
        low: excluded.
        high: excluded.

    Source: ROLL's difficulty mask.

    >>> difficulty_band_mask(torch.tensor([1.0, 1.0, 1.0, 0.0]), torch.tensor([0, 0, 1, 1]))
    tensor([False, False,  True,  True])
    """
    mean = group_statistics(rewards, groups).mean
    return (mean > low) & (mean < high)


def no_positive_resampling_mask(pass_rates: Tensor, *, threshold: float = 0.9) -> Tensor:
    """Prompts the policy has all but solved leave the pool for good: keep `pass rate < threshold`.

    Args:
        pass_rates: [N], one per prompt; NaN (never tried) is kept.
        threshold: prompts with this pass rate or a higher one are dropped.

    Returns:
        [N] bool.

    Source: ScaleRL, arXiv 2510.13786; open-instruct `no_resampling_pass_rate`.

    >>> no_positive_resampling_mask(torch.tensor([0.5, 0.9, float("nan")]))
    tensor([ True, False,  True])
    """
    return ~(pass_rates >= threshold)


def active_sampling_mask(rewards: Tensor, groups: Tensor, *, wanted: int) -> Tensor:
    """OLMo 3's active sampling: of groups in order of finishing, the first `wanted` with
    different rewards.

    Args:
        rewards: [B], of finished groups, a group's rows together, in order of finishing.
        groups: [B] int.
        wanted: groups per batch; fewer are marked while there are not enough, and the caller keeps
            pulling.

    Returns:
        [B] bool. A dropped group does not count towards `wanted`.

    Source: open-instruct, OLMo 3.

    >>> rewards = torch.tensor([1.0, 1.0, 1.0, 0.0, 0.0, 1.0])
    >>> groups = torch.tensor([5, 5, 2, 2, 9, 9])
    >>> active_sampling_mask(rewards, groups, wanted=1)
    tensor([False, False,  True,  True, False, False])
    """
    usable = zero_gradient_mask(rewards, groups)
    group_is_usable = usable[first_rows(groups)]
    index, count = group_index(groups), len(group_is_usable)
    # Groups are numbered by id, and have to be counted in order of finishing. `arrival` is each
    # group's place in that order; its `argsort` is the inverse, the group at each place.
    arrival = torch.zeros(count, dtype=torch.long, device=groups.device)
    arrival[first_rows(groups).argsort()] = torch.arange(count, device=groups.device)
    usable_so_far = group_is_usable[arrival.argsort()].cumsum(0)[arrival][index]
    return usable & (usable_so_far <= wanted)


def reward_spread_mask(rewards: Tensor, groups: Tensor, *, threshold: float, ddof: int) -> Tensor:
    """ReST-GRPO's filter: keep groups whose rewards have at least this standard deviation:
    `std_g >= threshold`.

    Args:
        rewards: [B].
        groups: [B] int.
        threshold: the least standard deviation, in units of reward.
        ddof: 0 or 1.

    Source: ReST-RL's GRPO, from its abstract; the paper's threshold is not known here.

    >>> reward_spread_mask(torch.tensor([1.0, 0.0]), torch.tensor([0, 0]), threshold=0.4, ddof=0)
    tensor([True, True])
    """
    return group_std(floating(rewards), groups, ddof=ddof) >= threshold
