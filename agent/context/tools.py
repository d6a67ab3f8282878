"""Tools that context managers offer: their descriptions, and answers to calls that cannot run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ludus.envs import ToolSpec
from ludus.messages import Message, ToolCall, tool_result

from .decisions import Handled

REFUSED = "this call was not executed"


def tool_spec(
    name: str, description: str, arguments: Mapping[str, Any], *, required: Sequence[str]
) -> ToolSpec:
    """Return the description of a tool.

    Args:
        name: the name of the tool.
        description: what the tool does.
        arguments: JSON Schema of each argument, or a description of a text.
        required: the arguments that every call needs.
    """
    properties = {
        key: {"type": "string", "description": schema} if isinstance(schema, str) else schema
        for key, schema in arguments.items()
    }
    parameters = {"type": "object", "properties": properties, "required": list(required)}
    return ToolSpec(name=name, description=description, parameters=parameters)


def own_calls(action: Message, tools: Sequence[ToolSpec]) -> list[ToolCall]:
    """Return the calls of an action that are for `tools`."""
    names = {tool.name for tool in tools}
    return [call for call in action.tool_calls if call.name in names]


def text_missing(call: ToolCall, argument: str) -> str:
    """Return why an argument that must be a non-empty text cannot be used; empty if it can."""
    value = call.arguments.get(argument)
    return "" if isinstance(value, str) and value else f"the argument {argument!r} must be text"


def spelled_out(message: Message) -> str:
    """Return a message as text, with its calls."""
    calls = [
        f"{call.name}({msgspec.json.encode(call.arguments).decode()})"
        for call in message.tool_calls
    ]
    return " ".join(part for part in (message.text, *calls) if part)


def refuse(calls: Sequence[ToolCall], reason: str) -> Handled:
    """Answer every call with the reason why none was executed."""
    return Handled([tool_result(f"{REFUSED}: {reason}", call) for call in calls])
