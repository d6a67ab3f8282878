"""What the runs say: the table, the test of learning, the picture."""

from __future__ import annotations

import json
import math
import shutil
import statistics
from collections.abc import Sequence
from pathlib import Path

from algorithms_runs import Run

STUDENT_95 = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776}
"""Two-sided 95% quantiles of Student's t, by number of seeds."""
MARK = "<!-- learning table: written by benchmarks/algorithms.py --write-docs -->"
END = "<!-- end of the learning table -->"
EXPECTED = Path(__file__).parents[1] / "docs" / "results" / "learning-curves.json"
"""Every curve of the published runs, so that another run can be held against them."""
HEADER = [
    "recipe",
    "before",
    "after",
    "learned",
    "efficiency",
    "worst fall",
    "updates a step",
    "tokens a rollout",
    "ratio",
    "clipped below",
    "above",
]


def interval(final: Sequence[float], eval_tasks: int) -> float:
    """Half of a 95% interval: over seeds by Student's t; of one seed, over its held-out tasks."""
    if len(final) > 1:
        quantile = STUDENT_95.get(len(final), 1.96)
        return quantile * statistics.stdev(final) / math.sqrt(len(final))
    return 1.96 * math.sqrt(final[0] * (1 - final[0]) / eval_tasks)


def learned(before: Sequence[float], final: Sequence[float], eval_tasks: int) -> bool:
    """Whether every seed ended above where it began by more than two standard errors."""

    def beyond(start: float, end: float) -> bool:
        variance = start * (1 - start) + end * (1 - end)
        return end - start > 2 * math.sqrt(variance / eval_tasks)

    return all(beyond(start, end) for start, end in zip(before, final, strict=True))


def table(runs: Sequence[Run], eval_tasks: int) -> list[list[str]]:
    """One row a recipe, best first within its environment, under a row with its name."""
    done = [run for run in runs if not run.refused]
    rows: list[list[str]] = []
    for environment in sorted({run.environment for run in done}):
        here = [run for run in done if run.environment == environment]
        budget = min(run.tokens[-1] for run in here)
        scored = [
            _cells([run for run in here if run.recipe == recipe], budget, eval_tasks)
            for recipe in sorted({run.recipe for run in here})
        ]
        name = f"_{environment}_, {budget / 1000:.0f}k tokens"
        rows.append([name, *[""] * (len(HEADER) - 1)])
        rows += [cells for _, cells in sorted(scored, key=lambda pair: -pair[0])]
    return rows


def _cells(mine: Sequence[Run], budget: float, eval_tasks: int) -> tuple[float, list[str]]:
    """Mean final accuracy, and the row of a recipe."""
    final = [run.at(budget) for run in mine]
    before = [run.accuracy[0] for run in mine]
    mean = statistics.fmean(final)
    first, last = ([length(run, end) for run in mine] for end in ("first", "last"))
    return mean, [
        mine[0].recipe,
        f"{statistics.fmean(before):.3f}",
        f"{mean:.3f} +- {interval(final, eval_tasks):.3f}",
        "yes" if learned(before, final, eval_tasks) else "NO",
        f"{statistics.fmean(run.efficiency(budget) for run in mine):.3f}",
        f"{max(run.worst_fall() for run in mine):.3f}",
        f"{statistics.fmean(run.updates for run in mine):.1f}",
        f"{statistics.fmean(first):.1f} -> {statistics.fmean(last):.1f}",
        f"{min(r.ratio_min for r in mine):.2f} .. {max(r.ratio_max for r in mine):.2f}",
        f"{statistics.fmean(r.clip_low for r in mine):.1%}",
        f"{statistics.fmean(r.clip_high for r in mine):.1%}",
    ]


def length(run: Run, end: str) -> float:
    """Tokens a rollout in the first step, or over the last three."""
    return run.lengths[0] if end == "first" else statistics.fmean(run.lengths[-3:])


def markdown(runs: Sequence[Run], eval_tasks: int, columns: int = len(HEADER)) -> str:
    """The first columns of the table, and what was not run."""
    rows = [HEADER, ["---"] * len(HEADER), *table(runs, eval_tasks)]
    lines = [" | ".join(cells[:columns]) for cells in rows]
    text = "\n".join(f"| {line} |" for line in lines)
    refused = {run.recipe: run.refused for run in runs if run.refused}
    notes = "\n".join(f"- {name}: not run: {reason}" for name, reason in sorted(refused.items()))
    return f"{text}\n\n{notes}\n" if notes else f"{text}\n"


def as_expected(run: Run) -> str:
    """Whether a run ends above half of what the weakest published seed gained; empty where no
    published run is of the same recipe, environment and number of evaluations.
    """
    published = json.loads(EXPECTED.read_text()) if EXPECTED.exists() else []
    curves = [
        other["accuracy"]
        for other in published
        if (other["recipe"], other["environment"]) == (run.recipe, run.environment)
        and len(other["accuracy"]) == len(run.accuracy)
    ]
    if not curves or run.refused:
        return ""
    least = min(curve[-1] - curve[0] for curve in curves)
    gain = run.accuracy[-1] - run.accuracy[0]
    ends = f"ends at {min(c[-1] for c in curves):.2f} to {max(c[-1] for c in curves):.2f}"
    return f"{'works' if gain > least / 2 else 'BROKEN'}: it {ends} in the published runs"


def publish(text: str, picture: Path, page: Path) -> None:
    """Put the table and its picture into the documentation."""
    before, tail = page.read_text().split(MARK)
    after = tail.split(END)[1]
    page.write_text(f"{before}{MARK}\n\n{text.strip()}\n\n{END}{after}")
    shutil.copy(picture, page.parent / "pictures" / "algorithms-learning.png")


def draw(runs: Sequence[Run], path: Path) -> None:
    """Accuracy over sampled tokens, one panel an environment, one line a recipe (mean of seeds, the
    band from the worst to the best).
    """
    from matplotlib.figure import Figure

    done = [run for run in runs if not run.refused]
    environments = sorted({run.environment for run in done})
    figure = Figure(figsize=(7.5 * len(environments), 5), layout="constrained")
    panels = figure.subplots(1, len(environments), squeeze=False)[0]
    colors = {recipe: place for place, recipe in enumerate(sorted({run.recipe for run in done}))}
    for axes, environment in zip(panels, environments, strict=True):
        here = [run for run in done if run.environment == environment]
        _panel(axes, here, colors)
        axes.set(title=environment, xlabel="sampled tokens", ylabel="greedy accuracy, held out")
        axes.set_ylim(0, 1)
        axes.legend(frameon=False, fontsize=8, ncols=2, loc="lower right")
    figure.savefig(path, dpi=110)


def _panel(axes, here: Sequence[Run], colors: dict[str, int]) -> None:
    from matplotlib import colormaps

    budget = min(run.tokens[-1] for run in here)
    grid = [budget * k / 64 for k in range(65)]
    for recipe in sorted({run.recipe for run in here}):
        curves = [[run.at(x) for x in grid] for run in here if run.recipe == recipe]
        columns = list(zip(*curves, strict=True))
        color = colormaps["tab20"](colors[recipe] % 20)
        axes.plot(grid, [statistics.fmean(c) for c in columns], label=recipe, color=color, lw=1.6)
        low, high = [min(c) for c in columns], [max(c) for c in columns]
        axes.fill_between(grid, low, high, color=color, alpha=0.08)
