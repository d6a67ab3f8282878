"""The REPLs of a server, named by the clients.

Cells carry a `seq`: if the last cell is sent again, the reply is the kept reply, or the request
joins the running cell, so that a lost reply never runs a cell twice. An unknown name is answered
with 410, whether the REPL was released, expired or lost in a restart: its state is gone in every
case.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec

from ludus.errors import SequenceConflict
from ludus.wire.faults import Refused
from ludus.wire.session_table import NumberedRequests

from ..protocol import Execution, Limits
from ..repl.session import Session
from .leases import Leases, Terms
from .sandbox_wire import CELL_TIMEOUT_S, Bounds, CellBody, CellReply, ReplBody

_T = TypeVar("_T")

FILE_TIMEOUT_S = 30.0
"""The limit for moving files, in seconds: untrusted code answers, and may not."""

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
        """Do work with a session that untrusted code has to answer: move files, copy the session.

        Raises:
            SessionGone: there is no such REPL, or it has ended.
            Refused: the work cannot be done.
        """

        async def bounded(repl: HostedRepl) -> _T:
            async with asyncio.timeout(FILE_TIMEOUT_S):
                return await work(repl.session)

        try:
            return await self._leases.use(name, bounded)
        except TimeoutError:
            self._leases.release(name, f"it did not answer within {FILE_TIMEOUT_S:g} s")
            return await self.session(name, work)  # the second call reports that the REPL is gone
        except OSError as error:
            raise Refused(str(error), "file_refused") from error

    def delete(self, name: str) -> bool:
        """End a REPL; return whether the REPL existed."""
        return self._leases.release(name, "it was deleted")
