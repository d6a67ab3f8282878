r"""The harmony format of gpt-oss: messages with a channel, and a recipient where they are calls.

    <|channel|>analysis<|message|>I look it up.<|end|>
    <|start|>assistant<|channel|>commentary to=functions.search <|constrain|>json<|message|>
    {"query": "x"}<|call|>

The channel `analysis` holds thoughts, which become `Message.reasoning`; `commentary` and `final`
hold what is said, which becomes the content. A message with a recipient is a call, whatever its
channel. The recipient may also stand before the channel, as templates write.
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

_START, _CHANNEL, _SAYS = "<|start|>assistant", "<|channel|>", "<|message|>"
_END, _CALL = "<|end|>", "<|call|>"
_TO = r"to=(?:functions\.)?"
# A header has its recipient before the channel or after it. One expression cannot have two groups
# of one name, so the header below calls the name `before` in the first case and `name` in the
# second.
_BEFORE = rf"(?:<\|start\|>assistant)?\s*{_TO}%s\s*(?:<\|channel\|>[^<]{{0,64}})?"
_INSIDE = rf"(?:<\|start\|>assistant\s*)?<\|channel\|>\s*[a-z]{{1,16}}\s+{_TO}%s[^<]{{0,64}}"
_NAME = r"[^\s<]{1,256}"
_TYPE = r"(?:<\|constrain\|>[^<]{0,64})?<\|message\|>"
_GRAMMAR = JsonGrammar(
    beginning=re.compile(
        r"<\|start\|>assistant\s*to=|(?:<\|start\|>assistant\s*)?<\|channel\|>\s*[a-z]{1,16}\s+to="
        r"|(?:\A|(?<=\s))to=(?=functions\.|[^\s<]{1,256}\s*<\|(?:channel|message)\|>)"
    ),
    header=re.compile(
        rf"(?:{_BEFORE % f'(?P<before>{_NAME})'}|{_INSIDE % f'(?P<name>{_NAME})'}){_TYPE}"
    ),
    closing=re.compile(r"<\|(?:call|end|return)\|>"),
    form=f"a call is {_CHANNEL}commentary to=functions.name{_SAYS}, then a JSON object",
)
_THOUGHT = re.compile(
    r"(?:<\|start\|>assistant)?<\|channel\|>analysis\s*<\|message\|>"
    r"(.*?)(?:<\|end\|>|(?=<\|start\|>)|\Z)",
    re.DOTALL,
)
_MARKS = re.compile(
    r"(?:<\|start\|>assistant\s*)?<\|channel\|>[^<]{0,64}(?:<\|constrain\|>[^<]{0,64})?<\|message\|>"
    r"|<\|start\|>assistant(?:<\|message\|>)?|<\|(?:end|return|call)\|>"
)


class HarmonyFormat:
    """Messages of gpt-oss."""

    name = "harmony"

    def parse(self, text: str, *, complete: bool = True, tools: Sequence[ToolSpec] = ()) -> Message:
        """Read an assistant turn; see `ToolFormat.parse`."""
        read = scan(text, _GRAMMAR.find, partial(_GRAMMAR.read, complete=complete))
        raw_text = read.text
        thoughts = "\n".join(thought[1] for thought in _THOUGHT.finditer(raw_text))
        answer = _MARKS.sub("", _THOUGHT.sub("", raw_text))
        # A text without any mark is no harmony and stays as it is, white space included.
        content = answer.strip() if answer != raw_text else raw_text
        return msgspec.structs.replace(read, content=content, reasoning=thoughts)

    def render(self, calls: Sequence[ToolCall], *, tools: Sequence[ToolSpec] = ()) -> str:
        """Write calls as the model would."""
        return _START.join(
            f"{_CHANNEL}commentary to=functions.{call.name} <|constrain|>json{_SAYS}"
            f"{json.dumps(call.arguments, ensure_ascii=False)}{_CALL}"
            for call in calls
        )

    def write(self, message: Message, *, tools: Sequence[ToolSpec] = ()) -> str:
        """Return a whole turn as the model would write it; see `WritesTurns`."""
        parts = []
        if message.reasoning:
            parts.append(f"{_CHANNEL}analysis{_SAYS}{message.reasoning}{_END}")
        if message.tool_calls and message.text:
            parts.append(f"{_CHANNEL}commentary{_SAYS}{message.text}{_END}")
        if message.tool_calls:
            parts.append(self.render(message.tool_calls, tools=tools))
        else:
            parts.append(f"{_CHANNEL}final{_SAYS}{message.text}")
        return _START.join(parts)
