"""Services and routes, including the routes of every server: health and documents.

A handler takes the path's parameters and one validated struct (of the body, or of the query for
GET and DELETE) and returns a struct. Handlers know nothing of HTTP, so they are tested without a
server; the server parses, calls and encodes, and builds `/openapi.json` from the same table.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypedDict, TypeVar, Unpack, runtime_checkable

import msgspec
from aiohttp import web

from .codec import PROTOCOL, Format
from .faults import FaultReply
from .page import PageTable, ShownService
from .prometheus import ServerMetrics
from .tracing import Tracer

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
    scope: str = ""
    """The scope that a principal needs; empty where the handler asks for one itself, or for none.
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
    scope: str


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
    tracer: Tracer | None = None
    """Where spans of steps and verdicts go; None for nowhere."""


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """The load of a service, and whether the service can take new work."""

    queue_depth: int
    """How many operations are in flight or wait."""
    limit: int
    """The most operations that may be in flight or wait."""
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
        """Return every endpoint of the service; two services may not share a path."""
        ...


@runtime_checkable
class DrainedService(Protocol):
    """A service that can be told to begin nothing new, and that says how much is still open."""

    def drain(self) -> None:
        """Begin nothing new from now on, and go on with what has begun."""
        ...

    def held(self) -> int:
        """Return how many sessions have begun and not ended."""
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
    """Return every row of `/openapi.json`: the routes, and the endpoints that have a row."""
    service_list = list(services)
    of_endpoints = [endpoint.documented for endpoint in endpoints_of(service_list)]
    routes = [route for service in service_list for route in service.routes()]
    return routes + [route for route in of_endpoints if route is not None]


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `/healthz` and `/readyz`."""

    status: str
    """ok or ready, or the problems of the services; to a stranger only that there are some."""
    instance: str
    """Name of the running server; another name after a restart."""
    protocol: int = PROTOCOL
    services: dict[str, Load] = {}
    """The load of each service; nothing for a stranger."""


def readiness(
    services: Sequence[Service], instance: str, *, ending: str, is_stranger: bool
) -> tuple[bool, Health]:
    """Return whether every service takes work, and the answer of `/healthz` and `/readyz`.

    Args:
        services: those of the server.
        instance: the server's name.
        ending: how far a server is that is being stopped; empty for one that is not.
        is_stranger: whether the client has shown no token, and is not told loads and problems.
    """
    loads = {service.name: service.load() for service in services}
    problems = [load.problem for load in loads.values() if load.problem]
    problems += [ending] if ending else []
    status = "; ".join(problems) or "ready"
    if is_stranger:
        short = ending or ("not ready" if problems else status)
        return not problems, Health(status=short, instance=instance)
    return not problems, Health(status=status, instance=instance, services=loads)


def tables_of(services: Sequence[Service], metrics: ServerMetrics) -> list[PageTable]:
    """Return the tables of the status page: queues, refusals, and the tables of each service."""
    loads = [(service.name, service.load()) for service in services]
    queues = [(name, load.queue_depth, load.limit, load.problem) for name, load in loads]
    refused = [
        (sample.labels["cause"], int(sample.value))
        for metric in metrics.refused.collect()
        for sample in metric.samples
        if sample.name.endswith("_total")
    ]
    return [
        PageTable("Queues", ("service", "in flight", "limit", "problem"), queues),
        PageTable("Refused (429)", ("cause", "since the start"), refused),
        *(
            table
            for service in services
            if isinstance(service, ShownService)
            for table in service.tables()
        ),
    ]


_PARAMETER = re.compile(r"\{(\w+)(?::[^}]*)?\}")
REFERENCE = "#/components/schemas/{name}"


def describe(routes: Iterable[Route], *, secured: bool) -> dict[str, Any]:
    """Build the OpenAPI 3.1 document of `routes`.

    Args:
        routes: every route of the server.
        secured: whether the server asks for a bearer token.
    """
    table = list(routes)
    types = [FaultReply, *(_body(route) for route in table if route.in_body)]
    types += [route.reply for route in table]
    distinct = list(dict.fromkeys(types))
    schemas, components = msgspec.json.schema_components(distinct, ref_template=REFERENCE)
    by_type = dict(zip(distinct, schemas, strict=True))
    # Drop the `op` tag from each operation that never stands in a union, where clients need no tag.
    among_others = set(_told_apart(components))
    for name, schema in components.items():
        if "op" in schema.get("properties", {}) and REFERENCE.format(name=name) not in among_others:
            components[name] = _without(schema, {"op"})
    paths: dict[str, dict[str, Any]] = {}
    for route in table:
        path = _PARAMETER.sub(r"{\1}", route.path)
        paths.setdefault(path, {})[route.method.lower()] = _operation(route, by_type, components)
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {
            "title": "ludus",
            "version": "1.0",
            "description": "Environments, verifiers, sandboxes.",
        },
        "paths": paths,
        "components": {"schemas": components},
    }
    if secured:
        document["components"]["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"bearer": []}]
    return document


def _told_apart(schema: Any) -> Iterator[str]:
    """Yield the reference of every schema that stands in a union and is told apart by a tag."""
    if isinstance(schema, dict):
        yield from schema.get("discriminator", {}).get("mapping", {}).values()
        for value in schema.values():
            yield from _told_apart(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from _told_apart(value)


def _without(schema: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    properties = {k: v for k, v in schema["properties"].items() if k not in names}
    required = [name for name in schema["required"] if name not in names]
    return {**schema, "properties": properties, "required": required}


def _operation(
    route: Route, schemas: dict[Any, dict[str, Any]], components: dict[str, Any]
) -> dict[str, Any]:
    words = re.sub(r"\W+", "_", _PARAMETER.sub(r"\1", route.path)).strip("_")
    operation: dict[str, Any] = {
        "summary": route.summary,
        "operationId": f"{route.method.lower()}_{words}",
        "parameters": [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name in _PARAMETER.findall(route.path)
        ],
        "responses": {
            "200": {"description": "done", "content": _content(schemas[route.reply])},
            "default": {"description": "a fault", "content": _content(schemas[FaultReply])},
        },
    }
    if route.in_body:
        body = schemas[_body(route)]
        if route.in_path:  # the path says the rest
            name = _body(route).__name__
            body_schema = _without(components[name], {"op", *route.in_path.values()})
            components[f"{name}Body"] = {**body_schema, "title": f"{name}Body"}
            body = {"$ref": REFERENCE.format(name=f"{name}Body")}
        operation["requestBody"] = {"required": True, "content": _content(body)}
    elif route.payload is not Nothing:
        _, query = msgspec.json.schema_components([route.payload], ref_template=REFERENCE)
        schema = query[route.payload.__name__]
        required = schema.get("required", [])
        operation["parameters"] += [
            {"name": name, "in": "query", "required": name in required, "schema": kind}
            for name, kind in schema["properties"].items()
            if name not in ("op", *route.in_path.values())
        ]
    return operation


def _body(route: Route) -> type[msgspec.Struct]:
    return route.documented or route.payload


def _content(schema: dict[str, Any]) -> dict[str, Any]:
    return {format.value: {"schema": schema} for format in Format}
