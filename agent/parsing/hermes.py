"""The Hermes format, which Qwen 2.5 and 3 use: a JSON object between `<tool_call>` tags.

    <tool_call>
    {"name": "calculator", "arguments": {"expression": "1+1"}}
    </tool_call>

The object is read by a JSON decoder from the opening tag on, not by searching the closing tag: that
may stand inside a string argument. What a model only thinks is not a call.
"""

from __future__ import annotations

from collections.abc import Sequence

from ludus.envs import ToolSpec
from ludus.messages import Message, Role, ToolCall

from .json_calls import CUT, after_space, as_call, as_json, decoder
from .thoughts import end_of_thoughts

OPEN, CLOSE = "<tool_call>", "</tool_call>"


class HermesFormat:
    """JSON between `<tool_call>` tags."""

    name = "hermes"

    def parse(self, text: str, *, complete: bool = True, tools: Sequence[ToolSpec] = ()) -> Message:
        """Read an assistant turn; see `ToolFormat.parse`."""
        position = end_of_thoughts(text)
        spoken, calls = text[:position], list[ToolCall]()
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
        return "\n".join(f"{OPEN}\n{as_json(call)}\n{CLOSE}" for call in calls)


def _read_call(text: str, start: int, complete: bool, index: int) -> tuple[ToolCall, int]:
    """The call whose opening tag ends at `start`, and where to read on."""
    identity = f"call_{index}"
    body = after_space(text, start)
    try:
        decoded, end = decoder.raw_decode(text, body)
    except (ValueError, RecursionError) as error:
        closing = text.find(CLOSE, start)
        cut = closing < 0 and not complete
        reason = CUT if cut else f"not valid JSON: {error}"
        return ToolCall(name="", id=identity, error=reason), _after(text, closing)
    closing = text.find(CLOSE, end)
    between = text[end : closing if closing >= 0 else len(text)].strip()
    if closing < 0 and not complete:
        return ToolCall(name="", id=identity, error=CUT), len(text)
    if between:
        reason = f"text after the call's JSON: {between[:40]!r}"
        return ToolCall(name="", id=identity, error=reason), _after(text, closing)
    return as_call(decoded, identity), _after(text, closing)


def _after(text: str, closing: int) -> int:
    return closing + len(CLOSE) if closing >= 0 else len(text)
