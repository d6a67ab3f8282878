"""`ludus train`: generate, score, credit, update, publish, log.

The loop below is the whole algorithm; each line calls one module of this package.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any, Protocol

import msgspec
import torch

from ludus.agent import Episode
from ludus.agent.audit import audit_episodes
from ludus.agent.episodes import chosen
from ludus.background import failing_where_given_up
from ludus.errors import SaveFailed, TrainingFailed, UpdateRefused
from ludus.metrics import Stopwatch

from .config import TrainConfig
from .findings.history import rows_of
from .findings.summary import summary_of
from .open_engine import engine_numbers, sampled_here
from .ranks.launch import ending_with_ranks
from .roles import FOLDER as ROLES
from .rollout.collect import Group, compared, most_failed, refuse_failure, solved
from .rollout.evaluate import HeldOutScores, evaluate
from .rollout.stages import Stages
from .rollout.tasks import TaskPool
from .run.best import BestByReward, candidate_steps
from .run.claim import LEARNER
from .run.evaluations import EvaluationCalls, Evaluations
from .run.journal import Journal
from .run.metrics import summarize_step, summarize_survey, tokens_of
from .run.saver import LearnedPolicy, Saver, shielded
from .setup import Parts, assemble, open_stream, take_numbers
from .stage_runs import TrainResult, run_stages
from .stream.accounts import FateOf, fates_of_step
from .stream.watchdog import Watchdog


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


async def run_training(config: TrainConfig, *, watcher: Watcher | None = None) -> TrainResult:
    """Train a policy, in stages where the settings have some; return the paths of the run's files.

    Ctrl-C (cancellation) writes a checkpoint and returns; `run.resume` continues from the
    checkpoint.

    Raises:
        ConfigError: the settings cannot work; nothing has been spent.
        TrainingFailed: no episode of a step has a reward.
        UpdateRefused: `trainer.max_refused` updates in a row were not finite.
        AccountsBroken: a rollout was lost or counted twice.
        RunStalled: nothing has moved for `overlap.stall_limit_s`; a checkpoint is written.
        SaveFailed: `run.max_failed_saves` checkpoints in a row, or the last, could not be written.
    """
    if config.stage:
        return await run_stages(config, partial(run_training, watcher=watcher))
    parts = await assemble(config)
    try:
        run = _Run(parts, watcher)
        with ending_with_ranks():
            return await run.watchdog.guard(run.loop())
    finally:
        await asyncio.shield(parts.closing.aclose())


class _Run:
    def __init__(self, parts: Parts, watcher: Watcher | None) -> None:
        self.parts = parts
        self.config = parts.config
        self.watcher = watcher
        self.step = parts.first_step
        self.tokens = sum(tokens_of(row) for row in rows_of(parts.folder.path))
        """Sampled in the steps so far; the lines behind a checkpoint are gone by now."""
        self.updaters = [parts.updater, *parts.roles.updaters.values()]
        """What learns: the run's own policy, and those of roles."""
        self.made = self.count_updates()
        """How many updates each had made at the last whole step."""
        self.journal = Journal(parts.folder, parts.config, self.updaters, watcher)
        self.kept: list[tuple[Episode, str]] = []
        """Episodes of the step that are worth keeping, with the reason of each."""
        self.stages = Stages()
        self.watchdog = Watchdog(
            self.stages,
            after_s=self.config.overlap.stall_s,
            limit_s=self.config.overlap.stall_limit_s,
            tell=lambda text: self.journal.tell(self.step, "stalled", text),
            sampled=lambda: sampled_here(parts.engine) + sampled_here(parts.evaluating_engine),
        )
        self.stream = open_stream(
            parts, stages=self.stages, done=watcher.on_episode if watcher else None
        )
        self.saver = Saver(
            self.config.run,
            parts.folder,
            LearnedPolicy(
                parts.learner,
                parts.tokenizer,
                parts.config.model.path,
                beside={
                    f"{ROLES}/{name}": LearnedPolicy(updater.learner, parts.tokenizer)
                    for name, updater in parts.roles.updaters.items()
                },
            ),
            self.state,
            self.journal.tell,
        )
        self.evaluations = Evaluations(
            self.config.eval,
            self.config.steps,
            self.journal.scores,
            EvaluationCalls(prepare=self.bring_weights, play=self.evaluate, heard=self.heard),
            self.saver,
        )
        run, steps = self.config.run, self.config.steps
        self.best: BestByReward | None = None
        if self.config.eval.keep_best and not self.config.eval.every:
            every = candidate_steps(steps, run.save_every)
            self.best = BestByReward(steps, every, self.saver, self.journal.diagnosis.history.rows)

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps beside the learner."""
        sampling, numbers = self.parts.sampling, self.parts.numbers
        return {
            "stream": self.stream.state().to_plain(),
            "entropy_coefficient": self.parts.updater.entropy.coefficient,
            **({} if sampling is None else {"sampling": sampling.state()}),
            **({"numbers": numbers.state()} if numbers.schedules else {}),
            **({"roles": roles} if (roles := self.parts.roles.state()) else {}),
        }

    async def loop(self) -> TrainResult:
        """Run the main loop until the last step or an interruption.

        With `overlap.max_staleness` above 0 the stream goes on playing while the learner works.
        """
        interrupted = False
        for number, note in enumerate(self.parts.notes):
            self.journal.tell(self.step, f"setup {number}", note)
        try:
            with failing_where_given_up():
                await self.steps()
        except asyncio.CancelledError:
            interrupted = True
        except Exception as error:
            await self.stream.close()  # no rollout may become final behind the checkpoint
            if self.made != self.count_updates():
                error.add_note("some updates of a step were made: the newest checkpoint is older")
                raise
            try:
                await self.saver.save(self.step)  # the weights stand at the last whole step
            except (UpdateRefused, SaveFailed) as broken:
                error.add_note(str(broken))
            raise
        finally:
            await self.evaluations.cancel()
            await self.stream.close()
        checkpoint = await self.saver.save(self.step, whole=not interrupted)
        if self.best is not None and not interrupted:
            self.best.finish(self.step)
        if not interrupted:
            await self.saver.complete_best()
        stopped = self.stopped if self.step < self.config.steps else ""
        summary = tuple(summary_of(self.journal.diagnosis))
        folder = self.parts.folder.path
        return TrainResult(folder, checkpoint, self.step, interrupted, stopped, summary)

    async def steps(self) -> None:
        """Make the steps that are left, with the evaluations that are due."""
        await self.evaluations.at(self.step)
        if not self.step:
            await self.survey()
        while self.step < self.config.steps and not self.stopped:
            watch = Stopwatch()
            with watch("generate"):
                groups = await self.stream.batch()
            await shielded(self.learn(groups, watch))
            await self.look()
        await self.evaluations.finish(self.step)

    @property
    def stopped(self) -> str:
        """Why the run ends before its last step; empty while the run goes on."""
        if self.config.tokens and self.tokens >= self.config.tokens:
            return f"{self.tokens:.0f} tokens are sampled, of tokens = {self.config.tokens}"
        return self.evaluations.stopped

    async def learn(self, groups: list[Group], watch: Stopwatch) -> None:
        """Update, publish and log as a unit: if Ctrl-C comes first, nothing of this happens."""
        refuse_failure(
            [episode for group in groups for episode in group.episodes],
            most=most_failed(self.config),
        )
        with watch("update"), self.stages.during("the update"):
            metrics, fate_of = await asyncio.to_thread(self.update, groups)
        self.step, self.made = self.step + 1, self.count_updates()
        solved_at = self.parts.updater.algorithm.recipe.sampling.drop_solved_at
        self.parts.tasks.retire(solved(groups, solved_at) if solved_at else [])
        if self.parts.sampling is not None:
            self.parts.sampling.learned(groups)
        settled = self.stream.settle(fate_of)
        try:
            with watch("publish"), self.stages.during("the engine to take the weights"):
                await self.publish()
            self.stream.advance()
        finally:
            self.record(groups, metrics, settled, watch)
        self.journal.refuse_more(self.step)

    def count_updates(self) -> list[int]:
        """Return how many updates each of what learns has made."""
        return [updater.learner.updates for updater in self.updaters]

    def record(
        self,
        groups: list[Group],
        metrics: Mapping[str, float],
        settled: Mapping[str, float],
        watch: Stopwatch,
    ) -> None:
        """Write the line and the episodes of a step: also of one that was learned and whose weights
        the engine did not take, since a checkpoint has it and the run continues behind it.
        """
        wire, passing = self.parts.source.counters(), self.config.eval.passing
        numbers = summarize_step(groups, metrics, watch, wire, passing=passing)
        numbers |= {**settled, **engine_numbers(self.parts.engine), **self.move_numbers(numbers)}
        if self.config.audit.every and self.step % self.config.audit.every == 0:
            played = [episode for group in groups for episode in group.episodes]
            numbers |= audit_episodes(played, seed=self.config.seed)
        self.journal.record(self.step, groups, numbers)
        self.keep(groups)
        self.tokens += tokens_of(numbers)
        if self.watcher:
            self.watcher.on_step(self.step, numbers)

    def move_numbers(self, metrics: Mapping[str, float]) -> dict[str, float]:
        """Move the numbers of the recipe after a step; return those of the step and what the
        sampling policy remembers.
        """
        parts, moving = self.parts, self.parts.numbers
        used = {f"number/{path}": value for path, value in moving.values.items()}
        if moving.schedules:
            for note in moving.learned(self.step, metrics):
                self.journal.tell(self.step, "bound", note)
            take_numbers(parts.updater, parts.sampling, moving.values)
        return used | ({} if parts.sampling is None else parts.sampling.numbers())

    def update(self, groups: list[Group]) -> tuple[dict[str, float], FateOf]:
        """Learn from the groups; a step in which every episode failed changes nothing.

        Returns:
            The metrics of the update, and what became of each rollout.
        """
        updater, metrics = self.parts.updater, dict[str, float]()
        updater.refusals, updater.learned = [], []
        self.kept = chosen(
            [episode for group in groups for episode in group.episodes],
            most=self.config.run.episodes_kept,
            seed=self.config.seed * 1_000_003 + self.step,
        )
        updater.watched = frozenset(episode.ordinal for episode, _ in self.kept)
        groups, roles = compared(groups), self.parts.roles
        seed = self.config.seed * 1_000_003 + self.step
        experience = updater.gather(roles.own(groups), self.step)
        with self.parts.learner.steady.changing(to=self.step + 1):
            if experience is not None:
                generator = torch.Generator().manual_seed(seed)
                metrics = updater.step(experience, generator=generator)
        metrics |= roles.learn(groups, updater, step=self.step, seed=seed)
        refusals = [refusal for each in self.updaters for refusal in each.refusals]
        if metrics:
            metrics["refused"] = float(len(refusals))
        return metrics, fates_of_step(
            updater.algorithm.recipe,
            passing={
                episode.ordinal
                for index in updater.passing(groups)
                for episode in groups[index].episodes
            },
            refused={episode.ordinal for refusal in refusals for episode in refusal.episodes},
        )

    async def publish(self) -> None:
        """Hand the new weights to the engine.

        Raises:
            TrainingFailed: the engine does not take them in time.
        """
        limit_s = self.config.overlap.publish_timeout_s
        clock = asyncio.timeout(limit_s)
        try:
            async with clock:
                await self.parts.engine.set_weights(self.parts.learner.source(), self.step)
                await self.parts.roles.publish(self.step)
        except TimeoutError as error:
            if not clock.expired():
                raise
            raise TrainingFailed(
                f"the engine has not taken the weights of step {self.step} within {limit_s:g} s "
                "(overlap.publish_timeout_s)"
            ) from error

    def keep(self, groups: list[Group]) -> None:
        """Keep the episodes of a step that the settings ask for, and what updates found out."""
        run, folder = self.config.run, self.parts.folder
        is_last = self.step == self.config.steps  # a run shorter than that has one whole step too
        if run.episodes_every and (is_last or self.step % run.episodes_every == 0):
            episodes = [episode for group in groups for episode in group.episodes]
            folder.keep_episodes(f"step-{self.step:06d}", self.step, episodes)
        elif self.kept:
            episodes, reasons = (
                [episode for episode, _ in self.kept],
                [reason for _, reason in self.kept],
            )
            folder.keep_episodes(f"kept-{self.step:06d}", self.step, episodes, reasons)
        for learned in (episode for each in self.updaters for episode in each.learned):
            folder.lines(f"annotations/{LEARNER}").append(msgspec.json.encode(learned))

    async def look(self) -> None:
        """Evaluate and save where the settings ask for this step."""
        run = self.config.run
        await self.evaluations.at(self.step)
        if self.best is not None:
            await self.best.at(self.step, self.journal.diagnosis.history.rows[-1])
        if run.save_every and self.step % run.save_every == 0 and self.step < self.config.steps:
            with self.stages.during("the checkpoint to be written"):
                await self.saver.try_save(self.step)
        for name, text in self.parts.folder.faults().items():
            self.journal.tell(self.step, name, text)

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
        refuse_failure(
            [episode for group in groups for episode in group.episodes],
            most=most_failed(self.config),
        )
        tasks.begin(groups)
        surveyed = summarize_survey(groups)
        self.tokens += tokens_of(surveyed)
        self.parts.folder.log(self.step, surveyed)

    async def bring_weights(self, step: int) -> None:
        """Hand the weights to the engine of evaluations, where that is not the engine of
        training.
        """
        engine = self.parts.evaluating_engine
        if engine is not self.parts.engine:
            await engine.set_weights(self.parts.learner.evaluated(), step)

    def heard(self, step: int, scores: HeldOutScores) -> None:
        """Take note of an evaluation."""
        self.journal.heard(step, scores.numbers)
        if self.watcher:
            self.watcher.on_evaluation(step, scores)

    async def evaluate(self) -> HeldOutScores:
        """Play held-out tasks."""
        with self.stages.during("held-out tasks"):
            scores = await evaluate(
                self.parts.evaluator, self.config.eval, done=lambda _: self.stages.move()
            )
        refuse_failure(scores.episodes)
        return scores
