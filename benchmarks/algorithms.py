"""Does every recipe learn, and what do the differences come to? A table and a picture.

    python benchmarks/algorithms.py --quick      # one seed, fewer steps
    python benchmarks/algorithms.py              # three seeds

Each recipe is trained on the environment its TOML names. One model of about 150 thousand parameters
is warmed up for each environment and seed, on demonstrations that mistake the first operator seven
times out of ten; every recipe starts from that checkpoint. A step samples 128 rollouts and makes
four updates on them, so that ratios leave 1 and surrogates differ.

Runs are compared at equal sampled tokens: accuracy is read off each curve of greedy evaluations on
held-out tasks where the run that sampled least in that environment ended.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import shutil
import statistics
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

from ludus.errors import LudusError

if TYPE_CHECKING:
    from ludus.trainer.config import TrainConfig

ROLLOUTS = 128
UPDATES = 4
SHAPE = {"hidden": 64, "heads": 4, "layers": 2, "max_length": 256}
FAULT = "demo_fault=wrong-operator&demo_fault_rate=0.7"
STUDENT_95 = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776}
"""Two-sided 95% quantiles of Student's t, by number of seeds."""


@dataclass(frozen=True)
class Plan:
    """What one invocation runs."""

    out: Path
    seeds: int
    steps: int
    warm_steps: int
    eval_tasks: int
    eval_every: int
    lr: float
    max_tokens: int = 40


@dataclass
class Run:
    """One recipe, one seed."""

    recipe: str
    environment: str
    seed: int
    tokens: list[float] = field(default_factory=list)
    """Sampled so far, at each evaluation."""
    accuracy: list[float] = field(default_factory=list)
    ratio_min: float = 1.0
    ratio_max: float = 1.0
    clip_low: float = 0.0
    """Share of tokens stopped below, mean over steps."""
    clip_high: float = 0.0
    seconds: float = 0.0
    refused: str = ""
    """Why it could not be run."""

    def at(self, tokens: float) -> float:
        """Accuracy where this many tokens had been sampled, between evaluations a straight line."""
        for (t0, t1), (a0, a1) in zip(pairwise(self.tokens), pairwise(self.accuracy), strict=True):
            if t0 <= tokens <= t1:
                return a0 + (a1 - a0) * (tokens - t0) / (t1 - t0)
        return self.accuracy[-1]

    def efficiency(self, budget: float) -> float:
        """Mean accuracy over the budget: the area under the curve, 1 at most."""
        points = 64
        return statistics.fmean(self.at(budget * k / points) for k in range(points + 1))

    def worst_fall(self) -> float:
        """The greatest fall from an evaluation to a later one."""
        best, fall = 0.0, 0.0
        for accuracy in self.accuracy:
            best = max(best, accuracy)
            fall = max(fall, best - accuracy)
        return fall


def warm_start(plan: Plan, environment: str, seed: int) -> Path:
    """The checkpoint every recipe starts from in this environment with this seed."""
    from ludus.envs import make_async
    from ludus.trainer.config import ModelConfig, RunConfig, SFTConfig, TrainerConfig
    from ludus.trainer.sft import run_sft
    from ludus.trainer.tiny import briefing_phrases, write_tiny_policy
    from ludus.wire.arguments import parse_served

    _one_thread()
    folder = _folder(plan, environment, seed) / "warm"
    name, arguments = parse_served(environment)
    phrases = briefing_phrases(make_async(name, **arguments).env.briefing())
    model = write_tiny_policy(folder / "model", phrases=phrases, seed=seed, **SHAPE)
    config = SFTConfig(
        env=f"{environment}{'&' if '?' in environment else '?'}{FAULT}",
        steps=plan.warm_steps,
        batch_size=32,
        seed=seed,
        model=ModelConfig(path=str(model)),
        trainer=TrainerConfig(lr=2e-3, warmup_steps=10),
        run=RunConfig(folder=str(folder / "run"), tensorboard=False),
    )
    return asyncio.run(run_sft(config))


def train_recipe(plan: Plan, recipe: str, environment: str, seed: int, start: Path) -> Run:
    """Train once and read the curve off the run's own log."""
    from ludus.trainer.train import train

    _one_thread()
    run = Run(recipe, environment, seed)
    folder = _folder(plan, environment, seed) / recipe
    shutil.rmtree(folder, ignore_errors=True)
    began = time.perf_counter()
    try:
        asyncio.run(train(_settings(plan, recipe, environment, seed, start, folder)))
    except LudusError as error:
        run.refused = str(error)
        return run
    run.seconds = time.perf_counter() - began
    _read(run, folder / "metrics.jsonl")
    return run


def _settings(
    plan: Plan, recipe: str, environment: str, seed: int, start: Path, folder: Path
) -> TrainConfig:
    from ludus.trainer.config import (
        EvalConfig,
        ModelConfig,
        RolloutConfig,
        RunConfig,
        TrainConfig,
        TrainerConfig,
    )
    from ludus.trainer.recipes import load_recipe

    sampling = load_recipe(recipe).sampling
    return TrainConfig(
        env=environment,
        recipe=recipe,
        steps=plan.steps,
        seed=seed,
        model=ModelConfig(path=str(start), device="cpu"),
        rollout=RolloutConfig(
            tasks_per_step=ROLLOUTS // sampling.group_size,
            group_size=sampling.group_size,
            max_tokens=plan.max_tokens,
            temperature=sampling.temperature,
        ),
        trainer=TrainerConfig(lr=plan.lr, updates_per_step=UPDATES),
        eval=EvalConfig(tasks=plan.eval_tasks, every=plan.eval_every),
        run=RunConfig(folder=str(folder), tensorboard=False, episodes_every=0, save_every=0),
    )


def _read(run: Run, log: Path) -> None:
    tokens, clips = 0.0, []
    for line in log.read_text().splitlines():
        row = json.loads(line)
        if "eval/mean" in row:
            run.tokens.append(tokens)
            run.accuracy.append(row["eval/mean"])
            continue
        tokens += row["episode/tokens"] * ROLLOUTS
        if "update/ratio_max" in row:
            run.ratio_min = min(run.ratio_min, row["update/ratio_min"])
            run.ratio_max = max(run.ratio_max, row["update/ratio_max"])
            clips.append((row["update/clip_low"], row["update/clip_high"]))
    if clips:
        run.clip_low, run.clip_high = (statistics.fmean(side) for side in zip(*clips, strict=True))


def table(runs: Sequence[Run], eval_tasks: int) -> list[list[str]]:
    """One row a recipe, best first within its environment."""
    rows: list[tuple[str, float, list[str]]] = []
    done = [run for run in runs if not run.refused]
    for environment in sorted({run.environment for run in done}):
        here = [run for run in done if run.environment == environment]
        budget = min(run.tokens[-1] for run in here)
        for recipe in sorted({run.recipe for run in here}):
            mine = [run for run in here if run.recipe == recipe]
            final = [run.at(budget) for run in mine]
            before = [run.accuracy[0] for run in mine]
            mean, margin = statistics.fmean(final), interval(final, eval_tasks)
            cells = [
                recipe,
                f"{statistics.fmean(before):.3f}",
                f"{mean:.3f} +- {margin:.3f}",
                "yes" if learned(before, final, eval_tasks) else "NO",
                f"{statistics.fmean(run.efficiency(budget) for run in mine):.3f}",
                f"{max(run.worst_fall() for run in mine):.3f}",
                f"{min(r.ratio_min for r in mine):.2f} .. {max(r.ratio_max for r in mine):.2f}",
                f"{statistics.fmean(r.clip_low for r in mine):.1%}",
                f"{statistics.fmean(r.clip_high for r in mine):.1%}",
                f"{budget / 1000:.0f}k",
                f"{statistics.fmean(run.seconds for run in mine):.0f}",
            ]
            rows.append((environment, -mean, cells))
    rows.sort(key=lambda row: row[:2])
    made: list[list[str]] = []
    for environment in dict.fromkeys(row[0] for row in rows):
        made.append([f"_{environment}_", *[""] * (len(HEADER) - 1)])
        made += [cells for where, _, cells in rows if where == environment]
    return made


HEADER = [
    "recipe",
    "before",
    "after",
    "learned",
    "efficiency",
    "worst fall",
    "ratio",
    "clipped below",
    "above",
    "tokens",
    "s a run",
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


def draw(runs: Sequence[Run], path: Path) -> None:
    """Accuracy over sampled tokens, one panel an environment, one line a recipe (mean of seeds)."""
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    done = [run for run in runs if not run.refused]
    environments = sorted({run.environment for run in done})
    figure = Figure(figsize=(7.5 * len(environments), 5), layout="constrained")
    panels = figure.subplots(1, len(environments), squeeze=False)[0]
    for axes, environment in zip(panels, environments, strict=True):
        here = [run for run in done if run.environment == environment]
        budget = min(run.tokens[-1] for run in here)
        grid = [budget * k / 64 for k in range(65)]
        for place, recipe in enumerate(sorted({run.recipe for run in here})):
            curves = [[run.at(x) for x in grid] for run in here if run.recipe == recipe]
            columns = list(zip(*curves, strict=True))
            color = colormaps["tab20"](place % 20)
            mean = [statistics.fmean(column) for column in columns]
            axes.plot(grid, mean, label=recipe, color=color, lw=1.6)
            low, high = [min(c) for c in columns], [max(c) for c in columns]
            axes.fill_between(grid, low, high, color=color, alpha=0.08)
        axes.set(title=environment, xlabel="sampled tokens", ylabel="greedy accuracy, held out")
        axes.set_ylim(0, 1)
        axes.legend(frameon=False, fontsize=8, ncols=2, loc="lower right")
    figure.savefig(path, dpi=110)


def markdown(runs: Sequence[Run], plan: Plan) -> str:
    """The table, and what was not run."""
    lines = [
        " | ".join(cells)
        for cells in [HEADER, ["---"] * len(HEADER), *table(runs, plan.eval_tasks)]
    ]
    text = "\n".join(f"| {line} |" for line in lines)
    refused = {run.recipe: run.refused for run in runs if run.refused}
    notes = "\n".join(f"- {name}: not run: {reason}" for name, reason in sorted(refused.items()))
    return f"{text}\n\n{notes}\n" if notes else f"{text}\n"


def run_all(plan: Plan, recipes: Sequence[str], jobs: int) -> list[Run]:
    """Warm up once an environment and seed, then every recipe from there."""
    from ludus.trainer.recipes import load_recipe

    where = {name: load_recipe(name).environment for name in recipes}
    possible = {env: _problem(env) for env in set(where.values())}
    seeds = range(plan.seeds)
    runs = [Run(n, e, 0, refused=possible[e]) for n, e in where.items() if possible[e]]
    todo = [(n, e, s) for s in seeds for n, e in where.items() if not possible[e]]
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        pairs = sorted({(e, s) for _, e, s in todo})
        warm = {pair: pool.submit(warm_start, plan, *pair) for pair in pairs}
        starts = {pair: future.result() for pair, future in warm.items()}
        print(f"warmed up {len(starts)} times", flush=True)
        waiting = [pool.submit(train_recipe, plan, n, e, s, starts[e, s]) for n, e, s in todo]
        for future in waiting:
            run = future.result()
            runs.append(run)
            said = run.refused or " ".join(f"{a:.2f}" for a in run.accuracy)
            print(f"{run.recipe:<13} seed {run.seed}  {run.seconds:5.0f} s  {said}", flush=True)
    return runs


def _problem(environment: str) -> str:
    from ludus.envs import make_async
    from ludus.wire.arguments import parse_served

    name, arguments = parse_served(environment)
    try:
        make_async(name, **arguments)
    except LudusError as error:
        return str(error)
    return ""


def _folder(plan: Plan, environment: str, seed: int) -> Path:
    kind = "".join(c if c.isalnum() else "-" for c in environment.rpartition("/")[2])
    return plan.out / f"{kind}-{seed}"


def _one_thread() -> None:
    import os

    import torch

    # two runs at once on two cores beat one run on two threads for a model this small
    torch.set_num_threads(1)
    os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"


def main() -> int:
    """Run, print the table, write it beside a picture and the raw numbers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one seed, 12 steps")
    parser.add_argument("--recipes", nargs="*", help="some of ludus recipes (default: all)")
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--jobs", type=int, default=2, help="processes (default 2)")
    parser.add_argument("--lr", type=float, default=5e-4)
    parser.add_argument("--out", type=Path, default=Path("runs/algorithms"))
    arguments = parser.parse_args()
    from ludus.trainer.recipes import recipe_names

    plan = Plan(
        out=arguments.out,
        seeds=arguments.seeds or (1 if arguments.quick else 3),
        steps=arguments.steps or (12 if arguments.quick else 30),
        warm_steps=400,
        eval_tasks=128 if arguments.quick else 256,
        eval_every=3 if arguments.quick else 5,
        lr=arguments.lr,
    )
    shutil.rmtree(plan.out, ignore_errors=True)
    began = time.perf_counter()
    runs = run_all(plan, arguments.recipes or recipe_names(), arguments.jobs)
    text = markdown(runs, plan)
    (plan.out / "table.md").write_text(text)
    (plan.out / "runs.json").write_text(json.dumps([asdict(run) for run in runs], indent=1))
    draw(runs, plan.out / "curves.png")
    print(
        f"\n{text}\n{time.perf_counter() - began:.0f} s; {plan.out}/table.md, curves.png, runs.json"
    )
    return int(any("NO" in row for row in table(runs, plan.eval_tasks)))


if __name__ == "__main__":
    sys.exit(main())
