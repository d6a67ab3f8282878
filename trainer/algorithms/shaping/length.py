"""Rewards that count tokens. `lengths` [B] are tokens of the response; all return [B], detached."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from ..groups import floating, group_range, group_size, group_statistics, group_std, group_sum


def overlong_penalty_rewards(
    lengths: Tensor, *, max_length: float, buffer: float, factor: float = 1.0, clamp: bool = True
) -> Tensor:
    """DAPO's soft punishment, to be added to the task's reward: 0, then a ramp over the last
    `buffer` tokens, then -1.

    `0` up to `Lmax - buffer`, `(Lmax - buffer - L) / buffer` up to Lmax, `-1` beyond; all times
    `factor`.

    Args:
        lengths: [B].
        max_length: Lmax, tokens.
        buffer: tokens; with 0 there is no ramp.
        factor: the greatest penalty.
        clamp: False lets the ramp go on beyond -1 (verl).

    Source: arXiv 2503.14476, equation 13 (20480 and 4096).

    >>> lengths = torch.tensor([16384, 18432, 20480, 21000])
    >>> overlong_penalty_rewards(lengths, max_length=20480, buffer=4096)
    tensor([ 0.0000, -0.5000, -1.0000, -1.0000], dtype=torch.float64)
    """
    spare = max_length - buffer - floating(lengths)
    ramp = (spare / buffer if buffer > 0 else spare.sign()).clamp(max=0)
    return factor * (ramp.clamp(min=-1) if clamp else ramp)


def dler_truncation_rewards(rewards: Tensor, truncated: Tensor) -> Tensor:
    """DLER: an answer cut by the length limit earns 0; no other length penalty applies.

    `r 1[not truncated]`.

    Args:
        rewards: [B].
        truncated: [B] bool.

    Source: arXiv 2510.15110 (limit 4000 tokens).

    >>> dler_truncation_rewards(torch.tensor([1.0, 1.0]), torch.tensor([True, False]))
    tensor([0., 1.])
    """
    return torch.where(truncated.bool(), 0.0, floating(rewards))


def l1_exact_rewards(
    correct: Tensor, lengths: Tensor, target: Tensor, *, alpha: float = 3e-4
) -> Tensor:
    """L1-Exact: `c - alpha |target - L|`.

    Args:
        correct: [B] in {0, 1}.
        lengths: [B].
        target: [B], the length the prompt asked for.
        alpha: reward per token.

    Source: arXiv 2503.04697, the reward of L1-Exact.

    >>> l1_exact_rewards(torch.tensor([1]), torch.tensor([1200]), torch.tensor([1000]))
    tensor([0.9400], dtype=torch.float64)
    """
    return floating(correct) - alpha * (floating(target) - floating(lengths)).abs()


def l1_max_rewards(
    correct: Tensor,
    lengths: Tensor,
    target: Tensor,
    *,
    alpha: float = 3e-4,
    slope: Literal["paper", "repository"] = "paper",
) -> Tensor:
    """L1-Max: a right answer earns more for every token below the budget.

    `c clip(alpha (target - L) + 0.5, 0, 1)`, or in the authors' repository
    `c max(0, (clip(alpha D, -1, 1) + 1) / 2)`: half the slope.

    Args:
        correct: [B] in {0, 1}.
        lengths: [B].
        target: [B], the budget the prompt named.
        alpha: reward per token.
        slope: "paper" or "repository".

    Source: arXiv 2503.04697, the reward of L1-Max.

    >>> one, length, target = torch.tensor([1]), torch.tensor([1200]), torch.tensor([1000])
    >>> l1_max_rewards(one, length, target)
    tensor([0.4400], dtype=torch.float64)
    >>> l1_max_rewards(one, length, target, slope="repository")
    tensor([0.4700], dtype=torch.float64)
    """
    spare = alpha * (floating(target) - floating(lengths))
    share = (spare + 0.5).clamp(0, 1) if slope == "paper" else (spare.clamp(-1, 1) + 1) / 2
    return floating(correct) * share


def cosine_rewards(
    correct: Tensor,
    lengths: Tensor,
    *,
    max_length: float,
    right: tuple[float, float] = (2.0, 1.0),
    wrong: tuple[float, float] = (-10.0, 0.0),
    exceeded: float = -10.0,
    margin: float = 0.0,
) -> Tensor:
    """Cosine length reward: longer right answers earn less, longer wrong answers lose less.

    `b + (a - b) (1 + cos(pi L / Lmax)) / 2`, (a, b) the reward at lengths 0 and Lmax; `exceeded`
    from `Lmax - margin` on.

    Args:
        correct: [B] in {0, 1}.
        lengths: [B].
        max_length: Lmax, tokens.
        right: (a, b) of a right answer; the authors' run used these, their command line defaults to
            (1, 0).
        wrong: (a, b) of a wrong answer; the command line defaults to (-1, 0).
        exceeded: reward of an answer that reached the limit; the command line defaults to 0.
        margin: tokens below Lmax that count as the limit; 16 in the authors' code.

    Source: Demystifying long chain-of-thought, arXiv 2502.03373.

    >>> lengths, correct = torch.tensor([0, 2000, 2000, 4000]), torch.tensor([1, 1, 0, 1])
    >>> cosine_rewards(correct, lengths, max_length=4000)
    tensor([  2.0000,   1.5000,  -5.0000, -10.0000], dtype=torch.float64)
    """
    wave = (1 + torch.cos(math.pi * floating(lengths) / max_length)) / 2
    earned = torch.where(
        correct.bool(),
        right[1] + (right[0] - right[1]) * wave,
        wrong[1] + (wrong[0] - wrong[1]) * wave,
    )
    return torch.where(lengths + margin >= max_length, exceeded, earned)


def laser_rewards(
    correct: Tensor,
    lengths: Tensor,
    target: Tensor | float,
    *,
    alpha: float = 0.5,
    wrong: float = -0.5,
    no_answer: float = -1.0,
    answered: Tensor | None = None,
) -> Tensor:
    """LASER: a bonus for being right within the target length: `1 + alpha 1[L <= target]`.

    Args:
        correct: [B] in {0, 1}.
        lengths: [B].
        target: a number, or [B] (LASER-D: `laser_d_target` of each prompt's level).
        alpha: the bonus.
        wrong: reward of a wrong answer.
        no_answer: reward of a response without an answer.
        answered: [B] bool; all, when not given.

    Source: arXiv 2505.15612.

    >>> laser_rewards(torch.tensor([1, 1, 0]), torch.tensor([4000, 5000, 100]), 4096)
    tensor([ 1.5000,  1.0000, -0.5000], dtype=torch.float64)
    """
    bonus = alpha * floating(lengths <= target)
    earned = torch.where(correct.bool(), 1 + bonus, wrong)
    return earned if answered is None else torch.where(answered.bool(), earned, no_answer)


def laser_d_level(rewards: Tensor, groups: Tensor) -> Tensor:
    """LASER-D's difficulty of a prompt: `0` easy (accuracy >= 2/3), `1` medium (>= 1/3), `2` hard;
    [B] int.

    Args:
        rewards: [B] in {0, 1}.
        groups: [B] int.

    Source: arXiv 2505.15612.

    >>> laser_d_level(torch.tensor([1, 1, 0, 1, 0, 0]), torch.tensor([0, 0, 0, 1, 1, 1]))
    tensor([0, 0, 0, 1, 1, 1])
    """
    # Counts are compared as integers: an accuracy of 2 / 3 in floating point may miss the boundary.
    right, size = group_sum((rewards > 0).long(), groups), group_size(groups)
    return torch.where(3 * right >= 2 * size, 0, torch.where(3 * right >= size, 1, 2))


def laser_d_target(coverages: Tensor, thresholds: Tensor, *, rollouts: int, level: int) -> float:
    """LASER-D's target length of a level: the least threshold that enough right answers keep to.

    Enough is `int(coverage * k) >= 1` with `k = int(n * 2/3)` for easy and `int(n * 1/3)` for
    medium prompts; a hard prompt needs coverage 1.

    Args:
        coverages: [K], for each threshold the share of right answers that fit.
        thresholds: [K], tokens, ascending.
        rollouts: n, the rollouts per prompt.
        level: 0, 1 or 2 (`laser_d_level`).

    Returns:
        Tokens; the greatest threshold when none is enough. The method estimates it anew every 20
        steps, on 500 samples.

    Source: arXiv 2505.15612, the authors' code.

    >>> thresholds = torch.tensor([1024.0, 2048.0, 4096.0])
    >>> laser_d_target(torch.tensor([0.2, 0.4, 1.0]), thresholds, rollouts=8, level=0)
    1024.0
    """
    shares: list[float] = coverages.double().tolist()
    limits: list[float] = thresholds.double().tolist()
    expected = rollouts * (2 - level) // 3
    for coverage, limit in zip(shares, limits, strict=True):
        # 1e-9, since rounding may put the product slightly below an integer, which `int` cuts off.
        if (level == 2 and coverage >= 1) or (level < 2 and int(coverage * expected + 1e-9) >= 1):
            return limit
    return limits[-1]


def kimi_length_rewards(correct: Tensor, lengths: Tensor, groups: Tensor) -> Tensor:
    """Kimi k1.5's length reward, to be added: `lam = 0.5 - (L - min) / (max - min)`; a wrong answer
    gets `min(0, lam)`.

    Args:
        correct: [B] in {0, 1}.
        lengths: [B].
        groups: [B] int; least and greatest length are over all members, right or wrong.

    Returns:
        [B]; 0 in a group of equal lengths.

    Source: arXiv 2501.12599, section 2.3.3.

    >>> correct, lengths = torch.tensor([1, 0, 1]), torch.tensor([100, 200, 300])
    >>> kimi_length_rewards(correct, lengths, torch.tensor([0, 0, 0]))
    tensor([ 0.5000,  0.0000, -0.5000], dtype=torch.float64)
    """
    size = floating(lengths)
    least, greatest = group_range(size, groups)
    span = greatest - least
    lam = 0.5 - (size - least) / torch.where(span > 0, span, 1.0)
    return torch.where(span > 0, torch.where(correct.bool(), lam, lam.clamp(max=0)), 0.0)


def grpo_lambda_rewards(
    correct: Tensor,
    lengths: Tensor,
    groups: Tensor,
    *,
    alpha: float,
    share: float = 0.2,
    ddof: int = 0,
) -> Tensor:
    """GRPO-lambda: a length penalty in the `ceil(share * G)` most accurate groups only.

    In these groups a right answer earns `1 - alpha sigmoid((L - mean) / std)`, with mean and std
    over the group's right answers; in the other groups it earns 1. A wrong answer earns 0.

    Args:
        correct: [B] in {0, 1}.
        lengths: [B].
        groups: [B] int.
        alpha: the greatest penalty.
        share: the share of the groups that are penalised.
        ddof: 0 or 1 in the standard deviation. Where all right answers are equally long, the
            sigmoid is taken at 0.

    Source: a reading of GRPO-lambda; not the eligibility traces nor the learnable token weights of
    that name.

    >>> correct, lengths = torch.tensor([1, 1]), torch.tensor([100, 300])
    >>> grpo_lambda_rewards(correct, lengths, torch.tensor([0, 0]), alpha=0.2)
    tensor([0.9462, 0.8538], dtype=torch.float64)
    """
    right, size = correct.bool(), floating(lengths)
    accuracy = group_statistics(floating(correct), groups).mean
    # Mean and standard deviation of lengths over the right answers of each row's group.
    weight = right.to(size.dtype)
    count = group_sum(weight, groups)
    mean = group_sum(size * weight, groups) / count.clamp(min=1)
    squares = group_sum((size - mean).square() * weight, groups)
    std = (squares / (count - ddof).clamp(min=1)).sqrt()
    z = torch.where(std > 0, (size - mean) / torch.where(std > 0, std, 1.0), 0.0)
    shortened = torch.where(_top_groups(accuracy, groups, share), 1 - alpha * torch.sigmoid(z), 1.0)
    return torch.where(right, shortened, 0.0)


def curriculum_budget(
    step: int, *, start: float, gamma: float, every: int, least: float = 1.0
) -> float:
    """Train long, think short: the budget after some steps, `max(least, start * gamma^floor(step /
    every))`.

    Args:
        step: the number of the training step.
        start: tokens (256 in the paper's experiments).
        gamma: decay (0.7 in the paper, read off a figure).
        every: steps per decay (100 in the paper).
        least: tokens.

    Source: arXiv 2508.08940.

    >>> curriculum_budget(250, start=256, gamma=0.5, every=100)
    64.0
    """
    return max(least, start * gamma ** (step // every))


def curriculum_length_rewards(lengths: Tensor, *, budget: float) -> Tensor:
    """Train long, think short: a triangle that peaks at the budget, for right and wrong answers
    alike.

    `L / B` up to B, `1 - (L - B) / B` up to 2 B, 0 beyond; weighed against correctness and format
    by the caller.

    Args:
        lengths: [B].
        budget: tokens, of `curriculum_budget`.

    Source: arXiv 2508.08940, section 3.

    >>> curriculum_length_rewards(torch.tensor([64, 128, 192, 256]), budget=128)
    tensor([0.5000, 1.0000, 0.5000, 0.0000], dtype=torch.float64)
    """
    used = floating(lengths) / budget
    return torch.where(used <= 1, used, (2 - used).clamp(min=0))


def dot_truncation_lengths(
    correct: Tensor,
    lengths: Tensor,
    groups: Tensor,
    *,
    deviations: float = 3.0,
    least_cut: float = 32.0,
    ddof: int = 1,
) -> Tensor:
    """DOT: the length to which each row is cut: where a whole group is right, outliers in length
    are cut and scored again.

    `T = floor(mean + deviations * std)`; a row is cut to T when `L - T >= least_cut`.

    Args:
        correct: [B] in {0, 1}.
        lengths: [B].
        groups: [B] int.
        deviations: how many standard deviations above the mean the limit T is.
        least_cut: tokens; a row that exceeds T by less is not cut.
        ddof: 0 or 1 in the standard deviation.

    Returns:
        [B] int: the length to keep, `lengths` where nothing is cut.

    Source: dynamic outlier truncation, the authors' code.

    >>> one, groups = torch.ones(4), torch.zeros(4, dtype=torch.long)
    >>> lengths = torch.tensor([100, 100, 100, 400])
    >>> dot_truncation_lengths(one, lengths, groups, deviations=1)  # mean 175, std 150
    tensor([100, 100, 100, 325])
    """
    size = floating(lengths)
    mean = group_statistics(size, groups).mean
    limit = (mean + deviations * group_std(size, groups, ddof=ddof)).floor()
    solved = group_sum(correct.bool().long(), groups) == group_size(groups)
    cut = solved & (size - limit >= least_cut)
    return torch.where(cut, limit, size).long()


def hapo_history_rewards(
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
        weight: w.

    Returns:
        [B]. Update h after the step (`hapo_history_update`). Not the heterogeneous HAPO of
        `hapo_advantages`.

    Source: HAPO, arXiv 2505.11225: the cosine of the length over the task's shortest right answer.

    >>> correct, lengths = torch.tensor([1, 0]), torch.tensor([200.0, 200.0])
    >>> hapo_history_rewards(correct, lengths, torch.tensor([100.0, 100.0]), weight=0.3)
    tensor([ 0.7000, -0.3000])
    """
    angle = (math.pi * floating(lengths) / (2 * shortest.clamp(min=1))).clamp(max=math.pi)
    f = torch.where(torch.isnan(shortest), 0.0, torch.cos(angle))
    return torch.where(correct.bool(), 1 + weight * f, weight * f.clamp(max=0))


def hapo_history_update(shortest: float, correct: Tensor, lengths: Tensor) -> float:
    """The length of the shortest right answer after a step; NaN before the first right answer.

    >>> hapo_history_update(float("nan"), torch.tensor([1, 0]), torch.tensor([90.0, 10.0]))
    90.0
    """
    seen: list[float] = lengths[correct.bool()].tolist()
    known = [*seen, *([] if math.isnan(shortest) else [shortest])]
    return min(known) if known else math.nan


def palu_budget(
    correct: Tensor, lengths: Tensor, *, target: float, quantile: float, max_length: float
) -> float:
    """PALU: the length budget: a quantile of the right answers' lengths once accuracy meets
    `target`, else no limit.

    >>> lengths = torch.tensor([100.0, 200.0, 300.0])
    >>> palu_budget(torch.ones(3), lengths, target=0.9, quantile=0.5, max_length=1000)
    200.0
    """
    right = correct.bool()
    if not bool(right.any()) or float(right.double().mean()) < target:
        return max_length
    return float(lengths[right].double().quantile(quantile))


def _top_groups(accuracy: Tensor, groups: Tensor, share: float) -> Tensor:
    """Whether a row's group is among the `ceil(share * G)` most accurate; ties go to the lower
    group id.
    """
    ids, index = torch.unique(groups, return_inverse=True)
    group_accuracy = torch.zeros(len(ids), dtype=accuracy.dtype, device=accuracy.device).scatter(
        0, index, accuracy
    )
    count = math.ceil(share * len(ids) - 1e-9)  # rounding must not add a group
    top = torch.zeros(len(ids), dtype=torch.bool, device=accuracy.device)
    top[group_accuracy.argsort(descending=True, stable=True)[:count]] = True
    return top[index]


def concise_r_rewards(
    correct: Tensor, lengths: Tensor, groups: Tensor, *, lam: float, max_length: float
) -> Tensor:
    """ConciseR (L-GRPO): brevity counts only where the whole group is right:
    `1 + lam (1 - L / Lmax)`, else 1 or 0.

    Args:
        correct: [B] in {0, 1}.
        lengths: [B], tokens.
        groups: [B] int.
        lam: the greatest bonus.
        max_length: Lmax, tokens.

    Source: ConciseR, by its description: length is rewarded once all rollouts of a task are right;
    that the bonus is linear is ours.

    >>> correct, lengths = torch.tensor([1.0, 1.0]), torch.tensor([100.0, 400.0])
    >>> concise_r_rewards(correct, lengths, torch.tensor([0, 0]), lam=0.2, max_length=400)
    tensor([1.1500, 1.0000])
    """
    solved = group_sum(correct.bool().long(), groups) == group_size(groups)
    return floating(correct) + torch.where(solved, lam * (1 - floating(lengths) / max_length), 0.0)


def mind_rewards(correct: Tensor, turn_counts: Tensor, *, lam: float) -> Tensor:
    """MinD: fewer turns earn more: `c max(0, 1 - lam (turns - 1))`.

    Args:
        correct: [B] in {0, 1}.
        turn_counts: [B], turns of each rollout.
        lam: what a turn costs.

    Source: MinD, by its description, which prefers right answers in fewer turns; that the price is
    linear is ours.

    >>> mind_rewards(torch.tensor([1.0]), torch.tensor([3]), lam=0.1)
    tensor([0.8000], dtype=torch.float64)
    """
    return floating(correct) * (1 - lam * floating(turn_counts - 1)).clamp(min=0)


def rlsp_rewards(correct: Tensor, lengths: Tensor, *, alpha: float, max_length: float) -> Tensor:
    """RLSP: the outcome plus a bonus for exploring at length, `c + alpha L / Lmax`; alpha goes to 0
    over training.

    Args:
        correct: [B] in {0, 1}.
        lengths: [B], tokens.
        alpha: the greatest bonus; a schedule lets it fall.
        max_length: Lmax, tokens.

    Source: RLSP, by its description: an exploration reward, here of length, apart from the
    outcome's; its scale is ours.

    >>> rlsp_rewards(torch.tensor([1.0]), torch.tensor([50.0]), alpha=0.1, max_length=100)
    tensor([1.0500])
    """
    return floating(correct) + alpha * floating(lengths) / max_length
