"""Keeps the best checkpoint of a run that plays no held-out tasks on the way, by training reward.

A step's reward is earned by the weights before its update. The checkpoint of step s is therefore
scored by the steps after s, and a step whose update ruins the policy never passes for the best.
The model that the run began with is the first candidate, and takes no room.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..findings.history import Level, level_of
from ..models.checkpoint_folders import checkpoints, step_of
from .saver import Saver

WINDOW = 3
"""Steps whose reward scores the weights that they begin with."""
CANDIDATES = 10
"""Checkpoints of a run that are compared, about."""
CLEARLY = 2.0
"""Standard errors by which an earlier checkpoint has to be better than the end of the run."""


def candidate_steps(steps: int, save_every: int) -> int:
    """Return the number of steps between candidates: a tenth of the run, at least 5, and at most
    `save_every`, whose checkpoints are written anyway.

    >>> candidate_steps(40, 50), candidate_steps(2000, 50)
    (5, 50)
    """
    tenth = max(5, steps // CANDIDATES)
    return min(tenth, save_every) if save_every else tenth


class BestByReward:
    """Pins the checkpoint that was followed by the highest training reward; no other stays longer
    for its sake.

    Args:
        steps: the steps of the run.
        every: the number of steps between candidates.
        saver: writes checkpoints.
        rows: the lines of `metrics.jsonl` so far, for a run that continues.
    """

    def __init__(
        self, steps: int, every: int, saver: Saver, rows: Sequence[Mapping[str, float]]
    ) -> None:
        self._steps, self._every, self._saver = steps, every, saver
        self._rows = [row for row in rows if "episode/count" in row]
        self.best: tuple[int, Level] | None = None
        """The step of the best checkpoint, with the reward of the steps after it."""
        self._pending: int | None = None
        """The newest candidate, which is not scored yet."""
        for step in [0, *map(step_of, checkpoints(saver.folder.checkpoints))]:
            if step % every == 0:
                self._weigh(step)
        if not self._rows:
            saver.mark_best(0)

    def _weigh(self, step: int) -> None:
        """Score a candidate, or let the candidate wait for the steps that score."""
        rows = [row for row in self._rows if step < row["step"] <= step + WINDOW]
        level = level_of(rows)
        if len(rows) < WINDOW or level is None:
            self._pending = step
        else:
            self._pending = None
            if self.best is None or level.mean > self.best[1].mean:
                self.best = (step, level)
        pinned = {self._pending, self.best[0] if self.best else None}
        self._saver.pinned = {each for each in pinned if each is not None}

    async def at(self, step: int, row: Mapping[str, float]) -> None:
        """Take a step's row into account, and save a candidate where one is due."""
        self._rows = [*self._rows[-WINDOW:], {**row, "step": step}]
        if self._pending is not None and step >= self._pending + WINDOW:
            self._weigh(self._pending)
            self._mark(self.best[0] if self.best else None)
        if step % self._every == 0 and step < self._steps and self._pending is None:
            self._saver.pinned |= {step}
            if await self._saver.try_save(step):
                self._pending = step

    def finish(self, step: int) -> None:
        """Mark the best checkpoint, which is the last unless an earlier one was clearly better."""
        level, best = level_of(self._rows[-WINDOW:]), self.best
        earlier = best is not None and level is not None and best[1].above(level) >= CLEARLY
        self._mark(best[0] if earlier and best is not None else step)

    def _mark(self, step: int | None) -> None:
        if step is not None:
            self._saver.pinned = {step, *([] if self._pending is None else [self._pending])}
            self._saver.mark_best(step)
            self._saver.prune()
