"""Tag style: `<search>query</search>`, with a tag for each tool on offer and the argument as
content.

The content of the tag is the tool's first parameter, as text. A tool with several parameters may
be given a JSON object, and the only parameter of a tool cannot hold the end of its tag or begin
or end with white space. Only tools on offer are tags. Calls after a closed `<answer>` are not
made, since the answer has been given. A tag that was opened and not closed is not executed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ludus.envs import ToolSpec
from ludus.llm.chat_wire import CUT, decoder
from ludus.messages import Message, Role, ToolCall

from .arguments import as_text, read_value, schemas_of, sound, unreadable
from .scan import scan

_ANSWER, _ANSWERED = "<answer>", "</answer>"


class TagFormat:
    """Calls of the form `<name>argument</name>`."""

    name = "tags"

    def parse(self, text: str, *, complete: bool = True, tools: Sequence[ToolSpec] = ()) -> Message:
        """Read an assistant turn; see `ToolFormat.parse`."""
        if not tools:
            return Message(role=Role.ASSISTANT, content=text)
        opening = re.compile(f"<({'|'.join(re.escape(tool.name) for tool in tools)})>")

        def read(text: str, start: int, identity: str) -> tuple[list[ToolCall], int]:
            match = opening.match(text, start)
            assert match is not None
            name = match[1]
            closing = text.find(f"</{name}>", match.end())
            if closing < 0:
                reason = f"<{name}> is not closed" if complete else CUT
                return [unreadable(identity, reason)], len(text)
            after = closing + len(f"</{name}>")
            content = text[match.end() : closing].strip()
            try:
                arguments = _arguments(content, schemas_of(name, tools))
            except (ValueError, RecursionError) as error:
                return [unreadable(identity, f"<{name}>: {error}")], after
            return [sound(name, arguments, identity)], after

        # An `<answer>` that is never closed is only being talked about, and stops nothing.
        last = max(text.rfind(_ANSWERED), 0)
        return scan(text, opening, read, stop=lambda text, start: text.find(_ANSWER, start, last))

    def render(self, calls: Sequence[ToolCall], *, tools: Sequence[ToolSpec] = ()) -> str:
        """Write calls as the model would."""
        return "\n".join(_render(call, list(schemas_of(call.name, tools))) for call in calls)


def _render(call: ToolCall, parameters: list[str]) -> str:
    values = list(call.arguments.values())
    text = as_text(values[0]) if len(values) == 1 else ""
    closing = f"</{call.name}>"
    elsewhere = bool(parameters) and parameters[0] not in call.arguments
    looks_otherwise = len(parameters) > 1 and (
        text != text.strip() or text[:1] in ("", "{") or closing in text
    )
    if len(values) > 1 or (values and (elsewhere or looks_otherwise)):
        # A bare value would be read as another parameter, as no argument, or in part. JSON may
        # write a slash with a backslash, and then holds no end of the tag.
        text = as_text(call.arguments).replace(closing, f"<\\/{call.name}>")
    return f"<{call.name}>{text}{closing}"


def _arguments(content: str, parameters: dict[str, set[str]]) -> dict[str, Any]:
    """Return the content of a tag as the tool's arguments."""
    if not parameters or (not content and len(parameters) > 1):
        return {}
    if len(parameters) > 1 and content.startswith("{"):
        try:
            decoded = decoder.decode(content)
        except (ValueError, RecursionError):
            decoded = None
        if isinstance(decoded, dict) and (not decoded or decoded.keys() & parameters.keys()):
            return decoded
    first = next(iter(parameters))
    return {first: read_value(content, parameters[first])}
