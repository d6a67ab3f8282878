"""The adapter that lets an `HttpServer` serve another project's ASGI application.

The server asks for the token, reads the body and bounds its size; the application sees only
requests that may be answered, with complete and inflated bodies. A response may take any time, as
event streams do.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

logger = logging.getLogger(__name__)
AsgiApp = Callable[[Any, Any, Any], Awaitable[None]]
LOOK_EVERY_S = 0.5
"""Seconds between two looks at whether the client is still connected."""
END_WITHIN_S = 5.0
"""Seconds that an application has to end by itself once its client has gone."""
_OF_THE_WIRE = ("content-length", "content-encoding", "transfer-encoding", "connection")
"""Request headers that describe how the body travelled; the application is given the inflated body,
so they would mislead it.
"""


async def call_asgi(app: AsgiApp, request: web.Request, body: bytes) -> web.StreamResponse:
    """Let `app` answer a request, and return the response.

    Args:
        app: an application that speaks ASGI 3.
        request: the request, whose path, query and headers the application is given.
        body: the inflated body of the request.

    Raises:
        Exception: whatever `app` raised before it began to answer. A later failure is logged and
            the connection is cut, so that the client cannot take a partial response for a whole
            one.
        RuntimeError: `app` returned without an answer.
    """
    exchange = _Exchange(request, body)
    try:
        headers = [
            (name.lower(), value)
            for name, value in request.raw_headers
            if name.lower().decode("latin-1") not in _OF_THE_WIRE
        ]
        transport = request.transport
        call = app(
            {
                "type": "http",
                "asgi": {"version": "3.0", "spec_version": "2.3"},
                "http_version": f"{request.version.major}.{request.version.minor}",
                "method": request.method,
                "scheme": request.scheme,
                "path": request.path,
                "raw_path": request.rel_url.raw_path.encode("latin-1"),
                "query_string": request.rel_url.raw_query_string.encode("latin-1"),
                "root_path": "",
                "headers": [*headers, (b"content-length", str(len(body)).encode())],
                "client": transport.get_extra_info("peername")[:2]
                if transport is not None
                else None,
                "server": transport.get_extra_info("sockname")[:2]
                if transport is not None
                else None,
            },
            exchange.receive,
            exchange.send,
        )
        await _told_of_the_end(asyncio.ensure_future(call))
    except Exception:
        if exchange.response is None:
            raise
        logger.exception("an application failed within its answer")
        exchange.cut()
    finally:
        exchange.over.set()
    if exchange.response is None:
        raise RuntimeError("an application has returned without an answer")
    return exchange.response


async def _told_of_the_end(answering: asyncio.Future[None]) -> None:
    """Wait for an application. Where its client has gone, the request is cancelled: the application
    is told so by `receive`, and may end by itself.
    """
    try:
        await asyncio.shield(answering)
    except asyncio.CancelledError:
        await asyncio.wait([answering], timeout=END_WITHIN_S)
        answering.cancel()
        raise


class _Exchange:
    """The `receive` and `send` of the ASGI specification, for a single request."""

    def __init__(self, request: web.Request, body: bytes) -> None:
        self.response: web.StreamResponse | None = None
        self.over = asyncio.Event()
        self._request = request
        self._body: bytes | None = body

    async def receive(self) -> dict[str, Any]:
        """Return the whole body first; a later call waits, and tells that the client has gone.

        The wait also ends when the response is complete, as the specification asks.
        """
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        while not self.over.is_set() and not (
            self._request.transport is None or self._request.transport.is_closing()
        ):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_EVERY_S):
                    await self.over.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: dict[str, Any]) -> None:
        """Begin the response or write part of the body; a client that has left is not an error."""
        with contextlib.suppress(ConnectionError):
            if message["type"] == "http.response.start":
                self.response = web.StreamResponse(status=message["status"])
                for name, value in message.get("headers", ()):
                    if name.lower() not in (b"transfer-encoding", b"connection"):
                        self.response.headers.add(name.decode("latin-1"), value.decode("latin-1"))
                await self.response.prepare(self._request)
                return
            assert self.response is not None, "the start of a response comes first"
            if message.get("body"):
                await self.response.write(message["body"])
            if not message.get("more_body", False):
                await self.response.write_eof()
                self.over.set()

    def cut(self) -> None:
        """Close the connection at once, without ending the response in good order."""
        if self._request.transport is not None:
            self._request.transport.abort()
