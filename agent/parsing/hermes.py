"""The Hermes format, which Qwen 2.5 and 3 use: a JSON object between `<tool_call>` tags.

    <tool_call>
    {"name": "calculator", "arguments": {"expression": "1+1"}}
    </tool_call>

The object is read by a JSON decoder from the opening tag on, not by searching the closing tag: that
may stand inside a string argument.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import Any

from ludus.messages import Message, Role, ToolCall

OPEN, CLOSE = "<tool_call>", "</tool_call>"
_SURROGATE = re.compile("[\ud800-\udfff]")
_SPACE = re.compile(r"\s*")


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


# Raw newlines inside strings are read: models write them. Numbers are those that JSON and msgpack
# can carry on to a server.
_decoder = json.JSONDecoder(
    strict=False, parse_int=_integer, parse_float=_number, parse_constant=_constant
)


class HermesFormat:
    """JSON between `<tool_call>` tags."""

    name = "hermes"

    def parse(self, text: str, *, complete: bool = True) -> Message:
        """Read an assistant turn; see `ToolFormat.parse`."""
        spoken, calls, position = "", list[ToolCall](), 0
        while (start := text.find(OPEN, position)) >= 0:
            spoken += text[position:start]
            call, position = _read_call(text, start + len(OPEN), complete, len(calls))
            calls.append(call)
        spoken += text[position:]
        return Message(
            role=Role.ASSISTANT, content=spoken.strip() if calls else spoken, tool_calls=calls
        )

    def render(self, calls: Sequence[ToolCall]) -> str:
        """Write calls as the model would."""
        return "\n".join(f"{OPEN}\n{_as_json(call)}\n{CLOSE}" for call in calls)


def _as_json(call: ToolCall) -> str:
    return json.dumps({"name": call.name, "arguments": call.arguments}, ensure_ascii=False)


def _read_call(text: str, start: int, complete: bool, index: int) -> tuple[ToolCall, int]:
    """The call whose opening tag ends at `start`, and where to read on."""
    identity = f"call_{index}"
    body = _after_space(text, start)
    try:
        decoded, end = _decoder.raw_decode(text, body)
    except (ValueError, RecursionError) as error:
        closing = text.find(CLOSE, start)
        cut = closing < 0 and not complete
        reason = "the call was cut by the token limit" if cut else f"not valid JSON: {error}"
        return ToolCall(name="", id=identity, error=reason), _after(text, closing)
    closing = text.find(CLOSE, end)
    between = text[end : closing if closing >= 0 else len(text)].strip()
    if closing < 0 and not complete:
        return ToolCall(name="", id=identity, error=("the call was cut by the token limit")), len(
            text
        )
    if between:
        return ToolCall(
            name="", id=identity, error=(f"text after the call's JSON: {between[:40]!r}")
        ), _after(text, closing)
    return _as_call(decoded, identity), _after(text, closing)


def _is_unicode(decoded: object) -> bool:
    """Whether no string has half of a surrogate pair, which nothing downstream can encode."""
    return not _SURROGATE.search(json.dumps(decoded, ensure_ascii=False))


def _after_space(text: str, start: int) -> int:
    match = _SPACE.match(text, start)
    return match.end() if match else start


def _after(text: str, closing: int) -> int:
    return closing + len(CLOSE) if closing >= 0 else len(text)


def _as_call(decoded: Any, identity: str) -> ToolCall:
    if not _is_unicode(decoded):
        return ToolCall(name="", id=identity, error="half of a surrogate pair is not text")
    if not isinstance(decoded, dict) or not isinstance(decoded.get("name"), str):
        return ToolCall(
            name="", id=identity, error='a call is an object with "name" and "arguments"'
        )
    arguments = decoded.get("arguments", decoded.get("parameters", {}))
    if isinstance(arguments, str):  # some models encode the arguments twice
        try:
            arguments = _decoder.decode(arguments)
        except (ValueError, RecursionError) as error:
            return ToolCall(
                name=decoded["name"], id=identity, error=(f"arguments are not JSON: {error}")
            )
    if not isinstance(arguments, dict) or not _is_unicode(arguments):
        return ToolCall(name=decoded["name"], id=identity, error="arguments must be an object")
    return ToolCall(name=decoded["name"], arguments=arguments, id=identity)
