"""A limit of a single call per turn, for models and environments that work call by call.

Frameworks differ in which of several calls they run: Search-R1 the first, CodeGym the last. Here
the first is run by default. The others come back to the model as calls that were not run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from ludus.envs import ToolSpec
from ludus.messages import Message, ToolCall

from .protocol import ToolFormat

Keep = Literal["first", "last"]


class OneCall:
    """A `tool_format` that runs a single call of each turn.

    Args:
        tool_format: reads the turn.
        keep: which of several readable calls is run; unreadable calls are never run.
    """

    def __init__(self, tool_format: ToolFormat, keep: Keep = "first") -> None:
        self.inner = tool_format
        self.keep = keep
        self.name = tool_format.name

    def parse(self, text: str, *, complete: bool = True, tools: Sequence[ToolSpec] = ()) -> Message:
        """Read an assistant turn; see `ToolFormat.parse`."""
        message = self.inner.parse(text, complete=complete, tools=tools)
        readable = [index for index, call in enumerate(message.tool_calls) if not call.error]
        if len(readable) < 2:
            return message
        kept_index = readable[0] if self.keep == "first" else readable[-1]
        error = f"one call a turn: only the {self.keep} is run"
        calls = [
            call
            if call.error or index == kept_index
            else ToolCall(name="", id=call.id, error=error)
            for index, call in enumerate(message.tool_calls)
        ]
        return msgspec.structs.replace(message, tool_calls=calls)

    def render(self, calls: Sequence[ToolCall], *, tools: Sequence[ToolSpec] = ()) -> str:
        """Write calls as the model would."""
        return self.inner.render(calls, tools=tools)
