"""The process tree of a session: the first process, and all copies made from snapshots.

All of them live in the same slot, which is kept until the last of them has ended. What a tree needs
to know about a member is the protocol `SessionProcess`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import Iterable
from contextlib import AsyncExitStack, suppress
from itertools import count
from typing import Any, Protocol

from ..local.control_groups import ControlGroup, ControlGroups
from ..local.process_tree import children_of
from ..local.runs import RunOutcome, SlotLost
from ..local.slots import Slot
from .snapshot_client import NotSnapshotable, SnapshotClient

logger = logging.getLogger(__name__)

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
            NotSnapshotable: no control group can be made, here or now.
        """
        if self.groups is None:
            raise NotSnapshotable("tier", "copies need control groups of their own")
        number = next(_groups)
        try:
            group = self.groups.make(f"{name}-{number}", processes=processes)
            group.limit_memory(memory_bytes)
        except OSError as error:  # such as too many open files
            raise NotSnapshotable("fault", f"no control group can be made: {error}") from error
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


def kill(pids: Iterable[int]) -> None:
    """Send SIGKILL to processes; a process that has ended already is passed over."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
