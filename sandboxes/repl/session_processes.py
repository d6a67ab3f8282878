"""The processes behind sessions: what each holds, and how it ends.

A session's first process is the run of a slot. Its copies live in the same slot: *holders*, which
never run again, and *branches*, each with a control group, files and descriptors of its own. The
slot is kept until the last of them has ended.
"""

from __future__ import annotations

import asyncio
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

MAX_PROCESSES = 64
_HOLDER_PROCESSES = 16
_LANDLOCK = 6
_LOOK_EVERY_S = 0.25
_END_TIMEOUT_S = 5.0


class SessionProcess(Protocol):
    """The process behind one session."""

    tree: ProcessTree
    place: str
    """Its files, as its slot sees them."""
    node: str
    """Where copies of them are kept."""
    apart: bool
    """Whether it has been set apart from its copies."""

    @property
    def group(self) -> ControlGroup | None:
        """What it and everything it started is in, if there are groups."""
        ...

    @property
    def ended(self) -> asyncio.Future[RunOutcome]:
        """Done when it has ended."""
        ...

    @property
    def pid(self) -> int:
        """The process, as this machine counts; 0 once it is gone."""
        ...

    def interrupt(self) -> None:
        """Send it SIGINT."""
        ...

    def outlived(self) -> None:
        """Its slot goes on when it ends: there are copies of it now."""
        ...

    async def close(self) -> None:
        """End it and give back what it held. Idempotent."""
        ...


class ProcessTree:
    """The processes in one slot that come from one session."""

    def __init__(
        self,
        slot: Slot,
        held: AsyncExitStack,
        groups: ControlGroups | None,
        snapshots: SnapshotClient,
    ) -> None:
        self.slot, self.groups, self.snapshots = slot, groups, snapshots
        self.numbers = count(1)
        self.copied = False
        """Whether there are, or have been, copies in this slot."""
        self._held = held
        self._members = 0
        self.run: asyncio.Future[RunOutcome] | None = None

    def join(self) -> None:
        """One more process, or one more snapshot."""
        self._members += 1

    @property
    def shared(self) -> bool:
        """Whether others than one are left."""
        return self._members > 1

    async def leave(self) -> None:
        """One less; the last gives the slot back."""
        self._members -= 1
        if self._members or self.run is None:
            return
        await self.slot.end_run(self.run)
        with suppress(SlotLost):
            await self.run
        if self.copied and self.slot.alive and self.slot.group:
            with suppress(NotSnapshotable):
                await self.snapshots.ask(self.request("sweep", self.slot.group))
        await self._held.aclose()

    def slot_pid(self) -> int:
        """The slot, as this machine counts.

        Raises:
            NotSnapshotable: it is gone.
        """
        for pid in children_of(self.slot.pid):
            return pid
        raise NotSnapshotable("gone", "its slot has ended")

    def make_group(self, name: str, *, processes: int, memory_bytes: int) -> ControlGroup:
        """A control group of its own for one copy."""
        if self.groups is None:
            raise NotSnapshotable("tier", "copies need control groups of their own")
        number = next(_groups)
        group = self.groups.make(f"{name}-{number}", processes=processes)
        group.limit_memory(memory_bytes)
        return group

    def request(self, do: str, group: ControlGroup, **more: Any) -> dict[str, Any]:
        """What the snapshot server is to do in this slot."""
        plan = self.slot.plan
        about = {
            "slot": self.slot_pid(), "uid": plan.uid, "gid": plan.gid,
            "group": group.procs_files, "readable": plan.readable,
            "disk_bytes": plan.disk_bytes, "disk_inodes": plan.disk_inodes,
        }  # fmt: skip
        return {"do": do, **about, **more}

    async def clear(self, group: ControlGroup, place: str, do: str = "clear", **more: Any) -> None:
        """Remove the files of a copy that has ended, and its group."""
        with suppress(NotSnapshotable):
            await self.snapshots.ask(self.request(do, group, to=place, **more))
        await remove(group)


_groups = count(1)


async def remove(group: ControlGroup) -> None:
    """Kill what is in a group, and remove it once everything has left it."""
    deadline = time.monotonic() + _END_TIMEOUT_S
    while not group.try_to_remove() and time.monotonic() < deadline:  # noqa: ASYNC110 - no event
        await asyncio.sleep(0.003)  # a killed process leaves its group a moment later


class FirstSessionProcess:
    """A session's first process: the run of a slot."""

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
        """The slot's own; the slot is in it as well."""
        return self.tree.slot.group

    @property
    def ended(self) -> asyncio.Future[RunOutcome]:
        """Done when it has ended: with its run, until the slot holds copies as well."""
        return self._own_end or self._ended

    @property
    def pid(self) -> int:
        """The slot's first child."""
        if not self._pid:
            self._pid = next(iter(children_of(self.tree.slot_pid())), 0)
        return 0 if self.ended.done() else self._pid

    def interrupt(self) -> None:
        """Send it SIGINT."""
        self.tree.slot.interrupt_run()

    def outlived(self) -> None:
        """Its slot goes on when it ends: there are copies of it now."""
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
        """End it and leave the family. Idempotent."""
        if self._closed:
            return
        self._closed = True
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
    """A branch: a process in a slot that is not its run, held against its limits from here."""

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
        """The process, as this machine counts."""
        return 0 if self.ended.done() else self._number

    def interrupt(self) -> None:
        """Send it SIGINT."""
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
        """Nothing: its slot's run is another process."""

    def _end(self, status: ExecutionStatus, detail: str) -> None:
        self._timer.cancel()
        self._loop.remove_reader(self._process)
        if not self.ended.done():
            self.ended.set_result(_outcome(status, detail))
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._process, signal.SIGKILL)

    async def close(self) -> None:
        """End it and everything it started, remove its files. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self._end(ExecutionStatus.ERROR, "it was closed")
        os.close(self._process)
        _kill(self.group.processes())
        await self.tree.clear(self.group, self.node)
        await self.tree.leave()


class FrozenSnapshot:
    """A copy of a process that never runs again, and a copy of its files."""

    def __init__(self, origin: SessionProcess, pid: int, group: ControlGroup, place: str) -> None:
        self.tree, self._node = origin.tree, origin.node
        self._pid, self._group, self._place = pid, group, place
        self._closed = False
        self.tree.join()

    @classmethod
    async def of(cls, origin: SessionProcess, copy: int, memory_bytes: int) -> FrozenSnapshot:
        """Stop `copy`, a copy of itself `origin` has left behind.

        Raises:
            NotSnapshotable: its copies would share something.
        """
        tree = origin.tree
        tree.copied = True
        group = tree.make_group("holder", processes=_HOLDER_PROCESSES, memory_bytes=memory_bytes)
        place = f"{origin.node}/{next(tree.numbers)}"
        more = {"holder": copy, "session": origin.pid, "from": origin.place, "to": place}
        try:
            request = tree.request("hold", group, set_apart=not origin.apart, **more)
            await tree.snapshots.ask(request)
            origin.apart = True
            copyable(origin)  # still: what it started meanwhile has not been set apart
        except BaseException:
            _kill([copy])
            await tree.clear(group, place, "drop", frozen=copy)
            raise
        return cls(origin, copy, group, place)

    async def branch(self, limits: Limits) -> tuple[BranchedSessionProcess, list[int]]:
        """A new branch, and the driver's ends of its line, output and errors.

        Raises:
            NotSnapshotable: the holder is gone, or the sandbox failed.
        """
        tree = self.tree
        group = tree.make_group("branch", processes=MAX_PROCESSES, memory_bytes=limits.memory_bytes)
        place = f"{self._node}/{next(tree.numbers)}"
        more = {"holder": self._pid, "from": f"{self._place}/{policy.FILES}", "to": place}
        try:
            answer, descriptors = await tree.snapshots.ask(tree.request("branch", group, **more))
        except BaseException:
            await tree.clear(group, place)
            raise
        *ends, process = descriptors
        pid = int(answer["pid"])
        return BranchedSessionProcess(tree, pid, process, group, place, limits), ends

    async def close(self) -> None:
        """End it. Idempotent."""
        if self._closed:
            return
        self._closed = True
        await self.tree.clear(self._group, self._place, "drop", frozen=self._pid)
        await self.tree.leave()


def copyable(session_process: SessionProcess) -> None:
    """See that a process is alone, so that a copy of it is all there is to copy.

    Raises:
        NotSnapshotable: it has threads or children, or copies are not to be had here.
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
    """What a session has started, as this machine counts."""
    own = {session_process.pid, session_process.tree.slot_pid()}
    return (
        [pid for pid in session_process.group.processes() if pid not in own]
        if session_process.group
        else []
    )
