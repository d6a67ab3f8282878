"""The formats of Qwen: Hermes, and the tags of Qwen3-Coder.

    <tool_call>
    {"name": "calculator", "arguments": {"expression": "1+1"}}
    </tool_call>

A JSON decoder reads the object from the opening tag on. Searching for the closing tag would be
wrong, since that may occur inside a string argument. Several objects, or a list, between two
tags are several calls.

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

How values are read is said in `tag_arguments`. A function may also end with its call, before
another call or at the end of the turn.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

from ludus.envs import ToolSpec
from ludus.messages import Message, ToolCall

from .arguments import CUT, after_space, as_json, decoder, numbered
from .scan import MAX_CALLS, scan
from .tag_arguments import TaggedFormat, TagGrammar, unpadded


class HermesFormat:
    """Calls as JSON between `<tool_call>` tags."""

    name = "hermes"
    opening, closing = "<tool_call>", "</tool_call>"
    beginning = ""
    """A pattern of what begins a call, where models write other marks too than `opening`."""
    signs: ClassVar[tuple[str, ...]] = ()
    """Marks by which a model whose template shows no call is known as one of this format: all are
    tokens of the model, or stand in the template.
    """

    def parse(self, text: str, *, complete: bool = True, tools: Sequence[ToolSpec] = ()) -> Message:
        """Read an assistant turn; see `ToolFormat.parse`."""
        read = partial(self._read, complete=complete)

        def find(text: str, start: int) -> int:
            match = self._pattern.search(text, start)
            return -1 if match is None else match.start()

        return scan(text, find, read)

    def render(self, calls: Sequence[ToolCall], *, tools: Sequence[ToolSpec] = ()) -> str:
        """Write calls as the model would."""
        return "\n".join(f"{self.opening}\n{as_json(call)}\n{self.closing}" for call in calls)

    @property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile(self.beginning or re.escape(self.opening))

    def _read(
        self, text: str, start: int, identity: str, *, complete: bool
    ) -> tuple[list[ToolCall], int]:
        """Return the calls between the tags that begin at `start`, and the position to continue
        at.
        """
        opening = self._pattern.match(text, start)
        assert opening is not None
        decoded, end, fault = _objects(text, opening.end())
        # Without a closing mark the JSON ends the call.
        closing = text.find(self.closing, end)
        if not fault and self._pattern.match(text, end):  # the next call begins
            return numbered(decoded, identity), end
        if not complete and (closing < 0 or (fault and not self.closing)):
            fault = CUT
        elif not fault and text[end : closing if closing >= 0 else len(text)].strip():
            fault = f"text after the call's JSON: {text[end : end + 40].strip()!r}"
        after = closing + len(self.closing) if closing >= 0 else len(text)
        if fault:
            return [ToolCall(name="", id=identity, error=fault)], after
        return numbered(decoded, identity), after


def _objects(text: str, start: int) -> tuple[list[Any], int, str]:
    """Return the JSON values from `start` on, the position after the last, and an error ("" if
    none).
    """
    values: list[Any] = []
    position = after_space(text, start)
    while len(values) <= MAX_CALLS:
        try:
            decoded, end = decoder.raw_decode(text, position)
        except (ValueError, RecursionError) as error:
            return values, start, f"not valid JSON: {error}"
        values += decoded if isinstance(decoded, list) and decoded else [decoded]
        position = after_space(text, end)
        if not text.startswith("{", position):
            break
    return values, position, ""


_OUTER = r"(?:seed:)?tool_call"
_FUNCTION = rf"(?:<{_OUTER}>\s*)?<function=(?P<name>[^<>\n]{{0,256}})>"
_GRAMMAR = TagGrammar(
    beginning=re.compile(rf"{_FUNCTION}|<{_OUTER}>(?:\s*<function=)?|<function="),
    function=re.compile(_FUNCTION),
    parameter=re.compile(r"<parameter=(?P<key>[^<>\n]{0,256})>"),
    closing=re.compile("</parameter>"),
    end=re.compile(rf"</function>(?:\s*</{_OUTER}>)?|</{_OUTER}>"),
    follows=re.compile(rf"\s*(?:<parameter=|</function>|(?:</{_OUTER}>\s*)?(?:\Z|<{_OUTER}>))"),
    inner=unpadded,
    form="a call is <function=name>, then <parameter=key>value</parameter> for each argument",
)


class Qwen3CoderFormat(TaggedFormat):
    """Calls written as XML-like tags."""

    name = "qwen3_coder"
    grammar = _GRAMMAR
    call_form = "<tool_call>\n<function={name}>\n{arguments}</function>\n</tool_call>"
    argument_form = "<parameter={name}>\n{value}\n</parameter>\n"
    between = "\n"
