"""Recipes compared over seeds: held-out scores of the last evaluation, run by run and task by task.

After "Deep Reinforcement Learning at the Edge of the Statistical Precipice" (arXiv 2108.13264): the
interquartile mean of all scores, intervals by a bootstrap that draws runs anew within each task,
the probability that one recipe beats another, and the share of scores above each level.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from itertools import combinations
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from .curves import LEAST, fit_with_interval
from .run import RunReader
from .seeds import GROUP, SeedPlan, more_seeds

Scores = NDArray[np.float64]
"""[runs, tasks]: the score of each run on each task."""
SHOWN = 32
"""Characters of a setting in the name of a recipe."""
DRAWS = 2000
"""Samples of a bootstrap."""
BUDGET = [
    "env",
    "steps",
    "split",
    "rollout.tasks_per_step",
    "rollout.group_size",
    "rollout.max_tokens",
    "rollout.max_turns",
    "rollout.window",
    "eval.split",
    "eval.tasks",
    "eval.samples",
]
"""The settings that compared runs must share: their tasks, their budget, and their evaluation."""


def iqm(scores: Scores) -> float:
    """Return the interquartile mean: of the middle half of all scores.

    >>> iqm(np.array([[0.0, 1.0, 2.0, 9.0]]))  # 0 and 9 are cut off
    1.5
    """
    ordered = np.sort(scores, axis=None)
    cut = len(ordered) // 4
    return float(ordered[cut : len(ordered) - cut].mean())


def improvement(first: Scores, second: Scores) -> float:
    """Return the probability that a run of `first` beats one of `second`, averaged over tasks; an
    equal score counts half (the U statistic of Mann and Whitney over its largest value).

    >>> # 1 > 0, 2 > 1 and 2 > 0; 1 = 1 counts half
    >>> improvement(np.array([[1.0], [2.0]]), np.array([[1.0], [0.0]]))
    0.875
    """
    left, right = first[:, None, :], second[None, :, :]
    return float(((left > right) + 0.5 * (left == right)).mean())


def profile(scores: Scores, levels: Sequence[float]) -> list[float]:
    """Return the share of scores above each level.

    >>> profile(np.array([[0.0, 0.5], [1.0, 1.0]]), [0.0, 0.5, 1.0])
    [0.75, 0.5, 0.0]
    """
    return [float((scores > level).mean()) for level in levels]


def bootstrap(
    samples: Sequence[Scores], statistic: Callable[..., float], *, draws: int = DRAWS, seed: int = 0
) -> tuple[float, float]:
    """Return the 95 % interval of a statistic of one or more recipes, by percentiles.

    Runs are drawn anew within each task (stratified), so that every draw has every task.
    """
    generator = np.random.default_rng(seed)
    values = [statistic(*(_drawn(scores, generator) for scores in samples)) for _ in range(draws)]
    low, high = np.percentile(values, [2.5, 97.5])
    return float(low), float(high)


def _drawn(scores: Scores, generator: np.random.Generator) -> Scores:
    rows = generator.integers(0, scores.shape[0], size=scores.shape)
    drawn: Scores = np.take_along_axis(scores, rows, axis=0)
    return drawn


def compare(
    readers: Sequence[RunReader], *, by: str = "", column: str = "", names: Sequence[str] = ()
) -> dict[str, Any]:
    """Compare runs, grouped into recipes.

    Args:
        readers: the runs.
        by: a setting whose value makes the recipes, such as "recipe" or "trainer.lr"; empty tells
            them apart by every setting but the seed and the places.
        column: a metric whose last value is the score, instead of the held-out episodes.
        names: the recipe of each run, by whoever knows them; empty tells them apart as above.

    Returns:
        `recipes`, `pairs` and `levels`, or `refused`: the reasons why the runs cannot be compared.
    """
    refused = _different_budgets(readers)
    if by and not any(by in reader.flat_settings() for reader in readers):
        refused.append(f"no run has the setting {by!r}; ludus watch RUN --json settings has them")
    scores: dict[str, dict[str, float]] = {}
    for reader in readers:
        scores[reader.name] = _last_of(reader, column) if column else held_out_scores(reader)
        if not scores[reader.name]:
            refused.append(f"{reader.name} has no {column or 'held-out episode with a reward'}")
    tasks = sorted(set.intersection(*(set(judged) for judged in scores.values())))
    for name, judged in scores.items():
        if judged and len(judged) != len(tasks):
            other = len(judged) - len(tasks)
            refused.append(f"{name} was judged on {other} held-out tasks that another run has not")
    if refused:
        return {"refused": sorted(set(refused))}
    groups: dict[str, list[RunReader]] = defaultdict(list)
    for reader, label in zip(readers, names or labels(readers, by), strict=True):
        groups[label].append(reader)
    table: dict[str, Scores] = {
        label: np.array([[scores[run.name][task] for task in tasks] for run in members], float)
        for label, members in groups.items()
    }
    return _compared(groups, table)


def _compared(groups: dict[str, list[RunReader]], table: dict[str, Scores]) -> dict[str, Any]:
    every = np.concatenate([scores.ravel() for scores in table.values()])
    levels = [float(level) for level in np.linspace(every.min(), every.max(), 41)]
    recipes = [
        {
            "recipe": label,
            "runs": [reader.name for reader in groups[label]],
            "scores": [round(float(mean), 6) for mean in scores.mean(1)],
            "mean": float(scores.mean()),
            "iqm": iqm(scores),
            # One run has no spread over seeds: its interval is not known, and not zero.
            "interval": bootstrap([scores], iqm) if len(scores) > 1 else None,
            "profile": profile(scores, levels),
            "curve": (curve := _curve(groups[label])),
            "reach": _reach(curve),
        }
        for label, scores in table.items()
    ]
    seeds = _seeds(table)
    pairs = [
        {
            "first": first,
            "second": second,
            "probability": improvement(table[first], table[second]),
            "interval": bootstrap([table[first], table[second]], improvement)
            if min(len(table[first]), len(table[second])) > 1
            else None,
            **seeds[first, second],
            "enough": _enough(seeds[first, second]),
        }
        for first, second in combinations(table, 2)
    ]
    tasks = next(iter(table.values())).shape[1]
    return {"recipes": recipes, "pairs": pairs, "levels": levels, "tasks": tasks, "refused": []}


def _seeds(table: dict[str, Scores]) -> dict[tuple[str, str], dict[str, Any]]:
    """Return AdaStop's decision on each pair; see `more_seeds`. With fewer seeds than a group of
    five, all there are make a group.
    """
    if len(table) < 2:
        return {}
    means = {label: [float(mean) for mean in scores.mean(1)] for label, scores in table.items()}
    return more_seeds(means, SeedPlan(group=min(GROUP, *map(len, means.values()))))


def _curve(readers: Sequence[RunReader]) -> Any:
    """Return the fitted sigmoid of held-out reward, or of training reward, against steps; None
    where the points are too few or the reward has not grown.
    """
    for name in ("eval/mean", "reward/mean"):
        columns = [reader.columns[name] for reader in readers if name in reader.columns]
        runs = [(list(column.steps), list(column.values)) for column in columns]
        if runs and min(sum(step > 0 for step in steps) for steps, _ in runs) >= LEAST:
            fit = fit_with_interval(runs, draws=60)
            return msgspec.to_builtins(fit) | {"column": name}
    return None


def interval_text(pair: tuple[float, float] | None) -> str:
    """Return an interval as text; None is that of a single seed."""
    return "unknown: one seed" if pair is None else f"{pair[0]:.3f} to {pair[1]:.3f}"


def _reach(curve: dict[str, Any] | None) -> str:
    """Return the reward that a recipe approaches by its fitted sigmoid, as text."""
    if curve is None:
        return "too few points"
    if not curve["bounded"]:
        return "the curve has not bent yet"
    return f"{curve['curve']['top']:.3f} ({interval_text(curve['top'])})"


def _enough(pair: dict[str, Any]) -> str:
    """Return whether the seeds of a pair are enough, and else how many more are needed, as text."""
    decided = {"larger": "the first is better", "smaller": "the second is better"}
    if pair["decision"] != "open":
        return f"enough: {decided.get(pair['decision'], 'no difference')}"
    if pair["more"] is None:
        return "no number up to 25 would tell"
    return f"about {pair['more']} more each"


def held_out_scores(reader: RunReader) -> dict[str, float]:
    """Return the mean reward of each held-out task in the last evaluation."""
    rows = reader.store.rows(
        "SELECT task, AVG(reward) AS mean FROM episodes WHERE reward IS NOT NULL AND "
        "file=(SELECT MAX(file) FROM episodes WHERE file LIKE 'eval-%') GROUP BY task"
    )
    return {row["task"]: row["mean"] for row in rows}


def _last_of(reader: RunReader, column: str) -> dict[str, float]:
    series = reader.columns.get(column)
    return {column: series.values[-1]} if series else {}


def _different_budgets(readers: Sequence[RunReader]) -> list[str]:
    """Return the reasons why runs cannot be compared: settings that are missing or differ from
    those of most runs, and steps that are not made yet.

    All settings that a run of another kind, such as `ludus sft`, does not have are one reason.
    """
    flat = {reader.name: reader.flat_settings() for reader in readers}
    refused: list[str] = []
    known = [name for name in BUDGET if any(name in table for table in flat.values())]
    for run, table in flat.items():
        if absent := [name for name in known if name not in table]:
            refused.append(f"{run} has no {', '.join(absent)}, of which another run has a value")
    for name in known:
        given = {run: table[name] for run, table in flat.items() if name in table}
        values = list(given.values())
        usual = max(set(values), key=lambda value: (values.count(value), str(value)))
        refused += [
            f"{run} has {name} = {value}, the others have {usual}"
            for run, value in given.items()
            if value != usual
        ]
    for reader in readers:
        if reader.steps and reader.step < reader.steps:
            refused.append(f"{reader.name} stands at step {reader.step} of {reader.steps}")
    return refused


def labels(readers: Sequence[RunReader], by: str = "") -> list[str]:
    """Return for each run the name of its recipe: the settings that differ between runs, in few
    characters unless two recipes would have one name.
    """
    short, whole = (_labels(readers, by, is_short=is_short) for is_short in (True, False))
    return short if len({*short}) == len({*whole}) else whole


def _labels(readers: Sequence[RunReader], by: str, *, is_short: bool) -> list[str]:
    label = partial(_setting, is_short=is_short)
    if by:
        return [label(by, reader.flat_settings().get(by)) for reader in readers]
    flat = [reader.recipe_settings() for reader in readers]
    names = sorted({name for table in flat for name in table})
    differing = [name for name in names if len({table.get(name) for table in flat}) > 1]
    return [
        ", ".join(label(name, table.get(name)) for name in differing if name in table)
        or label("recipe", table.get("recipe"))
        for table in flat
    ]


def _setting(name: str, value: str | None, *, is_short: bool) -> str:
    try:
        plain = msgspec.json.decode(value or '""')
    except msgspec.DecodeError:
        plain = value
    if is_short:
        name = name.rpartition(".")[2]
        if isinstance(plain, str) and len(plain) > SHOWN:  # the end of a path tells more
            plain = f"…{plain[-SHOWN:]}"
    return f"{plain}" if name == "recipe" else f"{name} = {plain}"
