"""The XML of Qwen3-Coder and Seed-OSS: a tag a parameter, values as plain text.

    <tool_call>
    <function=write>
    <parameter=path>
    a.txt
    </parameter>
    <parameter=lines>
    [1, 2]
    </parameter>
    </function>
    </tool_call>

A value is text if the tool's schema says string, else JSON. Without a schema, what is JSON but no
string is read as JSON. A `</parameter>` ends a value only where another parameter, or the end of
the function, follows: values may be code that holds the tag.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from ludus.envs import ToolSpec
from ludus.messages import Message, Role, ToolCall

from .json_calls import CUT, decoder, is_unicode
from .thoughts import end_of_thoughts

_FUNCTION = re.compile(r"(?:<tool_call>\s*)?<function=([^>\n]*)>")
_PARAMETER = re.compile(r"\s*<parameter=([^>\n]*)>\n?")
_END_OF_VALUE = re.compile(r"\n?</parameter>(?=\s*(?:<parameter=|</function>))")
_END_OF_CALL = re.compile(r"\s*</function>(?:\s*</tool_call>)?")


class Qwen3CoderFormat:
    """XML-like tags."""

    name = "qwen3_coder"

    def parse(self, text: str, *, complete: bool = True, tools: Sequence[ToolSpec] = ()) -> Message:
        """Read an assistant turn; see `ToolFormat.parse`."""
        position = end_of_thoughts(text)
        spoken, calls = text[:position], list[ToolCall]()
        while (begun := _FUNCTION.search(text, position)) is not None:
            spoken += text[position : begun.start()]
            call, position = _read(text, begun, f"call_{len(calls)}", complete, tools)
            calls.append(call)
        spoken += text[position:]
        return Message(
            role=Role.ASSISTANT, content=spoken.strip() if calls else spoken, tool_calls=calls
        )

    def render(self, calls: Sequence[ToolCall]) -> str:
        """Write calls as the model would."""
        return "\n".join(map(_render, calls))


def _render(call: ToolCall) -> str:
    parameters = "".join(
        f"<parameter={name}>\n{_as_text(value)}\n</parameter>\n"
        for name, value in call.arguments.items()
    )
    return f"<tool_call>\n<function={call.name}>\n{parameters}</function>\n</tool_call>"


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _read(
    text: str, begun: re.Match[str], identity: str, complete: bool, tools: Sequence[ToolSpec]
) -> tuple[ToolCall, int]:
    """The call that begins at `begun`, and where to read on."""
    name, position = begun[1].strip(), begun.end()
    types = _types(name, tools)
    arguments: dict[str, Any] = {}
    while (parameter := _PARAMETER.match(text, position)) is not None:
        end = _END_OF_VALUE.search(text, parameter.end())
        if end is None:
            return _broken(text, position, identity, complete, "a parameter is not closed")
        key = parameter[1].strip()
        try:
            arguments[key] = _value(text[parameter.end() : end.start()], types.get(key, "unknown"))
        except (ValueError, RecursionError) as error:
            reason = f"the parameter {key!r} is not JSON: {error}"
            return _broken(text, position, identity, True, reason)
        position = end.end()
    closed = _END_OF_CALL.match(text, position)
    if closed is None:
        return _broken(text, position, identity, complete, "the function is not closed")
    if not is_unicode(arguments):
        return _broken(text, position, identity, True, "half of a surrogate pair is not text")
    return ToolCall(name=name, arguments=arguments, id=identity), closed.end()


def _broken(
    text: str, position: int, identity: str, complete: bool, reason: str
) -> tuple[ToolCall, int]:
    """A call that is not executed; reading goes on after it, or nowhere if it was cut."""
    closed = re.compile(r"</function>(?:\s*</tool_call>)?").search(text, position)
    cut = closed is None and not complete
    end = len(text) if closed is None else closed.end()
    return ToolCall(name="", id=identity, error=CUT if cut else reason), end


def _types(name: str, tools: Sequence[ToolSpec]) -> dict[str, str]:
    """The JSON Schema type of each parameter of the tool; any if it has several."""
    for tool in tools:
        if tool.name == name:
            properties = tool.parameters.get("properties", {})
            return {key: str(schema.get("type", "unknown")) for key, schema in properties.items()}
    return {}


def _value(text: str, kind: str) -> Any:
    if kind == "string":
        return text
    if kind != "unknown":
        return decoder.decode(text.strip())
    try:
        decoded = decoder.decode(text.strip())
    except (ValueError, RecursionError):
        return text
    return text if isinstance(decoded, str) else decoded
