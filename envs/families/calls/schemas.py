"""Converts function descriptions, in the form that data sets use, into tools with JSON Schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ludus.errors import ConfigError

from ...tools import ToolSpec

_NAMES = {
    "dict": "object", "hashmap": "object", "float": "number", "double": "number", "int": "integer",
    "long": "integer", "short": "integer", "byte": "integer", "bool": "boolean", "str": "string",
    "char": "string", "list": "array", "tuple": "array", "arraylist": "array",
}  # fmt: skip
_KNOWN = {"object", "number", "integer", "boolean", "string", "array", "null"}
_KEPT = (
    "description",
    "enum",
    "default",
    "items",
    "properties",
    "required",
    "minItems",
    "maxItems",
)


def as_tool(function: Mapping[str, Any]) -> ToolSpec:
    """Convert a function's description into a tool.

    Raises:
        ConfigError: the function has no name.
    """
    name = function.get("name")
    if not isinstance(name, str) or not name:
        raise ConfigError(f"a function has no name: {str(dict(function))[:120]}")
    parameters = function.get("parameters")
    schema = as_schema(parameters if isinstance(parameters, Mapping) else {})
    described = str(function.get("description") or name)
    return ToolSpec(
        name=name,
        description=described,
        parameters={"properties": {}, **schema, "type": "object"},
    )


def as_schema(raw_schema: object) -> dict[str, Any]:
    """Convert a parameter description to JSON Schema, whatever language the type names come from.

    >>> as_schema({"type": "dict", "properties": {"x": {"type": "float", "optional": True}}})
    {'type': 'object', 'properties': {'x': {'type': 'number'}}}
    """
    if not isinstance(raw_schema, Mapping):
        return {}
    schema: dict[str, Any] = {}
    kind = str(raw_schema.get("type", "")).lower()
    kind = _NAMES.get(kind, kind)
    if kind in _KNOWN:
        schema["type"] = kind
    for key in _KEPT:
        if key not in raw_schema:
            continue
        value = raw_schema[key]
        if key == "properties" and isinstance(value, Mapping):
            schema[key] = {name: as_schema(inner) for name, inner in value.items()}
        else:
            schema[key] = as_schema(value) if key == "items" else value
    if kind == "array" and "items" not in schema:
        schema["items"] = {}
    return schema
