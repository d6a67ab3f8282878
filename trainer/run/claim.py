"""The claim of a run on its folder: who may write there, and where the run starts.

A run that failed before its first finished step has left nothing that is worth keeping, and the
next run starts over in its folder. A run with finished steps is never overwritten; `run.resume`
continues it, from its newest checkpoint, or from the beginning if it was killed before the first.
"""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

from ludus.errors import ConfigError
from ludus.metrics import cut_back, read_metrics

from .checkpoint import checkpoints, step_of, tidy
from .lock import FolderLock, refuse_held

METRICS = "metrics.jsonl"
SETTINGS = "config.toml"
LINES = (METRICS, "notices.jsonl")
"""Files with a JSON object in each line, which names the step that the line belongs to."""
ROLLOUTS = "rollouts.jsonl"
"""The fates of rollouts, which the stream cuts back itself: a checkpoint knows ordinals that were
masked during the step after the checkpoint's.
"""
ANEW = "the run was stopped before its first checkpoint, and starts from the beginning"
NOTHING = -1
"""The step to cut back to where a run starts over."""


class RunClaim:
    """An exclusive claim on a run folder, from which the claim has removed what no checkpoint has.

    Args:
        folder: the run folder, which is created if missing.
        resume: whether to continue the run that the folder holds.

    Raises:
        ConfigError: another run uses the folder, the folder cannot be written, the folder holds
            a run and `resume` is false, or holds none and `resume` is true.
    """

    def __init__(self, folder: Path, *, resume: bool) -> None:
        self.path = folder
        refuse_folder(folder, resume=resume)
        try:
            self._lock = FolderLock(folder)
        except OSError as error:
            raise unwritable(folder, error) from None
        try:
            _refuse(folder, resume=resume)  # again: now nobody else can change the folder
            tidy(folder / "checkpoints")
            resumable = checkpoints(folder / "checkpoints") if resume else []
        except BaseException:
            self.release()
            raise
        self.start = resumable[-1] if resumable else None
        """The checkpoint to continue from; None starts from the beginning."""
        self.first_step = step_of(self.start) if self.start else 0
        self.note = ANEW if resume and self.start is None else ""
        """What a user should know about the start; empty if there is nothing to tell."""

    def take_back(self) -> None:
        """Remove what an earlier process wrote about steps after the start.

        Raises:
            ConfigError: the folder cannot be written.
        """
        try:
            _take_back(self.path, self.first_step if self.start else NOTHING)
        except OSError as error:
            raise unwritable(self.path, error) from None

    def release(self) -> None:
        """Let another run use the folder."""
        self._lock.release()


def refuse_folder(folder: Path, *, resume: bool) -> None:
    """Raise what `RunClaim` would raise about the runs of a folder, and change nothing there.

    Raises:
        ConfigError: another run uses the folder, the folder holds a run and `resume` is false, or
            holds none and `resume` is true.
    """
    try:
        refuse_held(folder)  # first: of a run that goes on, nothing else matters
        _refuse(folder, resume=resume)
    except OSError as error:
        raise unwritable(folder, error) from None


def _refuse(folder: Path, *, resume: bool) -> None:
    begun = folder.exists() and (folder / SETTINGS).exists()
    if resume and not begun and not checkpoints(folder / "checkpoints"):
        raise ConfigError(
            f"nothing to resume: {str(folder)!r} holds no run; leave out --run.resume"
        )
    if not resume and _has_steps(folder):
        raise ConfigError(
            f"{str(folder)!r} holds a run already; go on with it by --run.resume, or name another "
            "by --run.folder"
        )


def _has_steps(folder: Path) -> bool:
    """Whether a run has left more than its start: a step, a survey of its tasks, or lines that
    nobody can read.
    """
    if any(step_of(path) for path in checkpoints(folder / "checkpoints")):
        return True
    path = folder / METRICS
    rows = read_metrics(path) if path.exists() else []
    return any(row.get("step") != 0 or "survey/rollouts" in row for row in rows)


def _take_back(folder: Path, step: int) -> None:
    for name in LINES:
        cut_back(folder / name, step)
    for path in [*folder.glob("episodes/*-*.jsonl"), *folder.glob("refused/*-*.pt")]:
        number = path.stem.rpartition("-")[2]
        if number.isdigit() and int(number) > step:
            path.unlink()
    for path in checkpoints(folder / "checkpoints"):
        if step_of(path) > step:
            shutil.rmtree(path)
    if step == NOTHING:
        (folder / ROLLOUTS).unlink(missing_ok=True)
        for path in folder.glob("tensorboard/events.out.tfevents.*"):
            with contextlib.suppress(FileNotFoundError):
                path.unlink()


def unwritable(folder: Path, error: OSError) -> ConfigError:
    """Return the error for a run folder that the system refuses to write."""
    return ConfigError(
        f"cannot write the run folder {str(folder)!r}: {error.strerror}; choose another with "
        "--run.folder"
    )
