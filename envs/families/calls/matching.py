"""Converts function descriptions, in the form that data sets use, into tools with JSON Schema.

The rules are those of the Berkeley Function Calling Leaderboard's AST check (bfcl_eval,
ast_checker), for a single call and for several in any order. What is expected of an argument is a
list of acceptable values; `""` among them says that the argument may be left out. Texts are
compared without case, spaces and the marks `, . / - _ * ^`; an integer is accepted for a float, but
not a float for an integer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ludus.errors import ConfigError
from ludus.messages import ToolCall

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
        name=name, description=described, parameters={"properties": {}, **schema, "type": "object"}
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


OMITTED = ""
"""Among the acceptable values: the argument may be left out."""
_IGNORED = re.compile(r"[ ,./\-_*^]")
_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}


class Expected(msgspec.Struct, frozen=True):
    """A call that the request asks for."""

    name: str
    arguments: dict[str, list[Any]]
    """The acceptable values of each argument, by name; `""` in a list makes the argument
    optional.
    """


def fault_of_calls(
    calls: Sequence[ToolCall],
    expected: Sequence[Expected],
    schemas: Mapping[str, Mapping[str, Any]],
) -> str:
    """Return what is wrong with the calls of a turn; empty if every expected call is made.

    Args:
        calls: the policy's calls, in any order.
        expected: the expected calls; each is matched with a different call.
        schemas: function name -> JSON Schema of the parameters, for each offered function.
    """
    errors = [call.error for call in calls if call.error]
    if errors:
        return f"a call could not be read: {errors[0]}"
    if len(calls) != len(expected):
        return f"{len(calls)} calls where {len(expected)} are asked for"
    faults = [
        [_fault(call, expected_call, schemas) for call in calls] for expected_call in expected
    ]
    call_of: dict[int, int] = {}
    for index in range(len(expected)):
        if not _assign_call(index, faults, call_of, set()):
            # Of the calls that are left over, the first tells what is wrong. Without one, a fitting
            # call is missing: all that would do are needed for other expected calls.
            return next(
                (
                    fault
                    for call, fault in enumerate(faults[index])
                    if fault and call not in call_of
                ),
                f"{expected[index].name!r} is called too seldom",
            )
    return ""


def _assign_call(
    index: int, faults: Sequence[Sequence[str]], call_of: dict[int, int], tried_calls: set[int]
) -> bool:
    """Assign a call to the expected call at `index`, moving earlier assignments where that helps.

    `call_of`, the inverse of that assignment, is updated: by the index of a call, the index of its
    expected call. Returns whether an assignment was found.

    This is the augmenting-path step of bipartite matching; without it, a call that fits two
    expected calls could be assigned to the wrong one.
    """
    for call, fault in enumerate(faults[index]):
        if fault or call in tried_calls:
            continue
        tried_calls.add(call)
        if call not in call_of or _assign_call(call_of[call], faults, call_of, tried_calls):
            call_of[call] = index
            return True
    return False


def _fault(call: ToolCall, expected: Expected, schemas: Mapping[str, Mapping[str, Any]]) -> str:
    """Return why a call is not an expected call; empty for a right call."""
    if call.name != expected.name:
        return f"{call.name!r} is called where {expected.name!r} is asked for"
    schema = schemas.get(call.name, {})
    properties: Mapping[str, Any] = schema.get("properties", {})
    missing = [name for name in schema.get("required", []) if name not in call.arguments]
    missing += [
        name
        for name, values in expected.arguments.items()
        if name not in call.arguments and OMITTED not in values
    ]
    if missing:
        return f"{call.name}: the argument {missing[0]!r} is missing"
    for name, value in call.arguments.items():
        if name not in expected.arguments or name not in properties:
            return f"{call.name}: the argument {name!r} is not asked for"
        if not _is_acceptable(value, expected.arguments[name], properties[name]):
            return f"{call.name}: {name}={value!r:.80} is not what is asked for"
    return ""


def _is_acceptable(value: Any, values: Sequence[Any], schema: Mapping[str, Any]) -> bool:
    """Return whether an argument is among `values` and has the type the schema asks for.

    A value of the same type as the expected values is accepted too, whatever the schema says: some
    data sets expect a name in place of a value.
    """
    first_type = next((type(alternative) for alternative in values if alternative != OMITTED), None)
    types = _TYPES.get(str(schema.get("type", "")), ())
    has_right_type = (
        not types  # a schema type that is not known fits all values
        or type(value) is first_type
        # Python's bool is an int, JSON's is not.
        or (isinstance(value, types) and (bool in types or not isinstance(value, bool)))
    )
    return has_right_type and any(
        _equal(value, alternative)
        for alternative in values
        if _has_whole_items(value, alternative, schema)
    )


def _has_whole_items(value: Any, expected: Any, schema: Mapping[str, Any]) -> bool:
    """Return whether a list holds only integers, where the schema asks for integers.

    Equality alone would accept 1.0 for 1 inside a list. True for whatever else is compared, and
    where the expected list has a float itself.
    """
    items = schema.get("items")
    if not isinstance(value, list) or not isinstance(items, Mapping):
        return True
    if items.get("type") != "integer" or not isinstance(expected, list):
        return True
    return any(isinstance(item, float) for item in expected) or not any(
        isinstance(item, float) for item in value
    )


def _equal(value: Any, expected: Any) -> bool:
    """Return whether a value is as expected; each member of an object has a list of values."""
    if isinstance(expected, str):
        return isinstance(value, str) and plain(value) == plain(expected)
    if isinstance(expected, list):
        return (
            isinstance(value, list)
            and len(value) == len(expected)
            and all(
                _equal(item, expected_item)
                for item, expected_item in zip(value, expected, strict=True)
            )
        )
    if isinstance(expected, dict):
        return isinstance(value, dict) and _members_equal(value, expected)
    if isinstance(expected, bool) or isinstance(value, bool):
        return value is expected
    return bool(value == expected)


def _members_equal(value: Mapping[str, Any], expected: Mapping[str, Any]) -> bool:
    lists = _lists_of_values(expected)
    if not all(key in value or OMITTED in lists[key] for key in lists):
        return False
    return all(
        key in lists and any(_equal(member, alternative) for alternative in lists[key])
        for key, member in value.items()
    )


def _lists_of_values(members: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return the acceptable values of each member; a value without a list has no alternative."""
    return {
        key: alternatives if isinstance(alternatives, list) else [alternatives]
        for key, alternatives in members.items()
    }


def plain(text: str) -> str:
    """Normalise a text for comparison.

    >>> plain("New York, N.Y.") == plain("new york ny")
    True
    """
    return _IGNORED.sub("", text).lower().replace("'", '"')


def example_of(expected: Expected, required: Sequence[str] = ()) -> dict[str, Any]:
    """Return acceptable arguments: the first acceptable value of each.

    An optional argument is left out, unless it is in `required`.
    """
    arguments: dict[str, Any] = {}
    for name, values in expected.arguments.items():
        alternatives = [alternative for alternative in values if alternative != OMITTED]
        if alternatives and (OMITTED not in values or name in required):
            arguments[name] = _plain_value(alternatives[0])
    return arguments


def _plain_value(expected: Any) -> Any:
    """Return a value that is equal to an expected value, whose objects hold lists of values."""
    if isinstance(expected, list):
        return [_plain_value(item) for item in expected]
    if isinstance(expected, dict):
        return {
            key: _plain_value(alternatives[0])
            for key, alternatives in _lists_of_values(expected).items()
            if OMITTED not in alternatives
        }
    return expected
