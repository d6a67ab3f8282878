"""JSON as models write it: read from a position on, with the numbers that can travel on.

Raw newlines inside strings are read: models write them. Numbers are those that JSON and msgpack can
carry to a server, strings those that can be encoded.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

from ludus.messages import ToolCall

_SURROGATE = re.compile("[\ud800-\udfff]")
_SPACE = re.compile(r"\s*")
CUT = "the call was cut by the token limit"


def _integer(digits: str) -> int:
    if len(digits) > 20 or not -(1 << 63) <= int(digits) < 1 << 64:
        raise ValueError(f"the number {digits[:24]} does not fit 64 bits")
    return int(digits)


def _number(digits: str) -> float:
    if not math.isfinite(float(digits)):
        raise ValueError(f"the number {digits[:24]} is too large")
    return float(digits)


def _constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


decoder = json.JSONDecoder(
    strict=False, parse_int=_integer, parse_float=_number, parse_constant=_constant
)


def after_space(text: str, start: int) -> int:
    """The first position from `start` on that is not white space."""
    match = _SPACE.match(text, start)
    return match.end() if match else start


def is_unicode(decoded: object) -> bool:
    """Whether no string has half of a surrogate pair, which nothing downstream can encode."""
    return not _SURROGATE.search(json.dumps(decoded, ensure_ascii=False))


def as_json(call: ToolCall, arguments: str = "arguments") -> str:
    """A call as an object of its name and its arguments."""
    return json.dumps({"name": call.name, arguments: call.arguments}, ensure_ascii=False)


def as_call(decoded: Any, identity: str) -> ToolCall:
    """Read an object with a name and arguments; what is wrong with it is in `error`."""
    if not is_unicode(decoded):
        return ToolCall(name="", id=identity, error="half of a surrogate pair is not text")
    if not isinstance(decoded, dict) or not isinstance(decoded.get("name"), str):
        reason = 'a call is an object with "name" and "arguments"'
        return ToolCall(name="", id=identity, error=reason)
    arguments = decoded.get("arguments", decoded.get("parameters", {}))
    if isinstance(arguments, str):  # some models encode the arguments twice
        try:
            arguments = decoder.decode(arguments)
        except (ValueError, RecursionError) as error:
            reason = f"arguments are not JSON: {error}"
            return ToolCall(name=decoded["name"], id=identity, error=reason)
    if not isinstance(arguments, dict) or not is_unicode(arguments):
        return ToolCall(name=decoded["name"], id=identity, error="arguments must be an object")
    return ToolCall(name=decoded["name"], arguments=arguments, id=identity)
