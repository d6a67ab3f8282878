"""What a tool format does: read a model's text as a message, and write calls the way the model
would.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ludus.envs import ToolSpec
from ludus.messages import Message, ToolCall


class ToolFormat(Protocol):
    """One way models write tool calls."""

    name: str

    def parse(self, text: str, *, complete: bool = True, tools: Sequence[ToolSpec] = ()) -> Message:
        """Read an assistant turn.

        Every call comes back in order. One that cannot be read, or that was cut (`complete` is
        false and it is the last thing in the text), carries `error` and is never executed.

        Args:
            text: what the model wrote.
            complete: whether it ended its turn.
            tools: those on offer. Formats that write every argument as text read its type there.
        """
        ...

    def render(self, calls: Sequence[ToolCall]) -> str:
        """Write calls as the model would."""
        ...
