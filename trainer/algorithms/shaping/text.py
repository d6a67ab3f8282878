"""Rewards computed from the response text: repetition, format, and the policy's probability of the
reference answer.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from itertools import combinations
from typing import Literal

import torch
from torch import Tensor

from ..groups import floating


def repetition_penalty(items: Sequence[Hashable], *, n: int, penalty: float = 1.0) -> float:
    """The share of n-grams that are repeats, as a penalty: `-(1 - unique / total) * penalty`.

    Args:
        items: token ids (TRL) or words (the authors' code).
        n: length of the n-grams.
        penalty: the greatest penalty, positive. The authors punish wrong answers only, TRL all.

    Returns:
        At most 0; 0 for fewer than n items.

    Source: Demystifying long chain-of-thought, arXiv 2502.03373.

    >>> repetition_penalty([5, 5, 5, 5, 5], n=2)
    -0.75

    Raises:
        ValueError: `n` is below 1.
    """
    if n < 1:
        raise ValueError(f"n is at least 1, got {n}")
    grams = [tuple(items[start : start + n]) for start in range(len(items) - n + 1)]
    return (len(set(grams)) / len(grams) - 1) * penalty if grams else 0.0


def repetition_rewards(
    responses: Sequence[Sequence[Hashable]],
    *,
    n: int,
    penalty: float = 1.0,
    punish: Literal["all", "wrong"] = "all",
    correct: Tensor | None = None,
) -> Tensor:
    """`repetition_penalty` of each response, [B], to be added to the reward.

    Args:
        responses: B of them, as token ids (TRL) or words (the authors' code).
        n: length of the n-grams.
        penalty: the greatest penalty, positive.
        punish: "all" responses (TRL), or only "wrong" ones (the authors' code).
        correct: [B] in {0, 1}; needed for "wrong".

    Source: Demystifying long chain-of-thought, arXiv 2502.03373.

    >>> repetition_rewards([[5, 5, 5, 5, 5], [1, 2, 3]], n=2)
    tensor([-0.7500,  0.0000], dtype=torch.float64)

    Raises:
        ValueError: `n` is below 1, `punish` is unknown, or "wrong" without `correct`.
    """
    each = [repetition_penalty(items, n=n, penalty=penalty) for items in responses]
    shares = torch.tensor(each, dtype=torch.float64)
    if punish == "all":
        return shares
    if punish != "wrong" or correct is None:
        raise ValueError(f"punish is 'all', or 'wrong' with correct given, got {punish!r}")
    return torch.where(correct.bool(), 0.0, shares)


def format_reward(text: str, tags: Sequence[str] = ("think", "answer")) -> float:
    """`1` when each tag is opened once and closed once, in this order, else `0`.

    Args:
        text: the text of one response.
        tags: without brackets, in their order.

    Source: the format reward of DeepSeek-R1, arXiv 2501.12948, section 2.2.2, as trainers implement
    it.

    >>> format_reward("<think>a</think> <answer>b</answer>")
    1.0
    >>> format_reward("<answer>b</answer> <think>a</think>")
    0.0
    """
    marks = [mark for tag in tags for mark in (f"<{tag}>", f"</{tag}>")]
    pattern = "|".join(re.escape(mark) for mark in marks)
    return float(re.findall(pattern, text) == marks) if marks else 1.0


def rlpr_rewards(
    answer_probabilities: Tensor,
    prior_probabilities: Tensor,
    answer_mask: Tensor,
    *,
    format_rewards: Tensor | None = None,
    format_weight: float = 0.1,
) -> Tensor:
    """RLPR: the gain in probability of the reference answer due to the rollout.

    `clip(mean_t p(answer_t | rollout) - mean_t p(answer_t | none), 0, 1)`, mixed with the format
    reward as `(1 - w) x + w format`. Means of probabilities, not of their logarithms.

    Args:
        answer_probabilities: [B, A], of the reference answer's tokens after the rollout.
        prior_probabilities: [B, A], without one.
        answer_mask: [B, A] in {0, 1}.
        format_rewards: [B]; no mixing when not given.
        format_weight: w.

    Returns:
        [B]. (The authors' code rounds to bfloat16; this does not.)

    Source: arXiv 2506.18254, whose debiased reward this is; the clip is to [0, 1].

    >>> after, before = torch.tensor([[0.8, 0.6]]), torch.tensor([[0.3, 0.1]])
    >>> rlpr_rewards(after, before, torch.ones(1, 2), format_rewards=torch.ones(1))  # .9 * .5 + .1
    tensor([0.5500])
    """
    count = answer_mask.sum(1).clamp(min=1)
    seen = answer_mask.bool()
    gain = torch.where(seen, answer_probabilities - prior_probabilities, 0.0).sum(1) / count
    score = gain.clamp(0, 1).detach()
    if format_rewards is None:
        return score
    return (1 - format_weight) * score + format_weight * format_rewards


def sar_rewards(
    rewards: Tensor, answer_perplexity: Tensor, conditional_perplexity: Tensor, *, alpha: float
) -> Tensor:
    """SAR: a bonus for answers that hang on the question:
    `r + alpha (ppl(a) - ppl(a | q)) / ppl(a)`.

    Args:
        rewards: [B].
        answer_perplexity: [B], of the answer alone.
        conditional_perplexity: [B], of the answer after the question.
        alpha: weight; 0.2 in a note on the paper.

    Source: a note on the paper (SAR: answers that need their question); no code was read.

    >>> sar_rewards(torch.tensor([1.0]), torch.tensor([4.0]), torch.tensor([3.0]), alpha=0.2)
    tensor([1.0500])
    """
    return rewards + alpha * (answer_perplexity - conditional_perplexity) / answer_perplexity


def urpo_referee_reward(predicted: Sequence[float], true: Sequence[float]) -> float:
    """URPO: a referee earns the rank agreement with the truth, Kendall's tau: pairs in order minus
    pairs out of it, over all pairs.

    Args:
        predicted: the scores that the referee gave.
        true: the true scores, in the same order; ties count 0.

    The verifier `ranking-agreement` has tau-b, in which ties of the truth count for nothing.

    Source: URPO, arXiv 2507.17515, by its description; tau-a of Kendall (1938).

    >>> round(urpo_referee_reward([1, 2, 3], [1, 3, 2]), 6)
    0.333333
    """

    def order(left: float, right: float) -> int:
        return (left > right) - (left < right)

    pairs = list(combinations(zip(predicted, true, strict=True), 2))
    agreement = sum(order(a[0], b[0]) * order(a[1], b[1]) for a, b in pairs)
    return agreement / len(pairs) if pairs else 0.0


def ssp_proposer_rewards(solved: Tensor, verified: Tensor) -> Tensor:
    """Search self-play: the proposer earns what the solver loses, `1 - mean(solved)`; 0 for a
    question not verified.

    Args:
        solved: [B, K] in {0, 1}, of the solver's rollouts on each question; K is at least 1.
        verified: [B] bool.

    Raises:
        ValueError: the solver has no rollout, so that nothing is known of the questions.

    Source: search self-play, by its description: a zero-sum game of proposer and solver.

    >>> ssp_proposer_rewards(torch.tensor([[1.0, 0.0, 0.0, 0.0]]), torch.tensor([True]))
    tensor([0.7500])
    """
    if not solved.shape[-1]:
        raise ValueError(f"solved has no rollout of the solver: its shape is {[*solved.shape]}")
    return torch.where(verified.bool(), 1 - floating(solved).mean(-1), 0.0)
