"""Look-ups of host names for aiohttp's connections, bounded in number.

A look-up cannot be stopped: when its caller's time is over it goes on, for as long as the name
servers are silent. Each of asyncio's own holds a thread of the event loop's executor meanwhile,
until none is left to write a file, and the end of the program waits for all. Here all that ask for
a name share one look-up, on a thread that nothing waits for.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from concurrent.futures import Future

from aiohttp.abc import AbstractResolver, ResolveResult

MAX_LOOKUPS = 32
"""The most names that are looked up at once; others are refused meanwhile."""

NUMERIC = socket.NI_NUMERICHOST | socket.NI_NUMERICSERV
_Asked = tuple[str, int, int]
_lock = threading.Lock()
_under_way: dict[_Asked, Future[list[ResolveResult]]] = {}


class SharedResolver(AbstractResolver):
    """The system's resolver; all instances of a process share the look-ups that are under way."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Return the addresses of a host.

        Raises:
            OSError: the host has no address, or `MAX_LOOKUPS` other look-ups are under way.
        """
        asked = (host, port, family)
        with _lock:
            lookup = _under_way.get(asked)
            if lookup is None:
                if len(_under_way) >= MAX_LOOKUPS:
                    raise socket.gaierror(
                        socket.EAI_AGAIN,
                        f"{host!r} is not looked up: {MAX_LOOKUPS} other names are, the first is "
                        f"{next(iter(_under_way))[0]!r}; do the name servers answer?",
                    )
                lookup = Future()
                lookup.set_running_or_notify_cancel()  # a caller that leaves cancels it for nobody
                threading.Thread(
                    target=_look_up, args=(asked, lookup), name="ludus-look-up", daemon=True
                ).start()
                _under_way[asked] = lookup
        addresses: list[ResolveResult] = await asyncio.wrap_future(lookup)
        return list(addresses)

    async def close(self) -> None:
        """Do nothing: look-ups belong to the process."""


def _forget() -> None:
    """Begin without the look-ups of the process that this one was forked from, whose threads have
    stayed there.
    """
    global _lock
    _lock = threading.Lock()
    _under_way.clear()


os.register_at_fork(after_in_child=_forget)


def _look_up(asked: _Asked, lookup: Future[list[ResolveResult]]) -> None:
    host, port, family = asked
    try:
        records = socket.getaddrinfo(
            host, port, family=family, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG
        )
        numeric = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
        lookup.set_result(
            [
                ResolveResult(
                    # With the interface, where the address is one of a link.
                    hostname=host, host=socket.getnameinfo(address, NUMERIC)[0], port=port,
                    family=kind, proto=protocol, flags=numeric,
                )
                for kind, _, protocol, _, address in records
            ]
        )  # fmt: skip
    except Exception as error:  # a name that is none is a UnicodeError
        unknown = socket.gaierror(socket.EAI_NONAME, f"{host!r} is no host name: {error}")
        lookup.set_exception(error if isinstance(error, OSError) else unknown)
    finally:
        with _lock:
            del _under_way[asked]
