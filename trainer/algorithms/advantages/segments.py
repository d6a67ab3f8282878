"""Advantages of segments (steps, chunks) from values estimated by sampling: VinePPO and segment
policy optimisation.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..masked import blank


def vine_ppo_advantages(state_values: Tensor) -> Tensor:
    """VinePPO: the change of a Monte-Carlo value over a reasoning step.

    `A_s = V(s + 1) - V(s)`, V being the mean reward of K rollouts from that state (K = 9 in the
    paper) and, at the end, the reward itself; they add up to `r - V(0)`.

    Args:
        state_values: [..., S + 1], values at the S + 1 boundaries of S steps.

    Returns:
        [..., S]. `spo_chain_advantages` lays them on tokens.

    Source: arXiv 2410.01679.

    >>> vine_ppo_advantages(torch.tensor([0.2, 0.6, 0.5, 1.0]))
    tensor([ 0.4000, -0.1000,  0.5000])
    """
    return state_values.detach().diff(dim=-1)


def spo_chain_segments(
    old_logp: Tensor, mask: Tensor, *, interval: int = 5, threshold: float = 0.9
) -> Tensor:
    """SPO-chain: cut a row after every `interval` trained tokens that were sampled with low
    probability.

    Args:
        old_logp: [B, T], of the sampling policy.
        mask: [B, T] in {0, 1}.
        interval: low-probability tokens per segment.
        threshold: probabilities below this are low.

    Returns:
        [B, T] int: the segment (0, 1, ...) of each trained token, -1 elsewhere.

    Source: Segment policy optimization, arXiv 2505.23564.

    >>> old_logp = torch.tensor([[0.5, 0.95, 0.5, 0.5]]).log()
    >>> spo_chain_segments(old_logp, torch.ones(1, 4), interval=2)
    tensor([[0, 0, 0, 1]])
    """
    trained = mask.bool()
    low = trained & (old_logp.detach().exp() < threshold)
    before = low.cumsum(1) - low.long()
    return torch.where(trained, before // interval, torch.full_like(before, -1))


def spo_chain_advantages(boundary_values: Tensor, segments: Tensor, mask: Tensor) -> Tensor:
    """SPO-chain: the change of value over a segment, given to each token inside.

    `A_t = V(end of segment(t)) - V(its start)`.

    Args:
        boundary_values: [B, S + 1], Monte-Carlo values at the segment boundaries; the last is the
            reward.
        segments: [B, T] int, the segment of each token (`spo_chain_segments`), -1 for none.
        mask: [B, T] in {0, 1}.

    Returns:
        [B, T].

    Source: Segment policy optimization, arXiv 2505.23564. Its loss sees only tokens of
    `spo_probability_mask`.

    >>> values, segments = torch.tensor([[0.5, 0.25, 1.0]]), torch.tensor([[0, 0, 1, -1]])
    >>> spo_chain_advantages(values, segments, torch.tensor([[1, 1, 1, 0]]))
    tensor([[-0.2500, -0.2500,  0.7500,  0.0000]])
    """
    steps = vine_ppo_advantages(boundary_values)
    return blank(steps.gather(1, segments.clamp(min=0)), (segments >= 0) & mask.bool())


def spo_probability_mask(old_logp: Tensor, mask: Tensor, *, threshold: float = 0.9) -> Tensor:
    """SPO's probability mask: train only the tokens that were sampled with probability below
    `threshold`.

    Args:
        old_logp: [B, T], of the sampling policy.
        mask: [B, T] in {0, 1}.
        threshold: a token this likely was not a decision.

    Returns:
        [B, T] bool.

    Source: Segment policy optimization, arXiv 2505.23564.

    >>> spo_probability_mask(torch.tensor([[0.95, 0.5]]).log(), torch.ones(1, 2))
    tensor([[False,  True]])
    """
    return mask.bool() & (old_logp.detach().exp() < threshold)
