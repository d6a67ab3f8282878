"""Looks names up in separate threads, so that slow answers do not delay other work."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor

Resolver = Callable[[str, int], Awaitable[list[str]]]
"""(host, port) -> the addresses of the host. Raises OSError if the host has none."""

_THREADS = 16


class SystemResolver:
    """The system's resolver, on threads that nothing else waits for."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_THREADS, "ludus-resolver")

    async def __call__(self, host: str, port: int) -> list[str]:
        """Return the addresses of `host`, each once, in the order to try.

        Raises:
            OSError: the host has no address.
        """
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, _addresses, host, port)

    def close(self) -> None:
        """Cancel the look-ups that have not begun. Idempotent."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _addresses(host: str, port: int) -> list[str]:
    try:
        records = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError as error:
        raise OSError(f"{host!r} is not a host name: {error}") from error
    return list(dict.fromkeys(str(address[0]) for *_, address in records))
