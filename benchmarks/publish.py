"""What it takes to bring new weights into engines that are sampling, and what a pool costs.

    python benchmarks/publish.py [--publishes 20] [--layers 3] [--skip-vllm]

A learner's weights (a random model of the given depth, 256 channels, float32: about 12 MB) are
published while 16 answers of up to 800 tokens are being sampled, which are asked for again as they
end. Shown are the times of `set_weights` in milliseconds, the tokens sampled meanwhile, and whether
each token's version is right: recomputed from the log-probabilities of both versions for the local
engine and vLLM, where keys are computed again.

| row | engine |
|---|---|
| local | in this process, keys computed again (`recompute`) or kept (`keep`) |
| process | one engine process; a pool of two |
| vLLM | a server on this machine (LUDUS_VLLM_PYTHON names its interpreter), probe off and on |

The last lines compare 400 short answers, one after the other, by an engine process with the same
through a pool of one.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import torch

from ludus.agent import Generation, Sampling
from ludus.trainer.config import VLLMConfig
from ludus.trainer.engines.local import LocalEngine
from ludus.trainer.engines.pool import EnginePool
from ludus.trainer.engines.process import EngineSpec, ProcessEngine
from ludus.trainer.engines.vllm import ServerSite, start_vllm
from ludus.trainer.engines.vllm.served import scorer_of
from ludus.trainer.models.loading import load_model, write_shell
from ludus.trainer.models.tiny import write_tiny_policy
from ludus.trainer.models.weights import MemoryWeights, bytes_of

ANSWERS = 16
LENGTH = 800
PAUSE_S = 0.25


def moved(model: Any, seed: int) -> Any:
    """Return a copy of a model whose weights have moved visibly."""
    moved_copy = type(model)(model.config).eval()
    moved_copy.load_state_dict(model.state_dict())
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in moved_copy.parameters():
            weight += 0.3 * weight.std() * torch.randn(weight.shape, generator=generator)
    return moved_copy


class Load:
    """Keeps an engine busy, and keeps the answers."""

    def __init__(self, engine: Any) -> None:
        self.engine = engine
        self.answers: list[tuple[list[int], Generation]] = []
        self.stopping = False

    async def answer(self, number: int) -> None:
        """Ask again and again until told to stop."""
        turn = 0
        while not self.stopping:
            prompt = [5 + number, *range(20, 60), 5 + turn % 200]
            sampling = Sampling(max_tokens=LENGTH, seed=1000 * number + turn)
            self.answers.append((prompt, await self.engine.generate(prompt, sampling)))
            turn += 1

    async def __aenter__(self) -> Load:
        self.tasks = [asyncio.create_task(self.answer(number)) for number in range(ANSWERS)]
        await asyncio.sleep(4 * PAUSE_S)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.stopping = True
        await asyncio.gather(*self.tasks)


async def measure(name: str, engine: Any, models: list[Any], publishes: int, check: bool) -> None:
    """Publish two models in turns while the engine samples, and print a row."""
    first = engine.version
    times: list[float] = []
    async with Load(engine) as load:
        for count in range(1, publishes + 1):
            source = MemoryWeights.of(models[count % 2])
            started = time.perf_counter()
            await engine.set_weights(source, first + count)
            times.append(1e3 * (time.perf_counter() - started))
            await asyncio.sleep(PAUSE_S)
    crossed = sum(len(set(answer.versions)) > 1 for _, answer in load.answers)
    tokens = sum(len(answer.ids) for _, answer in load.answers)
    summary = f"{crossed} of {len(load.answers)} answers cross versions"
    if check:
        wrong, largest = misread(load.answers, models, first)
        summary += (
            f"; {wrong} of {tokens} tokens of a wrong version, largest gap {largest:.1g} nats"
        )
    ordered = sorted(times)
    print(
        f"{name:34} median {statistics.median(times):6.1f} ms  "
        f"(min {ordered[0]:.1f}, max {ordered[-1]:.1f})  {summary}",
        flush=True,
    )


def misread(
    answers: list[tuple[list[int], Generation]], models: list[Any], first: int
) -> tuple[int, float]:
    """Return how many tokens fit the other model better than the one of their version, and the
    largest difference to the right one. Only answers without a repeated version are scored.
    """
    scorers = [scorer_of(model) for model in models]
    wrong, largest = 0, 0.0
    for prompt, answer in answers:
        ids = [*prompt, *answer.ids]
        scores = [score(ids, 1.0)[len(prompt) :] for score in scorers]
        for number, (version, logprob) in enumerate(
            zip(answer.versions, answer.logprobs, strict=True)
        ):
            right = (version - first) % 2
            gaps = [abs(model_scores[number] - logprob) for model_scores in scores]
            largest = max(largest, gaps[right])
            wrong += gaps[right] > gaps[1 - right] + 1e-4
    return wrong, largest


async def hops(engine: ProcessEngine, models: list[Any]) -> None:
    """Compare an engine process with a pool of one."""
    pool = EnginePool([engine])
    await pool.set_weights(MemoryWeights.of(models[0]), 0)
    prompt, times = list(range(20, 60)), {"alone": 0.0, "pool of one": 0.0}
    for turn in range(400):
        for name, sampler in (("alone", engine), ("pool of one", pool)):
            started = time.perf_counter()
            await sampler.generate([*prompt, turn % 200], Sampling(max_tokens=2, seed=turn))
            times[name] += (time.perf_counter() - started) / 400
    extra = 1e3 * (times["pool of one"] - times["alone"])
    print(f"a short answer of an engine process: {1e3 * times['alone']:.2f} ms")
    print(f"the pool adds {extra:.2f} ms")
    await pool.close()


async def run(options: argparse.Namespace) -> None:
    """Measure each engine in turn."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = write_tiny_policy(folder / "model", hidden=256, layers=options.layers, heads=8)
        first = load_model(model)
        models = [moved(first, 1), moved(first, 2)]
        size = sum(map(bytes_of, MemoryWeights.of(first).metadata()))
        print(f"weights of {size / 1e6:.1f} MB, {ANSWERS} answers at a time\n", flush=True)
        for keep in (False, True):
            engine = LocalEngine(moved(first, 1), keep_cache=keep)
            kind = "keep" if keep else "recompute"
            await measure(f"local, {kind}", engine, models, options.publishes, not keep)
            await engine.close()
        write_shell(folder / "shell", model, first)
        for count in (1, 2):
            engines = [
                ProcessEngine(
                    EngineSpec(folder=str(folder / "shell")),
                    name=f"engine {index}",
                    log=folder / f"engine-{index}.log",
                )
                for index in range(count)
            ]
            await asyncio.gather(*(engine.revive() for engine in engines))
            pool = EnginePool(engines)
            await pool.set_weights(MemoryWeights.of(models[0]), 0)
            await measure(f"process x {count}", pool, models, options.publishes, True)
            await pool.close()
        alone = ProcessEngine(EngineSpec(folder=str(folder / "shell")), log=folder / "log")
        await alone.revive()
        await hops(alone, models)
        if not options.skip_vllm:
            await vllm(folder, model, models, options.publishes)


async def vllm(folder: Path, model: Path, models: list[Any], publishes: int) -> None:
    """Measure a real server."""
    async with AsyncExitStack() as stack:
        engine = await start_vllm(
            VLLMConfig(python=os.environ.get("LUDUS_VLLM_PYTHON", ""), probe_every=1),
            ServerSite(folder=str(model), dtype="float32", cpu=True, log=folder / "vllm.log"),
            models[0],
        )
        stack.push_async_callback(engine.close)
        await engine.set_weights(MemoryWeights.of(models[0]), 0)  # the first is probed
        engine.probe, probe = None, engine.probe
        await measure("vLLM, recompute", engine, models, publishes, True)
        engine.keep_cache = True
        await measure("vLLM, keep", engine, models, publishes, False)
        engine.keep_cache, engine.probe = False, probe
        times: list[float] = []
        async with Load(engine):
            for count in range(5):
                started = time.perf_counter()
                # The probe compares with the first model, so only that is published.
                await engine.set_weights(MemoryWeights.of(models[0]), 1000 + count)
                times.append(1e3 * (time.perf_counter() - started))
        print(f"vLLM, with a probe each time: median {statistics.median(times):.0f} ms")


def main() -> None:
    """Read the options and run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--publishes", type=int, default=20)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--skip-vllm", action="store_true")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
