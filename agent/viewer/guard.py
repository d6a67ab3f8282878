"""The guard of pages that this machine serves, for viewing and for labelling: tokens, and headers
that limit what a browser may do.
"""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from ludus.errors import LudusError, SaveFailed, UnknownName
from ludus.wire.address import check_host
from ludus.wire.faults import Refused

from .page import HEADERS


def page_guard(
    cookie: str, named: Callable[[str], str] | None, *, local: bool, verb: str, root: str = "/"
) -> Middleware:
    """Return the middleware that refuses requests without a token, which stands once in the address
    and then in a cookie, and that answers errors with their status.

    Args:
        cookie: the cookie's name.
        named: from a token to the name of its owner, "" for none; None lets everybody through.
        local: whether the Host header has to name this machine, so that no page of another origin
            reaches the server by a name of its own.
        verb: the command that printed the address.
        root: the path of the page.
    """

    async def answered(request: web.Request, handler: Handler) -> web.StreamResponse:
        if local:
            check_host(request.host)
        if request.method == "POST" and request.match_info.http_exception is None:
            origin = request.headers.get("Origin", "")
            if origin and origin.partition("://")[2] != request.host:
                raise web.HTTPForbidden(reason="a request of another page")
            if request.content_type != "application/json":
                raise web.HTTPForbidden(reason="a request is JSON")
        given = request.query.get("token", "")
        if named is not None and named(given):
            answer = web.Response(status=303, headers={"Location": root})
            answer.set_cookie(cookie, given, httponly=True, samesite="Strict", path=root)
            return answer
        if named is not None and not named(request.cookies.get(cookie, "")):
            return web.Response(status=401, text=f"open the address that {verb} printed")
        return await handler(request)

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        answer: web.StreamResponse
        try:
            answer = await answered(request, handler)
        except web.HTTPException as error:
            answer = web.Response(status=error.status, text=error.reason)
        except (LudusError, ValueError) as error:
            kinds = {Refused: 421, SaveFailed: 507, UnknownName: 404}
            status = next((kinds[kind] for kind in kinds if isinstance(error, kind)), 400)
            answer = web.Response(status=status, text=str(error))
        answer.headers.update(HEADERS)
        return answer

    return guard
