"""Objects that a server keeps for clients, such as REPLs and snapshots.

They are named by the clients, made once, limited in number, and ended when unused for as long as
their lease.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from ludus.errors import LudusError, SequenceConflict, SessionGone
from ludus.wire.faults import QueueFull, Refused
from ludus.wire.tasks import end_task

from ..local.slots import SlotLost

logger = logging.getLogger(__name__)
T = TypeVar("T")
R = TypeVar("R")

MAX_TOMBSTONES = 100_000
MAX_NAME = 128
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


class Lease(Generic[T]):
    """An object and the request that made the object."""

    def __init__(self, request: object, made: asyncio.Task[T], ttl_s: float) -> None:
        self.request = request
        self.made = made
        self.ttl_s = ttl_s
        self.born = self.touched = time.monotonic()
        self.busy = 0
        """The number of requests that use the object now."""

    def rest(self) -> None:
        """Note the end of a request; after the last request the object is idle."""
        self.busy -= 1
        self.touched = time.monotonic()

    def overdue(self, now: float, lifetime_s: float) -> str:
        """Return why the object has to be ended now; empty if the object may live on."""
        if now - self.born > lifetime_s:
            return f"it was older than {lifetime_s:g} s"
        if not self.busy and now - self.touched > self.ttl_s:
            return f"it was idle for {self.ttl_s:g} s"
        return ""


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
        self._instance = instance
        self._open: dict[str, Lease[T]] = {}
        self._gone: OrderedDict[str, str] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()
        self._reaper: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._open)

    async def start(self) -> None:
        """Start the reaper, which ends overdue objects."""
        self._reaper = asyncio.create_task(self._reap(), name="ludus-lease-reaper")

    async def stop(self) -> None:
        """Stop the reaper and end all objects."""
        await end_task(self._reaper)
        for name in list(self._open):
            self.release(name, "the server stopped")
        while self._tasks:
            await asyncio.wait(self._tasks)

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
        lease = self._open.get(name)
        if lease is None:
            lease = self._begin(name, request, start, ttl_s)
        elif lease.request != request:
            raise SequenceConflict(
                f"{self._terms.what} {name!r} exists already, made by another request; choose "
                "another name"
            )
        lease.busy += 1
        try:
            await asyncio.shield(lease.made)
        except (SlotLost, TimeoutError) as error:
            self._open.pop(name, None)
            why = str(error) or "it took too long"
            raise Refused(
                f"the {self._terms.what} did not start: {why}", "sandbox_failed"
            ) from error
        except LudusError:
            self._open.pop(name, None)
            raise
        finally:
            lease.rest()

    def _begin(
        self, name: str, request: object, start: Callable[[], Awaitable[T]], ttl_s: float | None
    ) -> Lease[T]:
        if name in self._gone:
            raise self._gone_error(name)
        self._sweep()
        most = self._terms.most
        if len(self._open) >= most:
            why = f"{len(self._open)} of {most} {self._terms.what}s are open"
            raise QueueFull(why, depth=len(self._open), limit=most)

        async def made() -> T:
            async with asyncio.timeout(MAKE_TIMEOUT_S):
                return await start()

        granted_s = min(ttl_s or self._terms.ttl_s, self._terms.ttl_s)
        lease = self._open[name] = Lease(request, asyncio.create_task(made()), granted_s)
        return lease

    async def use(self, name: str, work: Callable[[T], Awaitable[R]]) -> R:
        """Work with an object, which is not idle meanwhile.

        Raises:
            SessionGone: there is no object of this name, or it has ended.
        """
        self._sweep()
        lease = self._open.get(name)
        if lease is None:
            raise self._gone_error(name)
        lease.busy += 1
        try:
            return await work(await asyncio.shield(lease.made))
        except SessionGone as error:
            self.release(name, str(error).rpartition("has ended: ")[2])
            raise
        except SlotLost as error:
            self.release(name, str(error))
            raise self._gone_error(name) from error
        finally:
            lease.rest()

    def release(self, name: str, reason: str) -> bool:
        """End an object and remember the name; return whether such an object existed.

        The name is remembered so that a request that comes late cannot bring the object back.
        """
        lease = self._open.pop(name, None)
        if len(name) <= MAX_NAME:
            self._gone.setdefault(name, reason)
            if len(self._gone) > MAX_TOMBSTONES:
                self._gone.popitem(last=False)
        if lease is not None:
            task = asyncio.create_task(self._end(lease))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return lease is not None

    async def _end(self, lease: Lease[T]) -> None:
        try:
            await self._close(await lease.made)
        except (SlotLost, TimeoutError, LudusError):
            return  # the object had not started, or its slot is gone already
        except Exception:
            logger.exception("a %s did not end cleanly", self._terms.what)

    def _gone_error(self, name: str) -> SessionGone:
        why = self._gone.get(name, f"none was made since this server ({self._instance}) started")
        return SessionGone(f"there is no {self._terms.what} {name!r}: {why}")

    async def _reap(self) -> None:
        while True:
            await asyncio.sleep(REAP_EVERY_S)
            self._sweep()

    def _sweep(self) -> None:
        """End the objects whose time is over."""
        now = time.monotonic()
        for name, lease in list(self._open.items()):
            if reason := lease.overdue(now, self._terms.lifetime_s):
                self.release(name, reason)
