"""Tool calls as JSON objects with a name and arguments."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from ludus.llm.json_text import CUT, MAX_NESTED, decoder, fault_of, read_arguments
from ludus.messages import ToolCall

__all__ = [
    "CUT",
    "MAX_NESTED",
    "after_space",
    "as_call",
    "as_json",
    "as_text",
    "decoder",
    "fault_of",
    "given_arguments",
    "numbered",
    "read_arguments",
]

_SPACE = re.compile(r"\s*")
_NO_CALL = 'a call is an object with "name" and "arguments"'
_ARGUMENTS = ("arguments", "parameters")
_ABOUT_A_CALL = frozenset({"name", "type", "id", "index"})


def after_space(text: str, start: int) -> int:
    """Return the first position from `start` on that is not white space."""
    match = _SPACE.match(text, start)
    return match.end() if match else start


def as_json(call: ToolCall, arguments: str = "arguments") -> str:
    """Return a call as a JSON object with name and arguments."""
    return json.dumps({"name": call.name, arguments: call.arguments}, ensure_ascii=False)


def as_text(value: object) -> str:
    """Return an argument as formats with tags write it: a string as it is, else JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def as_call(decoded: object, identity: str) -> ToolCall:
    """Convert an object to a call; the field `error` tells what is wrong with an unusable object.

    Arguments may stand under `parameters`, and both inside an object `function`.
    """
    row = decoded
    if isinstance(decoded, dict) and "name" not in decoded:
        inner = decoded.get("function")
        row = inner if isinstance(inner, dict) else decoded
    if not isinstance(row, dict) or not isinstance(row.get("name"), str):
        return ToolCall(name="", id=identity, error=_NO_CALL)
    name = row["name"]
    if fault := fault_of(name):
        return ToolCall(name="", id=identity, error=fault)
    if not given_arguments(row) and (stray := sorted(row.keys() - _ABOUT_A_CALL)):
        error = f'the arguments belong into an object under "arguments"; found {stray[0][:80]!r}'
        return ToolCall(name="", id=identity, error=fault_of(error) or error)
    arguments, error = read_arguments(row.get("arguments", row.get("parameters")))
    return ToolCall(name=name, arguments=arguments, id=identity, error=error)


def numbered(decoded: Sequence[Any], identity: str) -> list[ToolCall]:
    """Convert objects to calls whose ids count on from `identity`, such as `call_3`."""
    name, _, first = identity.rpartition("_")
    numbers = range(int(first), int(first) + len(decoded))
    return [as_call(row, f"{name}_{number}") for row, number in zip(decoded, numbers, strict=True)]


def given_arguments(decoded: object) -> bool:
    """Return whether an object has arguments, which calls do and few other objects."""
    return isinstance(decoded, dict) and any(key in decoded for key in _ARGUMENTS)
