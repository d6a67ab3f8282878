"""Advantages of methods known from an abstract or from memory only."""

from __future__ import annotations

import torch
from torch import Tensor

from ..advantages.group import grpo_advantages
from ..groups import floating, group_statistics, group_sum


def gigpo_advantages_as_read(
    rewards: Tensor,
    groups: Tensor,
    step_returns: Tensor,
    step_groups: Tensor,
    steps: Tensor,
    *,
    omega: float,
    ddof: int,
    eps: float,
) -> Tensor:
    """GiGPO: the episode's advantage in the group plus the step's advantage among steps from the
    same state.

    `A_s = GRPO(r)_{episode(s)} + omega GRPO(G)_s`, the second over steps that share an anchor
    state.

    Args:
        rewards: [N], one an episode.
        groups: [N] int.
        step_returns: [S], discounted return from each step.
        step_groups: [S] int, equal for steps of a group's episodes that start in the identical
            state.
        steps: [S] int, the episode (0..N-1) of each step.
        omega: weight of the step's part (1 in the paper, from memory).
        ddof: in both standard deviations; not verified.
        eps: added to both; not verified.

    Returns:
        [S], one per step. A step that is alone in its state has no step part.

    Source: arXiv 2505.10978, from memory.

    >>> r, g, steps = torch.tensor([1.0, 0.0]), torch.tensor([0, 0]), torch.tensor([0, 1])
    >>> gigpo_advantages_as_read(r, g, r, g, steps, omega=1.0, ddof=1, eps=0.0)
    tensor([ 1.4142, -1.4142])
    """
    episode = grpo_advantages(rewards, groups, ddof=ddof, eps=eps)[steps]
    return episode + omega * grpo_advantages(step_returns, step_groups, ddof=ddof, eps=eps)


def oblr_po_advantages_as_read(rewards: Tensor, groups: Tensor, squared_norms: Tensor) -> Tensor:
    """OBLR-PO: the baseline that minimises the variance of the gradient:
    `r_i - sum g_j^2 r_j / sum g_j^2`.

    Args:
        rewards: [B].
        groups: [B] int.
        squared_norms: [B], of each sequence's score; where all are 0, the plain mean is taken.

    Returns:
        [B]. The method's learning-rate schedule is not here.

    Source: as we read the abstract.

    >>> r, g = torch.tensor([1.0, 0.0]), torch.tensor([0, 0])
    >>> oblr_po_advantages_as_read(r, g, torch.tensor([1.0, 3.0]))  # baseline 0.25
    tensor([ 0.7500, -0.2500])
    """
    centred = group_statistics(rewards, groups).centred
    total = group_sum(squared_norms, groups)
    shift = group_sum(squared_norms * centred, groups) / torch.where(total > 0, total, 1.0)
    return centred - torch.where(total > 0, shift, 0.0)


def dapo_direct_targets_as_read(step_values: Tensor) -> Tensor:
    """Direct Advantage Policy Optimization: the change of the critic's accuracy over a step, [...,
    S + 1] to [..., S].

    Not the DAPO of dynamic sampling, which shares the name. See `dapo_direct_loss_as_read`.

    >>> dapo_direct_targets_as_read(torch.tensor([0.25, 0.75]))
    tensor([0.5000])
    """
    return floating(step_values).detach().diff(dim=-1)
