"""Saves the checkpoints of a run, and decides what a failed save means for the run."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from safetensors import SafetensorError

from ludus.errors import SaveFailed

from ..config import RunConfig
from ..learning.learner import PolicyLearner
from ..models.checkpoint import SavedModel, save_checkpoint
from ..models.checkpoint_folders import Retention, checkpoints, prune, step_of
from ..models.model_paths import shards_alone
from .folder import RunFolder

Tell = Callable[[int, str, str], None]
"""Shows a person an event, by the step, its name and its text."""
BEST = "best"
"""The link to the best checkpoint, beside the checkpoints."""


@dataclass(frozen=True)
class LearnedPolicy:
    """The learner of a run, and the tokenizer that is saved beside its model."""

    learner: PolicyLearner
    tokenizer: object
    first: str = ""
    """The folder of the model that the run began with."""
    beside: Mapping[str, LearnedPolicy] = field(default_factory=dict[str, "LearnedPolicy"])
    """Further policies that learn in the run, each by its folder below the checkpoint's."""

    def saved(self, *, whole: bool) -> SavedModel:
        """Return the present model; ranks write the whole model only where that is asked for."""
        learner, tokenizer = self.learner, self.tokenizer
        writer = learner.writer(tokenizer, whole=whole)
        beside = {at: learned.saved(whole=whole) for at, learned in self.beside.items()}
        return SavedModel(
            learner.model, tokenizer, images=learner.images, writer=writer, beside=beside
        )


class Saver:
    """Saves checkpoints.

    A run outlives a checkpoint that cannot be written: an event is told, the older checkpoints
    stay, and the next save is tried at its time. After `run.max_failed_saves` in a row the run
    ends, since it would learn what nobody can keep.

    Args:
        settings: the settings of the run folder.
        folder: where the checkpoints are written.
        learned: brings the model, the tokenizer and the learner's own state.
        state: returns the rest of the trainer's state.
        tell: shows a person an event: step, name and text.
    """

    def __init__(
        self,
        settings: RunConfig,
        folder: RunFolder,
        learned: LearnedPolicy,
        state: Callable[[], Mapping[str, Any]],
        tell: Tell,
    ) -> None:
        self.pinned: set[int] = set()
        """Steps whose checkpoints stay however old they are."""
        self._settings = settings
        self.folder = folder
        self.tell = tell
        self._learned = learned
        self._state = state
        self._failed = 0
        self._saved = self._unsaved = -1

    async def save(self, step: int, *, whole: bool = False) -> Path:
        """Write the checkpoint of `step`, after every line of metrics.

        The state is taken at once; the files are written on a thread, while rollouts go on. The
        caller makes no update meanwhile. A cancellation waits for the end of the save.

        Args:
            step: the number of finished steps.
            whole: whether ranks write the whole model too, whatever `run.whole` says.

        Raises:
            SaveFailed: the disk is full or failing; the older checkpoints stay.
            UpdateRefused: the weights are not finite.
        """
        self.folder.sync()  # what a checkpoint counts as told must not be lost with the power
        state = {"learner": self._learned.learner.state(), "step": step, **self._state()}
        path = await shielded(asyncio.to_thread(self._write, step, state, whole))
        self._failed, self._saved = 0, step
        return path

    async def try_save(self, step: int) -> bool:
        """Write the checkpoint of `step` unless that was done; say whether the checkpoint is there.

        Raises:
            SaveFailed: `run.max_failed_saves` checkpoints in a row could not be written.
            UpdateRefused: the weights are not finite.
        """
        if step in (self._saved, self._unsaved):  # a candidate may be due where a save is
            return step == self._saved
        try:
            await self.save(step)
        except SaveFailed as error:
            self._failed, self._unsaved = self._failed + 1, step
            most = self._settings.max_failed_saves
            if self._failed >= most:
                raise SaveFailed(
                    f"{self._failed} checkpoints in a row could not be written "
                    f"(run.max_failed_saves): {error}"
                ) from error
            goes_on = f"The run goes on; after {most} in a row it stops (run.max_failed_saves)"
            self.tell(step, "save_failed", f"{error}. {goes_on}")
            return False
        return True

    def _write(self, step: int, state: Mapping[str, Any], whole: bool) -> Path:
        return save_checkpoint(
            self.folder.checkpoints,
            step,
            self._learned.saved(whole=whole or self._settings.whole == "always"),
            state,
            Retention(self._settings.keep, self.pinned),
        )

    def prune(self) -> None:
        """Remove the older checkpoints that are pinned no longer."""
        prune(self.folder.checkpoints, Retention(self._settings.keep, self.pinned))

    async def complete_best(self) -> None:
        """Put the whole model of the best checkpoint together, where ranks have written its shards
        alone. A full disk does not end the run: an event names the command.
        """
        link = self.folder.checkpoints / BEST
        if not link.exists() or not shards_alone(best := link.resolve()):
            return
        from ..ranks.whole import join  # torch's distributed checkpoints take a second to import

        try:
            await shielded(asyncio.to_thread(join, best))
        except (OSError, RuntimeError, SafetensorError) as error:
            command = f"ludus model join {best}"
            message = (
                f"the best checkpoint stays in shards ({error}); write its model with: {command}"
            )
            self.tell(step_of(best), "best_in_shards", message)

    def mark_best(self, step: int) -> None:
        """Let `checkpoints/best` lead to the checkpoint of `step`, which for step 0 is the model
        that the run began with, where file systems have links; no link is left if that checkpoint
        was not written.
        """
        link, new = self.folder.checkpoints / BEST, self.folder.checkpoints / f".{BEST}"
        written = {step_of(path): path.name for path in checkpoints(self.folder.checkpoints)}
        first = Path(self._learned.first).absolute()
        target = written.get(
            step, str(first) if not step and (first / "config.json").exists() else ""
        )
        with suppress(OSError):
            if not target:
                link.unlink(missing_ok=True)
                return
            new.unlink(missing_ok=True)
            new.symlink_to(target)
            os.replace(new, link)


T = TypeVar("T")


async def shielded(work: Coroutine[Any, Any, T]) -> T:
    """Finish `work` even if the caller is cancelled meanwhile, and raise the cancellation
    afterwards.
    """
    task = asyncio.create_task(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            # A second cancellation, as of an impatient Ctrl-C, must not reach the work either.
            with suppress(asyncio.CancelledError):
                await asyncio.wait({task})
        task.result()  # an error of the work comes before the cancellation
        raise
