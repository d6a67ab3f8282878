"""The table of routes that a service offers over HTTP, each with a typed function.

A handler takes the path's parameters and one validated struct (of the body, or of the query for
GET and DELETE) and returns a struct. Handlers know nothing of HTTP, so they are tested without a
server; the server parses, calls and encodes, and builds `/openapi.json` from the same table.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypedDict, TypeVar, Unpack, runtime_checkable

import msgspec
from aiohttp import web

from .metrics import ServerMetrics

Payload = TypeVar("Payload", bound=msgspec.Struct)
Path = Mapping[str, str]


class Nothing(msgspec.Struct, frozen=True):
    """A request without a body and without a query."""


@dataclass(frozen=True, slots=True)
class Route:
    """A method of a path, with the types of request and reply and the function that answers."""

    method: str
    path: str
    """The path with its parameters in braces; a parameter written `{id:.+}` may contain slashes."""
    handler: Callable[[Path, Any], Awaitable[object]]
    payload: type[msgspec.Struct]
    reply: Any
    """The type of a success: a struct, except where another project's clients want another shape.
    """
    summary: str
    documented: type[msgspec.Struct] | None = None
    """The struct that clients are told to send, where `payload` reads the same body more loosely.
    """
    in_path: Mapping[str, str] = field(default_factory=dict[str, str])
    """Path parameter -> the field of `payload` that it fills; the other fields are the body or the
    query.
    """
    token_in_path: bool = False
    """Whether the route is also served as `/TOKEN/path`, for clients that take an address but no
    header.
    """
    dialect: bool = False
    """Whether the route follows another project's protocol, whose requests may hold fields unknown
    here.
    """
    retry_status: int = 0
    """The status given to every retryable fault, for clients that retry on one status only; 0
    changes nothing.
    """

    @property
    def in_body(self) -> bool:
        """Whether the payload is read from the body; otherwise from the query string."""
        return self.method not in ("GET", "DELETE")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A path that needs more of HTTP than a struct in and a struct out: WebSockets, cookies, pages.

    The server checks the token and reads the body; an error that the handler raises becomes a
    fault, as on a `Route`.
    """

    method: str
    path: str
    handler: Callable[[web.Request, bytes], Awaitable[web.StreamResponse]]
    """Answers a request, given with its inflated body."""
    documented: Route | None = None
    """The row of `/openapi.json`; None leaves the endpoint out of the document."""
    token_in_path: bool = False
    """Whether the endpoint is also served as `/TOKEN/path`; see `Route`."""


class RouteOptions(TypedDict, total=False):
    """What few routes need; see the fields of `Route`."""

    documented: type[msgspec.Struct] | None
    in_path: Mapping[str, str]


def get(
    path: str,
    handler: Callable[[Path, Payload], Awaitable[object]],
    query: type[Payload],
    reply: object,
    summary: str,
) -> Route:
    """Build a GET route, which reads and changes nothing; the payload is the query string."""
    return Route("GET", path, handler, query, reply, summary)


def post(
    path: str,
    handler: Callable[[Path, Payload], Awaitable[object]],
    body: type[Payload],
    reply: object,
    summary: str,
    **options: Unpack[RouteOptions],
) -> Route:
    """Build a POST route, which acts; the payload is the body."""
    return Route("POST", path, handler, body, reply, summary, **options)


def delete(
    path: str,
    handler: Callable[[Path, Payload], Awaitable[object]],
    query: type[Payload],
    reply: object,
    summary: str,
    **options: Unpack[RouteOptions],
) -> Route:
    """Build a DELETE route, which releases what the path names."""
    return Route("DELETE", path, handler, query, reply, summary, **options)


@dataclass(frozen=True, slots=True)
class Context:
    """The values that a server gives to each service at the start."""

    instance: str
    """The random name of this run of the server; a restarted server has another name."""
    metrics: ServerMetrics


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """The load of a service, and whether the service can take new work."""

    queue_depth: int
    limit: int
    problem: str = ""
    """The reason why the service should get no new work now; empty if it can take some."""


Begin = Callable[[Any], object]
"""A function that starts an operation, and returns its result or a future of its result. It refuses
the operation by raising a `LudusError`.
"""


@runtime_checkable
class StreamedService(Protocol):
    """A service whose operations also travel over `/v1/stream`."""

    def operations(self) -> Mapping[type[msgspec.Struct], Begin]:
        """Return the function that begins an operation for each type; tags tell the types apart."""
        ...


@runtime_checkable
class EndpointService(Protocol):
    """A service that also has endpoints."""

    def endpoints(self) -> list[Endpoint]:
        """Return every endpoint of the service; those of two services may not have the same
        path.
        """
        ...


class Service(Protocol):
    """A part of a server with separate routes, such as environments or verifiers."""

    name: str

    def routes(self) -> list[Route]:
        """Return every route of the service."""
        ...

    async def start(self, context: Context) -> None:
        """Get ready to serve.

        Raises:
            Exception: something cannot work; the server then does not start, rather than fail at
                the first request.
        """
        ...

    async def stop(self) -> None:
        """Finish the operations in flight, and release every resource."""
        ...

    def load(self) -> Load:
        """Return how full the service is now; called at each scrape and each `/readyz`."""
        ...


def endpoints_of(services: Iterable[Service]) -> list[Endpoint]:
    """Return the endpoints of all services."""
    offering = [service for service in services if isinstance(service, EndpointService)]
    return [endpoint for service in offering for endpoint in service.endpoints()]


def documented(services: Iterable[Service]) -> list[Route]:
    """Return every row of `/openapi.json`: the routes, and the endpoints that tell theirs."""
    service_list = list(services)
    of_endpoints = [endpoint.documented for endpoint in endpoints_of(service_list)]
    routes = [route for service in service_list for route in service.routes()]
    return routes + [route for route in of_endpoints if route is not None]
