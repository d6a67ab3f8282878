"""A run's claim on a folder: who may write, at which step to start, and the lock.

A run that failed before its first finished step has left nothing that is worth keeping, and the
next run starts over in its folder. A run with finished steps is never overwritten; `run.resume`
continues it, from its newest checkpoint, or from the beginning if it was killed before the first.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import platform
import shutil
import threading
import time
from dataclasses import replace
from pathlib import Path

import msgspec

from ludus.agent.episodes import INDEX
from ludus.errors import ConfigError
from ludus.metrics import cut_back, read_metrics

from ..models.checkpoint_folders import checkpoints, step_of, tidy
from ..settings.run import RunConfig

FILE = ".lock"
LOOK_S = 0.2
"""How long a run that takes a folder waits for those who only look whether a run holds it: they
share the lock for a moment.
"""

_held: set[tuple[int, int]] = set()
"""Device and inode of every folder that this process holds."""
_changing = threading.Lock()
"""Held while a thread looks at `_held`, or opens or closes the file of a folder."""


class LockHolder(msgspec.Struct, frozen=True):
    """The process that holds a folder."""

    pid: int
    host: str


class FolderLock:
    """An exclusive hold on a run folder.

    The lock is a POSIX record lock. The system releases such a lock when its process ends, by
    whatever signal, and a forked worker does not inherit the lock, so that workers that outlive a
    killed run do not keep the folder closed. Record locks do not exclude the threads of one
    process from each other; a table of held folders does.

    Args:
        folder: the folder, which is created if missing.

    Raises:
        ConfigError: another run uses the folder.
        OSError: the folder cannot be written.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._key = _key(folder)
        with _changing:
            if self._key in _held:
                raise ConfigError(_in_use(folder, "another run of this process"))
            self._file = os.open(folder / FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                _lock(self._file, folder, patience_s=LOOK_S)
                os.ftruncate(self._file, 0)
                holder = LockHolder(os.getpid(), platform.node())
                os.write(self._file, msgspec.json.encode(holder) + b"\n")
            except BaseException:  # such as a full disk
                os.close(self._file)
                raise
            _held.add(self._key)

    def release(self) -> None:
        """Let another run use the folder; a second call changes nothing."""
        with _changing:
            if self._key in _held:
                os.close(self._file)
                _held.discard(self._key)


def refuse_held(folder: Path) -> None:
    """Raise ConfigError if a run uses the folder; nothing is written."""
    if not (folder / FILE).exists():
        return
    with _changing:
        # Asked first: a process loses its record locks on a file when it closes any descriptor of
        # the file, so that opening and closing it here would end this process's own lock.
        if _key(folder) in _held:
            raise ConfigError(_in_use(folder, "another run of this process"))
        opened = os.open(folder / FILE, os.O_RDONLY | os.O_CLOEXEC)
        try:
            _lock(opened, folder, fcntl.LOCK_SH)
        finally:
            os.close(opened)


def _key(folder: Path) -> tuple[int, int]:
    status = folder.stat()
    return status.st_dev, status.st_ino


def _lock(
    descriptor: int, folder: Path, kind: int = fcntl.LOCK_EX, *, patience_s: float = 0.0
) -> None:
    """Lock the file of a folder, of which this process has no other descriptor."""
    deadline = time.monotonic() + patience_s
    while True:
        try:
            fcntl.lockf(descriptor, kind | fcntl.LOCK_NB)
            return
        except (BlockingIOError, PermissionError):  # by the system, EAGAIN or EACCES
            if time.monotonic() > deadline:
                raise ConfigError(_in_use(folder, _holder(folder))) from None
            time.sleep(LOOK_S / 20)


def _in_use(folder: Path, holder: str) -> str:
    return (
        f"{str(folder)!r} is in use by {holder}; wait for its end, stop it, or name another folder "
        "by --run.folder"
    )


def _holder(folder: Path) -> str:
    try:
        holder = msgspec.json.decode((folder / FILE).read_bytes(), type=LockHolder)
    except (OSError, msgspec.DecodeError):  # the other run has locked and not written its name yet
        return "another run"
    return f"the run of process {holder.pid} on {holder.host}"


METRICS = "metrics.jsonl"
SETTINGS = "config.toml"
LINES = (METRICS, "findings.jsonl", "failures.jsonl")
"""Files with a JSON object in each line, which names the step that the line belongs to."""
LEARNER = "learner.jsonl"
"""The file of what updates find out about tokens, in the folder `annotations`."""
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
        self._new = not folder.exists()
        self.begins = True
        """Whether a run begins; a folder made for a run that was refused goes with the claim."""
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
            step = self.first_step if self.start else NOTHING
            for name in [*LINES, f"episodes/{INDEX}", f"annotations/{LEARNER}"]:
                cut_back(self.path / name, step)
            for path in [*self.path.glob("episodes/*-*.jsonl"), *self.path.glob("refused/*-*.pt")]:
                number = path.stem.rpartition("-")[2]
                if number.isdigit() and int(number) > step:
                    path.unlink()
            for path in checkpoints(self.path / "checkpoints"):
                if step_of(path) > step:
                    shutil.rmtree(path)
            if step == NOTHING:
                (self.path / ROLLOUTS).unlink(missing_ok=True)
                for path in self.path.glob("tensorboard/events.out.tfevents.*"):
                    with contextlib.suppress(FileNotFoundError):
                        path.unlink()
        except OSError as error:
            raise unwritable(self.path, error) from None

    def release(self) -> None:
        """Let another run use the folder, or remove a folder that was made for no run."""
        if self._new and not self.begins:
            shutil.rmtree(self.path, ignore_errors=True)
        self._lock.release()


def finished_note(first_step: int, steps: int) -> str:
    """Return a note for the user where the resumed run has made its steps already; empty where it
    goes on.
    """
    if first_step < steps:
        return ""
    return f"the run is finished: it has made its {steps} steps; for more, --steps {2 * steps}"


def settled_resume(run: RunConfig, folder: Path) -> RunConfig:
    """Return the settings with `resume` as a truth value: "auto" continues a run that has begun in
    the folder.
    """
    if run.resume != "auto":
        return run
    return replace(run, resume=_begun(folder))


def refuse_folder(folder: Path, *, resume: bool) -> None:
    """Raise what `RunClaim` would raise about the runs of a folder, and change nothing.

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
    if resume and not _begun(folder):
        raise ConfigError(
            f"nothing to resume: {str(folder)!r} holds no run; leave out --run.resume"
        )
    if not resume and _has_steps(folder):
        raise ConfigError(
            f"{str(folder)!r} holds a run already; go on with it by --run.resume, or name another "
            "by --run.folder"
        )


def _begun(folder: Path) -> bool:
    return (folder / SETTINGS).exists() or bool(checkpoints(folder / "checkpoints"))


def _has_steps(folder: Path) -> bool:
    """Whether a run has left more than its start: a step, a survey of its tasks, or lines that
    nobody can read.
    """
    if any(step_of(path) for path in checkpoints(folder / "checkpoints")):
        return True
    path = folder / METRICS
    rows = read_metrics(path) if path.exists() else []
    return any(row.get("step") != 0 or "survey/rollouts" in row for row in rows)


def unwritable(folder: Path, error: OSError) -> ConfigError:
    """Return the error for a run folder that the system refuses to write."""
    return ConfigError(
        f"cannot write the run folder {str(folder)!r}: {error.strerror or error}; choose another "
        "with --run.folder"
    )
