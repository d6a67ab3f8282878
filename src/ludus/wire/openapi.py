"""The description of a server at `/openapi.json`, built from the table of routes and the structs of
each.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from typing import Any

import msgspec

from .codec import Format
from .faults import FaultReply
from .routes import Nothing, Route

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
            rest = _without(components[name], {"op", *route.in_path.values()})
            components[f"{name}Body"] = {**rest, "title": f"{name}Body"}
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
