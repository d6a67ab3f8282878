"""What a server lets in: operations in flight, and connections of strangers.

A connection is a stranger's until a request on it has shown the token. Strangers have a few
seconds, which ends slow headers and idle sockets. Where all places are taken, the stranger who has
been there longest makes room.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Protocol

from .faults import QueueFull

SMOOTHING = 0.1
MIN_RETRY_S = 0.05
MAX_RETRY_S = 30.0


class Admission:
    """Counts operations in flight, in all and per key (an environment, a verifier).

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

    def enter(self, key: str) -> None:
        """Count an operation of `key` in.

        Raises:
            QueueFull: `limit` operations are in flight, or `per_key` operations of this key.
        """
        if self.depth >= self.limit:
            raise self._full("the server's queue", self.depth, self.limit)
        if self.depths[key] >= self.per_key:
            raise self._full(f"the queue of {key}", self.depths[key], self.per_key)
        self.depth += 1
        self.depths[key] += 1

    def leave(self, key: str, took_s: float) -> None:
        """Count an operation of `key` out, which took `took_s` seconds from admission to reply."""
        self.depth -= 1
        self.depths[key] -= 1
        self.mean_s += SMOOTHING * (took_s - self.mean_s)

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


MAX_CONNECTIONS = 8192
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
