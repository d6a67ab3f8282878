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

from .json_calls import CUT, after_space, as_json, decoder, numbered
from .scan import MAX_CALLS, scan


class HermesFormat:
    """Calls as JSON between `<tool_call>` tags."""

    name = "hermes"
    opening, closing = "<tool_call>", "</tool_call>"

    def parse(self, text: str, *, complete: bool = True, tools: Sequence[ToolSpec] = ()) -> Message:
        """Read an assistant turn; see `ToolFormat.parse`."""
        read = partial(self._read, complete=complete)
        return scan(text, lambda text, start: text.find(self.opening, start), read)

    def render(self, calls: Sequence[ToolCall], *, tools: Sequence[ToolSpec] = ()) -> str:
        """Write calls as the model would."""
        return "\n".join(f"{self.opening}\n{as_json(call)}\n{self.closing}" for call in calls)

    def _read(
        self, text: str, start: int, identity: str, *, complete: bool
    ) -> tuple[list[ToolCall], int]:
        """Return the calls between the tags that begin at `start`, and the position to continue
        at.
        """
        decoded, end, fault = _objects(text, start + len(self.opening))
        closing = text.find(self.closing, end)
        if not fault and text.startswith(self.opening, end):  # the next call begins
            return numbered(decoded, identity), end
        if closing < 0 and not complete:
            fault = CUT
        elif not fault and text[end : closing if closing >= 0 else len(text)].strip():
            fault = f"text after the call's JSON: {text[end : end + 40].strip()!r}"
        after = closing + len(self.closing) if closing >= 0 else len(text)
        if fault:
            return [ToolCall(name="", id=identity, error=fault)], after
        return numbered(decoded, identity), after


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
