"""The processes behind sessions: the first process of a slot, and the copies made from snapshots.

The first process of a session is the run of a slot. Copies of the process live in the same slot. A
*frozen snapshot* is a copy that never runs again; a *branch* is a running copy of a frozen
snapshot, with a control group, files and descriptors of its own. All of them together are the
process tree of the session. The slot is kept until the last of them has ended.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack, suppress
from itertools import count
from typing import Any, Protocol

from ..guest.jail import policy, syscalls
from ..guest.run.plan import ROOT
from ..guest.run.request import REPL, Request
from ..local.control_groups import ControlGroup, ControlGroups
from ..local.process_tree import children_of, threads_of
from ..local.runs import RunOutcome, SlotLost
from ..local.slots import Slot
from ..protocol import ExecutionStatus, Limits, Usage
from .snapshot_client import NotSnapshotable, SnapshotClient

logger = logging.getLogger(__name__)

MAX_PROCESSES = 64
_HOLDER_PROCESSES = 16
_LANDLOCK = 6
_LOOK_EVERY_S = 0.25
_END_TIMEOUT_S = 5.0


class SessionProcess(Protocol):
    """The process behind a session: a slot's run, or a branch."""

    tree: ProcessTree
    place: str
    """The folder of the session's files, as a path inside the slot."""
    node: str
    """The folder, as a path inside the slot, below which copies of the session's files are mounted.
    """
    apart: bool
    """Whether the process is restricted already so that it cannot reach its copies, nor they it."""

    @property
    def group(self) -> ControlGroup | None:
        """The control group of the process and all descendants, or None where no groups can be
        made.
        """
        ...

    @property
    def ended(self) -> asyncio.Future[RunOutcome]:
        """A future that is done when the process has ended; the result says how."""
        ...

    @property
    def pid(self) -> int:
        """The pid in the pid namespace of the driver, or 0 once the process has ended."""
        ...

    def interrupt(self) -> None:
        """Send SIGINT to the process."""
        ...

    def outlived(self) -> None:
        """Keep the slot running when this process ends, because copies live in the slot now."""
        ...

    async def close(self) -> None:
        """End the process and release all resources. A second call does nothing."""
        ...


class ProcessTree:
    """The process tree of a session: all processes in a slot that are the session's first or a
    copy.

    Args:
        slot: the slot that all processes live in.
        resources: gives the slot back to its pool when closed.
        groups: where control groups for copies are made; None where none can be.
        snapshots: the line to the snapshot server.
    """

    def __init__(
        self,
        slot: Slot,
        resources: AsyncExitStack,
        groups: ControlGroups | None,
        snapshots: SnapshotClient,
    ) -> None:
        self.slot, self.groups, self.snapshots = slot, groups, snapshots
        self.numbers = count(1)
        self.copied = False
        """Whether there are, or have been, copies in this slot."""
        self._held = resources
        self._members = 0
        self.run: asyncio.Future[RunOutcome] | None = None

    def join(self) -> None:
        """Count a further process or snapshot as a member of the tree."""
        self._members += 1

    @property
    def shared(self) -> bool:
        """Whether the tree has more than a single member."""
        return self._members > 1

    async def leave(self) -> None:
        """Count a member less; the last to leave ends the slot's run and gives the slot back to the
        pool.
        """
        self._members -= 1
        if self._members or self.run is None:
            return
        await self.slot.end_run(self.run)
        with suppress(SlotLost):
            await self.run
        # The pool gives the slot to another session, which must not find copies of files.
        if self.copied and self.slot.alive and self.slot.group:
            with suppress(NotSnapshotable):
                await self.snapshots.ask(self.request("sweep", self.slot.group))
        await self._held.aclose()

    def slot_pid(self) -> int:
        """Return the pid of the slot's own process, in the pid namespace of the driver.

        Raises:
            NotSnapshotable: the slot has ended.
        """
        for pid in children_of(self.slot.pid):
            return pid
        raise NotSnapshotable("gone", "its slot has ended")

    def make_group(self, name: str, *, processes: int, memory_bytes: int) -> ControlGroup:
        """Make a control group for a copy.

        Args:
            name: the beginning of the group's name; a number follows.
            processes: the most processes and threads in the group.
            memory_bytes: the most memory of all processes in the group.

        Raises:
            NotSnapshotable: no control groups can be made here.
        """
        if self.groups is None:
            raise NotSnapshotable("tier", "copies need control groups of their own")
        number = next(_groups)
        group = self.groups.make(f"{name}-{number}", processes=processes)
        group.limit_memory(memory_bytes)
        return group

    def request(self, do: str, group: ControlGroup, **details: Any) -> dict[str, Any]:
        """Return a request to the snapshot server, with what the server needs to know about this
        slot.

        Args:
            do: the operation: `hold`, `branch`, `drop`, `clear` or `sweep`.
            group: the control group that the server's work and the new process are charged to.
            details: further fields, which depend on the operation.

        Raises:
            NotSnapshotable: the slot has ended.
        """
        plan = self.slot.plan
        body = {
            "slot": self.slot_pid(), "uid": plan.uid, "gid": plan.gid,
            "group": group.procs_files, "readable": plan.readable,
            "disk_bytes": plan.disk_bytes, "disk_inodes": plan.disk_inodes,
        }  # fmt: skip
        return {"do": do, **body, **details}

    async def clear(
        self, group: ControlGroup, place: str, do: str = "clear", **details: Any
    ) -> None:
        """Remove the files and the control group of a copy that has ended.

        A snapshot server that cannot remove the files is only told in the log: the files go with
        the slot.
        """
        try:
            await self.snapshots.ask(self.request(do, group, to=place, **details))
        except NotSnapshotable as error:
            if error.reason != "gone":  # a slot that has ended took its files with it
                logger.warning("the files of a copied session stay until its slot ends: %s", error)
        await remove(group)


_groups = count(1)


async def remove(group: ControlGroup) -> None:
    """Kill the processes of a control group, and remove the group once every process has left.

    The wait ends after `_END_TIMEOUT_S`, with or without success.
    """
    deadline = time.monotonic() + _END_TIMEOUT_S
    while not group.try_to_remove() and time.monotonic() < deadline:  # noqa: ASYNC110 - no event
        await asyncio.sleep(0.003)  # a killed process leaves its group a moment later


class FirstSessionProcess:
    """The first process of a session, which is the run of a slot."""

    place, node = policy.WORK, policy.BRANCHES

    def __init__(self, tree: ProcessTree, limits: Limits, peers: Sequence[tuple[str, int]]) -> None:
        self.tree = tree
        self.apart = False
        tree.join()
        run = tree.slot.run(Request(mode=REPL), limits, peers=peers)
        self._ended = tree.run = asyncio.ensure_future(run)
        self._own_end: asyncio.Future[RunOutcome] | None = None
        self._process = -1
        self._pid = 0
        self._closed = False

    @property
    def group(self) -> ControlGroup | None:
        """The control group of the slot, which contains the slot's own process as well."""
        return self.tree.slot.group

    @property
    def ended(self) -> asyncio.Future[RunOutcome]:
        """A future that is done when the process has ended.

        While the slot holds no copies, that is when the slot's run ends. Once there are copies the
        run goes on, and the process is watched by itself (see `outlived`).
        """
        return self._own_end or self._ended

    @property
    def pid(self) -> int:
        """The pid of the slot's first child, or 0 once this process has ended."""
        if not self._pid:
            self._pid = next(iter(children_of(self.tree.slot_pid())), 0)
        return 0 if self.ended.done() else self._pid

    def interrupt(self) -> None:
        """Send SIGINT to the process."""
        self.tree.slot.interrupt_run()

    def outlived(self) -> None:
        """Have the slot's run go on when this process ends, and watch the process by a pidfd from
        now on.
        """
        if self._own_end:
            return
        loop = asyncio.get_running_loop()
        self._own_end = loop.create_future()
        self._process = os.pidfd_open(self.pid)
        self.tree.slot.hold_run()
        loop.add_reader(self._process, self._over)
        self._ended.add_done_callback(lambda _: self._over())

    def _over(self) -> None:
        if self._process >= 0:
            asyncio.get_running_loop().remove_reader(self._process)
            os.close(self._process)
            self._process = -1
        if self._own_end and not self._own_end.done():
            self._own_end.set_result(_outcome(ExecutionStatus.ERROR, "it exited"))

    async def close(self) -> None:
        """End the process, and leave the process tree. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        # Copies are in groups of their own, so this kills only the first process and what it
        # started. The last member needs no kill: `leave` ends the slot's run.
        if self.tree.shared and self.group and self.tree.slot.alive:
            _kill(set(self.group.processes()) - {self.tree.slot_pid()})
        self._over()
        await self.tree.leave()


def _kill(pids: Iterable[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _outcome(status: ExecutionStatus, detail: str) -> RunOutcome:
    return RunOutcome(status, None, b"", b"", Usage(), detail)


class BranchedSessionProcess:
    """A branch of a session: a running copy of a frozen snapshot.

    The slot's run is another process, so the limits of a branch are checked here: CPU and wall time
    every `_LOOK_EVERY_S`, memory and processes by the control group.
    """

    def __init__(
        self,
        tree: ProcessTree,
        pid: int,
        process: int,
        group: ControlGroup,
        place: str,
        limits: Limits,
    ) -> None:
        self.tree, self.node, self.place = tree, place, f"{place}/{policy.FILES}"
        self.group, self.apart = group, False
        self.ended: asyncio.Future[RunOutcome] = asyncio.get_running_loop().create_future()
        self._number, self._process, self._limits = pid, process, limits
        self._started = time.monotonic()
        self._closed = False
        self._loop = asyncio.get_running_loop()
        tree.join()
        self._loop.add_reader(process, self._over)
        self._timer = self._loop.call_later(_LOOK_EVERY_S, self._look)

    @property
    def pid(self) -> int:
        """The pid in the pid namespace of the driver, or 0 once the process has ended."""
        return 0 if self.ended.done() else self._number

    def interrupt(self) -> None:
        """Send SIGINT to the process."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._process, signal.SIGINT)

    def _look(self) -> None:
        limits = self._limits
        self._timer = self._loop.call_later(_LOOK_EVERY_S, self._look)
        if self.group.cpu_s() > limits.cpu_s:
            self._end(ExecutionStatus.TIMEOUT, f"used more than {limits.cpu_s:g} s of CPU time")
        elif time.monotonic() - self._started > limits.timeout_s:
            self._end(ExecutionStatus.TIMEOUT, f"ran for more than {limits.timeout_s:g} s")

    def _over(self) -> None:
        if self.group.oom_kills():
            self._end(ExecutionStatus.OOM, "it ran out of memory")
        else:
            self._end(ExecutionStatus.ERROR, "it exited")

    def outlived(self) -> None:
        """Do nothing: the slot does not end with a branch, because the slot's run is another
        process.
        """

    def _end(self, status: ExecutionStatus, detail: str) -> None:
        self._timer.cancel()
        self._loop.remove_reader(self._process)
        if not self.ended.done():
            self.ended.set_result(_outcome(status, detail))
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._process, signal.SIGKILL)

    async def close(self) -> None:
        """Kill the branch and all descendants, remove the files, and leave the process tree.

        A second call does nothing.
        """
        if self._closed:
            return
        self._closed = True
        self._end(ExecutionStatus.ERROR, "it was closed")
        os.close(self._process)
        _kill(self.group.processes())
        await self.tree.clear(self.group, self.node)
        await self.tree.leave()


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
        group = tree.make_group("frozen", processes=_HOLDER_PROCESSES, memory_bytes=memory_bytes)
        place = f"{origin.node}/{next(tree.numbers)}"
        details = {"frozen": copy, "session": origin.pid, "from": origin.place, "to": place}
        try:
            request = tree.request("hold", group, set_apart=not origin.apart, **details)
            await tree.snapshots.ask(request)
            origin.apart = True
            # Checked again: a process that the session started meanwhile is not restricted.
            copyable(origin)
        except BaseException:
            _kill([copy])
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
        return BranchedSessionProcess(tree, pid, process, group, place, limits), descriptors_left

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
    """Check that a session process can be copied, which takes a process without threads or
    children.

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


def others_in(session_process: SessionProcess) -> list[int]:
    """Return the pids of the processes that a session has started, as numbered for the driver.

    The list is empty where there is no control group to read them from.
    """
    own_pids = {session_process.pid, session_process.tree.slot_pid()}
    return (
        [pid for pid in session_process.group.processes() if pid not in own_pids]
        if session_process.group
        else []
    )
