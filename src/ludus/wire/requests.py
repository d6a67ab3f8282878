"""The reading of a request: headers, and a body within bounds.

Nothing here runs before a request has shown its token.
"""

from __future__ import annotations

import asyncio
import base64
import re
import zlib
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import Protocol
from urllib.parse import unquote

import msgspec
from aiohttp import web

from .address import check_host
from .codec import Format, accepted, convert, decode, format_of, request_id, trace_parent
from .faults import QueueFull, Refused
from .principals import ANYONE, Principal, Principals
from .routes import Path, Route
from .strict import decode_request, read_fields, read_query

REQUEST_ID = "X-Request-Id"
"""The header of an id that a client or a proxy may choose, and that every reply has."""
_ID = re.compile(r"[\w.:/+=-]{1,128}", re.ASCII)
TRACE_PARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
"""A header of another shape is as good as none."""


def identify(request: web.BaseRequest, instance: str, number: int) -> str:
    """Return the id of a request, and note it with the request's trace for whatever answers it.

    The id is the client's own where that is one of 1 to 128 letters, digits and `_.:/+=-`; a
    header of another shape is as good as none.
    """
    headers = request.headers
    name = headers.get(REQUEST_ID, "")
    if not name or not _ID.fullmatch(name):
        name = f"{instance}-{number:x}"
    request_id.set(name)
    parent = headers.get("traceparent", "")
    trace_parent.set(parent if parent and TRACE_PARENT.fullmatch(parent) else "")
    return name


def authorize(
    request: web.Request,
    principals: Principals,
    *,
    path: Mapping[str, str] | None = None,
    is_page: bool = False,
) -> Principal:
    """Return who asks, by the token; a server without tokens goes by the `Host` header. A page is
    also shown to a browser that has the token as its password, whatever the user's name.

    Args:
        request: what was asked.
        principals: those who may ask.
        path: the parameters in the path, of a request that the router has not seen.
        is_page: whether a password will do.

    Raises:
        Refused: the token is missing or wrong (401), or a server without tokens was addressed by
            another name than localhost (421).
    """
    if not principals:
        check_host(request.host)
        return ANYONE
    scheme, _, shown = request.headers.get("Authorization", "").partition(" ")
    if is_page and scheme.lower() == "basic":
        shown = _password_in(shown)
    else:
        shown = shown.strip() if scheme.lower() == "bearer" else ""
    # Clients of other projects send a key of their own, or have it in the path.
    shown = shown or request.headers.get("X-API-Key", "")
    if path is None:
        shown = request.match_info.get("token", shown)
    if not shown and path is None and request.match_info.http_exception is not None:
        # No route takes this path: whoever has a token in its first part may be told so.
        # The target may hold no slash at all, as in `OPTIONS *`.
        shown = unquote(request.rel_url.raw_path.partition("/")[2].partition("/")[0])
    principal = principals.of(shown)
    if principal is None:
        raise Refused(
            "the bearer token is missing or wrong; send 'Authorization: Bearer TOKEN' (commands of "
            "ludus take it from LUDUS_TOKEN)",
            "unauthorized",
        )
    return principal


def _password_in(credentials: str) -> str:
    """Return the password of `Authorization: Basic` (RFC 7617); else empty."""
    with suppress(ValueError):  # not base64, or not UTF-8
        return base64.b64decode(credentials, validate=True).decode().partition(":")[2]
    return ""


def body_format(request: web.Request) -> Format:
    """Return the format of the request's body.

    Raises:
        Refused: the `Content-Type` names no known format (415).
    """
    content_type = request.headers.get("Content-Type", "")
    format = format_of(content_type)
    if format is None:
        raise Refused(
            f"Content-Type is {content_type or 'missing'!r}; send application/json or "
            "application/msgpack (curl: -H 'Content-Type: application/json')",
            "unsupported_media",
        )
    return format


def reply_format(request: web.Request) -> Format:
    """Return the format of the reply: by `Accept`, else that of the body, else JSON."""
    sent = format_of(request.headers.get("Content-Type", "")) or Format.JSON
    return accepted(request.headers.get("Accept", ""), sent)


async def expect_later(request: web.Request) -> None:
    """Do nothing about `Expect: 100-continue` yet, so that a body can be refused unsent.

    aiohttp would send `100 Continue` as soon as the headers are read; `read_body` does so later.
    """


def cut(request: web.Request) -> web.StreamResponse:
    """Close the connection at once; the response returned here is never sent."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=500)


TIMEOUT_S = 30.0
SLICE_BYTES = 1 << 17
"""The bytes that are inflated at a time, in about 0.2 ms; other requests have their turn between
two slices.
"""
DISCARDED_BYTES = 1 << 16
"""The longest body of a refused request that is still read, so that the connection can be used
again.
"""
DISCARD_S = 0.5
MAX_DISCARDED_BYTES = 1 << 30
"""The most bytes that are read of a refused body of a client with a token."""
ENCODINGS = {"gzip": 16 + zlib.MAX_WBITS, "x-gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}
"""Content-Encoding -> the `wbits` argument of zlib that reads it."""


class Bytes:
    """Counts the bytes of all request bodies that a server holds in memory.

    Args:
        limit: the most bytes held; a body beyond it is refused with 429.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0

    def take(self, number: int) -> None:
        """Count `number` bytes in.

        Raises:
            QueueFull: more than `limit` bytes would be held.
        """
        if self.held + number > self.limit:
            message = f"the bodies of requests in flight hold {self.held} of {self.limit} bytes"
            raise QueueFull(message, depth=self.held, limit=self.limit, cause="bytes")
        self.held += number

    def give_back(self, number: int) -> None:
        """Count `number` bytes out again."""
        self.held -= number


class Held:
    """Counts the bytes of a single request, so that the whole share can be given back together.

    Args:
        bytes: the count of the whole server.
    """

    def __init__(self, bytes: Bytes) -> None:
        self._bytes = bytes
        self._number = 0
        self._principal = ANYONE
        self.is_known = False
        """Whether the request has shown a token, where one is asked for."""

    def belongs_to(self, principal: Principal) -> None:
        """Count the bytes for a principal, too."""
        self._principal, self.is_known = principal, True

    def take(self, number: int) -> None:
        """Hold `number` more bytes for this request.

        Raises:
            QueueFull: the server holds too many bytes, or too many of this principal.
        """
        self._principal.hold(number)
        try:
            self._bytes.take(number)
        except QueueFull:
            self._principal.hold(-number)
            raise
        self._number += number

    def release(self) -> None:
        """Give back all bytes of this request."""
        self._bytes.give_back(self._number)
        self._principal.hold(-self._number)
        self._number = 0


class _Inflater(Protocol):
    """The part of the object returned by `zlib.decompressobj` that is used here."""

    @property
    def unconsumed_tail(self) -> bytes: ...

    @property
    def unused_data(self) -> bytes: ...

    @property
    def eof(self) -> bool: ...

    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


async def read_body(request: web.Request, max_bytes: int, held: Held) -> bytes:
    """Read and inflate the whole body of a request.

    Args:
        request: a request whose body has not been read.
        max_bytes: the most bytes of the body, after inflation.
        held: counts the bytes read.

    Raises:
        Refused: the body is too large (413), too slow (408), broken (400), or in an encoding that
            the server does not take (415).
        QueueFull: the bodies of all requests together are too large (429).
    """
    inflater: _Inflater | None
    encoding = request.headers.get("Content-Encoding", "identity").strip().lower()
    if encoding in ("identity", ""):
        inflater = None
    else:
        if encoding not in ENCODINGS:
            raise Refused(
                f"Content-Encoding is {encoding!r}; send gzip, deflate or none", "unsupported_media"
            )
        inflater = zlib.decompressobj(ENCODINGS[encoding])
    length = request.content_length
    if length is not None and length > max_bytes:
        raise too_large(length, max_bytes)
    # Ask for the body with `100 Continue`, where the client waits to be asked.
    if request.headers.get("Expect", "").lower() == "100-continue":
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0
    if inflater is None and request.content.is_eof():  # as for most: it came with its headers
        data = request.content.read_nowait()
        if len(data) > max_bytes:
            raise too_large(None, max_bytes)
        held.take(len(data))
        return data
    try:
        async with asyncio.timeout(TIMEOUT_S):
            raw = request.content.iter_any()
            chunks = raw if inflater is None else _inflated(raw, inflater)
            parts: list[bytes] = []
            size = 0
            async for chunk in chunks:
                size += len(chunk)
                if size > max_bytes:
                    raise too_large(None, max_bytes)
                held.take(len(chunk))
                parts.append(chunk)
            return b"".join(parts)
    except TimeoutError:
        message = f"the body did not arrive within {TIMEOUT_S:g} s"
        raise Refused(message, "slow_body") from None
    except zlib.error as error:
        raise Refused(f"the body cannot be inflated: {error}", "malformed") from None
    except (ConnectionError, web.RequestPayloadError):
        raise Refused("the connection ended within the body", "malformed") from None


async def read_payload(
    route: Route, request: web.Request, path: Path, max_bytes: int, held: Held
) -> msgspec.Struct:
    """Read what a request asks of a route: from the path and the body, or the query.

    Args:
        route: the route.
        request: a request whose body has not been read.
        path: the parameters in its path.
        max_bytes: the most bytes of the body, after inflation.
        held: counts the bytes read.

    Raises:
        Refused, QueueFull: see `read_body`; malformed (400), or of the wrong shape (422).
    """
    from_path = {field: path[name] for name, field in route.in_path.items()}
    if not route.in_body:
        if route.dialect:
            return convert(dict(request.query), route.payload, strict=False)
        return read_query(request.query, route.payload, from_path)
    format = body_format(request)
    body = await read_body(request, max_bytes, held)
    if from_path:
        return read_fields(body, from_path, route.payload, format)
    # On ludus's own wire an unknown field is refused; other protocols have rules of their own.
    return (decode if route.dialect else decode_request)(body, route.payload, format)


async def discard_body(
    request: web.Request, response: web.StreamResponse, *, is_known: bool
) -> None:
    """Read the body of a refused request, so that the client comes to read the refusal, and the
    connection can be used again.

    Of a stranger only a short body is read, and of nobody one that waits to be asked for; the
    connection is closed instead. `response`, the refusal, then says so: a client that sent its next
    request on that connection would find it reset.
    """
    length = request.content_length
    is_short = length is not None and length <= DISCARDED_BYTES
    if not request.headers.get("Expect") and (is_short or is_known):
        with suppress(TimeoutError, ConnectionError, web.RequestPayloadError):
            async with asyncio.timeout(TIMEOUT_S if is_known else DISCARD_S):
                size = 0
                async for chunk in request.content.iter_any():
                    size += len(chunk)
                    if size > MAX_DISCARDED_BYTES:
                        break
    if not request.content.is_eof():
        response.force_close()


def too_large(size: int | None, limit: int) -> Refused:
    """Build the refusal of a body beyond `limit` bytes; `size` is None where nobody waited for the
    end.
    """
    shown = f" ({size} bytes)" if size is not None else ""
    message = f"the body is too large{shown}: this server takes at most {limit} bytes"
    return Refused(message, "too_large")


async def _inflated(raw: AsyncIterator[bytes], inflater: _Inflater) -> AsyncIterator[bytes]:
    async for chunk in raw:
        data = chunk
        while data:
            yield inflater.decompress(data, SLICE_BYTES)
            data = inflater.unconsumed_tail
            await asyncio.sleep(0)
        if inflater.unused_data:
            raise zlib.error("bytes after the end of the compressed data")
    if not inflater.eof:
        raise zlib.error("the compressed data ends too soon")
