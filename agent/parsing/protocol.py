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

        Every call comes back in order. One that cannot be read carries `error` and is never
        executed; nor is one that may have been cut: of a turn that is not `complete`, the last
        call, unless the text closes it.

        Args:
            text: what the model wrote.
            complete: whether it ended its turn.
            tools: those on offer. Formats that write every argument as text read its type there.
        """
        ...

    def render(self, calls: Sequence[ToolCall], *, tools: Sequence[ToolSpec] = ()) -> str:
        """Write calls as the model would.

        Args:
            tools: those on offer. A format that writes no names looks there whether it must.
        """
        ...
