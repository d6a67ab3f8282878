"""Tag style: `<search>query</search>`, a tag for each tool on offer, its content the argument.

What stands inside the tag is the tool's first parameter, as text. Only tools that are on offer are
tags; calls after `<answer>` are not made: the answer has been given. A tag that was begun and not
closed is not executed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ludus.envs import ToolSpec
from ludus.messages import Message, Role, ToolCall

from .json_calls import CUT
from .thoughts import end_of_thoughts

ANSWER = "<answer>"


class TagFormat:
    """`<name>argument</name>`."""

    name = "tags"

    def parse(self, text: str, *, complete: bool = True, tools: Sequence[ToolSpec] = ()) -> Message:
        """Read an assistant turn; see `ToolFormat.parse`."""
        position = end_of_thoughts(text)
        answered = text.find(ANSWER, position)
        stop = len(text) if answered < 0 else answered
        spoken, calls = text[:position], list[ToolCall]()
        opening = _opening(tools)
        while opening and (begun := opening.search(text, position, stop)) is not None:
            spoken += text[position : begun.start()]
            call, position = _read(text, begun, f"call_{len(calls)}", complete, tools)
            calls.append(call)
        spoken += text[position:]
        return Message(
            role=Role.ASSISTANT, content=spoken.strip() if calls else spoken, tool_calls=calls
        )

    def render(self, calls: Sequence[ToolCall]) -> str:
        """Write calls as the model would."""
        return "\n".join(
            f"<{call.name}>{next(iter(call.arguments.values()), '')}</{call.name}>"
            for call in calls
        )


def _opening(tools: Sequence[ToolSpec]) -> re.Pattern[str] | None:
    names = "|".join(re.escape(tool.name) for tool in tools)
    return re.compile(f"<({names})>") if names else None


def _read(
    text: str, begun: re.Match[str], identity: str, complete: bool, tools: Sequence[ToolSpec]
) -> tuple[ToolCall, int]:
    name = begun[1]
    closing = text.find(f"</{name}>", begun.end())
    if closing < 0:
        reason = f"<{name}> is not closed" if complete else CUT
        return ToolCall(name="", id=identity, error=reason), len(text)
    (tool,) = [tool for tool in tools if tool.name == name][:1]
    parameters = list(tool.parameters.get("properties", {}))
    content = text[begun.end() : closing].strip()
    arguments = {parameters[0]: content} if parameters else {}
    return ToolCall(name=name, arguments=arguments, id=identity), closing + len(f"</{name}>")
