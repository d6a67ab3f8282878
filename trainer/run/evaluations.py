"""When held-out tasks are played during a run, which checkpoint was the best, and whether to stop.

Everything that these decisions need is read from the lines of `metrics.jsonl`, which are cut back
to the checkpoint from which a run continues: a resumed run decides as the run would have decided.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..config import EvalConfig
from ..rollout.evaluate import HeldOutScores
from .saver import Saver


@dataclass(frozen=True, slots=True)
class ScoredStep:
    """The held-out score of a step."""

    step: int
    mean: float | None
    """The mean reward; None if every episode failed."""


class ScoreHistory:
    """The held-out scores of a run, in the order of their steps.

    Args:
        rows: the lines of `metrics.jsonl`.

    >>> history = ScoreHistory([{"step": 0, "eval/mean": 0.5, "eval/episodes": 4.0}])
    >>> history.add(10, 0.7)
    True
    >>> history.add(20, 0.6)
    False
    >>> history.best, history.since_best
    (ScoredStep(step=10, mean=0.7), 1)
    """

    def __init__(self, rows: Iterable[Mapping[str, float]] = ()) -> None:
        self.scores: list[ScoredStep] = []
        self.best: ScoredStep | None = None
        """The first of the highest scores; None before the first known score."""
        for row in rows:
            if "eval/episodes" in row:
                self.add(int(row["step"]), row.get("eval/mean"))

    def add(self, step: int, mean: float | None) -> bool:
        """Add the score of a step, and return whether the score is a new best."""
        self.scores.append(ScoredStep(step, mean))
        best = self.best.mean if self.best else None
        if mean is None or (best is not None and mean <= best):
            return False
        self.best = self.scores[-1]
        return True

    @property
    def last_step(self) -> int:
        """The step of the newest score; -1 without a score."""
        return self.scores[-1].step if self.scores else -1

    @property
    def since_best(self) -> int:
        """Number of known scores after the best."""
        known = [score for score in self.scores if score.mean is not None]
        return len(known) - 1 - known.index(self.best) if self.best else 0

    def reason_to_stop(self, settings: EvalConfig) -> str:
        """Return why the run should end early; empty if the run should go on."""
        known = [score for score in self.scores if score.mean is not None]
        if not known or self.best is None:
            return ""
        newest, mean = known[-1], known[-1].mean or 0.0
        if settings.stop_at is not None and mean >= settings.stop_at:
            return (
                f"the held-out score of step {newest.step} is {mean:.3f}, and eval.stop_at is "
                f"{settings.stop_at:g}"
            )
        if settings.patience and self.since_best >= settings.patience:
            return (
                f"{self.since_best} evaluations in a row were no better than {self.best.mean:.3f} "
                f"at step {self.best.step} (eval.patience)"
            )
        return ""


@dataclass(frozen=True, kw_only=True)
class EvaluationCalls:
    """The functions that play an evaluation and hear its results."""

    prepare: Callable[[int], Awaitable[None]]
    """Called with the step before an evaluation; brings the weights to the engine."""
    play: Callable[[], Coroutine[Any, Any, HeldOutScores]]
    """Plays the held-out tasks."""
    heard: Callable[[int, HeldOutScores], None]
    """Called with the step and the scores of each evaluation."""


class Evaluations:
    """Plays held-out tasks when an evaluation is due.

    With `eval.beside`, training goes on meanwhile. An evaluation that is due while another runs
    starts as soon as that one has ended, and is labelled with the step at which it starts.

    Args:
        settings: the settings of evaluations.
        steps: the steps of the run, after which held-out tasks are played in any case.
        history: the scores so far.
        calls: how an evaluation is played, and who hears of it.
        saver: saves the best checkpoint; scores and episodes are written to the saver's folder.
    """

    def __init__(
        self,
        settings: EvalConfig,
        steps: int,
        history: ScoreHistory,
        calls: EvaluationCalls,
        saver: Saver,
    ) -> None:
        self.history = history
        self.stopped = history.reason_to_stop(settings)
        """Why the run should end early; empty if it should go on."""
        self._settings = settings
        self._waits = settings.beside in ("no", "auto")
        """Whether training waits for an evaluation."""
        self._steps = steps
        self._calls = calls
        self._saver = saver
        self._keeps_best = settings.keep_best and settings.every > 0
        """Whether held-out scores choose the best checkpoint; see `BestByReward` for other runs."""
        self._started = history.last_step
        """The step of the newest evaluation that was started."""
        self._late = False
        """Whether an evaluation was told to start late."""
        self._beside: asyncio.Task[HeldOutScores] | None = None
        if history.best is not None and self._keeps_best:
            saver.pinned = {history.best.step}

    def due(self, step: int) -> bool:
        """Whether held-out tasks must be played: before the run, after the run, and each time that
        a multiple of `eval.every` was reached since the last evaluation.
        """
        if step <= self._started:
            return False
        every = self._settings.every
        passed = every and step // every > max(self._started, 0) // every
        return bool(passed) or step in (0, self._steps) or self._started < 0

    async def at(self, step: int) -> None:
        """Play the evaluation that is due after `step`, or start the evaluation beside training.

        Raises:
            TrainingFailed: every episode of an evaluation failed.
        """
        if self._beside is not None and self._beside.done():
            await self._collect()
        if not self.due(step):
            return
        if self._beside is not None:
            late = (
                f"the evaluation of step {self._started} still runs at step {step}, where the next "
                "one is due: that one starts late. Raise eval.every, or lower eval.tasks"
            )
            if not self._late:  # once, and not at every step until it has ended
                self._saver.tell(step, "evaluation_late", late)
            self._late = True
            return
        # The weights of an evaluation that had not ended are gone where a later step is continued.
        every = self._settings.every
        cut = step - step % every if every else 0
        if self._started < cut < step and not self._late:
            self._saver.tell(
                step,
                "evaluation_cut",
                f"the evaluation of step {cut} had not ended when the run did, and the run "
                f"continues from step {step}: these weights are scored instead, and the line says "
                f"step {step}. eval.beside = 'no' lets a checkpoint wait for the score",
            )
        self._started, self._late = step, False
        if self._waits:
            await self._record(step, await self._calls.play())
            return
        await self._calls.prepare(step)
        if self._keeps_best and step and step < self._steps:
            self._saver.pinned |= {step}  # its score is known when the weights have moved on
            await self._saver.try_save(step)
        self._beside = asyncio.create_task(self._calls.play(), name=f"evaluation of step {step}")

    async def finish(self, step: int) -> None:
        """Wait for the running evaluation, and play the evaluation due after the last step.

        Raises:
            TrainingFailed: every episode of an evaluation failed.
        """
        if self._beside is not None:
            await self._collect()
        if not self._waits and step > self._started:
            self._started = step
            await self._calls.prepare(step)
            await self._record(step, await self._calls.play())

    async def cancel(self) -> None:
        """Cancel the running evaluation, and record nothing."""
        if self._beside is not None:
            self._beside.cancel()
            await asyncio.wait([self._beside])
            self._beside = None

    async def _collect(self) -> None:
        assert self._beside is not None
        task, step = self._beside, self._started
        try:
            scores = await task
        finally:
            self._beside = None if task.done() else task
        await self._record(step, scores)

    async def _record(self, step: int, scores: HeldOutScores) -> None:
        self._saver.folder.keep_episodes(f"eval-{step:06d}", step, scores.episodes)
        self._saver.folder.log(step, scores.numbers)
        is_best = self.history.add(step, scores.mean)
        if self._keeps_best:
            # The weights before the first step are those of `model.path`, and the last step is
            # saved in any case.
            best = self.history.best
            self._saver.pinned = {best.step} if best else set()
            if is_best and self._waits and 0 < step < self._steps:
                await self._saver.try_save(step)
            if best is not None:
                self._saver.mark_best(best.step)
        if scores.note:
            self._saver.tell(step, "evaluation", scores.note)
        self._calls.heard(step, scores)
        self.stopped = self.history.reason_to_stop(self._settings)
        if self.stopped and step < self._steps:
            self._saver.tell(step, "early_stop", f"the run ends early: {self.stopped}")
