"""Compares the calls of a turn with the expected calls, by name and argument by argument.

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

from ludus.messages import ToolCall

OMITTED = ""
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
    unread = [call.error for call in calls if call.error]
    if unread:
        return f"a call could not be read: {unread[0]}"
    if len(calls) != len(expected):
        return f"{len(calls)} calls where {len(expected)} are asked for"
    faults = [[_fault(call, one, schemas) for call in calls] for one in expected]
    taken: dict[int, int] = {}
    for index in range(len(expected)):
        if not _matched(index, faults, taken, set()):
            return next(
                (fault for call, fault in enumerate(faults[index]) if fault and call not in taken),
                f"{expected[index].name!r} is called too seldom",
            )
    return ""


def _matched(
    index: int, faults: Sequence[Sequence[str]], taken: dict[int, int], tried: set[int]
) -> bool:
    """Assign a call to the expected call at `index`, moving earlier assignments where that helps.

    This is the augmenting-path step of bipartite matching; without it, a call that fits two
    expected calls could be assigned to the wrong one.
    """
    for call, fault in enumerate(faults[index]):
        if fault or call in tried:
            continue
        tried.add(call)
        if call not in taken or _matched(taken[call], faults, taken, tried):
            taken[call] = index
            return True
    return False


def _fault(call: ToolCall, expected: Expected, schemas: Mapping[str, Mapping[str, Any]]) -> str:
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
        if not _will_do(value, expected.arguments[name], properties[name]):
            return f"{call.name}: {name}={value!r:.80} is not what is asked for"
    return ""


def _will_do(value: Any, values: Sequence[Any], schema: Mapping[str, Any]) -> bool:
    """Return whether an argument is among `values` and has the type the schema asks for.

    A value of the same type as the expected values is accepted too, whatever the schema says: some
    data sets expect a name in place of a value.
    """
    known = next((type(one) for one in values if one != OMITTED), None)
    fits = _fits(value, schema) or type(value) is known
    return fits and any(_equal(value, one) for one in values if _is_whole(value, one, schema))


def _fits(value: Any, schema: Mapping[str, Any]) -> bool:
    wanted = _TYPES.get(str(schema.get("type", "")), ())
    return not wanted or (
        isinstance(value, wanted) and (bool in wanted or not isinstance(value, bool))
    )


def _is_whole(value: Any, expected: Any, schema: Mapping[str, Any]) -> bool:
    """Return whether a list holds only integers, where the schema asks for integers.

    Equality alone would accept 1.0 for 1 inside a list.
    """
    items = schema.get("items")
    if not isinstance(value, list) or not isinstance(items, Mapping):
        return True
    if items.get("type") != "integer" or not isinstance(expected, list):
        return True
    return any(isinstance(one, float) for one in expected) or not any(
        isinstance(one, float) for one in value
    )


def _equal(value: Any, expected: Any) -> bool:
    """Return whether a value is as expected; each member of an object has a list of values."""
    if isinstance(expected, str):
        return isinstance(value, str) and plain(value) == plain(expected)
    if isinstance(expected, list):
        return (
            isinstance(value, list)
            and len(value) == len(expected)
            and all(_equal(one, other) for one, other in zip(value, expected, strict=True))
        )
    if isinstance(expected, dict):
        return isinstance(value, dict) and _members_equal(value, expected)
    if isinstance(expected, bool) or isinstance(value, bool):
        return value is expected
    return bool(value == expected)


def _members_equal(value: Mapping[str, Any], expected: Mapping[str, Any]) -> bool:
    lists = {key: one if isinstance(one, list) else [one] for key, one in expected.items()}
    known = all(key in lists for key in value)
    given = all(key in value or OMITTED in lists[key] for key in lists)
    return (
        known
        and given
        and all(any(_equal(one, other) for other in lists[key]) for key, one in value.items())
    )


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
    made: dict[str, Any] = {}
    for name, values in expected.arguments.items():
        given = [one for one in values if one != OMITTED]
        if given and (OMITTED not in values or name in required):
            made[name] = _example(given)
    return made


def _example(values: Sequence[Any]) -> Any:
    return _plain_value(values[0])


def _plain_value(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain_value(one) for one in value]
    if isinstance(value, dict):
        lists = {key: one if isinstance(one, list) else [one] for key, one in value.items()}
        return {key: _example(one) for key, one in lists.items() if OMITTED not in one}
    return value
