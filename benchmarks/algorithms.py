"""What each recipe learns: a table and a picture.

    python benchmarks/algorithms.py --quick                  # one seed, 12 steps
    python benchmarks/algorithms.py                          # three seeds, 20 steps
    python benchmarks/algorithms.py --first-seed 10 --recipes grpo dapo spo

Every recipe is trained on the environment its TOML names, and GRPO in each of them besides. One
model of about 115 thousand parameters is warmed up for each environment and seed, on demonstrations
whose most likely behaviour is wrong; every recipe starts from that checkpoint, and makes the
updates of its own paper on each batch of rollouts.

Runs are compared at equal sampled tokens: accuracy is read off each curve of greedy evaluations on
held-out tasks where the run that sampled least in that environment ended.

A run that is cut goes on: what is finished under --out is not done again, unless --fresh is given
or something it depends on has changed.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path

from algorithms_runs import Job, Plan, Run, train_recipe, warm_start
from algorithms_table import EXPECTED, as_expected, draw, markdown, publish, table

REFERENCE = "grpo"
"""Runs in every environment."""
PUBLISHED = 8
"""Columns of the table that the page shows; the file has those of ratios and clips too."""
EXPECT = """### What to expect

`python benchmarks/algorithms.py --recipes NAME --seeds 1` runs one recipe in some minutes beside
[the curves of these seeds](results/learning-curves.json): *works* means that it gains at least half
of what the weakest of them gained, *BROKEN* that it does not.
"""
PAGE = Path(__file__).parents[1] / "docs" / "algorithms.md"


def run_all(plan: Plan, recipes: Sequence[str], seeds: Sequence[int], processes: int) -> list[Run]:
    """Warm up once an environment and seed, then every recipe from there, as soon as it can."""
    jobs = [job for seed in seeds for job in jobs_of(recipes, seed)]
    runs: list[Run] = []
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        pairs = sorted({(job.seed, job.environment) for job in jobs})
        warming = {pool.submit(warm_start, plan, env, seed): (env, seed) for seed, env in pairs}
        waiting: set[Future[Run]] = set()
        for warm in as_completed(warming):
            start, pair = warm.result(), warming[warm]
            print(f"warmed up: {pair[0]} seed {pair[1]}", flush=True)
            mine = [job for job in jobs if (job.environment, job.seed) == pair]
            waiting |= {pool.submit(train_recipe, plan, job, start) for job in mine}
        for future in as_completed(waiting):
            runs.append(future.result())
            report(runs[-1], len(runs), len(jobs))
    return sorted(runs, key=lambda run: (run.environment, run.recipe, run.seed))


def jobs_of(recipes: Sequence[str], seed: int) -> list[Job]:
    """The recipes where they belong, and the reference beside them."""
    from ludus.trainer.recipes.recipe import load_recipe

    where = {name: load_recipe(name).environment for name in recipes}
    beside = {Job(REFERENCE, environment, seed) for environment in where.values()}
    wanted = {Job(name, environment, seed) for name, environment in where.items()}
    return sorted(wanted | beside, key=lambda job: (job.environment, job.recipe))


def report(run: Run, done: int, of: int) -> None:
    """One line, with what the published runs let expect."""
    said = run.refused or " ".join(f"{a:.2f}" for a in run.accuracy)
    print(
        f"{done:>3}/{of} {run.recipe:<13} seed {run.seed} {run.seconds:5.0f} s  {said}  "
        f"{as_expected(run)}",
        flush=True,
    )


def kept(run: Run) -> dict[str, object]:
    """What is published of a run."""
    names = ("recipe", "environment", "seed", "tokens", "accuracy")
    return {name: getattr(run, name) for name in names}


def main() -> int:
    """Run, print the table, write it beside a picture and the raw numbers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one seed, 12 steps")
    parser.add_argument("--recipes", nargs="*", help="some of ludus recipes (default: all)")
    parser.add_argument("--seeds", type=int, help="how many (default 3)")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--jobs", type=int, default=2, help="processes (default 2)")
    parser.add_argument("--lr-scale", type=float, default=1.0, help="times each environment's own")
    parser.add_argument("--out", type=Path, default=Path("runs/algorithms"))
    parser.add_argument("--fresh", action="store_true", help="do everything again")
    parser.add_argument("--write-docs", action="store_true", help="into docs/algorithms.md")
    arguments = parser.parse_args()
    from ludus.trainer.recipes.recipe import recipe_names

    plan = Plan(
        out=arguments.out.resolve(),
        steps=arguments.steps or (12 if arguments.quick else 20),
        eval_tasks=128 if arguments.quick else 256,
        eval_every=3 if arguments.quick else 5,
        lr_scale=arguments.lr_scale,
    )
    if arguments.fresh:
        shutil.rmtree(plan.out, ignore_errors=True)
    plan.out.mkdir(parents=True, exist_ok=True)
    count = arguments.seeds or (1 if arguments.quick else 3)
    seeds = range(arguments.first_seed, arguments.first_seed + count)
    began = time.perf_counter()
    runs = run_all(plan, arguments.recipes or recipe_names(), seeds, arguments.jobs)
    text = markdown(runs, plan.eval_tasks)
    (plan.out / "table.md").write_text(text)
    (plan.out / "runs.json").write_text(json.dumps([asdict(run) for run in runs], indent=1))
    draw(runs, plan.out / "curves.png")
    spent = time.perf_counter() - began
    if arguments.write_docs:
        how = f"{len(seeds)} seeds from {seeds[0]}, {plan.steps} steps, {plan.eval_tasks} tasks"
        minutes = sum(run.seconds for run in runs) / 60
        note = f"Measured: {how}; {minutes:.0f} minutes of one process, warm starts apart."
        shown = markdown(runs, plan.eval_tasks, PUBLISHED)
        publish(f"{shown}\n{note}\n\n{EXPECT}", plan.out / "curves.png", PAGE)
        EXPECTED.write_text(json.dumps([kept(run) for run in runs], indent=1) + "\n")
    where = f"{arguments.out}/table.md, curves.png, runs.json"
    print(f"\n{text}\n{spent:.0f} s; {where}")
    failed = any(run.refused for run in runs)
    return int(failed or any("NO" in row for row in table(runs, plan.eval_tasks)))


if __name__ == "__main__":
    sys.exit(main())
