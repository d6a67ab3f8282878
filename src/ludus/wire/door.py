"""Connections of a server: how many there are, and how long a stranger may keep one.

A connection is a stranger's until a request on it has shown the token. Strangers have a few
seconds, which ends slow headers and idle sockets. Where all places are taken, the stranger who has
been there longest makes room.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Protocol

MAX_CONNECTIONS = 8192
STRANGER_S = 10.0
"""How long a connection may last on which nobody has shown the token."""
_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\n"
    b"Content-Type: application/json\r\nContent-Length: 80\r\n\r\n"
    b'{"error":{"code":"stopping","message":"all connections taken","retryable":true}}'
)


class Connection(Protocol):
    """What speaks HTTP on one connection."""

    transport: asyncio.BaseTransport | None

    def force_close(self) -> None:
        """Close it at once."""
        ...


class Door:
    """Makes the protocol of each new connection.

    Args:
        make: a connection that speaks HTTP.
        max_connections: at once.
        stranger_s: how long a connection may last on which nobody has shown the token.
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
        """The protocol of a connection that was just accepted."""
        if len(self) >= self._max:
            self._forget_closed()
        if len(self) >= self._max and not self._turn_one_away():
            self.turned_away += 1
            return _Full()
        connection: Any = self._make()
        self._strangers[connection] = time.monotonic()
        protocol: asyncio.BaseProtocol = connection
        return protocol

    def vouch(self, connection: Any) -> None:
        """A request on `connection` has shown the token."""
        if self._strangers.pop(connection, None) is not None:
            self._known.add(connection)

    def sweep(self) -> None:
        """Close the connections of strangers whose time is over."""
        self._forget_closed()
        over = time.monotonic() - self._stranger_s
        for connection in [one for one, since in self._strangers.items() if since < over]:
            self._turn_away(connection)

    def _turn_one_away(self) -> bool:
        oldest = next(iter(self._strangers), None)
        if oldest is not None:
            self._turn_away(oldest)
        return oldest is not None

    def _turn_away(self, connection: Connection) -> None:
        del self._strangers[connection]
        self.turned_away += 1
        connection.force_close()

    def _forget_closed(self) -> None:
        now = time.monotonic()
        for connection, since in list(self._strangers.items()):
            if connection.transport is None and now - since > 1.0:  # else not connected yet
                del self._strangers[connection]
        self._known = {one for one in self._known if one.transport is not None}


class _Full(asyncio.Protocol):
    """Says that there is no place, and closes."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(_FULL)
        transport.close()
