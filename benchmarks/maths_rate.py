"""Easy answers a second: decided in the caller, by two processes at once.

    python benchmarks/maths_rate.py [--processes 2] [--file verify_dev.jsonl]

The answers are those of http_throughput.py: no two alike, of sixteen kinds, up to 2 KB, each asked
once a process; or the easy ones of a labelled file: up to 2 KB, decided in the caller. Start and
imports are not counted.
"""

from __future__ import annotations

import argparse
import asyncio
import inspect
import json
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from http_throughput import solutions

from ludus.rewards import Sample
from ludus.rewards.maths import MathsVerifier
from ludus.verdict import Verdict


def judge(start_at: float, samples: list[Sample]) -> tuple[float, float, float]:
    """Seconds of wall, of CPU, and the reward of all."""
    return asyncio.run(_judge(start_at, samples))


async def _judge(start_at: float, samples: list[Sample]) -> tuple[float, float, float]:
    verifier = MathsVerifier()
    for sample in solutions()[::8]:  # a service that runs: its expressions are compiled
        verifier.score(sample)
    time.sleep(max(0.0, start_at - time.time()))
    wall, cpu = time.perf_counter(), time.process_time()
    verdicts = [verifier.score(sample) for sample in samples]
    spent = time.perf_counter() - wall, time.process_time() - cpu
    return *spent, sum(verdict.unwrap() for verdict in verdicts)  # type: ignore[union-attr]


def easy_cases(file: Path) -> list[Sample]:
    """Responses up to 2 KB that no process but the caller is needed for."""
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    short = [
        Sample(response=row["prediction"], gold=row["gold"])
        for row in rows
        if len(row["prediction"].encode()) <= 2048
    ]
    verifier = MathsVerifier()
    return [sample for sample in short if decided_at_once(verifier, sample)]


def decided_at_once(verifier: MathsVerifier, sample: Sample) -> bool:
    """Whether the pool is not asked."""
    answer = verifier.score(sample)
    if inspect.iscoroutine(answer):
        answer.close()
    return isinstance(answer, Verdict)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description="Easy answers a second, in the caller.")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--file", type=Path, help="rows with gold and prediction")
    options = parser.parse_args()
    samples = easy_cases(options.file) if options.file else solutions()
    start_at = time.time() + 3
    with ProcessPoolExecutor(options.processes, mp_context=get_context("spawn")) as pool:
        jobs = [pool.submit(judge, start_at, samples) for _ in range(options.processes)]
        spent = [job.result() for job in jobs]
    number = len(samples) * options.processes
    print(f"{number / max(wall for wall, _, _ in spent):.0f} a second by {options.processes}")
    print(f"{1e6 * sum(cpu for _, cpu, _ in spent) / number:.0f} us of CPU an answer")
    print(f"{spent[0][2]:.0f} of {len(samples)} right")


if __name__ == "__main__":
    main()
