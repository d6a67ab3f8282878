"""A server on a thread of its own: for notebooks, scripts and tests.

with BackgroundServer(HttpServer([EnvService(["me/echo-v0"])])) as url:
    env = ludus.connect(url).make("me/echo-v0")
"""

from __future__ import annotations

import asyncio
import threading

from .server import HttpServer

START_TIMEOUT_S = 600.0
STOP_TIMEOUT_S = 60.0


class BackgroundServer:
    """Runs `server` on its own event loop and thread while the `with` block lasts."""

    def __init__(self, server: HttpServer) -> None:
        self.server = server
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="ludus-server", daemon=True)

    def __enter__(self) -> str:
        """Start it; the address."""
        self._thread.start()
        if not self._ready.wait(START_TIMEOUT_S):
            raise TimeoutError(f"the server did not start within {START_TIMEOUT_S:g} s")
        if self._failure is not None:
            raise self._failure
        return self.server.url

    def __exit__(self, *_: object) -> None:
        """Stop it."""
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
