"""Claims of papers, tried in kind on two cores: environments, budgets and criteria are in
claims_table.py, which was committed before the first run.

    python benchmarks/claims.py                                  # all, three seeds, two processes
    python benchmarks/claims.py hints trees --first-seed 10      # some, with other seeds
    python benchmarks/claims.py --list
    python benchmarks/claims.py --page                           # docs/claims.md and its numbers

Every claim and seed is a line of OUT/rows.jsonl: the claim, the seed, the numbers, the CPU seconds,
the commit. What is there already is not run again, unless --fresh is given. A run with --scale
other than 1 is a miniature; the page does not read its rows.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import json
import math
import platform
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from claims_table import CLAIMS, Check, Claim, claim

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "claims.md"
NUMBERS = PAGE.with_name("results") / "claims.json"
STUDENT_95 = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571}
"""Two-sided 95 % quantiles of Student's t, by number of seeds."""
SEEDS = 3
"""The fewest seeds of a verdict."""
HOLDS, FAILS, OPEN = "holds", "does not", "undecided"


def measure(name: str, seed: int, scale: float) -> dict[str, Any]:
    """One seed of a claim, as a row."""
    import torch

    torch.set_num_threads(1)  # two processes on two cores
    warnings.simplefilter("ignore")
    module, _, function = claim(name).measure.partition(":")
    began = time.process_time()
    numbers = getattr(importlib.import_module(module), function)(seed, scale)
    return {
        "claim": name,
        "seed": seed,
        "scale": scale,
        "numbers": {key: round(float(value), 6) for key, value in numbers.items()},
        "cpu_s": round(time.process_time() - began, 1),
        "date": datetime.date.today().isoformat(),
        "commit": commit(),
    }


def commit(*paths: str) -> str:
    """The commit of the work tree, or the last one that changed some paths."""
    process = subprocess.run(
        ["git", "log", "-1", "--format=%h", "--", *paths],
        cwd=ROOT, capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    return process.stdout.strip()


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Mean and half width of its 95 % interval over seeds; without end for one seed.

    >>> interval([1.0, 1.0, 1.0])
    (1.0, 0.0)
    """
    mean = statistics.fmean(values)
    if len(values) < 2:
        return mean, math.inf
    quantile = STUDENT_95.get(len(values), 2.45)
    return mean, quantile * statistics.stdev(values) / math.sqrt(len(values))


def verdict_of(check: Check, values: Sequence[float]) -> str:
    """Whether a check holds for what its seeds gave.

    >>> verdict_of(Check("gain", ">", 0.0, ""), [0.2, 0.21, 0.22])
    'holds'
    """
    mean, half = interval(values)
    above, below = mean - half > check.bound, mean + half < check.bound
    if above or below:
        return HOLDS if above == (check.sense == ">") else FAILS
    return OPEN


def verdict(tried: Claim, rows: Sequence[dict[str, Any]]) -> str:
    """Whether a claim holds: if all its checks do; it does not if one of them does not."""
    each = [verdict_of(check, values(rows, check.key)) for check in tried.checks]
    return FAILS if FAILS in each else OPEN if OPEN in each else HOLDS


def told_verdict(tried: Claim, rows: Sequence[dict[str, Any]]) -> str:
    """The verdict for the page, which no claim has before all its seeds are there."""
    if len(rows) < SEEDS:
        return f"open: {len(rows)} of {SEEDS} seeds"
    return verdict(tried, rows)


def values(rows: Sequence[dict[str, Any]], key: str) -> list[float]:
    """A number, seed by seed."""
    return [row["numbers"][key] for row in rows]


def rows_of(path: Path) -> list[dict[str, Any]]:
    """The rows of a file; a later row of a claim and seed replaces an earlier one."""
    lines = path.read_text().splitlines() if path.exists() else []
    last = {(row["claim"], row["seed"], row["scale"]): row for row in map(json.loads, lines)}
    return list(last.values())


def run_all(
    names: Sequence[str], seeds: Iterable[int], *, scale: float, out: Path, jobs: int = 2
) -> list[dict[str, Any]]:
    """Measure what is not there yet; write each row as soon as it is known.

    Args:
        names: of claims.
        seeds: of each.
        scale: times the number of steps.
        out: the folder of rows.jsonl.
        jobs: processes; 0 runs in this one.
    """
    out.mkdir(parents=True, exist_ok=True)
    path, seeds = out / "rows.jsonl", list(seeds)
    there = {(row["claim"], row["seed"], row["scale"]) for row in rows_of(path)}
    wanted = [(n, s, scale) for s in seeds for n in names if (n, s, scale) not in there]

    def keep(row: dict[str, Any]) -> None:
        with path.open("a") as lines:
            lines.write(json.dumps(row) + "\n")
        print(f"{row['claim']:<20} seed {row['seed']:>3} {row['cpu_s']:6.1f} s", flush=True)

    if not jobs:
        for each in wanted:
            keep(measure(*each))
    else:
        for each in CLAIMS:  # what forks has imported already
            importlib.import_module(each.measure.partition(":")[0])
        with ProcessPoolExecutor(jobs, mp_context=get_context("fork")) as pool:
            running = {pool.submit(measure, *each): each for each in wanted}
            for future in as_completed(running):
                if (error := future.exception()) is None:
                    keep(future.result())
                else:  # the others go on; the next call tries this one again
                    print(f"{running[future]} failed: {error!r}", file=sys.stderr, flush=True)
    rows = [row for row in rows_of(path) if row["scale"] == scale and row["seed"] in seeds]
    return [row for row in rows if row["claim"] in names]


HEAD = """\
# Claims of papers, tried here

Written by `python benchmarks/claims.py --page`. What a paper says of large models is tried in kind:
the same rule on a model of about 14 thousand parameters, in a world in which a run takes seconds of
one core. A verdict is about these worlds alone: what does not hold here may hold there.

Environments, budgets and criteria are [claims_table.py](../benchmarks/claims_table.py) of commit
{table}, made before the first run of the rows below; sizes and learning rates were set on other
seeds (100 and more). A check compares a number with a bound: it *holds* if the 95 % interval over
the seeds (Student's t) is wholly on its side, *does not* if it is wholly on the other, else it is
*undecided*. A claim holds if all its checks do, does not if one does not, and is *open* without all
its seeds.

    {command}

{how}

| claim | source | verdict |
|---|---|---|
{summary}
"""


def page(rows: Sequence[dict[str, Any]], out: Path) -> str:
    """docs/claims.md of the whole rows that are there."""
    whole = [row for row in rows if row["scale"] == 1.0]
    seeds = sorted({row["seed"] for row in whole})
    minutes = sum(row["cpu_s"] for row in whole) / 60
    days = " to ".join(
        dict.fromkeys([min(r["date"] for r in whole), max(r["date"] for r in whole)])
    )
    how = (
        f"Seeds {', '.join(map(str, seeds))}; {days}; {machine()}; {minutes:.0f} minutes of CPU "
        "for all. By seed, and what was measured besides: [claims.json](results/claims.json)."
    )
    tried = [(each, [r for r in whole if r["claim"] == each.name]) for each in CLAIMS]
    summary = "\n".join(
        f"| {linked(each, mine)} | {each.source} | {told_verdict(each, mine)} |"
        for each, mine in tried
    )
    head = HEAD.format(
        table=commit("benchmarks/claims_table.py"),
        command=f"python benchmarks/claims.py --seeds {SEEDS} --first-seed {seeds[0]}",
        how=how,
        summary=summary,
    )
    return "\n".join([head, *[section(each, mine) for each, mine in tried if mine]])


def linked(tried: Claim, rows: Sequence[dict[str, Any]]) -> str:
    """The claim, with a link to its numbers where there are any."""
    return f"[{tried.says}](#{tried.name.replace('_', '-')})" if rows else tried.says


def section(tried: Claim, rows: Sequence[dict[str, Any]]) -> str:
    """The part of the page on a claim: its world and its checks."""
    lines = [
        f"## {tried.name.replace('_', ' ').capitalize()}\n",
        f"{tried.says}: **{told_verdict(tried, rows)}**.\n",
        f"{tried.world[0].upper()}{tried.world[1:]}. {tried.tells}".rstrip() + "\n",
        "| check | bound | mean, 95 % interval | verdict |\n|---|---|---|---|",
    ]
    for check in tried.checks:
        mine = values(rows, check.key)
        mean, half = interval(mine)
        about = f"{mean:.3f} +- {half:.3f}" if len(mine) >= SEEDS else f"{mean:.3f}"
        bound = f"{check.sense} {check.bound:g}"
        lines.append(
            f"| {check.says} | {bound} | {about} "
            f"| {verdict_of(check, mine) if len(mine) >= SEEDS else 'open'} |"
        )
    return "\n".join([*lines, ""])


def numbers(rows: Sequence[dict[str, Any]]) -> str:
    """docs/results/claims.json: each claim's checks by seed, and the means of all else."""
    figures: dict[str, Any] = {}
    for tried in CLAIMS:
        mine = [row for row in rows if row["scale"] == 1.0 and row["claim"] == tried.name]
        keys = mine[0]["numbers"] if mine else {}
        checks = {check.key for check in tried.checks}
        figures[tried.name] = {
            "checks": {k: [round(v, 3) for v in values(mine, k)] for k in keys if k in checks},
            "means": {
                k: round(statistics.fmean(values(mine, k)), 3) for k in keys if k not in checks
            },
        }
    return json.dumps(figures, indent=1) + "\n"


def machine() -> str:
    """What the runs were made on."""
    import os

    return f"{os.cpu_count()} cores ({platform.machine()}), Python {platform.python_version()}"


def main() -> int:
    """Run what is asked for, and print a line a claim."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("names", nargs="*", help="claims (default: all)")
    parser.add_argument("--list", action="store_true", help="print the claims and end")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="how many (default 3)")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--scale", type=float, default=1.0, help="times the steps (default 1)")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default 2)")
    parser.add_argument("--out", type=Path, default=Path("runs/claims"))
    parser.add_argument("--fresh", action="store_true", help="forget the rows that are there")
    parser.add_argument("--page", action="store_true", help="write docs/claims.md, run nothing")
    given = parser.parse_args()
    known = [each.name for each in CLAIMS]
    if given.list:
        print("\n".join(f"{each.name:<20} {each.says}" for each in CLAIMS))
        return 0
    if unknown := [name for name in given.names if name not in known]:
        parser.error(f"no claim is named {unknown[0]!r}; there are {', '.join(known)}")
    if given.page:
        rows = rows_of(given.out / "rows.jsonl")
        PAGE.write_text(page(rows, given.out), encoding="utf-8")
        NUMBERS.write_text(numbers(rows), encoding="utf-8")
        return 0
    if given.fresh:
        (given.out / "rows.jsonl").unlink(missing_ok=True)
    seeds = range(given.first_seed, given.first_seed + given.seeds)
    rows = run_all(given.names or known, seeds, scale=given.scale, out=given.out, jobs=given.jobs)
    for each in CLAIMS:
        if mine := [row for row in rows if row["claim"] == each.name]:
            print(f"{verdict(each, mine):<10} {each.name}: {each.says}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
