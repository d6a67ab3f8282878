"""Objects that a server makes for clients, such as REPLs and snapshots: each is made once, however
often the request arrives, and kept in a `SessionTable`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Generic, TypeVar

from ludus.errors import LudusError, SessionGone
from ludus.wire.faults import Refused
from ludus.wire.session_table import Lease, Overdue, SessionTable

from ..local.slots import SlotLost

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
        # These mean that the object did not start, or has ended already.
        with suppress(SlotLost, TimeoutError, LudusError):
            await self._close(await self.made)


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
            self._table.release(lease, "the server stopped")
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
        elif lease.request != request:
            raise self._table.another(name)
        lease.busy += 1
        try:
            # Shielded: the same request may wait for the object too, and the client that went away
            # may send it again.
            await asyncio.shield(lease.made)
        except (SlotLost, TimeoutError) as error:
            self._table.release(lease, "", bury=False)
            reason = str(error) or "it took too long"
            raise Refused(
                f"the {self._terms.what} did not start: {reason}", "sandbox_failed"
            ) from error
        except LudusError:
            self._table.release(lease, "", bury=False)
            raise
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
            self._table.release(lease, str(error).rpartition("has ended: ")[2])
            raise
        except SlotLost as error:
            self._table.release(lease, str(error))
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

    def _end_overdue(self, lease: MadeLease[T], overdue: Overdue) -> None:
        too_old = overdue is Overdue.TOO_OLD
        self._table.release(
            lease,
            f"it was older than {self._terms.lifetime_s:g} s"
            if too_old
            else f"it was idle for {lease.ttl_s:g} s",
        )
