"""The processes that can be behind a session, with output that is read cell by cell.

The first process of a session is the run of a slot. A *branch* is a running copy of a frozen
snapshot, with a control group, files and descriptors of its own. `session_tree` has what they have
in common, `frozen_snapshot` makes the copies.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from ..guest.jail import policy
from ..guest.run.request import REPL, Request
from ..local.control_groups import ControlGroup
from ..local.process_tree import children_of
from ..local.runs import RunOutcome
from ..protocol import ExecutionStatus, Limits, Usage
from .session_tree import ProcessTree, kill

_READ_BYTES = 1 << 16


class CellOutput:
    """An output pipe of the session, of which at most `limit` bytes are kept for each cell."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.limit = self.size = 0
        self._parts: list[bytes] = []
        os.set_blocking(descriptor, False)

    def drain(self) -> None:
        """Read what the pipe holds now, and drop the bytes beyond the limit.

        After 64 times the limit the call returns, so that the event loop can interrupt the cell.
        """
        with suppress(BlockingIOError):
            while data := os.read(self.descriptor, _READ_BYTES):
                self._parts.append(data[: max(0, self.limit - self.size)])
                self.size += len(data)
                # A cell that writes faster than this loop reads would hold the event loop here.
                if self.size > 64 * self.limit:
                    return

    def start(self, limit: int) -> None:
        """Set the limit for the next cell, and drop what was written between cells."""
        self.limit = limit
        self.drain()
        self.size, self._parts = 0, []

    def text(self) -> str:
        """Return the kept output of the cell as text; bytes that are not valid UTF-8 are
        replaced.
        """
        return b"".join(self._parts).decode("utf-8", "replace")


_LOOK_EVERY_S = 0.25


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
        loop.add_reader(self._process, self._on_exit)
        self._ended.add_done_callback(lambda _: self._on_exit())

    def _on_exit(self) -> None:
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
            kill(set(self.group.processes()) - {self.tree.slot_pid()})
        self._on_exit()
        await self.tree.leave()


def _outcome(status: ExecutionStatus, detail: str) -> RunOutcome:
    return RunOutcome(status, None, b"", b"", Usage(), detail)


@dataclass(frozen=True, slots=True)
class StartedBranch:
    """A running copy of a frozen snapshot, as started by the snapshot server."""

    pid: int
    """The pid in the pid namespace of the driver."""
    process: int
    """The descriptor of the process (a pidfd)."""
    group: ControlGroup
    place: str
    """The node of the copy in the tree, which is also the name of its folder of files."""


class BranchedSessionProcess:
    """A branch of a session: a running copy of a frozen snapshot.

    The slot's run is another process, so the limits of a branch are checked here: CPU and wall time
    every `_LOOK_EVERY_S`, memory and processes by the control group.
    """

    def __init__(self, tree: ProcessTree, started: StartedBranch, limits: Limits) -> None:
        place = started.place
        self.tree, self.node, self.place = tree, place, f"{place}/{policy.FILES}"
        self.group, self.apart = started.group, False
        self.ended: asyncio.Future[RunOutcome] = asyncio.get_running_loop().create_future()
        self._number, self._process, self._limits = started.pid, started.process, limits
        self._started = time.monotonic()
        self._closed = False
        self._loop = asyncio.get_running_loop()
        tree.join()
        self._loop.add_reader(started.process, self._on_exit)
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

    def _on_exit(self) -> None:
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
        kill(self.group.processes())
        await self.tree.clear(self.group, self.node)
        await self.tree.leave()
