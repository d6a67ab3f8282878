"""SUPO against truncation at equal working context, on ludus/ledger-v0.

    python benchmarks/supo.py --seeds 3 --json supo.json     # the main table
    python benchmarks/supo.py --tiers                        # SUPO and keep_last_k, tier by tier
    python benchmarks/supo.py --ablations                    # Eq. 4 statistics; no overlong mask

One warm start a seed for every arm of window W (a clean demonstrator first, then the recency-biased
one), another from the same clean stage for the arm that sees everything. Arms differ in the context
manager alone; recipe, learning rate and steps are the same. W is in tokens: a turn of this
environment takes TURN_TOKENS in the tiny model's chat format, and no register that is asked for was
written within the last W / TURN_TOKENS turns, so truncating arms cannot pass 0.10 (proof in
envs/families/ledger/ledger_env.py).
"""

import argparse
import json
import multiprocessing
import os
import resource
import shutil
import sys
import tempfile
import time
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from supo_rows import ABLATIONS, SETTINGS, TIERS, rows_table, write_recipes
from supo_runs import run_arm, warm_start
from supo_setting import ARMS, Setting
from supo_table import table, targets


@dataclass(frozen=True)
class Job:
    """One run of the table, done in a process of its own."""

    setting: Setting
    folder: Path
    arm: str
    seed: int
    recipe: str = "supo"
    warm: str = ""
    warm_cpu_s: float = 0.0
    row: str = ""
    """Of the tables by tier and by ablation."""


def prepare(job: Job) -> tuple[str, str, float]:
    """The warm starts of a seed; that of whole episodes only if the job asks for it."""
    return warm_start(job.setting, job.folder / "warm", job.seed, whole=job.arm == "full")


def execute(job: Job) -> dict:
    """Train and test."""
    folder = job.folder / f"{job.row}-{job.arm}".lstrip("-")
    numbers = run_arm(job.setting, folder, job.warm, job.arm, job.seed, job.recipe)
    numbers |= {"warm_cpu_s": job.warm_cpu_s, "row": job.row, "bound": job.setting.bound(job.arm)}
    print(json.dumps(numbers), flush=True)
    return numbers


STAGES = ("copy", "answer", "settle", "demo", "long", "early", "whole")
BRIEF = {f"{stage}_steps": 1 for stage in STAGES} | {"answer_batch": 1, "attempts": 1, "longer": 0}
BRIEF |= {"steps": 1, "tasks": 1, "eval_tasks": 1}


def rehearse(jobs: list[Job]) -> None:
    """One update of every kind of run: what cannot work is refused before anything is learned."""
    kinds = dict.fromkeys((job.setting, job.arm, job.recipe) for job in jobs)
    with tempfile.TemporaryDirectory(prefix="ludus-supo-") as scratch:
        for number, (setting, arm, recipe) in enumerate(kinds):
            brief, folder = replace(setting, **BRIEF), Path(scratch, str(number))
            equal, full, _ = warm_start(brief, folder, 0, whole=arm == "full")
            run_arm(brief, folder / "arm", full if arm == "full" else equal, arm, 0, recipe)


def run_table(jobs: list[Job], processes: int) -> list[dict]:
    """Every warm start once, each arm as soon as its own is there, `processes` at a time."""
    spawn = multiprocessing.get_context("spawn")
    starts = {job.folder: job for job in sorted(jobs, key=lambda job: job.arm == "full")}
    with ProcessPoolExecutor(processes, mp_context=spawn) as pool:
        warming = {pool.submit(prepare, job): folder for folder, job in starts.items()}
        running: dict[Job, Future[dict]] = {}
        for done in as_completed(warming):
            equal, full, cpu_s = done.result()
            for job in jobs:
                if job.folder == warming[done]:
                    warm = full if job.arm == "full" else equal
                    running[job] = pool.submit(execute, replace(job, warm=warm, warm_cpu_s=cpu_s))
        return [running[job].result() for job in jobs]


def jobs_of(options: dict, setting: Setting, folder: Path) -> list[Job]:
    """The runs asked for; those of one folder share a warm start."""
    seeds = range(options["first_seed"], options["first_seed"] + options["seeds"])
    recipe = options["recipe"]
    if options["tiers"]:
        return [
            Job(
                changed(setting, TIERS[row]),
                folder / row / f"seed-{seed}",
                arm,
                seed,
                recipe,
                row=row,
            )
            for row in TIERS
            for seed in seeds
            for arm in ("supo", "keep_last_k")
        ]
    if options["ablations"]:
        recipes = write_recipes(folder / "recipes")
        return [
            Job(
                changed(setting, SETTINGS[where]),
                folder / where / f"seed-{seed}",
                "supo",
                seed,
                recipes[row],
                row=f"{row}; {where}",
            )
            for where in SETTINGS
            for row in ABLATIONS
            for seed in seeds
        ]
    arms = options["arms"].split(",")
    return [Job(setting, folder / f"seed-{s}", arm, s, recipe) for s in seeds for arm in arms]


def changed(setting: Setting, changes: dict) -> Setting:
    """A setting of the tables by row: no test on longer episodes, and sizes given by hand stay."""
    plain = asdict(Setting())
    free = {k: v for k, v in changes.items() if getattr(setting, k) == plain[k]}
    return replace(setting, longer=0, **free)


def options_of() -> tuple[dict, Setting]:
    """What the command line says; what no table could be made of is refused."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--arms", default=",".join(ARMS))
    parser.add_argument("--recipe", default="supo")
    tables = parser.add_mutually_exclusive_group()
    tables.add_argument("--tiers", action="store_true", help="SUPO and keep_last_k on each tier")
    tables.add_argument("--ablations", action="store_true", help="SUPO, Eq. 4, no overlong mask")
    parser.add_argument("--jobs", type=int, default=2, help="runs at once, one thread each")
    parser.add_argument("--keep", default="", help="folder to keep the runs in")
    for name, value in asdict(Setting()).items():
        flag = "--" + name.replace("_", "-")
        parser.add_argument(flag, dest=name, type=type(value), default=value)
    options = vars(parser.parse_args())
    for name in ("seeds", "jobs"):
        if options[name] < 1:
            parser.error(f"--{name} must be at least 1, got {options[name]}")
    unknown = sorted(set(options["arms"].split(",")) - set(ARMS))
    if unknown:
        parser.error(f"--arms: no arm {', '.join(unknown)}; there are {', '.join(ARMS)}")
    return options, Setting(**{name: options[name] for name in asdict(Setting())})


def run_all(options: dict, setting: Setting) -> list[dict]:
    """The rows of the table asked for; the runs are deleted unless they are to be kept."""
    folder = Path(options["keep"] or tempfile.mkdtemp(prefix="ludus-supo-"))
    try:
        jobs = jobs_of(options, setting, folder)
        rehearse(jobs)
        for seed_folder in {job.folder for job in jobs}:
            shutil.rmtree(seed_folder, ignore_errors=True)
        return run_table(jobs, options["jobs"])
    finally:
        if not options["keep"]:
            shutil.rmtree(folder, ignore_errors=True)


def main() -> int:
    """Run the table, print it, and say whether the targets hold."""
    from ludus.errors import LudusError

    options, setting = options_of()
    os.environ["OMP_NUM_THREADS"] = "1"
    started = time.perf_counter()
    try:
        rows = run_all(options, setting)
    except LudusError as error:
        gap = f"a window of {setting.window} tokens hides what is {setting.gap} turns ago"
        print(f"supo.py: {error} ({gap})", file=sys.stderr)
        return 2
    if options["tiers"] or options["ablations"]:
        print(rows_table(rows))
    else:
        print(table(rows, setting))
        for target, holds in targets(rows, setting.window).items():
            print(f"{'holds' if holds else 'FAILS':<6} {target}")
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = {"wall_s": time.perf_counter() - started, "cpu_s": used.ru_utime + used.ru_stime}
    print(json.dumps(spent))
    if options["json"]:
        written = {"setting": asdict(setting), "gap": setting.gap, "rows": rows, **spent}
        options["json"].write_text(json.dumps(written, indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
