"""This module bounds the calls of models in flight, in the whole process and to each host.

Each client bounds its own calls, and a process often has several: a rubric judge, a generator, a
preference judge, an evaluation. What they send together is bounded here. Calls wait in turn, on
whatever event loop they come from; a call that waits before it asks again holds no place.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from ludus.errors import ConfigError

MAX_CALLS, MAX_CALLS_PER_HOST = 1024, 256
"""Bounds where the variables LUDUS_MAX_CALLS and LUDUS_MAX_CALLS_PER_HOST are not set."""


class Places:
    """A number of places that callers on any event loop take and give back, first come, first
    served.

    Args:
        count: number of places, at least 1.
    """

    def __init__(self, count: int) -> None:
        self._free = count
        self._waiting: deque[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = deque()
        self._lock = threading.Lock()

    @asynccontextmanager
    async def taken(self) -> AsyncGenerator[None]:
        """Take a place for the length of the block; wait while all places are taken."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] | None = None
        with self._lock:
            if self._free:
                self._free -= 1
            else:
                future = loop.create_future()
                self._waiting.append((loop, future))
        if future is not None:
            try:
                await future
            except asyncio.CancelledError:
                if future.done() and not future.cancelled():  # a place came, and nobody is left
                    self._give()
                raise
        try:
            yield
        finally:
            self._give()

    def _give(self) -> None:
        """Hand the place to whoever has waited longest."""
        while True:
            with self._lock:
                if not self._waiting:
                    self._free += 1
                    return
                loop, future = self._waiting.popleft()
            try:
                loop.call_soon_threadsafe(self._arrive, future)
            except RuntimeError:  # that loop has ended with whoever waited
                continue
            return

    def _arrive(self, future: asyncio.Future[None]) -> None:
        if future.done():  # given up meanwhile
            self._give()
        else:
            future.set_result(None)


class CallLimits:
    """The bounds on calls in flight, in total and to each host.

    Args:
        total: most calls at once; 1024 by default.
        per_host: most calls at once to the same host and port; 256 by default.

    Raises:
        ConfigError: a bound below 1.
    """

    def __init__(self, total: int = MAX_CALLS, per_host: int = MAX_CALLS_PER_HOST) -> None:
        if total < 1 or per_host < 1:
            raise ConfigError(f"calls in flight need bounds of at least 1, got {total}, {per_host}")
        self.total = total
        self.per_host = per_host
        self._all = Places(total)
        self._hosts: dict[str, Places] = {}
        self._lock = threading.Lock()

    @asynccontextmanager
    async def place(self, url: str) -> AsyncGenerator[None]:
        """Take a place for a call of `url`, for the length of the block. The host's place comes
        first, so that calls that wait for a slow host hold no places that other hosts could use.
        """
        host = urlsplit(url).netloc.rpartition("@")[2].casefold()
        with self._lock:
            places = self._hosts.setdefault(host, Places(self.per_host))
        async with places.taken(), self._all.taken():
            yield


def limits_from_environment() -> CallLimits:
    """Return the bounds that LUDUS_MAX_CALLS and LUDUS_MAX_CALLS_PER_HOST name.

    Raises:
        ConfigError: a variable holds no whole number of at least 1.
    """
    variables = {"LUDUS_MAX_CALLS": MAX_CALLS, "LUDUS_MAX_CALLS_PER_HOST": MAX_CALLS_PER_HOST}
    counts: list[int] = []
    for variable, default in variables.items():
        value = os.environ.get(variable, "")
        if value and not (value.isascii() and value.isdigit() and int(value)):
            raise ConfigError(f"{variable} must be a whole number of at least 1, got {value!r}")
        counts.append(int(value or default))
    return CallLimits(*counts)


_shared: CallLimits | None = None


def shared_limits() -> CallLimits:
    """Return the bounds that all clients of this process share, from the environment."""
    global _shared
    if _shared is None:
        _shared = limits_from_environment()
    return _shared
