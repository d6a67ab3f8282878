"""What a service offers over HTTP: a table of routes, each a typed function.

A handler takes the path's parameters and one validated struct (of the body, or of the query for
GET and DELETE) and returns a struct. It knows nothing of HTTP, so it is tested without; the server
parses, calls and encodes, and `/openapi.json` is read off the same table.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, runtime_checkable

import msgspec

from .metrics import ServerMetrics

Payload = TypeVar("Payload", bound=msgspec.Struct)
Path = Mapping[str, str]


class Nothing(msgspec.Struct, frozen=True):
    """No body and no query."""


@dataclass(frozen=True, slots=True)
class Route:
    """One method of one path."""

    method: str
    path: str
    """Parameters in braces; one written `{id:.+}` may hold slashes."""
    handler: Callable[[Path, Any], Awaitable[object]]
    payload: type[msgspec.Struct]
    reply: Any
    """The type of a success: a struct, but where another project's clients want another shape."""
    summary: str
    documented: type[msgspec.Struct] | None = None
    """What clients send, where `payload` reads it more loosely."""
    in_path: Mapping[str, str] = field(default_factory=dict[str, str])
    """Path parameter -> the field of `payload` that it gives; the rest is the body or the query."""
    token_in_path: bool = False
    """Also served as `/TOKEN/path`, for clients that can be given an address and no header."""
    dialect: bool = False
    """Another project's protocol: what its requests hold beside what we know is let pass."""
    retry_status: int = 0
    """The status of every fault that is worth another try, for clients that know only one."""

    @property
    def in_body(self) -> bool:
        """Whether the payload is the body (else the query string)."""
        return self.method not in ("GET", "DELETE")


def get(
    path: str,
    handler: Callable[[Path, Payload], Awaitable[object]],
    query: type[Payload],
    reply: Any,
    summary: str,
) -> Route:
    """A route that reads."""
    return Route("GET", path, handler, query, reply, summary)


def post(
    path: str,
    handler: Callable[[Path, Payload], Awaitable[object]],
    body: type[Payload],
    reply: Any,
    summary: str,
    *,
    documented: type[msgspec.Struct] | None = None,
    in_path: Mapping[str, str] | None = None,
) -> Route:
    """A route that acts."""
    return Route("POST", path, handler, body, reply, summary, documented, in_path or {})


def delete(
    path: str,
    handler: Callable[[Path, Payload], Awaitable[object]],
    query: type[Payload],
    reply: Any,
    summary: str,
    *,
    in_path: Mapping[str, str] | None = None,
) -> Route:
    """A route that releases."""
    return Route("DELETE", path, handler, query, reply, summary, None, in_path or {})


@dataclass(frozen=True, slots=True)
class Context:
    """What a service is given when its server starts."""

    instance: str
    """Random name of this run of the server: another one after a restart."""
    metrics: ServerMetrics


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """How full a service is."""

    queue_depth: int
    limit: int
    problem: str = ""
    """Why it should get no new work now; empty if it can take some."""


Begin = Callable[[Any], object]
"""Starts an operation: what became of it, or a future of that. A `LudusError` refuses it."""


@runtime_checkable
class StreamedService(Protocol):
    """A service whose operations `/v1/stream` carries too."""

    def operations(self) -> Mapping[type[msgspec.Struct], Begin]:
        """What begins an operation, by its type; the types are told apart by their tags."""
        ...


class Service(Protocol):
    """A part of a server: environments, verifiers."""

    name: str

    def routes(self) -> list[Route]:
        """Its table."""
        ...

    async def start(self, context: Context) -> None:
        """Get ready; whatever cannot work fails here, not at the first request."""
        ...

    async def stop(self) -> None:
        """Finish what is in flight, release everything."""
        ...

    def load(self) -> Load:
        """How full it is now."""
        ...
