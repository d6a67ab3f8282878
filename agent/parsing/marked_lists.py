"""Calls in one list between marks: Granite 3, Phi-4-mini, Nemotron and LFM2.

    <|tool_call|>[{"name": "search", "arguments": {"query": "x"}}]
    <|tool_call|>[{"name": "search", "arguments": {"query": "x"}}]<|/tool_call|>
    <TOOLCALL>[{"name": "search", "arguments": {"query": "x"}}]</TOOLCALL>
    <|tool_call_start|>[search(query='x')]<|tool_call_end|>

Granite 3.1 and later also write `<tool_call>`, with the list alone to end the call; Phi-4-mini also
writes `functools` before the list. LFM2 writes Python, or JSON where the prompt asks for that.
Granite 4 writes hermes, and Nemotron 3 the tags of Qwen3-Coder.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from itertools import islice
from typing import ClassVar

from ludus.envs import ToolSpec
from ludus.messages import ToolCall

from .arguments import CUT, UnreadableLiteral, after_space
from .llama import Llama3PythonicFormat, read_list
from .qwen import HermesFormat

_TRIED = 8
"""How many closing marks are tried as the end of a list of Python calls, whose strings may hold the
mark.
"""


class Granite3Format(HermesFormat):
    """Calls of Granite 3: a JSON list, which closes itself."""

    name = "granite3"
    opening, closing = "<|tool_call|>", ""
    signs: ClassVar[tuple[str, ...]] = ("<|start_of_role|>", "<|tool_call|>")
    beginning = r"<\|tool_call\|>|<tool_call>"

    def render(self, calls: Sequence[ToolCall], *, tools: Sequence[ToolSpec] = ()) -> str:
        """Write calls as the model would."""
        rows = [{"name": call.name, "arguments": call.arguments} for call in calls]
        return f"{self.opening}{json.dumps(rows, ensure_ascii=False)}{self.closing}" if rows else ""


class Phi4MiniFormat(Granite3Format):
    """Calls of Phi-4-mini."""

    name = "phi4_mini"
    closing = "<|/tool_call|>"
    signs: ClassVar[tuple[str, ...]] = ("<|tool|>", "<|/tool|>")
    beginning = r"<\|tool_call\|>|functools(?=\s*\[\s*\{)"


class NemotronFormat(Granite3Format):
    """Calls of Llama-Nemotron and Nemotron Nano 2."""

    name = "nemotron"
    opening, closing = "<TOOLCALL>", "</TOOLCALL>"
    signs: ClassVar[tuple[str, ...]] = ("<AVAILABLE_TOOLS>",)
    beginning = ""


class Lfm2Format(HermesFormat):
    """Calls of LFM2 and LFM2.5."""

    name = "lfm2"
    opening, closing = "<|tool_call_start|>", "<|tool_call_end|>"
    signs: ClassVar[tuple[str, ...]] = ("<|tool_list_start|>",)

    def render(self, calls: Sequence[ToolCall], *, tools: Sequence[ToolSpec] = ()) -> str:
        """Write calls as the model would."""
        written = Llama3PythonicFormat().render(calls)
        return f"{self.opening}{written}{self.closing}" if calls else ""

    def _read(
        self, text: str, start: int, identity: str, *, complete: bool
    ) -> tuple[list[ToolCall], int]:
        begin = after_space(text, start + len(self.opening))
        if re.compile(r"(?:\[\s*)?\{").match(text, begin):
            return super()._read(text, start, identity, complete=complete)
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
        return [ToolCall(name="", id=identity, error=fault)], first if first >= 0 else len(text)
