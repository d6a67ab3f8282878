"""What a server lets in: operations in flight, and connections of strangers.

A connection is a stranger's until a request on it has shown the token. Strangers have a few
seconds, which ends slow headers and idle sockets. Where all places are taken, the stranger who has
been there longest makes room.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, Protocol, TypeVar

from .faults import QueueFull
from .principals import Principal, asked_by

SMOOTHING = 0.1
MIN_RETRY_S = 0.05
MAX_RETRY_S = 30.0


_Share = tuple[str, Principal]
"""A key, and whose operations of it are counted."""


class Admission:
    """Counts operations in flight: in all, per key (an environment, a verifier), and per key and
    principal.

    Where all places are taken, a key and principal with fewer than its share, by weight, of the
    places gets one all the same; so nobody who waits for a slow verifier keeps others from a quick
    one. There are never more than twice `limit`.

    Args:
        limit: the most operations in flight over all keys.
        per_key: the most operations in flight of one key; `limit` if None.
    """

    def __init__(self, limit: int, *, per_key: int | None = None) -> None:
        self.limit = limit
        self.per_key = limit if per_key is None else per_key
        self.depth = 0
        self.depths: Counter[str] = Counter()
        self.mean_s = 0.1
        """The exponential mean of the seconds from admission to reply of one operation."""
        self._shares: Counter[_Share] = Counter()

    def enter(self, key: str) -> Principal:
        """Admit an operation of `key`, and return the principal.

        Raises:
            QueueFull: `limit` operations are in flight and this key and principal have their share
                of them, `per_key` operations of this key are, or the principal's rate is used up.
        """
        principal = asked_by.get()
        share = key, principal
        if self.depth >= self.limit and not self._is_owed(share, self._shares, self.limit):
            raise self._full("the server's queue", self.depth, self.limit)
        if self.depths[key] >= self.per_key and not self._is_owed(
            share, [other for other in self._shares if other[0] == key], self.per_key
        ):
            raise self._full(f"the queue of {key}", self.depths[key], self.per_key)
        if principal.has_rate:  # last: what a full queue refuses is no operation
            principal.spend()
        self.depth += 1
        self.depths[key] += 1
        self._shares[share] += 1
        return principal

    def leave(self, key: str, took_s: float, principal: Principal) -> None:
        """Count an operation of `key` and `principal` out, which took `took_s` seconds from
        admission to reply.
        """
        self.depth -= 1
        self.depths[key] -= 1
        self._shares[key, principal] -= 1
        if not self._shares[key, principal]:
            del self._shares[key, principal]
        self.mean_s += SMOOTHING * (took_s - self.mean_s)

    def _is_owed(self, share: _Share, others: Iterable[_Share], places: int) -> bool:
        """Return whether a key and principal have less than their part of `places`, beside others
        of which each has a part by its principal's weight.
        """
        if self.depth >= 2 * self.limit:
            return False
        weights = sum(principal.grant.weight for _, principal in {*others, share})
        return self._shares[share] < places * share[1].grant.weight / weights

    @property
    def retry_after_s(self) -> float:
        """The estimated seconds until the queue has room: the mean time of an operation, in
        0.05..30.
        """
        return min(MAX_RETRY_S, max(MIN_RETRY_S, self.mean_s))

    def _full(self, what: str, depth: int, limit: int) -> QueueFull:
        return QueueFull(
            f"{what} is full: {depth} of {limit} operations in flight",
            self.retry_after_s,
            depth=depth,
            limit=limit,
        )


T = TypeVar("T")


class FairQueue(Generic[T]):
    """A queue in which principals take turns by weight; each principal's items stay in order.

    Weighted fair queueing: a principal's clock advances by 1 / weight with each item that leaves,
    and the principal whose clock is least is next. One that comes anew starts at the present time,
    so that nobody saves up turns.
    """

    def __init__(self) -> None:
        self._lines: dict[Principal, deque[T]] = {}
        self._clocks: dict[Principal, float] = {}
        self._now = 0.0
        self._first: deque[T] = deque()
        self.size = 0
        """How many items wait."""

    def __iter__(self) -> Iterator[T]:
        yield from self._first
        for line in self._lines.values():
            yield from line

    def append(self, item: T) -> None:
        """Add an item of whoever asks."""
        self.size += 1
        principal = asked_by.get()
        if principal not in self._lines:
            self._lines[principal] = deque()
            self._clocks[principal] = self._now + 1.0 / principal.grant.weight
        self._lines[principal].append(item)

    def put_first(self, item: T) -> None:
        """Add an item that goes before all others."""
        self.size += 1
        self._first.append(item)

    def head(self) -> T:
        """Return the item that is next."""
        return self._first[0] if self._first else self._lines[self._next()][0]

    def remove(self, item: T) -> None:
        """Remove an item, if present; removing the head counts as the principal's turn."""
        if item in self._first:
            self._first.remove(item)
            self.size -= 1
            return
        for principal, line in self._lines.items():
            if item in line:
                if line[0] is item and principal is self._next():
                    self._now = self._clocks[principal]
                    self._clocks[principal] += 1.0 / principal.grant.weight
                line.remove(item)
                self.size -= 1
                if not line:
                    del self._lines[principal], self._clocks[principal]
                return

    def has_room(self, most: int) -> bool:
        """Return whether whoever asks may add an item, where `most` may wait: always less than the
        principal's share, by weight.
        """
        if self.size < most:
            return True
        principal = asked_by.get()
        weights = sum(other.grant.weight for other in {*self._lines, principal})
        own = len(self._lines.get(principal, ()))
        return self.size < 2 * most and own < most * principal.grant.weight / weights

    def _next(self) -> Principal:
        return min(self._clocks, key=self._clocks.__getitem__)


MAX_CONNECTIONS = 8192
RESERVED_FILES = 64
"""Descriptors that are left for files, models, templates and the sockets of verifiers."""
MIN_CONNECTIONS = 8


def connections_within(files: int, workers: int, files_per_worker: int = 4) -> int:
    """Return how many connections a server may have open, whose process may open `files` and have
    `workers`: so many that accepting one never fails.

    >>> connections_within(1024, 16), connections_within(64, 16), connections_within(1 << 20, 16)
    (896, 8, 8192)
    """
    left = files - RESERVED_FILES - workers * files_per_worker
    return max(MIN_CONNECTIONS, min(MAX_CONNECTIONS, left))


STRANGER_S = 10.0
"""Seconds that a connection may last on which no request has shown the token."""
_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\n"
    b"Content-Type: application/json\r\nContent-Length: 80\r\n\r\n"
    b'{"error":{"code":"stopping","message":"all connections taken","retryable":true}}'
)


class Connection(Protocol):
    """The part of aiohttp's protocol object that the door uses."""

    @property
    def transport(self) -> asyncio.BaseTransport | None:
        """The connection's transport; None once the connection is closed."""
        ...

    def force_close(self) -> None:
        """Close the connection at once."""
        ...


class Door:
    """Makes the protocol object of each new connection, and bounds how many are open.

    Args:
        make: makes the protocol object that speaks HTTP on one connection.
        max_connections: the most connections at the same time.
        stranger_s: the seconds that a connection may last on which no request has shown the token.
    """

    def __init__(
        self,
        make: Callable[[], Any],
        *,
        max_connections: int = MAX_CONNECTIONS,
        stranger_s: float = STRANGER_S,
    ) -> None:
        self._make = make
        self._max = max_connections
        self._stranger_s = stranger_s
        self._strangers: dict[Connection, float] = {}
        self._known: set[Connection] = set()
        self.turned_away = 0
        """Strangers whose connection was closed on them, and clients that found no place."""

    def __len__(self) -> int:
        return len(self._strangers) + len(self._known)

    def __call__(self) -> asyncio.BaseProtocol:
        """Make the protocol object of a connection that was just accepted.

        Where all places are taken, the oldest stranger is closed; where there is none, the new
        connection is answered with 503.
        """
        if len(self) >= self._max:
            self._forget_closed()
        if len(self) >= self._max:
            oldest = next(iter(self._strangers), None)  # a dict keeps the order of arrival
            if oldest is None:
                self.turned_away += 1
                return _Full()
            self._turn_away(oldest)
        connection: Any = self._make()
        self._strangers[connection] = time.monotonic()
        protocol: asyncio.BaseProtocol = connection
        return protocol

    def vouch(self, connection: Connection) -> None:
        """Note that a request on `connection` has shown the token, so that the connection may
        stay.
        """
        if self._strangers.pop(connection, None) is not None:
            self._known.add(connection)

    def sweep(self) -> None:
        """Close the connections of strangers whose time is over."""
        self._forget_closed()
        over = time.monotonic() - self._stranger_s
        for connection in [
            connection for connection, since in self._strangers.items() if since < over
        ]:
            self._turn_away(connection)

    def _turn_away(self, connection: Connection) -> None:
        del self._strangers[connection]
        self.turned_away += 1
        connection.force_close()

    def _forget_closed(self) -> None:
        now = time.monotonic()
        for connection, since in list(self._strangers.items()):
            if connection.transport is None and now - since > 1.0:  # else not connected yet
                del self._strangers[connection]
        # aiohttp sets the transport to None once the connection is lost.
        self._known = {known for known in self._known if known.transport is not None}


class _Full(asyncio.Protocol):
    """Answers a connection that found no place with 503, and closes the connection."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(_FULL)
        transport.close()
