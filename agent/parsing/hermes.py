"""The Hermes format of Qwen 2.5 and 3: a JSON object between `<tool_call>` tags.

    <tool_call>
    {"name": "calculator", "arguments": {"expression": "1+1"}}
    </tool_call>

A JSON decoder reads the object from the opening tag on. Searching for the closing tag would be
wrong, since that may occur inside a string argument. Several objects, or a list, between two
tags are several calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from ludus.envs import ToolSpec
from ludus.messages import Message, ToolCall

from .json_calls import CUT, after_space, as_call, as_json, decoder
from .scan import MAX_CALLS, scan

OPEN, CLOSE = "<tool_call>", "</tool_call>"


class HermesFormat:
    """Calls as JSON between `<tool_call>` tags."""

    name = "hermes"

    def parse(self, text: str, *, complete: bool = True, tools: Sequence[ToolSpec] = ()) -> Message:
        """Read an assistant turn; see `ToolFormat.parse`."""
        return scan(text, _find, partial(_read, complete=complete))

    def render(self, calls: Sequence[ToolCall], *, tools: Sequence[ToolSpec] = ()) -> str:
        """Write calls as the model would."""
        return "\n".join(f"{OPEN}\n{as_json(call)}\n{CLOSE}" for call in calls)


def _find(text: str, start: int) -> int:
    return text.find(OPEN, start)


def _read(text: str, start: int, identity: str, *, complete: bool) -> tuple[list[ToolCall], int]:
    """Return the calls between the tags that begin at `start`, and the position to continue at."""
    decoded, end, fault = _objects(text, start + len(OPEN))
    closing = text.find(CLOSE, end)
    if not fault and text.startswith(OPEN, end):  # the next call begins: this one is whole
        return _numbered(decoded, identity), end
    if closing < 0 and not complete:
        fault = CUT
    elif not fault and text[end : closing if closing >= 0 else len(text)].strip():
        fault = f"text after the call's JSON: {text[end : end + 40].strip()!r}"
    after = closing + len(CLOSE) if closing >= 0 else len(text)
    return (
        [ToolCall(name="", id=identity, error=fault)] if fault else _numbered(decoded, identity)
    ), after


def _objects(text: str, start: int) -> tuple[list[Any], int, str]:
    """Return the JSON values from `start` on, the position after the last, and an error ("" if
    none).
    """
    values: list[Any] = []
    position = after_space(text, start)
    while len(values) <= MAX_CALLS:
        try:
            decoded, end = decoder.raw_decode(text, position)
        except (ValueError, RecursionError) as error:
            return values, start, f"not valid JSON: {error}"
        values += decoded if isinstance(decoded, list) and decoded else [decoded]
        position = after_space(text, end)
        if not text.startswith("{", position):
            break
    return values, position, ""


def _numbered(decoded: Sequence[Any], identity: str) -> list[ToolCall]:
    name, _, first = identity.rpartition("_")
    numbers = range(int(first), int(first) + len(decoded))
    return [as_call(one, f"{name}_{number}") for one, number in zip(decoded, numbers, strict=True)]
