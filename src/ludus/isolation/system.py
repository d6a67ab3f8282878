"""System calls of worker processes: end with the parent, adopt orphans, bound memory.

On other systems than Linux the calls do nothing; a worker then still ends when its socket closes.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import sys
import time

_SET_PARENT_DEATH_SIGNAL = 1
_SET_CHILD_SUBREAPER = 36


def end_with_parent(parent: int) -> None:
    """Ask to be killed when `parent` dies; exit at once if that has happened already."""
    _prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent dies, so that none is lost."""
    _prctl(_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def children() -> list[int]:
    """Return the pids of the children of this process's main thread."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
            return [int(pid) for pid in file.read().split()]
    except OSError:
        return []


def end_children(grace_s: float) -> None:
    """Reap every child; kill the children that do not end by themselves within `grace_s`."""
    deadline = time.monotonic() + grace_s
    while True:
        try:
            reaped, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if reaped:
            continue
        if time.monotonic() > deadline:
            for pid in children():
                kill(pid)
        time.sleep(0.01)


class Orphans:
    """Descendants that became children of this process because their parent died.

    They may end by themselves for a while, as sandboxes do whose driver is gone; then they are
    killed.

    Args:
        grace_s: how long an orphan may go on, in seconds.
        own_pids: children that are not orphans.
    """

    def __init__(self, grace_s: float, own_pids: set[int]) -> None:
        self._grace_s = grace_s
        self._own = own_pids
        self._found: dict[int, float] = {}

    def look(self, known_pids: set[int]) -> None:
        """Find new orphans, reap ended orphans, and kill orphans whose time is over.

        Args:
            known_pids: further children that are not orphans.
        """
        now = time.monotonic()
        for pid in set(children()) - known_pids - self._own:
            self._found.setdefault(pid, now)
        for pid, first_seen in list(self._found.items()):
            if now - first_seen > self._grace_s:
                kill(pid)
            try:
                ended_pid, _ = os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                ended_pid = pid
            if ended_pid:
                del self._found[pid]


def kill(pid: int) -> None:
    """Send SIGKILL to a child that has not been reaped, and to its process group if it leads
    one.
    """
    with contextlib.suppress(OSError):
        if os.getpgid(pid) == pid:
            os.killpg(pid, signal.SIGKILL)
    with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGKILL)


def cap_memory(more_bytes: int) -> None:
    """Bound the writable memory of this process to the present size plus `more_bytes`.

    The bound is RLIMIT_DATA: private writable memory, thread stacks included. Address space that is
    only reserved, mapped files and what is shared are not counted, unlike under RLIMIT_AS, which
    would refuse to start threads or to load large libraries.
    """
    limit = data_bytes() + more_bytes
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def data_bytes() -> int:
    """Return the private writable memory of this process, as RLIMIT_DATA counts."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[5]) * resource.getpagesize()
    except OSError:
        return 1 << 30


def private_bytes(pid: int) -> int:
    """Return the memory that would be free if process `pid` ended; 0 if that cannot be read."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
            lines = file.read().splitlines()
    except OSError:
        return 0
    private = [line for line in lines if line.startswith(("Private_Clean", "Private_Dirty"))]
    return sum(int(line.split()[1]) for line in private) * 1024


def open_descriptors() -> set[int]:
    """Return the open file descriptors of this process."""
    try:
        return {int(name) for name in os.listdir("/proc/self/fd")}
    except OSError:
        return set()


def thread_count() -> int:
    """Return the number of threads of this process, including the threads of libraries."""
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return 1
