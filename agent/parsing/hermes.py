"""Calls in JSON, or in one list, between marks: Hermes, MiniMax-M1, Granite 3, Phi-4-mini, Nemotron
and LFM2.

    <tool_call>
    {"name": "calculator", "arguments": {"expression": "1+1"}}
    </tool_call>

    <tool_calls>
    {"name": "search", "arguments": {"query": "x"}}
    </tool_calls>

    <|tool_call|>[{"name": "search", "arguments": {"query": "x"}}]
    <|tool_call|>[{"name": "search", "arguments": {"query": "x"}}]<|/tool_call|>
    <TOOLCALL>[{"name": "search", "arguments": {"query": "x"}}]</TOOLCALL>
    <|tool_call_start|>[search(query='x')]<|tool_call_end|>

A JSON decoder reads the object from the opening mark on. Searching for the closing mark would be
wrong, since that may occur inside a string argument. Several objects, or a list, between two
marks are several calls.

Granite 3.1 and later also write `<tool_call>`, with the list alone to end the call; Phi-4-mini also
writes `functools` before the list. LFM2 writes Python, or JSON where the prompt asks for that.
Granite 4 writes hermes, and Nemotron 3 the tags of Qwen3-Coder.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

from ludus.envs import ToolSpec
from ludus.llm.chat_wire import CUT, decoder
from ludus.messages import ToolCall

from .arguments import UnreadableLiteral, after_space, numbered, unreadable
from .llama import python_call, read_list
from .protocol import MarkedFormat
from .scan import MAX_CALLS

_TRIED = 8
"""How many closing marks are tried as the end of a list of Python calls, whose strings may hold the
mark.
"""


class HermesFormat(MarkedFormat):
    """Calls as JSON between `<tool_call>` tags; others differ in their marks."""

    name = "hermes"
    opening, closing = "<tool_call>", "</tool_call>"
    form, between = "{format.opening}\n{row}\n{format.closing}", "\n"

    def read(
        self, text: str, start: int, identity: str, *, complete: bool, tools: Sequence[ToolSpec]
    ) -> tuple[list[ToolCall], int]:
        """See `MarkedFormat.read`."""
        opening = self.beginning.match(text, start)
        assert opening is not None
        decoded, end, fault = _objects(text, opening.end())
        # Without a closing mark the JSON ends the call.
        closing = text.find(self.closing, end)
        if not fault and self.beginning.match(text, end):  # the next call begins
            return numbered(decoded, identity), end
        if not complete and (closing < 0 or (fault and not self.closing)):
            fault = CUT
        elif not fault and text[end : closing if closing >= 0 else len(text)].strip():
            fault = f"text after the call's JSON: {text[end : end + 40].strip()!r}"
        after = closing + len(self.closing) if closing >= 0 else len(text)
        if fault:
            return [unreadable(identity, fault)], after
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


class MiniMaxM1Format(HermesFormat):
    """Calls of MiniMax-M1 and Text-01: a line of JSON for each, between one pair of tags."""

    name = "minimax_m1"
    opening, closing = "<tool_calls>", "</tool_calls>"
    before, form, after = f"{opening}\n", "{row}", f"\n{closing}"


class Granite3Format(HermesFormat):
    """Calls of Granite 3: a JSON list, which closes itself."""

    name = "granite3"
    opening, closing = "<|tool_call|>", ""
    beginning = re.compile(r"<\|tool_call\|>|<tool_call>")
    before, form, between, after = f"{opening}[", "{row}", ", ", "]"
    signs: tuple[str, ...] = ("<|start_of_role|>", opening)


class Phi4MiniFormat(Granite3Format):
    """Calls of Phi-4-mini."""

    name = "phi4_mini"
    closing = "<|/tool_call|>"
    beginning = re.compile(r"<\|tool_call\|>|functools(?=\s*\[\s*\{)")
    after = f"]{closing}"
    signs = ("<|tool|>", "<|/tool|>")


class NemotronFormat(Granite3Format):
    """Calls of Llama-Nemotron and Nemotron Nano 2."""

    name = "nemotron"
    opening, closing = "<TOOLCALL>", "</TOOLCALL>"
    before, after = f"{opening}[", f"]{closing}"
    signs = ("<AVAILABLE_TOOLS>",)


class Lfm2Format(HermesFormat):
    """Calls of LFM2 and LFM2.5."""

    name = "lfm2"
    opening, closing = "<|tool_call_start|>", "<|tool_call_end|>"
    before, between, after = f"{opening}[", ", ", f"]{closing}"
    signs = ("<|tool_list_start|>",)

    def written(self, call: ToolCall, number: int) -> str:
        """See `MarkedFormat.written`."""
        return python_call(call)

    def read(
        self, text: str, start: int, identity: str, *, complete: bool, tools: Sequence[ToolSpec]
    ) -> tuple[list[ToolCall], int]:
        """See `MarkedFormat.read`."""
        begin = after_space(text, start + len(self.opening))
        if re.compile(r"(?:\[\s*)?\{").match(text, begin):
            return super().read(text, start, identity, complete=complete, tools=tools)
        ends = re.compile(re.escape(self.closing)).finditer(text, begin)
        first, fault = -1, "the list is not closed" if complete else CUT
        for end in islice(ends, _TRIED):
            first = end.end() if first < 0 else first
            try:
                return read_list(text[begin : end.start()].strip(), identity), end.end()
            except UnreadableLiteral as error:
                fault = str(error)
        if first < 0 and complete and text[begin:].rstrip().endswith("]"):
            with suppress(UnreadableLiteral):
                return read_list(text[begin:].strip(), identity), len(text)
        return [unreadable(identity, fault)], first if first >= 0 else len(text)
