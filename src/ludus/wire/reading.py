"""The headers of a request: the token, the format of the body, and the format of the reply."""

from __future__ import annotations

import hmac

from aiohttp import web

from .address import check_host
from .codec import Format, accepted, format_of
from .faults import Refused


def authorize(request: web.Request, token: bytes) -> None:
    """Check that a request may be answered: the token, or else the name in the `Host` header.

    Args:
        request: the request.
        token: the server's token; empty for a server without one.

    Raises:
        Refused: the token is missing or wrong (401), or a server without a token was addressed by
            another name than localhost (421).
    """
    if not token:
        check_host(request.host)
        return
    scheme, _, shown = request.headers.get("Authorization", "").partition(" ")
    shown = shown.strip() if scheme.lower() == "bearer" else ""
    shown = request.match_info.get("token", shown)  # where the route has it in the path
    # A comparison in constant time tells nobody how much of a token was right.
    if not hmac.compare_digest(shown.encode("utf-8", "surrogateescape"), token):
        raise Refused(
            "the bearer token is missing or wrong; send 'Authorization: Bearer TOKEN'",
            "unauthorized",
        )


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
