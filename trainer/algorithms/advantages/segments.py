"""Advantages of segments and turns: from values estimated by sampling (VinePPO, segment policy
optimisation), and from turns of other rollouts (GiGPO, MT-GRPO).
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from ..masked import blank
from .group import dr_grpo_advantages, grpo_advantages


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


def gigpo_advantages(
    token_rewards: Tensor,
    groups: Tensor,
    turns: Tensor,
    anchors: Tensor,
    mask: Tensor,
    *,
    omega: float = 1.0,
    gamma: float = 0.95,
    normalise: bool = True,
    ddof: int = 1,
    eps: float = 1e-6,
) -> Tensor:
    """GiGPO: the episode's advantage in the group plus the turn's advantage among all turns of the
    group that began in the same state.

    `A_k = GRPO(R)_episode + omega GRPO(G_k)_state`, R the sum of all rewards, and the turn's return
    `G_k = r_k + gamma G_(k+1)`. A turn that is alone in its state has no second part.

    Args:
        token_rewards: [B, T], rewards at the tokens that earned them.
        groups: [B] int.
        turns: [B, T] int, the turn of each trained token.
        anchors: [B, T] int, a number for the observation before each turn.
        mask: [B, T] in {0, 1}.
        omega: weight of the second part; 1 in the paper.
        gamma: discount of a turn.
        normalise: divide both parts by their group's standard deviation.
        ddof: 0 or 1 in both.
        eps: added to both.

    Returns:
        [B, T].

    Source: arXiv 2505.10978, equations 3 to 8 and the authors' code. A state group that holds
    several visits of one rollout subtracts a part of its own signal, as published.

    Two rollouts of one turn from the same state, so that both parts are the same:

    >>> r, g = torch.tensor([[1.0], [0.0]]), torch.tensor([0, 0])
    >>> zero, one = torch.zeros(2, 1, dtype=torch.long), torch.ones(2, 1)
    >>> gigpo_advantages(r, g, zero, zero, one, eps=0.0)
    tensor([[ 1.4142],
            [-1.4142]])
    """
    credit = partial(grpo_advantages, ddof=ddof, eps=eps) if normalise else dr_grpo_advantages
    trained, earned = mask.bool(), blank(token_rewards, mask)
    rows, places = trained.nonzero(as_tuple=True)
    most = int(turns[trained].max()) + 1 if len(rows) else 1
    keys, of_token = (rows * most + turns[rows, places]).unique(return_inverse=True)
    returns = torch.zeros(len(keys), dtype=earned.dtype, device=earned.device)
    returns = returns.index_add(0, of_token, earned[rows, places])
    for key in range(len(keys) - 2, -1, -1):  # from the last turn of each row to its first
        if int(keys[key]) // most == int(keys[key + 1]) // most:
            returns[key] += gamma * returns[key + 1]
    first = torch.zeros_like(keys)
    first[of_token] = anchors[rows, places].to(keys.dtype)  # all tokens of a turn have the same
    states = torch.stack([groups[keys // most], first], 1).unique(dim=0, return_inverse=True)[1]
    by_turn = credit(returns, states)
    episode = credit(earned.sum(1), groups)
    advantages = torch.zeros_like(earned)
    advantages[rows, places] = episode[rows] + omega * by_turn[of_token]
    return advantages


def mt_grpo_advantages(
    rewards: Tensor,
    groups: Tensor,
    turn_rewards: Tensor,
    turns: Tensor,
    mask: Tensor,
    *,
    coefficient: float = 1.0,
    ddof: int = 1,
    eps: float = 1e-4,
) -> Tensor:
    """MT-GRPO: the outcome's advantage, and at a turn before the last those of the rewards of this
    and later turns.

    `A_k = GRPO(r_O) + coefficient sum_(j >= k, j < last) GRPO(r_j)`, each over the rollouts of the
    group that had such a turn; r_O is what the turns before the last did not earn.

    Args:
        rewards: [B], of whole rollouts.
        groups: [B] int.
        turn_rewards: [B, T], rewards at the last token of the turn that earned them.
        turns: [B, T] int, the turn of each trained token.
        mask: [B, T] in {0, 1}.
        coefficient: weight of the turns' part.
        ddof: 0 or 1 in the standard deviations.
        eps: added to these.

    Returns:
        [B, T].

    Source: arXiv 2505.11821, whose two turns these are (kind "aae" of the authors' trainer; the
    text has its coefficient on the outcome instead). More turns are ours.

    >>> r, g = torch.tensor([1.0, 0.0]), torch.tensor([0, 0])
    >>> turns, one = torch.tensor([[0, 1], [0, 1]]), torch.ones(2, 2)
    >>> mt_grpo_advantages(r, g, torch.tensor([[1.0, 0.0], [0.0, 0.0]]), turns, one, eps=0.0)
    tensor([[ 0.7071,  0.0000],
            [-0.7071,  0.0000]])
    """
    trained, earned = mask.bool(), blank(turn_rewards, mask)
    last = torch.where(trained, turns, -1).amax(1)
    early = trained & (turns < last.unsqueeze(1))
    outcome = rewards - torch.where(early, earned, 0.0).sum(1)
    advantages = grpo_advantages(outcome, groups, ddof=ddof, eps=eps).unsqueeze(1) * mask
    for turn in range(int(last.max()) if len(last) else 0):
        rows = (last > turn).nonzero().squeeze(1)
        each = torch.where(turns[rows] == turn, earned[rows], 0.0).sum(1)
        part = coefficient * grpo_advantages(each, groups[rows], ddof=ddof, eps=eps)
        reached = trained[rows] & (turns[rows] <= turn)
        advantages[rows] += torch.where(reached, part.unsqueeze(1), 0.0)
    return advantages
