"""Easy answers a second: decided in the caller, by two processes at once.

    python benchmarks/maths_rate.py [--processes 2]

The answers are those of http_throughput.py: no two alike, of many kinds, up to 2 KB, each asked
once a process. Start and imports are not counted.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from http_throughput import solutions

from ludus.rewards import Sample
from ludus.rewards.maths import MathsVerifier


def judge(start_at: float, samples: list[Sample]) -> tuple[float, float, float]:
    """Seconds of wall, of CPU, and the reward of all."""
    return asyncio.run(_judge(start_at, samples))


async def _judge(start_at: float, samples: list[Sample]) -> tuple[float, float, float]:
    verifier = MathsVerifier()
    time.sleep(max(0.0, start_at - time.time()))
    wall, cpu = time.perf_counter(), time.process_time()
    verdicts = [verifier.score(sample) for sample in samples]
    spent = time.perf_counter() - wall, time.process_time() - cpu
    return *spent, sum(verdict.unwrap() for verdict in verdicts)  # type: ignore[union-attr]


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description="Easy answers a second, in the caller.")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    samples = solutions()
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
