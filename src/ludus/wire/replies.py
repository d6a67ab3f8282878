"""The replies of a server: encoded, counted by route and status, and known by the request's id."""

from __future__ import annotations

import io
import logging
import math
from collections.abc import Sequence
from functools import cache
from typing import cast

from aiohttp import web

from .access import faulted
from .client import INSTANCE_HEADER
from .codec import LARGE_BYTES, Encoded, Format, encode, request_id
from .faults import Fault, FaultReply, Refused, fault_of, status_of
from .plain import PlainReply
from .principals import Principals
from .prometheus import ServerMetrics
from .requests import REQUEST_ID, authorize
from .routes import Route

logger = logging.getLogger(__name__)


def no_route(
    request: web.Request, error: web.HTTPException, principals: Principals, served: Sequence[str]
) -> Fault:
    """Build the fault for a path or a method that nothing here takes.

    Args:
        request: what was asked.
        error: what the router raised.
        principals: those who are told what is served here.
        served: the names of the services.
    """
    try:
        authorize(request, principals)
    except Refused as refusal:  # what is served here is not for strangers
        return fault_of(refusal)
    if isinstance(error, web.HTTPMethodNotAllowed):
        allowed = ", ".join(sorted(error.allowed_methods))
        message = f"{request.path} takes {allowed}, not {request.method}"
        return Fault(code="method_not_allowed", message=message)
    names = " and ".join(served) or "nothing"
    message = f"no route {request.path!r}; served here: {names} (/openapi.json)"
    return Fault(code="not_found", message=message)


class Replies:
    """Builds the HTTP responses of a server, and counts each by route and status.

    Args:
        metrics: metrics of the server.
        instance: name of the running server, sent in every response, so that clients notice a
            restart.
    """

    def __init__(self, metrics: ServerMetrics, instance: str) -> None:
        self._metrics = metrics
        # Looking a counter up by its labels costs more than counting.
        self._requests = cache(metrics.requests.labels)
        self._instance = instance
        self._instance_line = f"{INSTANCE_HEADER}: {instance}\r\n"

    def answer(
        self, reply: object, format: Format, *, route: Route | None = None, status: int = 200
    ) -> web.Response:
        """Encode a reply; `route` is None for a request that no route took."""
        data, became = encode(reply, format)
        self._requests(route.path if route else "-", str(status)).inc()
        headers = {"Content-Type": became.value, INSTANCE_HEADER: self._instance}
        headers[REQUEST_ID] = request_id.get()
        # a large body is written piece by piece, so that it does not hold up the event loop
        body = io.BytesIO(data) if len(data) > LARGE_BYTES else data
        return web.Response(status=status, body=body, headers=headers)

    def plain(self, reply: object, format: Format, route: Route) -> web.StreamResponse:
        """Encode a success for a plain request; see `PlainReply`."""
        data, became = encode(reply, format)
        if len(data) > LARGE_BYTES:
            return self.answer(Encoded(data, became), became, route=route)
        self._requests(route.path, "200").inc()
        lines = f"{self._instance_line}{REQUEST_ID}: {request_id.get()}\r\n"
        # aiohttp asks no more of a response than a `PlainReply` has.
        return cast(web.StreamResponse, PlainReply(data, became, lines))

    def failure(
        self, error: Exception, format: Format, *, route: Route | None = None
    ) -> web.Response:
        """Encode an error; an error of no known kind is a bug, whose traceback goes to the log."""
        fault = fault_of(error)
        if fault.code == "internal":
            logger.error("request failed", exc_info=error)
        return self.fault(fault, format, route=route)

    def fault(self, fault: Fault, format: Format, *, route: Route | None = None) -> web.Response:
        """Encode a fault, with the status and headers that tell a client what to do."""
        self._metrics.refuse(fault)
        fault.stamp(request_id.get())
        status = status_of(fault)
        if route is not None and route.retry_status and fault.retryable:
            status = route.retry_status
        response = self.answer(FaultReply(error=fault), format, route=route, status=status)
        faulted.set(fault)
        if fault.retry_after_s is not None:
            response.headers["Retry-After"] = str(math.ceil(fault.retry_after_s))
        if fault.code == "unauthorized":
            response.headers["WWW-Authenticate"] = "Bearer"
            response.force_close()  # the next guess costs a connection
        return response

    def ask_password(self, fault: Fault) -> web.Response:
        """Encode a fault for a browser, which then asks the user for the token."""
        response = self.fault(fault, Format.JSON)
        if fault.code == "unauthorized":
            response.headers["WWW-Authenticate"] = 'Basic realm="ludus", charset="UTF-8"'
        return response
