"""What the headers of a request say."""

from __future__ import annotations

import hmac

from aiohttp import web

from .address import check_host
from .codec import Format, accepted, format_of
from .faults import Refused


def authorize(request: web.Request, token: bytes) -> None:
    """See that a request may be answered.

    Raises:
        Refused: 401, or 421 where a server without a token is asked under a foreign name.
    """
    if not token:
        check_host(request.host)
        return
    given = _given_token(request).encode("utf-8", "surrogateescape")
    if not hmac.compare_digest(given, token):
        raise Refused(
            "the bearer token is missing or wrong; send 'Authorization: Bearer TOKEN'",
            "unauthorized",
        )


def _given_token(request: web.Request) -> str:
    """The token of a request: in its path where the route takes it there, else of its header."""
    if "token" in request.match_info:
        return request.match_info["token"]
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    return given.strip() if scheme.lower() == "bearer" else ""


def body_format(request: web.Request) -> Format:
    """How the body is written.

    Raises:
        Refused: 415.
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
    """How the reply is to be written."""
    sent = format_of(request.headers.get("Content-Type", "")) or Format.JSON
    return accepted(request.headers.get("Accept", ""), sent)


async def expect_later(request: web.Request) -> None:
    """Leave `Expect: 100-continue` to whoever reads the body: it may be refused before."""


def cut(request: web.Request) -> web.StreamResponse:
    """Close the connection without a reply."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=500)
