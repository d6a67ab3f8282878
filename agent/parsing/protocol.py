"""The interface of tool formats: reading a model's text as a message, and writing calls as the
model would.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ludus.envs import ToolSpec
from ludus.messages import Message, ToolCall


class ToolFormat(Protocol):
    """A way in which models write tool calls."""

    name: str

    def parse(self, text: str, *, complete: bool = True, tools: Sequence[ToolSpec] = ()) -> Message:
        """Read an assistant turn as a message.

        Every call is returned, in order. A call that cannot be read carries `error` and is never
        executed. The same holds for a call that may have been cut: in a turn that is not
        `complete`, that is the last call, unless the text closes it.

        Args:
            text: the model's text.
            complete: whether the model ended its turn.
            tools: the tools on offer. Formats that write every argument as text read types there.
        """
        ...

    def render(self, calls: Sequence[ToolCall], *, tools: Sequence[ToolSpec] = ()) -> str:
        """Write calls as the model would.

        Args:
            calls: the calls to write.
            tools: the tools on offer. A format without argument names looks up whether to add them.
        """
        ...
