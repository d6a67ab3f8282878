"""What micro-batching gives to an image scorer: items a second by batch size, and waiting times.

    python benchmarks/images.py                  a tiny ImageReward with random weights
    python benchmarks/images.py --full           446.7 million parameters: 8 GB, some minutes

Single items and batches of 16 are measured in turns, and the ratio is the median of the turns.
Waiting times are measured with arrivals at random moments (Poisson) at 70 % of the capacity of
batches; their 99th percentile is held against `max_wait_ms` plus two batches.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import statistics
import time

import numpy as np
import torch

from ludus.rewards.learned.batching import MicroBatcher
from ludus.rewards.learned.images.image_reward import ImageReward, ImageRewardSizes
from ludus.rewards.learned.images.scorer import ModelInput

TINY = ImageRewardSizes(
    vision_width=64, vision_layers=2, text_width=64, text_layers=2, text_hidden=128
)
MAX_BATCH = 16
MAX_WAIT_S = 0.005
LOAD = 0.7


def main() -> None:
    """Measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true", help="the sizes of ImageReward-v1.0")
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--items", type=int, default=0, help="in one turn; 0 chooses")
    parser.add_argument("--arrivals", type=int, default=0, help="for the waiting times; 0 chooses")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    model = ImageReward(ImageRewardSizes() if options.full else TINY).eval()
    items = options.items or (16 if options.full else 256)
    arrivals = options.arrivals or (32 if options.full else 2000)
    millions = sum(tensor.numel() for tensor in model.parameters()) / 1e6
    load = os.getloadavg()[0]
    print(f"{millions:.1f} million parameters, {options.threads} threads, load {load:.1f}")
    asyncio.run(measure(model, items, options.turns, arrivals))


async def measure(model: ImageReward, items: int, turns: int, arrivals: int) -> None:
    """Throughput by turns, then waiting times."""
    given = [an_input(number) for number in range(items)]
    single, batched = batcher_of(model, 1), batcher_of(model, MAX_BATCH)
    await asyncio.gather(*map(batched.submit, given[:MAX_BATCH]))
    await single.submit(given[0])
    ratios, rates = [], []
    for _ in range(turns):
        alone = await rate(single, given)
        together = await rate(batched, given)
        ratios.append(together / alone)
        rates.append(together)
        print(f"  single {alone:8.2f}/s   batches {together:8.2f}/s   {ratios[-1]:.2f}x")
    print(f"micro-batching: {statistics.median(ratios):.2f}x (median of {turns} turns)")
    capacity = statistics.median(rates)
    waits = sorted(await waiting_times(batched, given, LOAD * capacity, arrivals))
    batch_s = MAX_BATCH / capacity
    bound_s = MAX_WAIT_S + 2 * batch_s
    p50, p99 = waits[len(waits) // 2], waits[int(0.99 * len(waits))]
    verdict = "kept" if p99 <= bound_s else "NOT KEPT"
    print(f"at {LOAD:.0%} of {capacity:.2f}/s: p50 {1000 * p50:.1f} ms, p99 {1000 * p99:.1f} ms")
    print(f"max_wait and two batches are {1000 * bound_s:.1f} ms: {verdict}")


def an_input(seed: int) -> ModelInput:
    """Random pixels and 12 tokens."""
    rng = np.random.default_rng(seed)
    pixels = rng.standard_normal((3, 224, 224), dtype=np.float32)
    return ModelInput(pixels, (101, *map(int, rng.integers(1000, 30000, 10)), 102))


def batcher_of(model: ImageReward, max_batch: int) -> MicroBatcher[ModelInput, float]:
    """The model behind a micro-batcher."""
    return MicroBatcher(model.score_inputs, max_batch=max_batch, max_wait_s=MAX_WAIT_S)


async def rate(batcher: MicroBatcher[ModelInput, float], given: list[ModelInput]) -> float:
    """Items a second when all are there at once."""
    started = time.perf_counter()
    await asyncio.gather(*map(batcher.submit, given))
    return len(given) / (time.perf_counter() - started)


async def waiting_times(
    batcher: MicroBatcher[ModelInput, float], given: list[ModelInput], per_s: float, number: int
) -> list[float]:
    """Seconds from arrival to score of `number` items that arrive at random moments."""
    rng = random.Random(0)
    waits: list[float] = []

    async def one(item: ModelInput, due: float) -> None:
        await batcher.submit(item)
        waits.append(time.perf_counter() - due)

    due = time.perf_counter()
    calls: list[asyncio.Task[None]] = []
    for index in range(number):
        due += rng.expovariate(per_s)
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        calls.append(asyncio.create_task(one(given[index % len(given)], due)))
    await asyncio.gather(*calls)
    return waits


if __name__ == "__main__":
    main()
