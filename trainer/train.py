"""`ludus train`: generate, score, credit, update, publish, log.

The loop below is the whole algorithm; each line is one module of this folder.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch

from ludus.agent import Episode
from ludus.envs.tasks import order
from ludus.metrics import Stopwatch

from .checkpoint import save_checkpoint
from .config import TrainConfig
from .evaluate import Evaluation, evaluate
from .rollout import Group
from .setup import Parts, assemble
from .summary import summarize_step
from .update import gather


class Watcher(Protocol):
    """Is told how a run goes: a progress bar, a notebook, a test."""

    def on_episode(self, episode: Episode) -> None:
        """An episode ended."""
        ...

    def on_step(self, step: int, metrics: Mapping[str, float]) -> None:
        """A step is done."""
        ...

    def on_evaluation(self, step: int, evaluation: Evaluation) -> None:
        """Held-out tasks were played."""
        ...


@dataclass(frozen=True, slots=True)
class Result:
    """What a run leaves."""

    folder: Path
    checkpoint: Path
    step: int
    interrupted: bool


async def train(config: TrainConfig, *, watcher: Watcher | None = None) -> Result:
    """Train a policy.

    Ctrl-C (cancellation) writes a checkpoint and returns; `run.resume` goes on from it.

    Raises:
        ConfigError: the settings cannot work; nothing has been spent.
    """
    parts = await assemble(config)
    try:
        return await _Run(parts, watcher).loop()
    finally:
        await asyncio.shield(_close(parts))


class _Run:
    def __init__(self, parts: Parts, watcher: Watcher | None) -> None:
        self.parts = parts
        self.config = parts.config
        self.watcher = watcher
        self.step = parts.first_step

    async def loop(self) -> Result:
        """The main loop."""
        interrupted = False
        try:
            await self.evaluate()
            while self.step < self.config.steps:
                watch = Stopwatch()
                with watch("generate"):
                    groups = await self.generate()
                with watch("update"):
                    metrics = await asyncio.to_thread(self.update, groups)
                with watch("publish"):
                    await self.publish()
                self.step += 1
                await self.record(groups, metrics, watch)
        except asyncio.CancelledError:
            interrupted = True
        return Result(self.parts.folder.path, self.save(), self.step, interrupted)

    async def generate(self) -> list[Group]:
        """The rollouts of a step; which tasks they are depends on seed and step alone."""
        config, source = self.config, self.parts.source
        indices = order(await source.size(config.split), config.seed)
        count = config.rollout.tasks_per_step
        chosen = itertools.islice(indices, self.step * count, (self.step + 1) * count)
        return await self.parts.collector.collect(
            await source.tasks(config.split, list(chosen)),
            group_size=config.rollout.group_size,
            seed=config.seed,
            done=self.watcher.on_episode if self.watcher else None,
        )

    def update(self, groups: list[Group]) -> dict[str, float]:
        """Learn from them; nothing is learned from a step in which every episode failed."""
        experience = gather(groups)
        if experience is None:
            return {}
        generator = torch.Generator().manual_seed(self.config.seed * 1_000_003 + self.step)
        return self.parts.updater.step(experience, generator=generator)

    async def publish(self) -> None:
        """Hand the new weights to the engine."""
        await self.parts.engine.set_weights(self.parts.learner.weights(), self.step + 1)

    async def record(
        self, groups: list[Group], metrics: dict[str, float], watch: Stopwatch
    ) -> None:
        """Log the step, and keep, save and evaluate when it is time."""
        numbers = summarize_step(groups, metrics, watch, self.parts.source.counters())
        self.parts.folder.log(self.step, numbers)
        run = self.config.run
        if run.episodes_every and self.step % run.episodes_every == 0:
            episodes = [episode for group in groups for episode in group.episodes]
            self.parts.folder.keep_episodes(f"step-{self.step:06d}", episodes)
        if self.watcher:
            self.watcher.on_step(self.step, numbers)
        last = self.step == self.config.steps
        if last or (self.config.eval.every and self.step % self.config.eval.every == 0):
            await self.evaluate()
        if run.save_every and self.step % run.save_every == 0 and not last:
            self.save()

    async def evaluate(self) -> None:
        """Play held-out tasks."""
        settings = self.config.eval
        found = await evaluate(self.parts.evaluator, settings.split, settings.tasks)
        self.parts.folder.log(self.step, {"eval/mean": found.mean, "eval/failed": found.failed})
        self.parts.folder.keep_episodes(f"eval-{self.step:06d}", found.episodes)
        if self.watcher:
            self.watcher.on_evaluation(self.step, found)

    def save(self) -> Path:
        """Write a checkpoint."""
        parts = self.parts
        return save_checkpoint(
            parts.folder.checkpoints,
            self.step,
            parts.learner.model,
            parts.tokenizer,
            {"learner": parts.learner.state(), "step": self.step},
            keep=self.config.run.keep,
        )


async def _close(parts: Parts) -> None:
    await parts.engine.close()
    await parts.source.close()
    parts.folder.close()
