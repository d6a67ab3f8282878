"""A server that runs on a thread of the caller's process, for notebooks, scripts and tests.

    with BackgroundServer(HttpServer([EnvService(["me/echo-v0"])])) as url:
        env = ludus.connect(url).make("me/echo-v0")

The server listens when the block begins, and is stopped when the block ends.
"""

from __future__ import annotations

import asyncio
import threading

from .server import HttpServer

START_TIMEOUT_S = 600.0
STOP_TIMEOUT_S = 60.0


class BackgroundServer:
    """Runs an `HttpServer` on a new thread and event loop while the `with` block lasts.

    Args:
        server: the server, not started.
    """

    def __init__(self, server: HttpServer) -> None:
        self.server = server
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="ludus-server", daemon=True)

    def __enter__(self) -> str:
        """Start the server, wait until connections are accepted, and return the address.

        Raises:
            TimeoutError: the server did not start within ten minutes.
            BaseException: whatever the start of the server raised.
        """
        self._thread.start()
        if not self._ready.wait(START_TIMEOUT_S):
            raise TimeoutError(f"the server did not start within {START_TIMEOUT_S:g} s")
        if self._failure is not None:
            raise self._failure
        return self.server.url

    def __exit__(self, *_: object) -> None:
        """Stop the server, and wait at most a minute for the thread to end."""
        if self._loop is not None and self._stop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(STOP_TIMEOUT_S)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self._failure = error
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        async with self.server:
            self._ready.set()
            await self._stop.wait()
