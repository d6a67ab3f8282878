"""Looks names up in threads of its own: a slow answer must not hold up anything else that waits for
a thread.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor

Resolver = Callable[[str, int], Awaitable[list[str]]]
"""(host, port) -> its addresses. Raises OSError if it has none."""

_THREADS = 16


class SystemResolver:
    """What the system's resolver says."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_THREADS, "ludus-resolver")

    async def __call__(self, host: str, port: int) -> list[str]:
        """The addresses of `host`, each once, in the order to try them.

        Raises:
            OSError: it has none.
        """
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, _addresses, host, port)

    def close(self) -> None:
        """Forget what is still asked. Idempotent."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _addresses(host: str, port: int) -> list[str]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError as error:
        raise OSError(f"{host!r} is not a host name: {error}") from error
    return list(dict.fromkeys(str(address[0]) for *_, address in found))
