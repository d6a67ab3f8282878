"""One measured run of the trainer's stream, updater and engine on lengths that are scripted by the
ordinal; `async_rollout.py` starts it as a process of its own.

    python benchmarks/async_real.py async --steps 12        # prints one line of JSON

A rollout samples exactly as many tokens as the script says: no token ends it. Everything else is
the trainer's own: the stream, GRPO with truncated importance weights where rollouts are stale, the
optimizer, the engine and the publishing of weights.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import torch

from ludus.agent import Episode, Sampling, Segment, Trajectory, Turn
from ludus.envs import Task
from ludus.trainer.config import TrainerConfig
from ludus.trainer.engines.local import EngineLimits, LocalEngine
from ludus.trainer.engines.process import EngineSpec, ProcessEngine
from ludus.trainer.learning.experience import gather
from ludus.trainer.learning.learner import Learner
from ludus.trainer.learning.update import Updater
from ludus.trainer.models.loading import write_shell
from ludus.trainer.models.tiny import build_model
from ludus.trainer.plan.simulation import EndlessTasks
from ludus.trainer.recipes.recipe import UpdateSettings, load_recipe
from ludus.trainer.recipes.resolution import corrected, resolve
from ludus.trainer.rollout.collect import Cut, Group
from ludus.trainer.rollout.issues import Ticket
from ludus.trainer.rollout.stages import Stages
from ludus.trainer.stream.accounts import Accounts
from ludus.trainer.stream.plan import StreamPlan
from ludus.trainer.stream.stream import RolloutStream
from ludus.verdict import Verdict

VOCABULARY, PROMPT = 256, 32
GROUP, ROWS = 4, 32
SIGMA, MEAN, LONGEST = 0.8, 48, 384


def length_of(ordinal: int) -> int:
    """Return the scripted length of a rollout: lognormal, with the mean MEAN."""
    rng = random.Random(ordinal)
    drawn = rng.lognormvariate(math.log(MEAN) - SIGMA * SIGMA / 2, SIGMA)
    return max(4, min(LONGEST, round(drawn)))


def playing(engine: Any) -> Any:
    """Return a function that plays groups on an engine."""

    async def rollout(ticket: Ticket, index: int) -> Episode:
        ordinal = ticket.ordinal * GROUP + index
        prompt = [3 + (ticket.ordinal * 7 + n) % (VOCABULARY - 3) for n in range(PROMPT)]
        sampling = Sampling(max_tokens=length_of(ordinal), seed=ordinal)
        said = await engine.generate(prompt, sampling)
        turn = Turn(out_ids=said.ids, logprobs=said.logprobs, versions=said.versions)
        segment = Segment(prompt_ids=prompt, turns=[turn])
        reward = float(sum(token % 2 for token in said.ids) > len(said.ids) / 2)
        trajectory = Trajectory(verdict=Verdict.of(reward), segments=[segment])
        return Episode(task=ticket.task.id, trajectories=[trajectory], index=index, ordinal=ordinal)

    async def play(
        ticket: Ticket, *, done: Callable[[Episode], None], cut: Cut, stages: Stages
    ) -> Group:
        async def one(index: int) -> Episode:
            episode = await rollout(ticket, index)
            done(episode)
            return episode

        episodes = await asyncio.gather(*(one(index) for index in range(GROUP)))
        return Group(ticket.task, list(episodes), 0, ticket.ordinal, ticket.version)

    return play


async def open_engine(kind: str, model: Any, folder: Path) -> Any:
    """Open an engine: of this process, or of its own process on the second core."""
    if kind == "free":
        return LocalEngine(build_model(VOCABULARY, **SHAPE), EngineLimits(max_rows=ROWS))
    write_shell(folder, folder, model)
    spec = EngineSpec(limits=EngineLimits(max_rows=ROWS), folder=str(folder), keep_cache=True)
    engine = ProcessEngine(spec, log=folder / "engine.log")
    os.sched_setaffinity(0, {CORES[-1]})  # inherited by the process
    await engine.revive()
    os.sched_setaffinity(0, {CORES[0]})
    return engine


SHAPE: dict[str, int] = {"hidden": 128, "layers": 2, "heads": 4, "max_length": 512}
CORES = sorted(os.sched_getaffinity(0))[:2]


async def measure(mode: str, steps: int, groups: int, epochs: int) -> dict[str, float]:
    """Run a mode, and return what was measured of all steps but the first `skipped`.

    The first steps of every mode warm up; those of `async` also fill the stream.
    """
    torch.set_num_threads(len(CORES) if mode == "free" else 1)
    model = build_model(VOCABULARY, **SHAPE)
    eta = 4 if mode == "async" else 0
    recipe = load_recipe("grpo", {"sampling": {"group_size": GROUP}})
    algorithm = resolve(corrected(recipe) if eta else recipe, max_tokens=LONGEST)
    learner = Learner(model, TrainerConfig(lr=1e-5))
    updater = Updater(algorithm, learner, updates=UpdateSettings(epochs=epochs))
    with tempfile.TemporaryDirectory() as name:
        engine = await open_engine("free" if mode == "free" else "pinned", model, Path(name))
        await engine.set_weights(learner.source(), 0)
        if mode == "bounds":
            numbers = await bounds(engine, updater, groups, steps)
        else:
            numbers = await trained(engine, updater, groups, steps, eta)
        await engine.close()
    return numbers


async def trained(
    engine: Any, updater: Updater, groups: int, steps: int, eta: int
) -> dict[str, float]:
    """Train, and return tokens a second of the steps after the first two."""
    skipped = 2 + eta
    stream = RolloutStream(
        playing(engine),
        EndlessTasks(),
        StreamPlan(
            groups=groups, group_size=GROUP, steps=10**9, max_staleness=eta, concurrency=2 * ROWS
        ),
        Accounts(None, GROUP),
    )
    started, tokens, oldest, age = 0.0, 0, 0.0, 0.0
    learner_s = engine_s = 0.0
    waited = worked = published = 0.0
    for step in range(skipped + steps):
        if step == skipped:
            started, waited, worked, published = time.perf_counter(), 0.0, 0.0, 0.0
            learner_s, engine_s = time.process_time(), cpu_of(engine)
        at = time.perf_counter()
        batch = await stream.batch()
        waited += time.perf_counter() - at
        at = time.perf_counter()
        await asyncio.to_thread(learn, updater, batch, step)
        worked += time.perf_counter() - at
        numbers = stream.settle(lambda group, episode: "")
        at = time.perf_counter()
        await engine.set_weights(updater.learner.source(), step + 1)
        published += time.perf_counter() - at
        stream.advance()
        if step >= skipped:
            tokens += sampled(batch)
            oldest = max(oldest, numbers["staleness/max"])
            age += numbers["staleness/mean"] / steps
    seconds = time.perf_counter() - started
    learner_s, engine_s = time.process_time() - learner_s, cpu_of(engine) - engine_s
    await stream.close()
    return {
        "tokens_per_s": tokens / seconds,
        "tokens": float(tokens),
        "oldest": oldest,
        "age": age,
        "waited": waited / seconds,
        "worked": worked / seconds,
        "published": published / seconds,
        "learner_cpu": learner_s / tokens,
        "engine_cpu": engine_s / tokens,
    }


def cpu_of(engine: Any) -> float:
    """Return the CPU seconds that an engine process has used; 0 for an engine of this process."""
    if isinstance(engine, LocalEngine):
        return 0.0
    used = psutil.Process(engine.pid).cpu_times()
    return used.user + used.system


def learn(updater: Updater, batch: list[Group], step: int) -> None:
    """Make the update of a step."""
    experience = gather(batch)
    assert experience is not None
    updater.step(experience, generator=torch.Generator().manual_seed(step))


def sampled(batch: list[Group]) -> int:
    """Count the sampled tokens of a batch."""
    return sum(
        trajectory.sampled_tokens
        for group in batch
        for episode in group.episodes
        for trajectory in episode.trajectories
    )


async def bounds(engine: Any, updater: Updater, groups: int, steps: int) -> dict[str, float]:
    """Measure each stage alone: generation with every row taken, and updates without a wait."""
    play = playing(engine)
    count = groups * steps
    quiet = {"done": lambda episode: None, "cut": Cut(), "stages": Stages()}
    line = asyncio.Semaphore(2 * ROWS // GROUP)
    finished: list[tuple[float, Group]] = []

    async def one(ordinal: int) -> None:
        async with line:
            task = Task(id=str(ordinal), split="train")
            group = await play(Ticket(ordinal=ordinal, task=task), **quiet)
            finished.append((time.perf_counter(), group))

    started = time.perf_counter()
    await asyncio.gather(*(one(n) for n in range(count)))
    # until the last group has begun to wait for a place, every row was taken
    full = finished[: count - 2 * ROWS // GROUP]
    generation = sampled([group for _, group in full]) / (full[-1][0] - started)
    batches = [[group for _, group in finished[n : n + groups]] for n in range(0, count, groups)]
    learn(updater, batches[0], 0)
    started = time.perf_counter()
    for step, batch in enumerate(batches):
        await asyncio.to_thread(learn, updater, batch, step)
    training = sum(map(sampled, batches)) / (time.perf_counter() - started)
    return {"generation": generation, "training": training}


def main() -> None:
    """Measure one mode and print the numbers."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("mode", choices=("async", "sync", "free", "bounds"))
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--groups", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=1, help="updates with each rollout")
    parser.add_argument("--hidden", type=int, default=SHAPE["hidden"])
    parser.add_argument("--layers", type=int, default=SHAPE["layers"])
    given = parser.parse_args()
    SHAPE.update(hidden=given.hidden, layers=given.layers)
    print(json.dumps(asyncio.run(measure(given.mode, given.steps, given.groups, given.epochs))))


if __name__ == "__main__":
    main()
