"""All REPLs of a server: made under the caller's name, leased, capped, reaped.

Cells carry a `seq`: the last one sent again is answered from its kept reply, or joined while it
runs, so that a lost reply never runs a cell twice. A name that is not here is 410, whether it was
released, expired or lost in a restart: its state is gone in every case.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec

from ludus.errors import LudusError, SequenceConflict, SessionGone
from ludus.wire.faults import QueueFull, Refused

from ..protocol import Limits
from ..sessions import Session
from ..slots import SlotLost
from .wire import CELL_TIMEOUT_S, Bounds, CellBody, CellReply, ReplBody

logger = logging.getLogger(__name__)
_T = TypeVar("_T")

MAX_TOMBSTONES = 100_000
MAX_NAME = 128
OPEN_TIMEOUT_S = 60.0
REAP_EVERY_S = 1.0
FILE_TIMEOUT_S = 30.0
"""For moving files: untrusted code answers, and may not."""

_TTL_BACKSTOP_S = 30.0
"""The session's own idle timer runs this much longer than the lease."""

SessionMaker = Callable[[Limits, float], Awaitable[Session]]
Counter = Callable[[str, str, float], None]


class HostedRepl:
    """One REPL and what its last cell was answered."""

    def __init__(self, body: ReplBody, made: asyncio.Task[Session], ttl_s: float) -> None:
        self.body = body
        self.made = made
        self.ttl_s = ttl_s
        self.born = self.touched = time.monotonic()
        self.busy = 0
        """Requests under way."""
        self.seq = 0
        """Of the next cell."""
        self.last: tuple[CellBody, asyncio.Task[CellReply]] | None = None

    def rest(self) -> None:
        """One request less is under way: from now on it is idle, if that was the last."""
        self.busy -= 1
        self.touched = time.monotonic()

    def overdue(self, now: float, lifetime_s: float) -> str:
        """Why it is to be ended now; empty if it is not."""
        if now - self.born > lifetime_s:
            return f"it was older than {lifetime_s:g} s"
        if not self.busy and now - self.touched > self.ttl_s:
            return f"it was idle for {self.ttl_s:g} s"
        return ""


class Repls:
    """The table of REPLs.

    Args:
        open_session: starts one.
        most: how many may be open.
        count: told of every cell: operation, status, when it began.
    """

    def __init__(
        self,
        open_session: SessionMaker,
        bounds: Bounds,
        *,
        most: int,
        instance: str,
        count: Counter,
    ) -> None:
        self._open_session = open_session
        self._most = most
        self._bounds = bounds
        self._instance = instance
        self._count = count
        self._open: dict[str, HostedRepl] = {}
        self._gone: OrderedDict[str, str] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()
        self._reaper: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._open)

    async def start(self) -> None:
        """Start the reaper."""
        self._reaper = asyncio.create_task(self._reap(), name="ludus-repl-reaper")

    async def stop(self) -> None:
        """End every REPL."""
        if self._reaper is not None:
            self._reaper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._reaper
        for name in list(self._open):
            self._release(name, "the server stopped")
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def create(self, body: ReplBody) -> None:
        """Make a REPL; the same request again finds it made.

        Raises:
            SequenceConflict: the name is taken by another request.
            SessionGone: the name was released.
            QueueFull: as many are open as there may be.
            Refused: it did not start.
        """
        repl = self._open.get(body.repl)
        if repl is None:
            repl = self._make(body)
        elif repl.body != body:
            raise SequenceConflict(
                f"REPL {body.repl!r} exists already, made by another request; choose another name"
            )
        repl.busy += 1
        try:
            await asyncio.shield(repl.made)
        except (SlotLost, TimeoutError) as error:
            self._open.pop(body.repl, None)
            raise Refused(f"the REPL did not start: {error or 'late'}", "sandbox_failed") from error
        except LudusError:
            self._open.pop(body.repl, None)
            raise
        finally:
            repl.rest()

    def _make(self, body: ReplBody) -> HostedRepl:
        if body.repl in self._gone:
            raise self._gone_error(body.repl)
        if len(self._open) >= self._most:
            self._sweep()
        if len(self._open) >= self._most:
            raise QueueFull(
                f"{len(self._open)} of {self._most} REPLs are open",
                depth=len(self._open),
                limit=self._most,
            )
        ttl_s = min(body.idle_ttl_s or self._bounds.repl_ttl_s, self._bounds.repl_ttl_s)
        made = asyncio.create_task(self._start_session(body, ttl_s))
        repl = self._open[body.repl] = HostedRepl(body, made, ttl_s)
        return repl

    async def _start_session(self, body: ReplBody, ttl_s: float) -> Session:
        limits = body.limits(self._bounds)
        limits = msgspec.structs.replace(limits, timeout_s=limits.timeout_s + _TTL_BACKSTOP_S)
        async with asyncio.timeout(OPEN_TIMEOUT_S):
            return await self._open_session(limits, ttl_s + _TTL_BACKSTOP_S)

    async def run(self, name: str, body: CellBody) -> CellReply:
        """Run a cell, or answer or join the same one sent before.

        Raises:
            SessionGone: no such REPL, or it ends with this cell.
            SequenceConflict: a cell was skipped, or the last one still runs.
        """
        repl = self._find(name)
        if repl.last and body.seq == repl.seq - 1 and repl.last[0] == body:
            return await asyncio.shield(repl.last[1])
        if body.seq != repl.seq:
            raise SequenceConflict(f"REPL {name!r} expects seq {repl.seq}, got {body.seq}")
        if repl.last and not repl.last[1].done():
            raise SequenceConflict(f"REPL {name!r} still runs the cell before seq {body.seq}")
        repl.seq += 1
        task = asyncio.create_task(self._cell(name, repl, body))
        task.add_done_callback(_seen)  # whoever sent it may be gone
        repl.last = body, task
        return await asyncio.shield(task)

    async def _cell(self, name: str, repl: HostedRepl, body: CellBody) -> CellReply:
        started = time.perf_counter()
        status = "session_gone"
        try:
            timeout_s = body.timeout_s or min(CELL_TIMEOUT_S, self._bounds.max_timeout_s)
            done = await self.use(
                name, repl, lambda session: session.run(body.code, timeout_s=timeout_s)
            )
            status = done.status
        finally:
            self._count("cell", status, started)
        return CellReply(repl=name, seq=body.seq, execution=done)

    async def files(self, name: str, move: Callable[[Session], Awaitable[_T]]) -> _T:
        """Move files into or out of a REPL.

        Raises:
            SessionGone: no such REPL, or it has ended. Refused: it cannot be done.
        """
        repl = self._find(name)
        try:
            async with asyncio.timeout(FILE_TIMEOUT_S):
                return await self.use(name, repl, move)
        except TimeoutError:
            self._release(name, f"it did not answer within {FILE_TIMEOUT_S:g} s")
            raise self._gone_error(name) from None
        except OSError as error:
            raise Refused(str(error), "file_refused") from error

    async def use(
        self, name: str, repl: HostedRepl, work: Callable[[Session], Awaitable[_T]]
    ) -> _T:
        """Work with the session of a REPL; it is not idle meanwhile."""
        repl.busy += 1
        try:
            return await work(await asyncio.shield(repl.made))
        except SessionGone as error:
            self._release(name, str(error).removeprefix("the session has ended: "))
            raise
        except SlotLost as error:
            self._release(name, str(error))
            raise self._gone_error(name) from error
        finally:
            repl.rest()

    def delete(self, name: str) -> bool:
        """End a REPL; whether it was there."""
        if name in self._open:
            self._release(name, "it was deleted")
            return True
        self._bury(name, self._gone.get(name, "it was deleted"))
        return False

    def _find(self, name: str) -> HostedRepl:
        self._sweep()
        repl = self._open.get(name)
        if repl is None:
            raise self._gone_error(name)
        return repl

    def _gone_error(self, name: str) -> SessionGone:
        why = self._gone.get(name, f"none was made since this server ({self._instance}) started")
        return SessionGone(f"there is no REPL {name!r}: {why}")

    def _release(self, name: str, reason: str) -> None:
        """Forget a REPL and end it meanwhile."""
        repl = self._open.pop(name, None)
        if repl is None:
            return
        self._bury(name, reason)
        task = asyncio.create_task(_close(repl))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _bury(self, name: str, reason: str) -> None:
        """Remember the name: a request that comes late must not bring the REPL back."""
        if len(name) > MAX_NAME:
            return
        self._gone[name] = reason
        if len(self._gone) > MAX_TOMBSTONES:
            self._gone.popitem(last=False)

    async def _reap(self) -> None:
        while True:
            await asyncio.sleep(REAP_EVERY_S)
            self._sweep()

    def _sweep(self) -> None:
        """End the REPLs whose time is over."""
        now = time.monotonic()
        for name, repl in list(self._open.items()):
            if reason := repl.overdue(now, self._bounds.repl_lifetime_s):
                self._release(name, reason)


async def _close(repl: HostedRepl) -> None:
    try:
        session = await repl.made
        await session.close()
    except (SlotLost, TimeoutError):
        return  # it had not started, or its slot is gone already
    except Exception:
        logger.exception("a REPL did not end cleanly")


def _seen(task: asyncio.Task[CellReply]) -> None:
    """Keep asyncio from reporting a failure as never retrieved: the reply is kept either way."""
    if not task.cancelled():
        task.exception()
