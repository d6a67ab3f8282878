"""Tools as text, for peers whose policies see and write text alone."""

from __future__ import annotations

from collections.abc import Sequence

from ludus.agent.chat_tools import TextTools
from ludus.agent.parsing import tool_format
from ludus.envs.tools.spec import ToolSpec
from ludus.llm import Completion
from ludus.messages import Message, assistant


class TextReplies:
    """Writes what an environment says as text, and reads the text of a policy as an action.

    Args:
        format: the name of the tool format in which the policy writes calls.

    Raises:
        UnknownName: there is no such format.
    """

    def __init__(self, format: str = "hermes") -> None:
        self._wire = TextTools(tool_format(format))

    def opening(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> list[Message]:
        """Return the opening messages, with the tools described in the system message."""
        return self._wire.request(messages, tools)[0]

    def answer(self, messages: Sequence[Message]) -> list[Message]:
        """Return an answer of the environment, with results of tools as messages of the user."""
        return self._wire.request(messages, [])[0]

    def action(self, text: str, tools: Sequence[ToolSpec]) -> str | Message:
        """Return what the policy does by writing `text`."""
        read = self._wire.read(Completion(message=assistant(text), finish="stop"), tools)
        return read if read.tool_calls else text
