"""The JSON calls of Llama 3: objects that form the whole turn.

    <|python_tag|>{"name": "f", "parameters": {"a": 1}}; {"name": "g", "parameters": {}}
    <function=f>{"a": 1}</function>

The second form is that of Llama 3.1 for functions described in the prompt. Both are read only if
the turn, or the text after the tag, begins with a call: prose that contains braces stays prose,
and so does an object that is not a call. A code fence around the whole turn is ignored.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ludus.envs import ToolSpec
from ludus.messages import Message, Role, ToolCall

from .json_calls import CUT, after_space, as_call, as_json, decoder, given_arguments
from .scan import MAX_CALLS, bounded
from .whole_turn import PYTHON_TAG, TAG, after_thoughts, announced, body_of, own_words_end


class Llama3JsonFormat:
    """A JSON object, or several in a list or separated by `;`."""

    name = "llama3_json"

    def parse(self, text: str, *, complete: bool = True, tools: Sequence[ToolSpec] = ()) -> Message:
        """Read an assistant turn; see `ToolFormat.parse`."""
        names = frozenset(tool.name for tool in tools)

        def holds_calls(said: str) -> bool:
            calls = _find(said, 0, names)[1]
            return calls is not None and not any(call.error for call in calls)

        calls_start, calls = _find(text, after_thoughts(text, holds_calls), names)
        if calls is None:
            return Message(role=Role.ASSISTANT, content=text)
        if not complete:  # the turn was cut, so the last call may be unfinished
            calls[-1] = ToolCall(name="", id=calls[-1].id, error=CUT)
        return Message(role=Role.ASSISTANT, content=text[:calls_start].strip(), tool_calls=calls)

    def render(self, calls: Sequence[ToolCall], *, tools: Sequence[ToolSpec] = ()) -> str:
        """Write calls as the model would."""
        return "; ".join(as_json(call, "parameters") for call in calls)


def _find(text: str, start: int, names: frozenset[str]) -> tuple[int, list[ToolCall] | None]:
    """Return the position from `start` on where calls begin, and the calls.

    If the text at `start` is not a call, the position is that of a tag which announces calls later.
    """
    calls = _calls_of(text[start:], names)
    if calls is not None:
        return start, calls
    position = announced(text, start, _ANNOUNCED)
    return position, _calls_of(text[position:], names)


def _calls_of(body_text: str, names: frozenset[str]) -> list[ToolCall] | None:
    """Return the calls that a turn consists of, or None for text."""
    body = body_of(body_text)
    objects, fault = _read_objects(body.text)
    is_meant = _is_call(objects[0], names) if objects else bool(_BEGINNING.match(body.text))
    if not body.tagged and not is_meant:
        return None
    if not objects and not fault:
        fault = "no JSON object after the tag"
    calls = [as_call(row, f"call_{index}") for index, row in enumerate(objects)]
    if fault:
        calls.append(ToolCall(name="", id=f"call_{len(calls)}", error=fault))
    return bounded(calls)


_BEGINNING = re.compile(
    r"""\s*(?:\[\s*)?\{\s*["'](?:type["']\s*:\s*["']function"""
    r"""|(?:name|function|function_name|arguments|parameters)["']\s*:)"""
    r"|<function="
)
"""How an unreadable object begins that was meant as a call."""
_ANNOUNCED = re.compile(rf"{TAG}\s*(?:[\[{{]|<function=)")


def _is_call(decoded: Any, names: frozenset[str]) -> bool:
    """Return whether an object is meant as a call, with arguments, or nothing but the name of a
    tool.
    """
    if not isinstance(decoded, dict):
        return False
    inner = decoded.get("function")
    if given_arguments(decoded) or (isinstance(inner, dict) and "name" in inner):
        return True
    if names:
        return decoded.get("name") in names if isinstance(decoded.get("name"), str) else False
    return decoded.keys() <= {"name", "type", "id"} and "name" in decoded


def _read_objects(text: str) -> tuple[list[Any], str]:
    """Return the objects that `text` consists of, and why later text cannot be read ("" if
    it can).

    Text after the last object makes that object doubtful, so that it is left out.
    """
    objects: list[Any] = []
    position = 0
    while len(objects) < MAX_CALLS and (
        text.startswith(("{", "["), position) or _NAMED.match(text, position) is not None
    ):
        try:
            decoded, position = _read_object(text, position)
        except (ValueError, RecursionError) as error:
            return objects, f"not valid JSON: {error}"
        objects += decoded if isinstance(decoded, list) else [decoded]
        position = after_space(text, position)
        separator = next(
            (candidate for candidate in _BETWEEN if text.startswith(candidate, position)), ""
        )
        position = after_space(text, position + len(separator))
    if objects and text[position:].strip() and not own_words_end(text, position):
        return objects[:-1], f"text after the call's JSON: {text[position : position + 40]!r}"
    return objects, ""


_BETWEEN = (";", ",", PYTHON_TAG)
_NAMED = re.compile(r"<function=([^<>\s]{1,256})>\s*")
_END_OF_NAMED = "</function>"


def _read_object(text: str, position: int) -> tuple[Any, int]:
    """Return the JSON value at `position` (as a call if a tag names a function) and the end.

    Raises:
        ValueError: the text is not JSON, or the tag is not closed.
    """
    name_match = _NAMED.match(text, position)
    decoded, end = decoder.raw_decode(
        text, name_match.end() if name_match is not None else position
    )
    if name_match is None:
        return decoded, end
    end = after_space(text, end)
    if not text.startswith(_END_OF_NAMED, end):
        raise ValueError(f"{name_match[0].strip()} is not closed")
    return {"name": name_match[1], "arguments": decoded}, end + len(_END_OF_NAMED)
