"""Another project's ASGI application behind the door of an `HttpServer`.

The server asks for the token, reads the body and bounds it; the application sees requests that may
be answered, their bodies inflated and complete. Responses may go on for long, as event streams do.
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
"""How soon an application is told that its client has gone."""
_OF_THE_WIRE = ("content-length", "content-encoding", "transfer-encoding", "connection")
"""Headers that describe how a body travelled, not what the application is given or gives."""


async def call_asgi(app: AsgiApp, request: web.Request, body: bytes) -> web.StreamResponse:
    """Have `app` answer a request.

    Args:
        app: speaks ASGI 3.
        request: with the path, the query and the headers.
        body: of the request, inflated.

    Raises:
        Exception: what `app` raises before it has begun to answer. Later than that, the failure is
            logged and the connection is cut, which the client cannot take for the end.
    """
    exchange = _Exchange(request, body)
    try:
        await app(_scope(request, body), exchange.receive, exchange.send)
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


class _Exchange:
    """One request and its response."""

    def __init__(self, request: web.Request, body: bytes) -> None:
        self.response: web.StreamResponse | None = None
        self.over = asyncio.Event()
        self._request = request
        self._body: bytes | None = body

    async def receive(self) -> dict[str, Any]:
        """The body first, then that the client has gone."""
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        while not self.over.is_set() and not self._is_gone():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_EVERY_S):
                    await self.over.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: dict[str, Any]) -> None:
        """Begin the response, or write a part of it; nothing where the client has gone."""
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
        """Close the connection."""
        if self._request.transport is not None:
            self._request.transport.abort()

    def _is_gone(self) -> bool:
        return self._request.transport is None or self._request.transport.is_closing()


def _scope(request: web.Request, body: bytes) -> dict[str, Any]:
    headers = [
        (name.lower(), value)
        for name, value in request.raw_headers
        if name.lower().decode("latin-1") not in _OF_THE_WIRE
    ]
    transport = request.transport
    return {
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
        "client": transport.get_extra_info("peername")[:2] if transport is not None else None,
        "server": transport.get_extra_info("sockname")[:2] if transport is not None else None,
    }
