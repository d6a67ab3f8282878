"""Plain POSTs, answered below aiohttp's application: found without its router, written as bytes.

A step sent as one POST costs more in the application's router, middlewares and response than in
ludus itself. What is unusual about a request (another method, an escaped path, HTTP/1.0, a
connection that is to be closed) leaves it to the application; either way the same function checks
and answers it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable, Sequence
from email.utils import formatdate
from functools import lru_cache
from typing import cast

from aiohttp import HttpVersion11, web

from .access import AccessLog, noted
from .codec import Format
from .routes import Path, Route

_PLAIN = re.compile(r"[\w.~:-]+", re.ASCII)
"""A part of a path that is written as it is meant."""
_AROUND = re.compile(r"([^{}]*/)\{(\w+)\}/([^{}/]*)")
"""A path whose only parameter is its last part but one."""


class PlainRoutes:
    """Answers each request of a server: a plain POST itself, any other by aiohttp's application.

    The route of a plain POST is looked up by its path, instead of trying one after another.

    Args:
        routes: all routes, in the order in which the router tries them.
        identify: gives a request its id.
        answer: checks a request of a route, with the parameters in its path, and answers it.
        otherwise: answers all other requests.
        access_log: is given a line for each plain request; None writes none.
    """

    def __init__(
        self,
        routes: Sequence[Route],
        *,
        identify: Callable[[web.BaseRequest], str],
        answer: Callable[[Route, web.Request, Path], Awaitable[web.StreamResponse]],
        otherwise: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
        access_log: AccessLog | None,
    ) -> None:
        self._identify = identify
        self._answer = answer
        self._otherwise = otherwise
        self._access_log = access_log
        self._whole: dict[str, Route] = {}
        self._around: dict[tuple[str, str], tuple[Route, str]] = {}
        for route in routes:
            around = _AROUND.fullmatch(route.path)
            if route.method == "POST" and "{" not in route.path:
                self._whole.setdefault(route.path, route)
            elif route.method == "POST" and around is not None:
                before, name, after = around.groups()
                self._around.setdefault((before, after), (route, name))

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a request."""
        plain = self.find(request)
        if plain is None:
            return await self._otherwise(request)
        route, path = plain
        started = time.perf_counter()
        self._identify(request)
        # The requests of an application's server are made by the application, plain or not.
        answering = self._answer(route, cast(web.Request, request), path)
        if self._access_log is None:
            return await answering
        return await noted(self._access_log, answering, request, path, route.path, started)

    def find(self, request: web.BaseRequest) -> tuple[Route, Path] | None:
        """Return the route of a request with the parameters in its path; None where the request is
        not plain, or no plain route takes it.
        """
        if request.method != "POST" or request.version != HttpVersion11 or not request.keep_alive:
            return None
        path = request.raw_path  # with its query
        if (route := self._whole.get(path)) is not None:
            return route, {}
        head, _, after = path.rpartition("/")
        before, slash, value = head.rpartition("/")
        around = self._around.get((before + slash, after))
        if around is None or _PLAIN.fullmatch(value) is None:
            return None
        return around[0], {around[1]: value}


class PlainReply:
    """A successful response for aiohttp's protocol, written as bytes at once.

    Args:
        body: the whole body.
        format: its format.
        headers: further lines of the head, each with its end.
    """

    status = 200
    keep_alive = True
    prepared = False

    def __init__(self, body: bytes, format: Format, headers: str) -> None:
        self._body = body
        self._head = (
            f"HTTP/1.1 200 OK\r\nContent-Type: {format.value}\r\nContent-Length: {len(body)}\r\n"
            f"Date: {_date(int(time.monotonic()))}\r\n{headers}\r\n"
        )
        self._request: web.BaseRequest | None = None

    @property
    def content_length(self) -> int:
        """The number of bytes in the body."""
        return len(self._body)

    async def prepare(self, request: web.BaseRequest) -> None:
        """Write head and body together.

        Raises:
            ConnectionError: the client has gone.
        """
        transport = request.transport
        if transport is None or transport.is_closing():
            raise ConnectionResetError("the client has gone")
        transport.write(self._head.encode("ascii") + self._body)
        self._request = request

    async def write_eof(self) -> None:
        """Wait until the client takes the bytes, so that no further request is read meanwhile."""
        if self._request is not None:
            await self._request.writer.drain()


@lru_cache(1)
def _date(_: int) -> str:
    """Return the current time in HTTP format; made once in each second of the caller's clock."""
    return formatdate(usegmt=True)
