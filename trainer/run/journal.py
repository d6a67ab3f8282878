"""Writes down each step: metrics, notices, refused updates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ludus.errors import UpdateRefused
from ludus.metrics import read_metrics

from ..config import TrainConfig
from ..learning.update import Updater
from ..rollout.collect import Group
from .evaluations import ScoreHistory
from .folder import RunFolder
from .metrics import reasons_without_reward
from .notice_board import FILE, PREFIX, NoticeBoard, counts_of
from .notices import StepFacts, notices_of


class Journal:
    """The journal of a run.

    Args:
        folder: the run folder.
        config: the settings.
        updater: knows the updates that were refused.
        watcher: receives notices if it has `on_notice`.
    """

    def __init__(
        self, folder: RunFolder, config: TrainConfig, updater: Updater, watcher: object
    ) -> None:
        self._folder = folder
        self._config = config
        self._updater = updater
        metrics = folder.path / "metrics.jsonl"
        rows = read_metrics(metrics) if metrics.exists() else []
        self._board = NoticeBoard(folder.lines(FILE), watcher, counts_of(rows))
        self.scores = ScoreHistory(rows)
        """The held-out scores so far."""

    def tell(self, step: int, name: str, text: str) -> None:
        """Show a notice."""
        self._board.post(step, {name: text})

    def record(
        self, step: int, groups: Sequence[Group], numbers: Mapping[str, float]
    ) -> dict[str, float]:
        """Log a step, show the notices, and return the metrics with the notices that hold.

        Raises:
            UpdateRefused: `trainer.max_refused` updates in a row were refused.
        """
        refusals, episodes_file = self._updater.refusals, ""
        if refusals:  # refused updates are kept for inspection
            episodes_file = str(self._folder.keep_refused(step, refusals))
        notices = notices_of(
            StepFacts(
                numbers=numbers,
                config=self._config,
                recipe=self._updater.algorithm.recipe,
                reasons=reasons_without_reward(groups),
                refusals=tuple(refusal.told(episodes_file) for refusal in refusals),
            )
        )
        logged = {**numbers, **{f"{PREFIX}{name}": 1.0 for name in notices}}
        self._folder.log(step, logged)
        self._board.post(step, notices)
        return logged

    def refuse_more(self, step: int) -> None:
        """Stop the run after too many refused updates in a row.

        Raises:
            UpdateRefused: `trainer.max_refused` updates in a row were refused.
        """
        updater = self._updater
        if updater.refused_in_a_row < self._config.trainer.max_refused:
            return
        raise UpdateRefused(
            f"{updater.refused_in_a_row} updates in a row were refused, the last at step {step}: "
            f"{updater.refusals[-1].reason}. The weights are those of the last update that was "
            f"made; look at {self._folder.refused}, and lower trainer.lr, or mend what is not "
            "finite"
        )
