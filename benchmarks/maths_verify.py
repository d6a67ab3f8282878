"""The maths verifier beside Math-Verify 0.9.0, in one run: truth, speed and latency on a labelled
file.

    pip install math-verify==0.9.0
    LUDUS_DATA_DIR=... python benchmarks/maths_verify.py                 # verify_dev.jsonl of
        that folder
    python benchmarks/maths_verify.py --file cases.jsonl --half b

Each verifier runs in a fresh process: one cold pass in shuffled order, every pair once, no cache
over pairs. CPU time includes children (the pool is closed before it is read). Imports and the
pool's start are printed apart. Math-Verify runs as tuned for this kind of data: reasoning
stripped, boxed first, a string match when the gold is a letter, bare answers boxed, the gold in
dollar signs, its own five-second alarms on.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import importlib.util
import json
import os
import random
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

Case = dict[str, Any]


def main() -> None:
    arguments = parser().parse_args()
    if arguments.one:
        print(json.dumps(measure(arguments.one, cases(arguments))))
        return
    names = ["ludus"]
    if importlib.util.find_spec("math_verify") is None:
        print("math-verify is not installed: its half is left out (pip install math-verify==0.9.0)")
    else:
        names.append("math-verify")
    rows = cases(arguments)
    results = {name: run(name, sys.argv[1:]) for name in names}
    report(rows, results)


def parser() -> argparse.ArgumentParser:
    argument_parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    default = Path(os.environ.get("LUDUS_DATA_DIR", ".")) / "math" / "verify_dev.jsonl"
    argument_parser.add_argument("--file", type=Path, default=default)
    argument_parser.add_argument(
        "--half", choices=["a", "b"], help="only the cases whose id hashes to this half"
    )
    argument_parser.add_argument("--seed", type=int, default=0)
    argument_parser.add_argument("--one", choices=["ludus", "math-verify"], help=argparse.SUPPRESS)
    return argument_parser


def half_of(case: Case) -> str:
    return "ab"[int(hashlib.sha256(case["id"].encode()).hexdigest(), 16) % 2]


def cases(arguments: argparse.Namespace) -> list[Case]:
    if not arguments.file.is_file():
        raise SystemExit(
            f"no file {str(arguments.file)!r}: name one of cases (JSON Lines with id, gold, answer "
            "and label) with --file, or the folder of math/verify_dev.jsonl by LUDUS_DATA_DIR"
        )
    rows = [json.loads(line) for line in arguments.file.read_text().splitlines()]
    rows = [row for row in rows if arguments.half in (None, half_of(row))]
    random.Random(arguments.seed).shuffle(rows)
    return rows


def run(name: str, arguments: list[str]) -> dict[str, Any]:
    command = [sys.executable, __file__, *arguments, "--one", name]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{name} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def measure(name: str, rows: list[Case]) -> dict[str, Any]:
    """Outcomes, per-case seconds (wall) and CPU of one verifier, in this fresh process."""
    return measure_ludus(rows) if name == "ludus" else measure_math_verify(rows)


def cpu() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def measure_ludus(rows: list[Case]) -> dict[str, Any]:
    before = time.perf_counter()
    from ludus.rewards import Sample
    from ludus.rewards.maths import MathsVerifier

    verifier = MathsVerifier(workers=1)
    imported = time.perf_counter()
    verifier.warm()
    warm_cpu = tree_cpu()
    started = time.perf_counter()
    outcomes: list[bool] = []
    seconds: list[float] = []
    pooled: list[bool] = []

    async def wait(scored: Any) -> Any:
        return await scored

    with asyncio.Runner() as runner:
        for row in rows:
            start = time.perf_counter()
            verdict = verifier.score(Sample(response=row["prediction"], gold=row["gold"]))
            hard = not hasattr(verdict, "reward")
            if hard:
                verdict = runner.run(wait(verdict))
            seconds.append(time.perf_counter() - start)
            outcomes.append(verdict.reward == 1.0)
            pooled.append(hard)
    used = tree_cpu() - warm_cpu
    verifier.close()
    return {
        "outcomes": outcomes, "seconds": seconds, "pooled": pooled, "cpu_s": used,
        "import_s": imported - before, "start_s": started - imported,
    }  # fmt: skip


def tree_cpu() -> float:
    """CPU seconds of this process and all that live below it (workers are the template's
    children).
    """
    import psutil

    this = psutil.Process()
    total = cpu()
    for child in this.children(recursive=True):
        try:
            used = child.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += used.user + used.system + used.children_user + used.children_system
    return total


def measure_math_verify(rows: list[Case]) -> dict[str, Any]:
    before = time.perf_counter()
    import logging

    from math_verify import parse, verify
    from math_verify.parser import (
        ExprExtractionConfig,
        LatexExtractionConfig,
        StringExtractionConfig,
    )

    logging.disable(logging.CRITICAL)
    imported = time.perf_counter()
    boxed_first = [LatexExtractionConfig(boxed_match_priority=0), ExprExtractionConfig()]
    outcomes: list[bool] = []
    seconds: list[float] = []
    started_cpu = cpu()
    for row in rows:
        gold, answer = row["gold"], row["prediction"]
        start = time.perf_counter()
        if "</think>" in answer:
            answer = answer.rsplit("</think>", 1)[1]
        if row["form"] == "bare" and "\\boxed" not in answer and len(answer) < 200:
            answer = f"\\boxed{{{answer}}}"
        letter = gold.strip("$ ()").removeprefix("\\text{").removeprefix("\\textbf{").strip("{}()")
        choice = len(letter) == 1 and letter in "ABCDEFGHIJ"
        extraction = [*boxed_first, StringExtractionConfig()] if choice else boxed_first
        wrapped = gold if "$" in gold or "\\boxed" in gold else f"${gold}$"
        try:
            wanted = parse(letter if choice else wrapped, extraction_config=extraction)
            outcomes.append(bool(verify(wanted, parse(answer, extraction_config=extraction))))
        except Exception:
            outcomes.append(False)
        seconds.append(time.perf_counter() - start)
    return {
        "outcomes": outcomes, "seconds": seconds, "pooled": [False] * len(rows),
        "cpu_s": cpu() - started_cpu,
        "import_s": imported - before, "start_s": 0.0,
    }  # fmt: skip


# --- printing ---


def truth(rows: list[Case], outcomes: list[bool]) -> tuple[float, float, float]:
    """(accuracy, precision, recall)."""
    pairs = [(row["label"], outcome) for row, outcome in zip(rows, outcomes, strict=True)]
    right = sum(label == outcome for label, outcome in pairs)
    both = sum(label and outcome for label, outcome in pairs)
    return (
        right / max(1, len(pairs)),
        both / max(1, sum(outcome for _, outcome in pairs)),
        both / max(1, sum(label for label, _ in pairs)),
    )


def quantile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def report(rows: list[Case], results: dict[str, dict[str, Any]]) -> None:
    hard = [not row["category"].startswith("hv_") for row in rows]
    for name, result in results.items():
        print(f"{name}: import {result['import_s']:.2f} s, pool start {result['start_s']:.2f} s")
        for title, wanted in (
            ("all rows", None),
            ("rows that are not hv_", True),
            ("hv_ rows", False),
        ):
            kept = [i for i in range(len(rows)) if wanted is None or hard[i] == wanted]
            numbers = truth([rows[i] for i in kept], [result["outcomes"][i] for i in kept])
            print(
                f"  {title:<22} n={len(kept):<5} accuracy %.4f  precision %.4f  recall %.4f"
                % numbers
            )
        milliseconds = [1000 * value for value in result["seconds"]]
        print(
            f"  {len(rows) / result['cpu_s']:.0f} cases per CPU-second; wall ms: "
            f"median {quantile(milliseconds, 0.5):.3f}, "
            f"p99 {quantile(milliseconds, 0.99):.2f}, max {max(milliseconds):.1f}; "
            f"{sum(result['pooled'])} in the pool"
        )
    if len(results) == 2:
        compare(rows, *results.values())
    by_category(rows, results)


def compare(rows: list[Case], ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    print(f"speed: {theirs['cpu_s'] / ours['cpu_s']:.1f}x Math-Verify's cases per CPU-second")
    pooled = [i for i in range(len(rows)) if ours["pooled"][i]]
    if pooled:
        mine, other = (sum(result["seconds"][i] for i in pooled) for result in (ours, theirs))
        print(f"       {other / mine:.1f}x on the {len(pooled)} cases that reach the pool (wall)")
    elsewhere = sum(o and not t for o, t in zip(ours["outcomes"], theirs["outcomes"], strict=True))
    print(f"answers rewarded here and not there: {elsewhere}")


def by_category(rows: list[Case], results: dict[str, dict[str, Any]]) -> None:
    groups: dict[str, list[int]] = defaultdict(list)
    for index, row in enumerate(rows):
        groups[row["category"]].append(index)
    print(f"{'category':<22}{'cases':>6}" + "".join(f"{name:>14}" for name in results))
    for name in sorted(groups):
        kept = groups[name]
        accuracies = [
            truth([rows[i] for i in kept], [result["outcomes"][i] for i in kept])[0]
            for result in results.values()
        ]
        print(f"{name:<22}{len(kept):>6}" + "".join(f"{value:>14.3f}" for value in accuracies))


if __name__ == "__main__":
    main()
