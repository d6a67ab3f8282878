"""How many seeds are enough: AdaStop, a sequential test of all pairs of recipes at one level.

After "AdaStop: adaptive statistical testing for sound comparisons of deep RL agents"
(arXiv 2306.10882). Seeds come in groups; after each group the recipes are compared, and the chance
that any of the comparisons, at any time, calls two equal recipes different is at most `alpha`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
GROUP = 5
"""Seeds of a group."""
FORECASTS, LIKELY = 60, 0.8
"""Futures that are drawn for a forecast, and the share of them that has to be decided."""


@dataclass(frozen=True)
class SeedPlan:
    """How a comparison over seeds is carried out.

    Attributes:
        group: N, seeds of a group.
        most: K, groups at which the comparison ends at the latest.
        alpha: the chance of any wrong difference.
        draws: permutations that are looked at, where there are more.
    """

    group: int = GROUP
    most: int = 5
    alpha: float = 0.05
    draws: int = 10_000


def decide(
    scores: Mapping[str, Sequence[float]], plan: SeedPlan, *, seed: int = 0
) -> dict[tuple[str, str], str]:
    """Return for each pair of recipes whether the first is `larger` or `smaller`, `equal` as far as
    `most` groups of seeds show, or `open`.

    After the k-th group, T(i, j) is the sum over the groups of the difference of means. It is
    compared with its distribution where the seeds of each group are dealt to i and j at random
    (permutations that would have ended the comparison before are left out): pairs are called
    different, the largest |T| first, while the permutations whose largest |T| is beyond make up at
    most k alpha / K together with those of earlier groups.

    Args:
        scores: recipe -> the score of each seed, as many for each; what goes beyond whole groups is
            not used.
        plan: group size, number of groups and level.
        seed: of the permutations, where they are drawn.

    Raises:
        ValueError: a score is not finite.

    >>> decide({"a": [5, 6, 7, 8, 9], "b": [0, 1, 2, 3, 4]}, SeedPlan())
    {('a', 'b'): 'larger'}
    """
    for name, known in scores.items():
        if not np.isfinite(known).all():
            raise ValueError(f"the scores of {name!r} are not all finite: {list(known)!r:.80}")
    pairs = list(itertools.combinations(scores, 2))
    decided = dict.fromkeys(pairs, "open")
    count = min(map(len, scores.values()), default=0) // plan.group
    # Sums of the same scores in another order differ by rounding, and count as equal.
    rounding = 1e-12 * max(
        (float(np.abs(known).max(initial=0.0)) for known in scores.values()), default=0.0
    )
    bounds: list[float] = []
    spent = 0.0
    for k in range(1, min(count, plan.most) + 1):
        active = [pair for pair in pairs if decided[pair] == "open"]
        if not active:
            break
        blocks = {pair: _blocks(scores, pair, plan.group, k) for pair in active}
        splits = _splits(plan, k, seed)
        paths = {pair: _paths(blocks[pair], splits) for pair in active}
        # Permutations that would have ended the comparison before are dealt with already.
        highest = np.max([np.abs(path) for path in paths.values()], axis=0)
        alive = (
            np.all(highest[:, :-1] <= np.array(bounds), axis=1)
            if bounds
            else np.ones(len(highest), bool)
        )
        level = k * plan.alpha / plan.most - spent
        while active:
            top = np.max([np.abs(paths[pair][:, -1]) for pair in active], axis=0)
            bound, added = _bound(top[alive], len(top), level, rounding)
            seen = {pair: float(_statistic(blocks[pair])) for pair in active}
            strongest = max(active, key=lambda pair: abs(seen[pair]))
            if abs(seen[strongest]) <= bound + rounding:
                break
            decided[strongest] = "larger" if seen[strongest] > 0 else "smaller"
            active.remove(strongest)
        bounds.append(bound + rounding)
        spent += added
    if count >= plan.most:
        decided = {
            pair: "equal" if decision == "open" else decision for pair, decision in decided.items()
        }
    return decided


def _blocks(
    scores: Mapping[str, Sequence[float]], pair: tuple[str, str], group: int, k: int
) -> Values:
    """Return the scores [k, 2 N] of both recipes, group by group."""
    first, second = (
        np.asarray(scores[name][: k * group], float).reshape(k, group) for name in pair
    )
    return np.concatenate([first, second], axis=1)


def _statistic(blocks: Values) -> float:
    half = blocks.shape[1] // 2
    return float((blocks[:, :half].mean(1) - blocks[:, half:].mean(1)).sum())


def _splits(plan: SeedPlan, k: int, seed: int) -> NDArray[np.bool_]:
    """Return [P, k, 2 N]: in each permutation and group, who is dealt to the first recipe."""
    size, group = 2 * plan.group, plan.group
    number = math.comb(size, group)
    if number**k <= plan.draws:
        masks = np.zeros((number, size), bool)
        for row, chosen in enumerate(itertools.combinations(range(size), group)):
            masks[row, list(chosen)] = True
        places = np.array(list(itertools.product(range(number), repeat=k)))
        every: NDArray[np.bool_] = masks[places]
        return every
    generator = np.random.default_rng([seed, k])
    order = generator.random((plan.draws, k, size)).argsort(axis=2)
    order[0] = np.arange(size)  # the deal that was seen is one of them
    drawn: NDArray[np.bool_] = order < group
    return drawn


def _paths(blocks: Values, splits: NDArray[np.bool_]) -> Values:
    """Return [P, k]: T after each group, for each permutation."""
    half = blocks.shape[1] // 2
    signed = np.where(splits, blocks[None], -blocks[None]).sum(2) / half
    paths: Values = signed.cumsum(axis=1)
    return paths


def _bound(alive: Values, total: int, level: float, rounding: float) -> tuple[float, float]:
    """Return the smallest |T| beyond which at most `level` of all permutations are, and the share
    of these; values that differ by `rounding` or less are equal.
    """
    values = np.sort(alive)
    beyond = (len(values) - np.searchsorted(values, values + rounding, side="right")) / total
    fitting = np.flatnonzero(beyond <= level + 1e-12)
    if not len(fitting):
        return math.inf, 0.0
    return float(values[fitting[0]]), float(beyond[fitting[0]])


def more_seeds(
    scores: Mapping[str, Sequence[float]], plan: SeedPlan, *, seed: int = 0
) -> dict[tuple[str, str], dict[str, Any]]:
    """Return for each pair the decision, and for an open one how many more seeds are likely to
    decide it.

    The forecast draws futures from the scores that are there, with replacement, and takes the first
    number of groups after which `LIKELY` of them are decided; `more` is None where not even all
    groups would be enough, so that what difference there is stays within the noise.
    """
    decided = decide(scores, plan, seed=seed)
    forecasts: dict[tuple[str, str], dict[str, Any]] = {}
    for pair, decision in decided.items():
        own = {name: scores[name] for name in pair}
        more = _forecast(own, plan, seed) if decision == "open" else 0
        forecasts[pair] = {"decision": decision, "more": more}
    return forecasts


def _forecast(scores: Mapping[str, Sequence[float]], plan: SeedPlan, seed: int) -> int | None:
    have = min(map(len, scores.values()))
    generator = np.random.default_rng(seed)
    quick = SeedPlan(plan.group, plan.most, plan.alpha, draws=min(plan.draws, 1000))
    groups = range(have // plan.group + 1, plan.most + 1)
    ended = dict.fromkeys(groups, 0)
    for future in range(FORECASTS):
        whole = {
            name: [*known[:have], *generator.choice(known, plan.group * plan.most - have)]
            for name, known in scores.items()
        }
        for k in groups:
            part = {name: values[: k * plan.group] for name, values in whole.items()}
            (decision,) = decide(part, quick, seed=future).values()
            if decision in ("larger", "smaller"):
                for later in range(k, plan.most + 1):
                    ended[later] += 1
                break
    enough = [k for k in groups if ended[k] >= LIKELY * FORECASTS]
    return enough[0] * plan.group - have if enough else None
