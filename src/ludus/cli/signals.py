"""Long-running verbs: run until SIGINT or SIGTERM, and then tidy up.

Schedulers announce the end of a job by SIGTERM; without this a run would end without a checkpoint
and leave its server behind.
"""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import threading
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager, suppress
from types import FrameType
from typing import Any, Protocol, TypeVar, runtime_checkable

from ludus.errors import ConfigError

T = TypeVar("T")


def run_interruptible(work: Coroutine[Any, Any, T], notice: str = "") -> T:
    """Run `work` like `asyncio.run`, and cancel on SIGTERM as on Ctrl-C.

    Args:
        work: what runs. A step that is under way in a thread may hold its end up for a minute.
        notice: a line that says at the signal what will happen, before the work has tidied up.

    Raises:
        KeyboardInterrupt: the work was cancelled, and did not return a value of its own.
    """
    try:
        return asyncio.run(_cancelled_by_signals(work, notice))
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


async def _cancelled_by_signals(work: Coroutine[Any, Any, T], notice: str) -> T:
    task = asyncio.current_task()
    assert task is not None
    with suppress(NotImplementedError, ValueError):  # not on this platform; not on this thread
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    on_main = threading.current_thread() is threading.main_thread()
    cancelling = signal.getsignal(signal.SIGINT)  # asyncio's: the first cancels, the second raises
    if notice and on_main and callable(cancelling):

        def acknowledge(number: int, frame: FrameType | None) -> None:
            # not print: a handler may interrupt a print, whose buffer is then locked
            os.write(2, f"\n{notice}\n".encode())
            signal.signal(signal.SIGINT, cancelling)
            cancelling(number, frame)

        signal.signal(signal.SIGINT, acknowledge)
    try:
        return await work
    finally:  # asyncio removes its own handler only
        if notice and on_main and callable(cancelling):
            signal.signal(signal.SIGINT, cancelling)


class Startable(Protocol):
    """A server that listens between `start` and `stop`."""

    async def start(self) -> None: ...
    async def stop(self) -> None: ...


@runtime_checkable
class Hurried(Protocol):
    """A server whose `stop` may wait long for clients."""

    def hurry(self) -> None:
        """Let `stop` wait no longer."""
        ...


@asynccontextmanager
async def listening(server: Startable, host: str, port: int) -> AsyncGenerator[asyncio.Event]:
    """Run `server`, which binds `host:port`, for the length of the block. A second signal ends a
    server that drains at once.

    Yields:
        an event that SIGINT and SIGTERM set.

    Raises:
        ConfigError: the port cannot be bound; the message says what to try instead.
    """
    if not 0 <= port <= 65535:
        raise ConfigError(f"--port {port}: ports are 0 to 65535, and 0 takes a free one")
    try:
        await server.start()
    except OSError as error:
        raise cannot_listen(host, port, error) from error
    stop, loop = asyncio.Event(), asyncio.get_running_loop()

    def signalled() -> None:
        if stop.is_set() and isinstance(server, Hurried):
            server.hurry()
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, signalled)
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
