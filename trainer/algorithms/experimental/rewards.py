"""Reward shaping known from an abstract or from memory. All return rewards [B] unless stated
otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations, groupby

import torch
from torch import Tensor

from ..groups import floating, group_size, group_sum


def hapo_history_rewards_as_read(
    correct: Tensor, lengths: Tensor, shortest: Tensor, *, weight: float
) -> Tensor:
    """HAPO (history-aware): a reward for being shorter than the shortest right answer so far:
    `1 + w f` for a right answer, `w min(f, 0)` for a wrong one.

    `f = cos(min(pi L / (2 h), pi))`, h the length of the shortest right answer to the problem so
    far: f is positive up to L = h, negative beyond.

    Args:
        correct: [B] in {0, 1}.
        lengths: [B], tokens.
        shortest: [B], h; NaN where no answer was right yet, and then f = 0.
        weight: w; the paper's value is not verified.

    Returns:
        [B]. Update h after the step (`hapo_history_update_as_read`). Not the heterogeneous HAPO of
        `hapo_advantages`.

    Source: from memory.

    >>> correct, lengths = torch.tensor([1, 0]), torch.tensor([200.0, 200.0])
    >>> hapo_history_rewards_as_read(correct, lengths, torch.tensor([100.0, 100.0]), weight=0.3)
    tensor([ 0.7000, -0.3000])
    """
    angle = (math.pi * floating(lengths) / (2 * shortest)).clamp(max=math.pi)
    f = torch.where(torch.isnan(shortest), 0.0, torch.cos(angle))
    return torch.where(correct.bool(), 1 + weight * f, weight * f.clamp(max=0))


def hapo_history_update_as_read(shortest: float, correct: Tensor, lengths: Tensor) -> float:
    """The length of the shortest right answer after a step; NaN before the first right answer.

    >>> hapo_history_update_as_read(float("nan"), torch.tensor([1, 0]), torch.tensor([90.0, 10.0]))
    90.0
    """
    seen: list[float] = lengths[correct.bool()].tolist()
    known = [*seen, *([] if math.isnan(shortest) else [shortest])]
    return min(known) if known else math.nan


def concise_r_rewards_as_read(
    correct: Tensor, lengths: Tensor, groups: Tensor, *, lam: float, max_length: float
) -> Tensor:
    """ConciseR (L-GRPO): brevity counts only where the whole group is right:
    `1 + lam (1 - L / Lmax)`, else 1 or 0.

    >>> correct, lengths = torch.tensor([1.0, 1.0]), torch.tensor([100.0, 400.0])
    >>> concise_r_rewards_as_read(correct, lengths, torch.tensor([0, 0]), lam=0.2, max_length=400)
    tensor([1.1500, 1.0000])
    """
    solved = group_sum(correct.bool().long(), groups) == group_size(groups)
    return floating(correct) + torch.where(solved, lam * (1 - floating(lengths) / max_length), 0.0)


def palu_budget_as_read(
    correct: Tensor, lengths: Tensor, *, target: float, quantile: float, max_length: float
) -> float:
    """PALU: the length budget: a quantile of the right answers' lengths once accuracy meets
    `target`, else no limit.

    >>> lengths = torch.tensor([100.0, 200.0, 300.0])
    >>> palu_budget_as_read(torch.ones(3), lengths, target=0.9, quantile=0.5, max_length=1000)
    200.0
    """
    right = correct.bool()
    if not bool(right.any()) or float(right.double().mean()) < target:
        return max_length
    return float(lengths[right].double().quantile(quantile))


def mind_rewards_as_read(correct: Tensor, turns: Tensor, *, lam: float) -> Tensor:
    """MinD: fewer turns earn more: `c max(0, 1 - lam (turns - 1))`.

    >>> mind_rewards_as_read(torch.tensor([1.0]), torch.tensor([3]), lam=0.1)
    tensor([0.8000], dtype=torch.float64)
    """
    return floating(correct) * (1 - lam * floating(turns - 1)).clamp(min=0)


def rlsp_rewards_as_read(
    correct: Tensor, lengths: Tensor, *, alpha: float, max_length: float
) -> Tensor:
    """RLSP: the outcome plus a bonus for exploring at length, `c + alpha L / Lmax`; alpha goes to 0
    over training.

    >>> rlsp_rewards_as_read(torch.tensor([1.0]), torch.tensor([50.0]), alpha=0.1, max_length=100)
    tensor([1.0500])
    """
    return floating(correct) + alpha * floating(lengths) / max_length


def ssp_proposer_rewards_as_read(solved: Tensor, verified: Tensor) -> Tensor:
    """Search self-play: the proposer earns what the solver loses, `1 - mean(solved)`; 0 for a
    question not verified.

    Args:
        solved: [B, K] in {0, 1}, of the solver's rollouts on each question.
        verified: [B] bool.

    >>> ssp_proposer_rewards_as_read(torch.tensor([[1.0, 0.0, 0.0, 0.0]]), torch.tensor([True]))
    tensor([0.7500])
    """
    return torch.where(verified.bool(), 1 - floating(solved).mean(-1), 0.0)


def urpo_referee_reward_as_read(predicted: Sequence[float], true: Sequence[float]) -> float:
    """URPO: a grader earns the rank agreement with the truth, Kendall's tau (pairs in order minus
    pairs out of it).

    >>> round(urpo_referee_reward_as_read([1, 2, 3], [1, 3, 2]), 6)
    0.333333
    """
    pairs = list(combinations(zip(predicted, true, strict=True), 2))
    agreement = [(a[0] - b[0]) * (a[1] - b[1]) for a, b in pairs]
    return sum((each > 0) - (each < 0) for each in agreement) / len(pairs) if pairs else 0.0


def tp_grpo_thoughts_as_read(labels: Sequence[int]) -> list[int]:
    """TP-GRPO: neighbouring steps with the same label form a thought; the reward of each thought.

    >>> tp_grpo_thoughts_as_read([1, 1, 0])
    [1, 0]
    """
    return [label for label, _ in groupby(labels)]


def rubric_rewards_as_read(judgements: Tensor, weights: Tensor) -> Tensor:
    """DR Tulu: `sum_k w_k J_k`, [B, K] and [K] to [B]; negative weights punish.

    >>> rubric_rewards_as_read(torch.tensor([[1.0, 0.0, 1.0]]), torch.tensor([1.0, 1.0, -1.0]))
    tensor([0.])
    """
    return judgements @ weights
