"""The format of Kimi K2: the id of a call holds the tool's name and the number of the call.

    <|tool_calls_section_begin|><|tool_call_begin|>functions.search:0<|tool_call_argument_begin|>
    {"query": "x"}<|tool_call_end|><|tool_calls_section_end|>

The number counts the calls of the conversation, and results are addressed by the whole id, which
is therefore kept as the id of the call.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import partial

import msgspec

from ludus.envs import ToolSpec
from ludus.messages import Message, ToolCall

from .marked_json import JsonGrammar
from .scan import scan

_ALL, _ALL_END = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
_ONE, _ONE_END, _ARGUMENTS = (
    "<|tool_call_begin|>", "<|tool_call_end|>", "<|tool_call_argument_begin|>"
)  # fmt: skip
_GRAMMAR = JsonGrammar(
    beginning=re.compile(rf"(?:{re.escape(_ALL)}\s*)?{re.escape(_ONE)}|{re.escape(_ALL)}"),
    header=re.compile(
        rf"(?:{re.escape(_ALL)}\s*)?{re.escape(_ONE)}\s*"
        rf"(?P<id>(?:functions\.)?(?P<name>[^\s<]{{1,256}}?)(?::\d{{1,9}})?)"
        rf"\s*{re.escape(_ARGUMENTS)}"
    ),
    closing=re.compile(
        rf"{re.escape(_ONE_END)}(?:\s*{re.escape(_ALL_END)})?|{re.escape(_ALL_END)}"
    ),
    form=f"a call is {_ONE}functions.name:0{_ARGUMENTS}, then a JSON object",
)
_ID = re.compile(r"functions\.[^\s<]{1,256}:\d{1,9}")
UNREADABLE = "unreadable_call"
"""What the id of a call has in place of a tool's name, where the call names no tool."""


class KimiK2Format:
    """Calls of Kimi K2."""

    name = "kimi_k2"

    def parse(self, text: str, *, complete: bool = True, tools: Sequence[ToolSpec] = ()) -> Message:
        """Read an assistant turn; see `ToolFormat.parse`."""
        read = scan(text, _GRAMMAR.find, partial(_GRAMMAR.read, complete=complete))
        calls = [_with_id(call, number) for number, call in enumerate(read.tool_calls)]
        return msgspec.structs.replace(read, tool_calls=calls)

    def render(self, calls: Sequence[ToolCall], *, tools: Sequence[ToolSpec] = ()) -> str:
        """Write calls as the model would."""
        rendered_calls = "".join(
            f"{_ONE}{_with_id(call, number).id}{_ARGUMENTS}"
            f"{json.dumps(call.arguments, ensure_ascii=False)}{_ONE_END}"
            for number, call in enumerate(calls)
        )
        return f"{_ALL}{rendered_calls}{_ALL_END}" if calls else ""

    def call_id(self, call: ToolCall, number: int) -> str:
        """Return the id as templates of this model want; see `HasCallIds`."""
        return _with_id(call, number).id


def _with_id(call: ToolCall, number: int) -> ToolCall:
    """Return the call with its own id if that has the form of Kimi K2 and names the call's tool,
    else with an id made from `number`.
    """
    if _ID.fullmatch(call.id) and call.id.startswith(f"functions.{call.name}:"):
        return call
    new_id = f"functions.{call.name or UNREADABLE}:{number}"
    return msgspec.structs.replace(call, id=new_id)
