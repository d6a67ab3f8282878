"""A lock that keeps two runs out of one folder, and that ends with the process that holds it."""

from __future__ import annotations

import fcntl
import os
import platform
from pathlib import Path

import msgspec

from ludus.errors import ConfigError

FILE = ".lock"

_held: set[tuple[int, int]] = set()
"""Device and inode of every folder that this process holds."""


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
        status = folder.stat()
        self._key = (status.st_dev, status.st_ino)
        if self._key in _held:
            raise ConfigError(_in_use(folder, "another run of this process"))
        self._file = os.open(folder / FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._file)
            raise ConfigError(_in_use(folder, _holder(folder))) from None
        _held.add(self._key)
        os.ftruncate(self._file, 0)
        os.write(self._file, msgspec.json.encode(LockHolder(os.getpid(), platform.node())) + b"\n")

    def release(self) -> None:
        """Let another run use the folder; a second call changes nothing."""
        if self._key in _held:
            _held.discard(self._key)
            os.close(self._file)


def refuse_held(folder: Path) -> None:
    """Raise ConfigError if a run uses the folder; nothing is written."""
    if not (folder / FILE).exists():
        return
    status = folder.stat()
    # Asked first: a process loses its record locks on a file when it closes any descriptor of the
    # file, so that opening and closing it here would end this process's own lock.
    if (status.st_dev, status.st_ino) in _held:
        raise ConfigError(_in_use(folder, "another run of this process"))
    opened = os.open(folder / FILE, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.lockf(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise ConfigError(_in_use(folder, _holder(folder))) from None
    finally:
        os.close(opened)


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
