"""REPLs and snapshots on a server: each is named by the client, and made once.

Cells carry a `seq`: if the last cell is sent again, the reply is the kept reply, or the request
joins the running cell, so that a lost reply never runs a cell twice. An unknown name is answered
with 410, whether the REPL was released, expired or lost in a restart: its state is gone in every
case.

A group of rollouts branches from a snapshot: each restore is a separate REPL that goes on from
there.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

import msgspec

from ludus.errors import LudusError, SequenceConflict, SessionGone, SessionLost
from ludus.wire.faults import Refused
from ludus.wire.session_table import Lease, NumberedRequests, Overdue, SessionTable

from ..local.slots import SlotLost
from ..protocol import Execution, Limits
from ..repl.session import Session, Snapshot
from ..repl.snapshot_client import NotSnapshotable
from .sandbox_wire import (
    CELL_TIMEOUT_S,
    Bounds,
    CellBody,
    CellReply,
    ReplBody,
    RestoreBody,
    SnapshotBody,
)

T = TypeVar("T")
R = TypeVar("R")

MAKE_TIMEOUT_S = 60.0
REAP_EVERY_S = 1.0


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms of all leases of a kind."""

    what: str
    """The name of the kind in messages."""
    most: int
    """The most objects at the same time."""
    ttl_s: float
    """The longest time without use, in seconds."""
    lifetime_s: float
    """The longest lifetime, in seconds."""


class MadeLease(Lease, Generic[T]):
    """An object and the request that made the object."""

    def __init__(
        self,
        name: str,
        ttl_s: float,
        request: object,
        making: asyncio.Task[T],
        close: Callable[[T], Awaitable[None]],
    ) -> None:
        super().__init__(name, ttl_s)
        self.request = request
        self.made = making
        self._close = close

    async def close(self) -> None:
        """End the object, and release what the object holds."""
        try:
            item = await self.made
        except Exception:  # It did not start, which `make` has told.
            return
        with suppress(SlotLost, TimeoutError, LudusError):  # It has ended already.
            await self._close(item)


class Leases(Generic[T]):
    """The table of the objects of a kind.

    Args:
        terms: the limits of the table.
        close: ends an object.
        instance: the name of this run of the server, for messages.
    """

    def __init__(
        self, terms: Terms, close: Callable[[T], Awaitable[None]], *, instance: str
    ) -> None:
        self._terms = terms
        self._close = close
        self._unknown = f"none was made since this server ({instance}) started"
        self._table: SessionTable[MadeLease[T]] = SessionTable(
            terms.what,
            most=terms.most,
            lifetime_s=terms.lifetime_s,
            reap_every_s=REAP_EVERY_S,
            on_overdue=self._end_overdue,
        )

    def __len__(self) -> int:
        return len(self._table)

    async def start(self) -> None:
        """Start the reaper, which ends overdue objects."""
        await self._table.start()

    async def stop(self) -> None:
        """Stop the reaper and end all objects."""
        for lease in self._table.all():
            self._table.release(lease, "the server stopped", lost=True)
        await self._table.stop()

    async def make(
        self, name: str, request: object, start: Callable[[], Awaitable[T]], *, ttl_s: float | None
    ) -> None:
        """Make an object; the same request again finds the object made.

        Args:
            name: the client's name for the object.
            request: what was asked for; compared with the request of an object of the same name.
            start: makes the object.
            ttl_s: the wanted time without use, at most and by default that of the terms.

        Raises:
            SequenceConflict: the name is taken by another request.
            SessionGone: the name was released.
            QueueFull: there are as many objects as are allowed.
            Refused: the object did not start.
        """
        lease = self._table.find(name)
        if lease is None:
            self._table.check_new(name)

            async def make_limited() -> T:
                async with asyncio.timeout(MAKE_TIMEOUT_S):
                    return await start()

            granted_s = min(ttl_s or self._terms.ttl_s, self._terms.ttl_s)
            task = asyncio.create_task(make_limited())
            lease = MadeLease(name, granted_s, request, task, self._close)
            self._table.add(lease)
            task.add_done_callback(partial(self._free_failed, lease))
        elif lease.request != request:
            raise self._table.another(name)
        lease.busy += 1
        try:
            # Shielded: the same request may wait for the object too, and the client that went away
            # may send it again.
            await asyncio.shield(lease.made)
        except (SlotLost, TimeoutError, OSError) as error:
            reason = str(error) or "it took too long"
            raise Refused(
                f"the {self._terms.what} did not start: {reason}", "sandbox_failed"
            ) from error
        finally:
            lease.rest()

    async def use(self, name: str, work: Callable[[T], Awaitable[R]]) -> R:
        """Work with an object, which is not idle meanwhile.

        Raises:
            SessionGone: there is no object of this name, or it has ended.
        """
        self._table.sweep()
        lease = self._table.find(name)
        if lease is None:
            raise self._table.gone(name, self._unknown)
        lease.busy += 1
        try:
            return await work(await asyncio.shield(lease.made))
        except SessionGone as error:
            reason = str(error).rpartition("has ended: ")[2]
            self._table.release(lease, reason, lost=isinstance(error, SessionLost))
            raise
        except SlotLost as error:
            self._table.release(lease, str(error), lost=True)
            raise self._table.gone(name) from error
        finally:
            lease.rest()

    def release(self, name: str, reason: str) -> bool:
        """End an object and remember the name; return whether such an object existed."""
        lease = self._table.find(name)
        if lease is not None:
            return self._table.release(lease, reason)
        self._table.bury(name, reason)
        return False

    def _free_failed(self, lease: MadeLease[T], making: asyncio.Task[T]) -> None:
        """Give back the place of an object that did not start, also where nobody waits for it."""
        if not making.cancelled() and making.exception() is not None:
            self._table.release(lease, "", bury=False)

    def _end_overdue(self, lease: MadeLease[T], overdue: Overdue) -> None:
        too_old = overdue is Overdue.TOO_OLD
        self._table.release(
            lease,
            f"it was older than {self._terms.lifetime_s:g} s"
            if too_old
            else f"it was idle for {lease.ttl_s:g} s",
            lost=True,
        )


_T = TypeVar("_T")

TTL_BACKSTOP_S = 30.0
"""Seconds by which the session's own timers outlast the lease."""

SessionMaker = Callable[[Limits, float], Awaitable[Session]]
Counter = Callable[[str, str, float], None]


class HostedRepl:
    """A session, with the reply to the last cell."""

    def __init__(self, name: str, session: Session) -> None:
        self.session = session
        self._cells: NumberedRequests[CellBody, Execution] = NumberedRequests(f"REPL {name!r}")

    def cell(self, body: CellBody, timeout_s: float) -> asyncio.Future[Execution]:
        """Start a cell, or return the reply to the same cell sent before.

        Raises:
            SequenceConflict: a cell was skipped, or the last cell still runs.
        """
        stored_reply = self._cells.kept(body, body.seq)
        if stored_reply is not None:
            return stored_reply
        task = asyncio.create_task(self.session.run(body.code, timeout_s=timeout_s))
        # The reply is kept even if the client is gone. Reading the exception keeps asyncio from
        # reporting that nobody did.
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._cells.begun(body, body.seq, task)
        return task

    async def close(self) -> None:
        """End the session of the REPL."""
        await self.session.close()


class Repls:
    """The table of REPLs.

    Args:
        open_session: starts a session.
        bounds: what clients may ask for.
        max_repls: the most open REPLs.
        instance: the name of this run of the server, for messages.
        count: called after every cell with the operation, the status and the start time.
    """

    def __init__(
        self,
        open_session: SessionMaker,
        bounds: Bounds,
        *,
        max_repls: int,
        instance: str,
        count: Counter,
    ) -> None:
        self._open_session = open_session
        self._bounds = bounds
        self._count = count
        terms = Terms("REPL", max_repls, bounds.repl_ttl_s, bounds.repl_lifetime_s)
        self._leases: Leases[HostedRepl] = Leases(terms, HostedRepl.close, instance=instance)

    def __len__(self) -> int:
        return len(self._leases)

    async def start(self) -> None:
        """Start the reaper, which ends overdue REPLs."""
        await self._leases.start()

    async def stop(self) -> None:
        """Stop the reaper and end all REPLs."""
        await self._leases.stop()

    async def create(self, body: ReplBody) -> None:
        """Make a REPL; see `Leases.make`."""
        limits = body.limits(self._bounds)
        limits = msgspec.structs.replace(limits, timeout_s=limits.timeout_s + TTL_BACKSTOP_S)

        async def start() -> Session:
            return await self._open_session(limits, self._bounds.repl_ttl_s + TTL_BACKSTOP_S)

        await self.adopt(body.repl, body, start, ttl_s=body.idle_ttl_s)

    async def adopt(
        self,
        name: str,
        request: object,
        start: Callable[[], Awaitable[Session]],
        *,
        ttl_s: float | None,
    ) -> None:
        """Keep the session that `start` makes under a name; see `Leases.make`."""

        async def hosted() -> HostedRepl:
            return HostedRepl(name, await start())

        await self._leases.make(name, request, hosted, ttl_s=ttl_s)

    async def run(self, name: str, body: CellBody) -> CellReply:
        """Run a cell, or reply to or join the same cell sent before.

        Raises:
            SessionGone: there is no such REPL, or the cell ended it.
            SequenceConflict: a cell was skipped, or the last cell still runs.
        """
        timeout_s = body.timeout_s or min(CELL_TIMEOUT_S, self._bounds.max_timeout_s)
        started, status = time.perf_counter(), "session_gone"

        async def work(repl: HostedRepl) -> Execution:
            return await asyncio.shield(repl.cell(body, timeout_s))

        try:
            reply = await self._leases.use(name, work)
            status = reply.status
        except SequenceConflict:
            status = "sequence_conflict"
            raise
        finally:
            self._count("cell", status, started)
        return CellReply(repl=name, seq=body.seq, execution=reply)

    async def session(self, name: str, work: Callable[[Session], Awaitable[_T]]) -> _T:
        """Do work with a session besides running cells: move files, copy the session.

        The work waits for a cell that runs, however long the cell takes. The session itself ends
        when it does not answer in time once it is the turn of the work.

        Raises:
            SessionGone: there is no such REPL, or it has ended.
            Refused: the work cannot be done.
        """

        async def with_session(repl: HostedRepl) -> _T:
            return await work(repl.session)

        try:
            return await self._leases.use(name, with_session)
        except OSError as error:
            raise Refused(str(error), "file_refused") from error

    def delete(self, name: str) -> bool:
        """End a REPL; return whether the REPL existed."""
        return self._leases.release(name, "it was deleted")


class Snapshots:
    """The table of snapshots.

    Args:
        repls: the table of the REPLs, from which snapshots are taken and to which restored REPLs
            are added.
        bounds: what clients may ask for.
        instance: the name of this run of the server, for messages.
    """

    def __init__(self, repls: Repls, bounds: Bounds, *, instance: str) -> None:
        self._repls = repls
        self._backstop_s = bounds.repl_ttl_s + TTL_BACKSTOP_S
        terms = Terms("snapshot", bounds.max_snapshots, bounds.repl_ttl_s, bounds.repl_lifetime_s)
        self._leases: Leases[Snapshot] = Leases(terms, Snapshot.close, instance=instance)

    def __len__(self) -> int:
        return len(self._leases)

    async def start(self) -> None:
        """Start the reaper, which ends overdue snapshots."""
        await self._leases.start()

    async def stop(self) -> None:
        """Stop the reaper and delete all snapshots."""
        await self._leases.stop()

    async def take(self, repl: str, body: SnapshotBody) -> None:
        """Take a snapshot of a REPL; the same request again finds the snapshot made.

        Raises:
            SessionGone: there is no such REPL.
            Refused: the REPL cannot be copied; the message says why.
            SequenceConflict, QueueFull: see `Leases.make`.
        """

        async def copy(session: Session) -> Snapshot:
            return await session.snapshot(idle_ttl_s=self._backstop_s)

        async def start() -> Snapshot:
            try:
                return await self._repls.session(repl, copy)
            except NotSnapshotable as error:
                raise _refusal(error) from error

        await self._leases.make(body.snapshot, (repl, body), start, ttl_s=body.idle_ttl_s)

    async def restore(self, name: str, body: RestoreBody) -> None:
        """Make a REPL that goes on from a snapshot; the same request again finds the REPL made.

        Raises:
            SessionGone: there is no such snapshot.
            Refused: the sandbox failed.
            SequenceConflict, QueueFull: see `Leases.make`.
        """

        async def branch(snapshot: Snapshot) -> Session:
            return await snapshot.restore(idle_ttl_s=self._backstop_s)

        async def start() -> Session:
            try:
                return await self._leases.use(name, branch)
            except NotSnapshotable as error:
                raise _refusal(error) from error

        await self._repls.adopt(body.repl, (name, body), start, ttl_s=body.idle_ttl_s)

    def forget(self, name: str) -> bool:
        """Delete a snapshot; restored REPLs go on. Returns whether the snapshot existed."""
        return self._leases.release(name, "it was deleted")


def _refusal(error: NotSnapshotable) -> Refused:
    is_our_fault = error.reason == "fault"
    return Refused(str(error), "sandbox_failed" if is_our_fault else "not_snapshotable")
