"""`/openapi.json`, read off the table of routes and the structs it names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from .codec import Format
from .faults import FaultReply
from .routes import Nothing, Route

_PARAMETER = re.compile(r"\{(\w+)(?::[^}]*)?\}")
REFERENCE = "#/components/schemas/{name}"


def describe(routes: Iterable[Route], *, secured: bool) -> dict[str, Any]:
    """An OpenAPI 3.1 document."""
    table = list(routes)
    types = [FaultReply, *(_body(route) for route in table if route.in_body)]
    types += [route.reply for route in table]
    distinct = list(dict.fromkeys(types))
    schemas, components = msgspec.json.schema_components(distinct, ref_template=REFERENCE)
    by_type = dict(zip(distinct, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in table:
        path = _PARAMETER.sub(r"{\1}", route.path)
        paths.setdefault(path, {})[route.method.lower()] = _operation(route, by_type)
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {
            "title": "ludus",
            "version": "1",
            "description": "Environments, verifiers, sandboxes.",
        },
        "paths": paths,
        "components": {"schemas": components},
    }
    if secured:
        document["components"]["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"bearer": []}]
    return document


def _operation(route: Route, schemas: dict[Any, dict[str, Any]]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "summary": route.summary,
        "operationId": f"{route.method.lower()}_{_identifier(route.path)}",
        "parameters": [_path_parameter(name) for name in _PARAMETER.findall(route.path)],
        "responses": {
            "200": {"description": "done", "content": _content(schemas[route.reply])},
            "default": {"description": "a fault", "content": _content(schemas[FaultReply])},
        },
    }
    if route.in_body:
        operation["requestBody"] = {
            "required": True,
            "content": _content(schemas[_body(route)]),
        }
    elif route.payload is not Nothing:
        operation["parameters"] += _query_parameters(route.payload)
    return operation


def _body(route: Route) -> type[msgspec.Struct]:
    return route.documented or route.payload


def _content(schema: dict[str, Any]) -> dict[str, Any]:
    return {format.value: {"schema": schema} for format in Format}


def _path_parameter(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}


def _query_parameters(query: type[msgspec.Struct]) -> list[dict[str, Any]]:
    _, components = msgspec.json.schema_components([query], ref_template=REFERENCE)
    schema = components[query.__name__]
    required = schema.get("required", [])
    return [
        {"name": name, "in": "query", "required": name in required, "schema": kind}
        for name, kind in schema["properties"].items()
    ]


def _identifier(path: str) -> str:
    return re.sub(r"\W+", "_", _PARAMETER.sub(r"\1", path)).strip("_")
