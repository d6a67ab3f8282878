"""Selection of prompts and rollouts that are worth a gradient: filters, selections, budgets and
curricula.

Filters of finished groups return [B] bool (True is kept), with the same value for all rows of a
group.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from .groups import first_rows, floating, group_index, group_size, group_statistics, group_std


def dars_extra_rollouts(
    accuracy: Tensor,
    *,
    rollouts: int = 8,
    max_rollouts: int = 32,
    schedule: Literal["equal_treatment", "hardness_weighted"] = "equal_treatment",
    spread: Literal["variance", "std"] = "variance",
) -> Tensor:
    """DARS: more rollouts for hard prompts, whose groups weigh little in GRPO.

    With u the accuracy (0 counts as 0.5 / N), `S = 2 u (1 - u)` and its peak `P = 1 / 2`
    ("variance"), or `S = 2 sqrt(u (1 - u))` and `P = 1` ("std"): equal treatment
    `ceil((P N - N S) / S)`, hardness weighted `ceil((2 (1 - u) P N - N S) / S)`, none for
    u >= 1/2, at most `max_rollouts - N`.

    Args:
        accuracy: [P], share right among the first N rollouts of each prompt.
        rollouts: N, already made.
        max_rollouts: the most rollouts per prompt, the first N included.
        schedule: which formula.
        spread: what the weight S of a group in GRPO's gradient is measured by.

    Returns:
        [P] int.

    Source: arXiv 2508.13755; the authors' ray_dars_trainer.py, schedule_ET and schedule_HW.

    >>> u = torch.tensor([0.0, 0.125, 0.25, 0.5])
    >>> dars_extra_rollouts(u)
    tensor([24, 11,  3,  0])
    >>> dars_extra_rollouts(u, schedule="hardness_weighted")
    tensor([24, 24,  8,  0])
    >>> dars_extra_rollouts(u, spread="std")
    tensor([9, 5, 2, 0])
    """
    u = torch.where(accuracy <= 0, 0.5 / rollouts, accuracy.double())
    variance = u * (1 - u)
    weight = 2 * variance if spread == "variance" else 2 * variance.sqrt()
    peak = rollouts * (0.5 if spread == "variance" else 1.0)
    target = peak if schedule == "equal_treatment" else 2 * (1 - u) * peak
    extra = (target - rollouts * weight) / torch.where(weight > 0, weight, 1.0)
    # Rounding may put the quotient slightly above an integer, and `ceil` would add a rollout.
    counted = torch.ceil(extra - 1e-9).clamp(min=0, max=max_rollouts - rollouts)
    return torch.where(u >= 0.5, 0, counted).long()


def prioritised_sample(
    weights: Tensor, count: int, *, generator: torch.Generator | None = None
) -> Tensor:
    """Draw `count` prompts without replacement, with probabilities proportional to `weights`.

    Args:
        weights: [N], not negative; of `single_stream_spo_sampling_weights`, for instance.
        count: at most the number of positive weights.
        generator: source of randomness.

    Returns:
        [count] int, indices.

    Source: single-stream SPO's sampler, arXiv 2509.13232.

    >>> prioritised_sample(torch.tensor([0.0, 1.0, 0.0]), 1)
    tensor([1])

    Raises:
        ValueError: fewer prompts have a positive weight than are asked for.
    """
    possible = int((weights > 0).sum())
    if count > possible:
        raise ValueError(f"{count} prompts asked for, but only {possible} have a positive weight")
    return torch.multinomial(weights, count, replacement=False, generator=generator)


def aepo_temperature(
    entropy: float, *, target: float, high: float = 1.2, low: float = 0.8
) -> float:
    """AEPO's controller: sample hotter when the batch entropy is at or below target, else cooler.

    `high if H <= target else low`, scalars. Right answers drawn at this temperature join the batch
    with advantage 1.

    Args:
        entropy: the mean entropy of the batch, in nats per token.
        target: nats per token.
        high: temperature that raises entropy.
        low: temperature that lowers it.

    Source: arbitrary entropy policy optimization, the authors' code.

    >>> aepo_temperature(0.3, target=0.5)
    1.2
    """
    return high if entropy <= target else low


def adaptive_pool_size(target: int, valid_ratio: float, *, max_groups: int) -> int:
    """Dynamic sampling's next pool: `ceil(target / valid_ratio)`, at most `max_groups`.

    Args:
        target: usable groups wanted.
        valid_ratio: running share of generated groups that were usable.
        max_groups: the largest pool.

    Source: CodeV-R1's adaptive DAPO.

    >>> adaptive_pool_size(128, 0.4, max_groups=1000)
    320
    """
    # Rounding may put the quotient slightly above an integer, and `ceil` would add a group.
    return (
        max_groups if valid_ratio <= 0 else min(max_groups, math.ceil(target / valid_ratio - 1e-9))
    )


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

    Source: arXiv 2503.14476, equation 11.

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

    Source: ScaleRL, arXiv 2510.13786, section 4; open-instruct `no_resampling_pass_rate`.

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


def roc_penalties(
    tool_calls: Tensor, tool_errors: Tensor, answers: Tensor, turns: Tensor, malformed: Tensor
) -> Tensor:
    """Untidiness of a rollout: the share of failed tool calls plus a format penalty, [B].

    `errors / calls` (0.5 without a call) `+ min((answers - 1) / turns, 1)` (1 when malformed).

    Args:
        tool_calls: [B] int.
        tool_errors: [B] int.
        answers: [B] int, answer blocks written; one is right.
        turns: [B] int.
        malformed: [B] bool.

    Source: rStar2-Agent, arXiv 2508.20722, the authors' code.

    >>> two, yes = torch.tensor([2, 0]), torch.tensor([False, True])
    >>> roc_penalties(two, torch.tensor([1, 0]), torch.tensor([3, 1]), torch.tensor([4, 1]), yes)
    tensor([1.0000, 1.5000], dtype=torch.float64)
    """
    errors = torch.where(tool_calls > 0, floating(tool_errors) / tool_calls.clamp(min=1), 0.5)
    form = (floating(answers - 1) / turns.clamp(min=1)).clamp(0, 1)
    return errors + torch.where(malformed.bool(), 1.0, form)


def roc_selection_mask(
    rewards: Tensor,
    penalties: Tensor,
    *,
    keep: int,
    least: int = 1,
    generator: torch.Generator | None = None,
) -> Tensor:
    """GRPO-RoC's choice within an oversampled group: failures uniformly, successes by lowest
    penalty.

    Both kinds keep their share of the group, `round(n * keep / N)`, and at least `least` of each
    kind present; rounding never makes the total differ from `keep` (in the authors' code it can, by
    one).

    Args:
        rewards: [N] of one group; above 0 is a success.
        penalties: [N], of `roc_penalties`.
        keep: rollouts to keep.
        least: the fewest rollouts to keep of each kind that occurs.
        generator: draws among the failures.

    Returns:
        [N] bool with exactly `min(keep, N)` True.

    Source: rStar2-Agent, arXiv 2508.20722.

    >>> rewards, penalties = torch.tensor([1.0, 1.0, 1.0, 0.0]), torch.tensor([0.9, 0.1, 0.5, 0.0])
    >>> roc_selection_mask(rewards, penalties, keep=2)
    tensor([False,  True, False,  True])
    """
    keep = min(keep, len(rewards))
    right = (rewards > 0).nonzero().flatten()
    wrong = (rewards <= 0).nonzero().flatten()
    n_right = _share(len(right), len(wrong), keep, least)
    best = right[penalties[right].argsort(stable=True)[:n_right]]
    drawn = wrong[torch.randperm(len(wrong), generator=generator)[: keep - n_right]]
    kept = torch.zeros(len(rewards), dtype=torch.bool, device=rewards.device)
    kept[torch.cat([best, drawn])] = True
    return kept


def pcl_mask(success: Tensor, *, keep: int) -> Tensor:
    """PCL: of a large pool, the `keep` prompts whose predicted success is nearest to 1/2.

    Args:
        success: [N] in [0, 1], predicted: by a value model, or from a task's past.
        keep: prompts; all, when the pool is smaller.

    Source: PCL, by its abstract: prompts of intermediate difficulty; the distance to 1/2 is ours.

    >>> pcl_mask(torch.tensor([0.1, 0.45, 0.9, 0.6]), keep=2)
    tensor([False,  True, False,  True])
    """
    kept = torch.zeros_like(success, dtype=torch.bool)
    kept[(success - 0.5).abs().argsort(stable=True)[:keep]] = True
    return kept


def seele_hint_fit(
    points: Sequence[tuple[float, float, int]], *, prior: float = 4.0
) -> tuple[float, float]:
    """SEELE's item response: the logistic curve `p = sigmoid(a + b h)` of success over the share h
    of a hint.

    The likelihood of the points, with a Gaussian around (a, b) = (-2, 4) that weighs `prior`
    squares; that prior, at which half of a solution gives half of the rollouts, is ours.

    Args:
        points: (share of the solution, share right, rollouts) of a task's rounds.
        prior: weight of the prior; above 0, so that a single point has a fit.

    Returns:
        (a, b).

    Source: SEELE, arXiv 2509.06923, by its abstract, which fits a model of item responses.

    >>> a, b = seele_hint_fit([(0.5, 0.0, 8)])
    >>> round(seele_hint_share(a, b), 2)  # nothing was right at 0.5: give more away
    0.71
    """
    theta = torch.tensor([-2.0, 4.0], dtype=torch.float64)
    centre = theta.clone()
    shares = torch.tensor([share for share, _, _ in points], dtype=torch.float64)
    rates = torch.tensor([rate for _, rate, _ in points], dtype=torch.float64)
    counts = torch.tensor([float(count) for _, _, count in points], dtype=torch.float64)
    design = torch.stack([torch.ones_like(shares), shares], dim=1)
    for _ in range(50):  # Newton's method; the objective is strictly concave
        success = torch.sigmoid(design @ theta)
        gradient = design.T @ (counts * (rates - success)) - prior * (theta - centre)
        weight = counts * success * (1 - success)
        curvature = design.T @ (design * weight.unsqueeze(1)) + prior * torch.eye(2).double()
        step = torch.linalg.solve(curvature, gradient)
        theta = theta + step * min(1.0, 4.0 / max(float(step.norm()), 1e-12))
    return float(theta[0]), float(theta[1])


def seele_hint_share(intercept: float, slope: float) -> float:
    """SEELE: the share of a solution to give away so that half the rollouts succeed: `-a / b` of
    `sigmoid(a + b h)`.

    Args:
        intercept: a of the fit.
        slope: b; when hints do not help (b <= 0), everything is given away.

    Source: SEELE, arXiv 2509.06923, by its abstract, which fits a model of item responses.

    >>> seele_hint_share(-2.0, 4.0)
    0.5
    """
    return 1.0 if slope <= 0 else min(max(-intercept / slope, 0.0), 1.0)


def _share(right: int, wrong: int, keep: int, least: int) -> int:
    """Return how many kept rollouts are right, limited by the supply of both kinds."""
    wanted = round(right * keep / max(right + wrong, 1))
    floor = max(keep - wrong, min(least, right, keep))
    ceiling = min(right, keep - min(least, wrong, keep)) if keep > 1 else min(right, keep)
    return min(max(wanted, floor), max(ceiling, keep - wrong))
