"""The table of what a server keeps for clients by name: episodes, REPLs, snapshots.

The table is bounded in number. A reaper ends what nobody uses for as long as its lease, and what
grows too old. The names of what has ended are remembered, so that a request that comes late cannot
bring a session back.
"""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections import Counter, OrderedDict
from collections.abc import Callable
from enum import StrEnum
from typing import Any, Generic, TypeVar

from ludus.background import end_task
from ludus.errors import SequenceConflict, SessionGone, SessionLost

from .faults import QueueFull
from .principals import asked_by

logger = logging.getLogger(__name__)

MAX_TOMBSTONES = 200_000
MAX_NAME = 128
"""The longest name that is remembered after its end; no route accepts a longer name."""


class Lease(ABC):
    """A resource that a client holds under a name.

    Args:
        name: the name, chosen by the client.
        ttl_s: the longest time without use, in seconds.
    """

    def __init__(self, name: str, ttl_s: float) -> None:
        self.name = name
        self.owner = asked_by.get().name
        """The principal who made it; to others it does not exist."""
        self.ttl_s = ttl_s
        self.born = self.touched = time.monotonic()
        self.busy = 0
        """The number of requests that use the lease now; a lease in use never expires."""

    def rest(self) -> None:
        """Note that a request on this lease has ended, and that the time without use begins."""
        self.busy -= 1
        self.touched = time.monotonic()

    @abstractmethod
    async def close(self) -> None:
        """Release what is behind the name; called once, when the name has left the table."""


class Overdue(StrEnum):
    """The reasons why the reaper ends a lease."""

    EXPIRED = "expired"
    """The time without use has reached the lease's limit."""
    TOO_OLD = "too_old"
    """The lease has reached the longest lifetime."""


L = TypeVar("L", bound=Lease)


class SessionTable(Generic[L]):
    """Keeps the leases of a kind, bounds the number, and ends each lease when the time is over.

    Args:
        what: the name of the kind in messages.
        most: the most leases at the same time.
        lifetime_s: the longest lifetime, in seconds.
        reap_every_s: the time between two rounds of the reaper, in seconds.
        on_overdue: ends a lease whose time is over, by `release`.
    """

    def __init__(
        self,
        what: str,
        *,
        most: int,
        lifetime_s: float,
        reap_every_s: float,
        on_overdue: Callable[[L, Overdue], object],
    ) -> None:
        self._what = what
        self.most = most
        self.lifetime_s = lifetime_s
        self.reap_every_s = reap_every_s
        self._on_overdue = on_overdue
        self._open: dict[str, L] = {}
        self.owned: Counter[str] = Counter()
        """How many open leases each principal has."""
        self._gone: OrderedDict[str, str] = OrderedDict()
        self._lost: set[str] = set()
        """Those of `_gone` that ended by the server's doing."""
        self._closing: set[asyncio.Task[None]] = set()
        self._reaper: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._open)

    async def start(self) -> None:
        """Start the task that ends overdue leases."""
        self._reaper = asyncio.create_task(self._reap(), name=f"ludus-reaper-{self._what}")

    async def stop(self, timeout_s: float | None = None) -> None:
        """Stop the reaper, and wait at most `timeout_s` seconds for what is being closed. Whoever
        owns the table releases the leases before.
        """
        await end_task(self._reaper)
        if self._closing:
            await asyncio.wait(self._closing, timeout=timeout_s)

    def all(self) -> list[L]:
        """Return every open lease, in the order of creation."""
        return list(self._open.values())

    def find(self, name: str) -> L | None:
        """Return the open lease of this name that belongs to whoever asks, or None."""
        lease = self._open.get(name)
        return lease if lease is not None and lease.owner == asked_by.get().name else None

    def why_gone(self, name: str) -> str:
        """Return the reason why the lease of this name has ended; empty if no such lease is
        remembered.
        """
        return self._gone.get(name, "")

    def gone(self, name: str, why: str = "") -> SessionGone:
        """Return the error for a name that has ended: `SessionLost` where that was the server's
        doing, as it is for a name that nobody remembers.

        Args:
            name: the name.
            why: the reason, where the table knows none.
        """
        kind = SessionLost if name in self._lost or name not in self._gone else SessionGone
        return kind(f"{self._what} {name!r} is gone ({self.why_gone(name) or why})")

    def check_new(self, name: str) -> None:
        """Check that a lease of this name may begin.

        Raises:
            SessionGone: a lease of this name has ended.
            SequenceConflict: another principal has taken the name.
            QueueFull: there are as many leases as are allowed, to all or to whoever asks.
        """
        if name in self._gone:
            raise self.gone(name)
        if name in self._open:
            raise self.another(name)
        principal = asked_by.get()
        if principal.grant.sessions and self.owned[principal.name] >= principal.grant.sessions:
            raise QueueFull(
                f"{principal.name!r} has {self.owned[principal.name]} of "
                f"{principal.grant.sessions} {self._what}s open",
                depth=self.owned[principal.name],
                limit=principal.grant.sessions,
                cause="principal_sessions",
            )
        if len(self._open) >= self.most:
            self.sweep()
        if len(self._open) >= self.most:
            message = f"{len(self._open)} of {self.most} {self._what}s are open"
            raise QueueFull(message, 1.0, depth=len(self._open), limit=self.most, cause="sessions")

    def add(self, lease: L) -> None:
        """Keep a lease; see `check_new`."""
        self._open[lease.name] = lease
        self.owned[lease.owner] += 1

    def another(self, name: str) -> SequenceConflict:
        """Return the error for a name that another request has taken."""
        return SequenceConflict(
            f"{self._what} {name!r} exists already, made by another request; choose another name"
        )

    def release(self, lease: L, reason: str, *, bury: bool = True, lost: bool = False) -> bool:
        """Take a lease out of the table at once, and close the resource in the background.

        Args:
            lease: the lease to end.
            reason: the reason, told to whoever asks for the name later.
            bury: whether to remember the name.
            lost: whether the end is the server's doing, and not that of the lease's user.

        Returns:
            whether the lease was in the table.
        """
        if self._open.get(lease.name) is not lease:
            return False
        del self._open[lease.name]
        self.owned[lease.owner] -= 1
        if bury:
            self.bury(lease.name, reason, lost=lost)
        task = asyncio.create_task(self._close(lease))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
        return True

    def bury(self, name: str, reason: str, *, lost: bool = False) -> None:
        """Remember that a name has ended; see `release`."""
        if len(name) > MAX_NAME or name in self._open or name in self._gone:
            return
        self._gone[name] = reason
        if lost:
            self._lost.add(name)
        if len(self._gone) > MAX_TOMBSTONES:
            self._lost.discard(self._gone.popitem(last=False)[0])

    def sweep(self) -> None:
        """End the leases whose time is over."""
        now = time.monotonic()
        for lease in self.all():
            if now - lease.born > self.lifetime_s:
                self._on_overdue(lease, Overdue.TOO_OLD)
            elif not lease.busy and now - lease.touched > lease.ttl_s:
                self._on_overdue(lease, Overdue.EXPIRED)

    async def _reap(self) -> None:
        while True:
            await asyncio.sleep(self.reap_every_s)
            self.sweep()

    async def _close(self, lease: L) -> None:
        try:
            await lease.close()
        except Exception:
            logger.exception("%s %r did not end cleanly", self._what, lease.name)


MIN_KEPT_BYTES = 4096
"""Replies under so many bytes are not counted: their number is bounded by that of the sessions."""


class KeptReplies:
    """Counts the bytes of all replies that sessions keep, and forgets the oldest beyond a budget.

    A reply is kept for a client that never got it. Who has sent a later request has got it, so what
    is forgotten is missed only by one whose connection broke long ago.

    Args:
        limit: the most bytes.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0
        self._sizes: OrderedDict[NumberedRequests[Any, Any], int] = OrderedDict()

    def note(self, session: NumberedRequests[Any, Any], size: int) -> None:
        """Count the last reply of a session, which has `size` bytes."""
        self.held -= self._sizes.pop(session, 0)
        if size < MIN_KEPT_BYTES:
            return
        self._sizes[session] = size
        self.held += size
        while self.held > self.limit and len(self._sizes) > 1:
            oldest, freed = self._sizes.popitem(last=False)
            self.held -= freed
            oldest.forget()

    def drop(self, session: NumberedRequests[Any, Any]) -> None:
        """Count out what a session keeps, which has ended."""
        self.held -= self._sizes.pop(session, 0)


Q = TypeVar("Q")
A = TypeVar("A")


class NumberedRequests(Generic[Q, A]):
    """Begins each numbered request of a session once, and answers a request sent again.

    A repetition of the last request joins it while it runs, or is given its kept reply.

    Args:
        session: the session in messages, such as "session 'a'".
    """

    def __init__(self, session: str) -> None:
        self._session = session
        self._next_seq = 0
        self._last: tuple[Q, asyncio.Future[A]] | None = None

    @property
    def running(self) -> bool:
        """Whether the last request still runs."""
        return self._last is not None and not self._last[1].done()

    def kept(self, request: Q, seq: int) -> asyncio.Future[A] | None:
        """Return the reply to a request sent again, running or done; None for the next request.

        Raises:
            SequenceConflict: the request is neither.
        """
        if seq == self._next_seq and not self.running:
            return None
        if self._last is None and seq == self._next_seq - 1:
            raise SessionGone(
                f"{self._session}: the reply of seq {seq} is not kept any more, since replies of "
                "others needed the room (--max-kept-mb)"
            )
        if self._last is not None and seq == self._next_seq - 1:
            if request != self._last[0]:
                raise SequenceConflict(
                    f"{self._session}: seq {seq} was sent before with another payload"
                )
            return self._last[1]
        following = f"the next is {self._next_seq}"
        if seq == self._next_seq:
            problem = f"seq {seq - 1} is still running"
        elif seq > self._next_seq:
            problem = f"seq {seq} skips; {following}"
        else:
            problem = f"seq {seq} is long past; {following}, and only the last reply is kept"
        raise SequenceConflict(f"{self._session}: {problem}")

    def forget(self) -> None:
        """Keep the last reply no longer; a request that runs is not forgotten."""
        if not self.running:
            self._last = None

    def between(self, seq: int) -> None:
        """Check that nothing runs, and that `seq` is the next number.

        Raises:
            SequenceConflict: it is not so.
        """
        if self.running:
            raise SequenceConflict(f"{self._session}: seq {self._next_seq - 1} is still running")
        if seq != self._next_seq:
            raise SequenceConflict(
                f"{self._session}: the next seq is {self._next_seq}, and a fork of seq {seq} was "
                "asked for"
            )

    def begun(self, request: Q, seq: int, reply: asyncio.Future[A]) -> None:
        """Note that the next request has begun, with a future of the reply."""
        self._next_seq = seq + 1
        self._last = request, reply
