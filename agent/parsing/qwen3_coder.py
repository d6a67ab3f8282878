"""The XML format of Qwen3-Coder and Seed-OSS: a tag per parameter, with values as plain text.

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

A value is text if the tool's schema says string, else JSON. Without a schema, JSON that is not a
string is read as JSON. A `</parameter>` ends a value only if another parameter, or the end of
the function, follows: values may be code that contains the tag. A function may also end with its
call, before another call or at the end of the turn.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import partial
from typing import Any

from ludus.envs import ToolSpec
from ludus.messages import Message, ToolCall

from .json_calls import CUT, fault_of
from .scan import scan
from .thoughts import closing
from .typed import read_value, schemas_of

_OUTER = r"(?:seed:)?tool_call"
_FUNCTION = re.compile(rf"(?:<{_OUTER}>\s*)?<function=([^<>\n]{{0,256}})>")
_BEGINNING = re.compile(rf"{_FUNCTION.pattern}|<{_OUTER}>(?:\s*<function=)?|<function=")
_PARAMETER = re.compile(r"\s*<parameter=([^<>\n]{0,256})>(\r?\n)?")
_END_OF_VALUE = re.compile(
    rf"</parameter>(?=\s*(?:<parameter=|</function>|(?:</{_OUTER}>\s*)?(?:\Z|<{_OUTER}>)))"
)
_END_OF_CALL = re.compile(rf"\s*(?:</function>(?:\s*</{_OUTER}>)?|</{_OUTER}>)")
_ANY_END_OF_CALL = re.compile(rf"</function>(?:\s*</{_OUTER}>)?|</{_OUTER}>")
_END_OF_TURN = re.compile(r"\s*\Z")
_NEXT_PARAMETER = re.compile(r"<parameter=([^<>\n]{0,256})>")


_NO_FUNCTION = "a call is <function=name>, then <parameter=key>value</parameter> for each argument"


class Qwen3CoderFormat:
    """Calls written as XML-like tags."""

    name = "qwen3_coder"

    def parse(self, text: str, *, complete: bool = True, tools: Sequence[ToolSpec] = ()) -> Message:
        """Read an assistant turn; see `ToolFormat.parse`."""
        return scan(text, _find, partial(_read, complete=complete, tools=tools))

    def render(self, calls: Sequence[ToolCall], *, tools: Sequence[ToolSpec] = ()) -> str:
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


def _find(text: str, start: int) -> int:
    found = _BEGINNING.search(text, start)
    return -1 if found is None else found.start()


class _Unreadable(Exception):
    """A call cannot be read; holds the reason and the position of the fault."""

    def __init__(self, reason: str, position: int, *, unclosed: bool = False) -> None:
        super().__init__(reason)
        self.position = position
        self.unclosed = unclosed


def _read(
    text: str, start: int, identity: str, *, complete: bool, tools: Sequence[ToolSpec]
) -> tuple[list[ToolCall], int]:
    """Return the call that begins at `start`, and the position to continue at."""
    begun = _FUNCTION.match(text, start)
    name = _bare(begun[1]) if begun is not None else ""
    if begun is None or not name:
        return _no_function(text, start, identity, complete=complete)
    try:
        arguments, position = _parameters(
            text, begun.end(), schemas_of(name, tools), complete=complete
        )
    except _Unreadable as error:
        closed = _ANY_END_OF_CALL.search(text, error.position)
        reason = CUT if error.unclosed and closed is None and not complete else str(error)
        after = len(text) if closed is None else closed.end()
        return [ToolCall(name="", id=identity, error=reason)], after
    fault = fault_of([name, arguments])
    if fault:
        return [ToolCall(name="", id=identity, error=fault)], position
    return [ToolCall(name=name, arguments=arguments, id=identity)], position


def _no_function(
    text: str, start: int, identity: str, *, complete: bool
) -> tuple[list[ToolCall], int]:
    """Return the error for a call tag that contains something else or nothing."""
    begun = _BEGINNING.match(text, start)
    assert begun is not None
    closed = _ANY_END_OF_CALL.search(text, begun.end())
    another = _BEGINNING.search(text, begun.end())
    ends = closed is not None and (another is None or closed.end() <= another.start())
    if not complete and closed is None and another is None:
        return [ToolCall(name="", id=identity, error=CUT)], len(text)
    after = closed.end() if closed is not None and ends else begun.end()
    return [ToolCall(name="", id=identity, error=_NO_FUNCTION)], after


def _bare(name: str) -> str:
    """Return a name without the quotes of an attribute value."""
    stripped = name.strip()
    quoted = len(stripped) > 1 and stripped[0] == stripped[-1] and stripped[0] in "\"'"
    return stripped[1:-1] if quoted else stripped


def _parameters(
    text: str, position: int, schemas: dict[str, set[str]], *, complete: bool
) -> tuple[dict[str, Any], int]:
    """Return the arguments from `position` on, and the position after the function's end."""
    arguments: dict[str, Any] = {}
    while (parameter := _PARAMETER.match(text, position)) is not None:
        key = _bare(parameter[1])
        others = {name for name in schemas if name != key and name not in arguments}
        value, position = _value_text(text, parameter.end(), key, others)
        value = value.removesuffix(parameter[2] or "\n")
        try:
            arguments[key] = read_value(value, schemas.get(key, set()))
        except (ValueError, RecursionError) as error:
            reason = f"the parameter {key!r} is not JSON: {error}"
            raise _Unreadable(reason, position) from None
    closed = _END_OF_CALL.match(text, position)
    if closed is None and complete:
        closed = _END_OF_TURN.match(text, position)
    if closed is None:
        ended = _END_OF_TURN.match(text, position) is not None
        reason = "the function is not closed" if ended else _NO_FUNCTION
        raise _Unreadable(reason, position, unclosed=True)
    return arguments, closed.end()


def _value_text(text: str, start: int, key: str, others: set[str]) -> tuple[str, int]:
    """Return the text of a value, and the position after the closing tag.

    Two kinds of values were not closed by the model: a value that contains the opening tag of
    one of `others` (the parameters still missing), and a value that contains the end of the
    thoughts followed by a function.
    """
    end = _END_OF_VALUE.search(text, start)
    value = text[start : len(text) if end is None else end.start()]
    missed = {_bare(found[1]) for found in _NEXT_PARAMETER.finditer(value)} & others
    if end is None or missed or _is_half_a_thought(value):
        unclosed = end is None
        raise _Unreadable(f"the parameter {key!r} is not closed", start, unclosed=unclosed)
    return value, end.end()


def _is_half_a_thought(value: str) -> bool:
    closed = closing(value)
    return closed >= 0 and _FUNCTION.search(value, closed) is not None
