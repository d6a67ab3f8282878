"""Values that a format writes as plain text, read according to the tool's schema."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ludus.envs import ToolSpec

from .json_calls import decoder
from .literals import read_literal

_ALIASES = {
    "dict": "object", "float": "number", "double": "number", "int": "integer", "long": "integer",
    "bool": "boolean", "str": "string", "list": "array", "tuple": "array", "any": "",
}  # fmt: skip
"""Type names outside JSON Schema that hand-written schemas contain."""
_WORDS = {"True": True, "False": False, "None": None}
_WORDS_ALONE = {"true": True, "false": False, "null": None, "none": None}
"""Words with a JSON value, in any case, for places where no string is allowed."""
_NUMBER = re.compile(r"[+-]?(?:\d{1,20}|\d{1,300}\.\d{0,300}|\.\d{1,300})")
"""Numbers that Python accepts and JSON does not: `.5`, `+3`, `007`, `2.`."""
_DEEPEST = 8


def schemas_of(name: str, tools: Sequence[ToolSpec]) -> dict[str, set[str]]:
    """Return the JSON types that each parameter of the tool `name` may have; an empty set means
    any.
    """
    for tool in tools:
        if tool.name == name:
            properties = tool.parameters.get("properties")
            property_schemas = properties if isinstance(properties, Mapping) else {}
            return {
                key: types_of(schema, tool.parameters) for key, schema in property_schemas.items()
            }
    return {}


def types_of(schema: object, root: Mapping[str, Any], depth: int = 0) -> set[str]:
    """Return the JSON types that a schema allows; an empty set means that the schema does not say.

    >>> sorted(types_of({"anyOf": [{"type": "string"}, {"type": "null"}]}, {}))
    ['null', 'string']
    """
    if not isinstance(schema, Mapping) or depth > _DEEPEST:
        return set()
    if "$ref" in schema:
        name = str(schema["$ref"]).rpartition("/")[2]
        return types_of(root.get("$defs", {}).get(name), root, depth + 1)
    for key in ("anyOf", "oneOf"):
        if isinstance(schema.get(key), list):
            alternatives = [types_of(alternative, root, depth + 1) for alternative in schema[key]]
            return set().union(*alternatives) if all(alternatives) else set()
    type_names = schema.get("type")
    if type_names is None:
        allowed = schema.get("enum", [schema["const"]] if "const" in schema else [])
        return {type_of(value) for value in allowed} if isinstance(allowed, list) else set()
    names = type_names if isinstance(type_names, list) else [type_names]
    known_types = {
        _ALIASES.get(str(type_name).lower(), str(type_name).lower()) for type_name in names
    }
    return set() if "" in known_types else known_types


def type_of(value: object) -> str:
    """Return the JSON type of a decoded value."""
    if isinstance(value, bool):
        return "boolean"
    kinds: dict[type, str] = {
        str: "string", int: "integer", float: "number", list: "array", dict: "object"
    }  # fmt: skip
    return kinds.get(type(value), "null")


def read_value(text: str, types: set[str]) -> object:
    """Read a value written as plain text.

    If a string is allowed the text is a string, unless another type is allowed too and the text
    parses as that type. Otherwise the text must be JSON or, as models sometimes write, a Python
    literal.

    Raises:
        ValueError: no string is allowed, and the text is not JSON.
    """
    if types == {"string"}:
        return text
    try:
        decoded = _decoded(text.strip(), types)
    except (ValueError, RecursionError):
        if not types or "string" in types:
            return text
        raise
    if isinstance(decoded, str) and not types:
        return text
    kind = type_of(decoded)
    fits = kind in types or (kind == "integer" and "number" in types)
    if "string" in types and (kind == "string" or not fits):
        return text
    is_integer = isinstance(decoded, float) and decoded.is_integer() and abs(decoded) < 1 << 53
    return int(decoded) if is_integer and types & {"integer", "number"} == {"integer"} else decoded


def _decoded(text: str, types: set[str]) -> Any:
    """Return the value of JSON (possibly encoded twice) or of a Python word."""
    if text in _WORDS:
        return _WORDS[text]
    if not types or "string" in types:
        return decoder.decode(text)
    if text.lower() in _WORDS_ALONE:
        return _WORDS_ALONE[text.lower()]
    try:
        decoded = decoder.decode(text)
    except (ValueError, RecursionError):
        # Perhaps a number, list or dict in Python syntax.
        if _NUMBER.fullmatch(text):
            return float(text) if "." in text else decoder.decode(str(int(text)))
        if text.startswith(("[", "{", "(")):
            return read_literal(text)
        raise
    return decoder.decode(decoded) if isinstance(decoded, str) else decoded
