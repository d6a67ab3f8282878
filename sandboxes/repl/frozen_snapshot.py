"""Frozen snapshots: copies of a session process that never run again, and start branches."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from ..guest.jail import policy, syscalls
from ..guest.run.plan import ROOT
from ..local.control_groups import ControlGroup
from ..local.process_tree import threads_of
from ..protocol import Limits
from .session_processes import BranchedSessionProcess, StartedBranch
from .session_tree import SessionProcess, kill
from .snapshot_client import NotSnapshotable

MAX_PROCESSES = 64
"""The most processes and threads of a branch."""
# More than the frozen copy alone: the helpers that copy its files are charged to its group as well.
_FROZEN_PROCESSES = 16
# How often, 10 ms apart, it is looked at whether killed copies have gone.
_CHECKS_OF_END = 200
# The first Landlock version with scopes, which keep a branch's signals and sockets from others.
_LANDLOCK = 6


class FrozenSnapshot:
    """A stopped copy of a session process, which never runs again, with a copy of the session's
    files.
    """

    def __init__(self, origin: SessionProcess, pid: int, group: ControlGroup, place: str) -> None:
        self.tree, self._node = origin.tree, origin.node
        self._pid, self._group, self._place = pid, group, place
        self._closed = False
        self.tree.join()

    @classmethod
    async def of(cls, origin: SessionProcess, copy: int, memory_bytes: int) -> FrozenSnapshot:
        """Freeze `copy`, a fork of `origin` that the session has made of itself, and copy the
        files.

        Args:
            origin: the process behind the session.
            copy: the pid of the fork, which waits to be frozen.
            memory_bytes: the memory limit of the frozen copy.

        Raises:
            NotSnapshotable: a copy would share something with the session; `reason` says what.
        """
        tree = origin.tree
        tree.copied = True
        try:
            group = tree.make_group(
                "frozen", processes=_FROZEN_PROCESSES, memory_bytes=memory_bytes
            )
        except NotSnapshotable:
            await end_copies(origin, [copy])
            raise
        place = f"{origin.node}/{next(tree.numbers)}"
        details = {"frozen": copy, "session": origin.pid, "from": origin.place, "to": place}
        try:
            request = tree.request("hold", group, set_apart=not origin.apart, **details)
            await tree.snapshots.ask(request)
            origin.apart = True
            # Checked again, because setting the session apart restricts only its own process: a
            # thread or child that it started meanwhile would stay unrestricted (decision 0421).
            copyable(origin)
        except BaseException:  # A cancelled caller must not leave a stopped copy behind either.
            kill([copy])
            await tree.clear(group, place, "drop", frozen=copy)
            raise
        return cls(origin, copy, group, place)

    async def branch(self, limits: Limits) -> tuple[BranchedSessionProcess, list[int]]:
        """Start a branch, and return the driver's ends of the request line and of both output
        pipes.

        Raises:
            NotSnapshotable: the frozen copy is gone, or the sandbox failed.
        """
        tree = self.tree
        group = tree.make_group("branch", processes=MAX_PROCESSES, memory_bytes=limits.memory_bytes)
        place = f"{self._node}/{next(tree.numbers)}"
        details = {"frozen": self._pid, "from": f"{self._place}/{policy.FILES}", "to": place}
        try:
            answer, descriptors = await tree.snapshots.ask(tree.request("branch", group, **details))
        except BaseException:
            await tree.clear(group, place)
            raise
        *descriptors_left, process = descriptors
        pid = int(answer["pid"])
        started = StartedBranch(pid, process, group, place)
        return BranchedSessionProcess(tree, started, limits), descriptors_left

    async def close(self) -> None:
        """Kill the frozen copy, remove the files, and leave the process tree. A second call does
        nothing.
        """
        if self._closed:
            return
        self._closed = True
        await self.tree.clear(self._group, self._place, "drop", frozen=self._pid)
        await self.tree.leave()


def copyable(session_process: SessionProcess) -> None:
    """Check that a session process can be copied: a single thread, and no children.

    A fork copies only the thread that calls it, and no children.

    Raises:
        NotSnapshotable: other threads or children are running, or this tier or kernel supports no
            copies.
    """
    plan, pid = session_process.tree.slot.plan, session_process.pid
    if (
        plan.tier != ROOT
        or session_process.group is None
        or syscalls.landlock_version() < _LANDLOCK
    ):
        needed = f"{ROOT} with control groups and Landlock {_LANDLOCK} (Linux 6.12)"
        raise NotSnapshotable("tier", f"copies need {needed}; this is {plan.tier}")
    if threads_of(pid) > 1:
        raise NotSnapshotable("threads", "other threads are running; join them first")
    if others_in(session_process):
        raise NotSnapshotable("children", "other processes are running; wait for them first")


async def end_copies(session_process: SessionProcess, copies: list[int]) -> None:
    """Kill copies of a session that are not kept, and wait until they have left its group, where
    the next snapshot would take them for processes of the session.
    """
    kill(copies)
    for _ in range(_CHECKS_OF_END):
        with suppress(OSError):  # no descriptor may be free
            if not set(copies) & set(others_in(session_process)):
                return
        await asyncio.sleep(0.01)


def others_in(session_process: SessionProcess) -> list[int]:
    """Return the pids, in the pid namespace of the driver, of the processes that a session has
    started.

    The list is empty where there is no control group to read the pids from.
    """
    own_pids = {session_process.pid, session_process.tree.slot_pid()}
    return (
        [pid for pid in session_process.group.processes() if pid not in own_pids]
        if session_process.group
        else []
    )
