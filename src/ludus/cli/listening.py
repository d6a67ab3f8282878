"""What verbs that serve have in common: a server that runs until SIGINT or SIGTERM."""

from __future__ import annotations

import asyncio
import errno
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Protocol

from ludus.errors import ConfigError


class Startable(Protocol):
    """A server that listens between `start` and `stop`."""

    async def start(self) -> None: ...
    async def stop(self) -> None: ...


@asynccontextmanager
async def listening(server: Startable, host: str, port: int) -> AsyncGenerator[asyncio.Event]:
    """Run `server`, which binds `host:port`, for the length of the block.

    Yields:
        an event that SIGINT and SIGTERM set.

    Raises:
        ConfigError: the port cannot be bound; the message says what to try instead.
    """
    try:
        await server.start()
    except OSError as error:
        raise cannot_listen(host, port, error) from error
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    try:
        yield stop
    finally:
        await server.stop()


def cannot_listen(host: str, port: int, error: OSError) -> ConfigError:
    """Build the error for a failure to bind `host:port`, with what to try instead."""
    if error.errno == errno.EADDRINUSE:
        return ConfigError(
            f"port {port} on {host} is in use; choose another with --port, or --port 0 for any "
            "free one"
        )
    return ConfigError(f"cannot listen on {host}:{port}: {error.strerror}")
