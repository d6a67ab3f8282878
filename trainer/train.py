"""`ludus train`: generate, score, credit, update, publish, log.

The loop below is the whole algorithm; each line calls one module of this package.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch

from ludus.agent import Episode
from ludus.errors import SaveFailed, TrainingFailed, UpdateRefused
from ludus.metrics import Stopwatch, read_metrics

from .config import TrainConfig
from .engines.vllm import VLLMEngine
from .learning.experience import gather
from .ranks import ending_with_ranks
from .rollout import Group
from .rollout.evaluate import HeldOutScores, evaluate
from .rollout.task_pool import TaskPool
from .run.evaluations import Evaluations, ScoreHistory
from .run.metrics import reasons_without_reward, summarize_step, summarize_survey
from .run.notice_board import FILE as NOTICES_FILE, PREFIX, NoticeBoard, counts_of
from .run.notices import StepFacts, notices_of
from .run.saver import Saver
from .setup import Parts, assemble
from .shield import shielded

MAX_REFILLS = 4
"""Largest number of times that a recipe with `sampling.refill` may ask for more tasks in one step.
"""


class Watcher(Protocol):
    """An observer of a run's progress: a progress bar, a notebook, a test."""

    def on_episode(self, episode: Episode) -> None:
        """Called when an episode has ended."""
        ...

    def on_step(self, step: int, metrics: Mapping[str, float]) -> None:
        """Called when a step is done."""
        ...

    def on_evaluation(self, step: int, evaluation: HeldOutScores) -> None:
        """Called when held-out tasks were played."""
        ...


@dataclass(frozen=True, slots=True)
class TrainResult:
    """The files and last step of a run."""

    folder: Path
    checkpoint: Path
    step: int
    interrupted: bool
    stopped: str = ""
    """Why the run ended before its last step; empty if nothing ended it early."""


async def run_training(config: TrainConfig, *, watcher: Watcher | None = None) -> TrainResult:
    """Train a policy and return the paths of the run's files.

    Ctrl-C (cancellation) writes a checkpoint and returns; `run.resume` continues from the
    checkpoint.

    Raises:
        ConfigError: the settings cannot work; nothing has been spent.
        TrainingFailed: no episode of a step has a reward.
        UpdateRefused: `trainer.max_refused` updates in a row were not finite.
        SaveFailed: `run.max_failed_saves` checkpoints in a row, or the last, could not be written.
    """
    parts = await assemble(config)
    try:
        with ending_with_ranks():
            return await _Run(parts, watcher).loop()
    finally:
        await asyncio.shield(parts.closing.aclose())


class _Run:
    def __init__(self, parts: Parts, watcher: Watcher | None) -> None:
        self.parts = parts
        self.config = parts.config
        self.watcher = watcher
        self.step = parts.first_step
        metrics = parts.folder.path / "metrics.jsonl"
        rows = read_metrics(metrics) if metrics.exists() else []
        self.notices = NoticeBoard(parts.folder.lines(NOTICES_FILE), watcher, counts_of(rows))
        self._frontier = parts.frontier
        """The ordinal of the next group."""
        self._cursor = {"tasks": parts.tasks.state(), "frontier": self._frontier}
        """The position after the last finished step; a step that is cut short is played again."""
        self.saver = Saver(
            self.config.run,
            parts.folder,
            parts.learner,
            parts.tokenizer,
            lambda: self._cursor,
            self.tell,
        )
        self.evaluations = Evaluations(
            self.config.eval,
            self.config.steps,
            ScoreHistory(rows),
            prepare=self.bring_weights,
            play=self.evaluate,
            folder=parts.folder,
            saver=self.saver,
            tell=self.tell,
            heard=watcher.on_evaluation if watcher else lambda step, found: None,
        )

    async def loop(self) -> TrainResult:
        """Run the main loop until the last step or an interruption."""
        interrupted = False
        self.notices.post(self.step, {f"plan {n}": note for n, note in enumerate(self.parts.notes)})
        try:
            await self.evaluations.at(self.step)
            if not self.step:
                await self.survey()
            while self.step < self.config.steps and not self.evaluations.stopped:
                watch = Stopwatch()
                with watch("generate"):
                    groups = await self.generate()
                await shielded(self.learn(groups, watch))
                await self.keep(groups)
            await self.evaluations.finish(self.step)
        except asyncio.CancelledError:
            interrupted = True
        except Exception as error:
            try:
                self.saver.save(self.step)  # the weights stand at the last whole step
            except (UpdateRefused, SaveFailed) as broken:
                error.add_note(str(broken))
            raise
        finally:
            await self.evaluations.cancel()
        checkpoint = self.saver.save(self.step)
        stopped = self.evaluations.stopped if self.step < self.config.steps else ""
        return TrainResult(self.parts.folder.path, checkpoint, self.step, interrupted, stopped)

    async def survey(self) -> None:
        """Play each task of the pool once for a first estimate, where a recipe tracks success
        rates.
        """
        tasks = self.parts.tasks
        if not isinstance(tasks, TaskPool) or not tasks.tracker.settings.prior_rollouts:
            return
        groups = await self.parts.collector.collect(
            await tasks.members(),
            group_size=tasks.tracker.settings.prior_rollouts,
            seed=-1 - self.config.seed,
            done=self.watcher.on_episode if self.watcher else None,
        )
        refuse_failure([episode for group in groups for episode in group.episodes])
        tasks.begin(groups)
        self._cursor = {"tasks": tasks.state(), "frontier": self._frontier}
        self.parts.folder.log(self.step, summarize_survey(groups))

    async def generate(self) -> list[Group]:
        """Return the rollouts of a step; with refill, play more tasks until enough groups pass the
        recipe's filter.
        """
        wanted = self.config.rollout.tasks_per_step
        groups = await self.collect(wanted)
        sampling = self.parts.updater.algorithm.recipe.sampling
        for _ in range(MAX_REFILLS if sampling.refill else 0):
            missing = wanted - self.parts.updater.kept_groups(groups)
            if missing <= 0:
                break
            groups += await self.collect(missing)
        return groups

    async def collect(self, count: int) -> list[Group]:
        """Play the next `count` groups.

        The sampling seeds depend on the ordinals alone, so that a resumed run plays the same
        episodes.
        """
        tasks = await self.parts.tasks.take(count)
        first, self._frontier = self._frontier, self._frontier + count
        return await self.parts.collector.collect(
            tasks,
            group_size=self.config.rollout.group_size,
            seed=self.config.seed,
            first=first,
            done=self.watcher.on_episode if self.watcher else None,
        )

    async def learn(self, groups: list[Group], watch: Stopwatch) -> None:
        """Update, publish and log as a unit: if Ctrl-C comes first, nothing of this happens."""
        refuse_failure([episode for group in groups for episode in group.episodes])
        with watch("update"):
            metrics = await asyncio.to_thread(self.update, groups)
        with watch("publish"):
            await self.publish()
        self.step += 1
        solved_at = self.parts.updater.algorithm.recipe.sampling.drop_solved_at
        self.parts.tasks.retire(solved(groups, solved_at) if solved_at else [])
        self._cursor = {"tasks": self.parts.tasks.state(), "frontier": self._frontier}
        numbers = summarize_step(groups, metrics, watch, self.parts.source.counters())
        engine = self.parts.engine
        if isinstance(engine, VLLMEngine) and engine.probed is not None:
            numbers["engine/probe_gap"] = engine.probed
        found = self.notice(groups, numbers)
        numbers |= {f"{PREFIX}{name}": 1.0 for name in found}
        self.parts.folder.log(self.step, numbers)
        if self.watcher:
            self.watcher.on_step(self.step, numbers)
        self.notices.post(self.step, found)
        self.refuse_more()

    def notice(self, groups: Sequence[Group], numbers: Mapping[str, float]) -> dict[str, str]:
        """Return the notices of this step by name, and keep refused updates for inspection."""
        refusals, kept = self.parts.updater.refusals, ""
        if refusals:
            kept = str(self.parts.folder.keep_refused(self.step, refusals))
        return notices_of(
            StepFacts(
                numbers=numbers,
                config=self.config,
                recipe=self.parts.updater.algorithm.recipe,
                reasons=reasons_without_reward(groups),
                refusals=tuple(one.told(kept) for one in refusals),
            )
        )

    def refuse_more(self) -> None:
        """Stop the run after too many refused updates in a row.

        Raises:
            UpdateRefused: `trainer.max_refused` updates in a row were refused.
        """
        updater = self.parts.updater
        if updater.refused_in_a_row < self.config.trainer.max_refused:
            return
        raise UpdateRefused(
            f"{updater.refused_in_a_row} updates in a row were refused, the last at step "
            f"{self.step}: {updater.refusals[-1].reason}. The weights are those of the last update "
            f"that was made; look at {self.parts.folder.refused}, and lower trainer.lr, or mend "
            "what is not finite"
        )

    def update(self, groups: list[Group]) -> dict[str, float]:
        """Learn from the groups; a step in which every episode failed changes nothing."""
        self.parts.updater.refusals = []
        experience = gather(groups)
        if experience is None:
            return {}
        generator = torch.Generator().manual_seed(self.config.seed * 1_000_003 + self.step)
        return self.parts.updater.step(experience, generator=generator)

    async def publish(self) -> None:
        """Hand the new weights to the engine."""
        await self.parts.engine.set_weights(self.parts.learner.source(), self.step + 1)

    async def keep(self, groups: list[Group]) -> None:
        """Keep episodes, evaluate and save where the settings ask for this step."""
        run = self.config.run
        if run.episodes_every and self.step % run.episodes_every == 0:
            episodes = [episode for group in groups for episode in group.episodes]
            self.parts.folder.keep_episodes(f"step-{self.step:06d}", episodes)
        await self.evaluations.at(self.step)
        if run.save_every and self.step % run.save_every == 0 and self.step < self.config.steps:
            self.saver.try_save(self.step)
        self.notices.post(self.step, self.parts.folder.faults())

    def tell(self, step: int, name: str, text: str) -> None:
        """Show a notice."""
        self.notices.post(step, {name: text})

    async def bring_weights(self, step: int) -> None:
        """Hand the weights to the engine of evaluations, where that is not the engine of
        training.
        """
        engine = self.parts.evaluating_engine
        if engine is not self.parts.engine:
            await engine.set_weights(self.parts.learner.source(), step)

    async def evaluate(self) -> HeldOutScores:
        """Play held-out tasks."""
        settings = self.config.eval
        found = await evaluate(
            self.parts.evaluator,
            settings.split,
            settings.tasks,
            samples=settings.samples,
            passing=settings.passing,
        )
        refuse_failure(found.episodes)
        return found


def refuse_failure(episodes: Sequence[Episode]) -> None:
    """Stop if no episode has a reward, rather than train on nothing.

    Raises:
        TrainingFailed: with the commonest reason.
    """
    verdicts = [episode.trajectories[0].verdict for episode in episodes]
    if any(verdict.ok for verdict in verdicts):
        return
    reasons = Counter(f"{verdict.status}: {verdict.detail}" for verdict in verdicts)
    why = reasons.most_common(1)[0][0] if reasons else "there were none"
    raise TrainingFailed(f"all {len(verdicts)} episodes failed; most often: {why}")


def solved(groups: list[Group], rate: float) -> list[str]:
    """Return the tasks whose share of rewarded rollouts reached `rate`; failed rollouts do not
    count.
    """
    found: list[str] = []
    for group in groups:
        verdicts = [episode.trajectories[0].verdict for episode in group.episodes]
        rewards = [verdict.reward for verdict in verdicts if verdict.reward is not None]
        if rewards and sum(reward > 0 for reward in rewards) >= rate * len(rewards):
            found.append(group.task.id)
    return found
