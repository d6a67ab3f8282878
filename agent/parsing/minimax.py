"""The formats of MiniMax: M1 writes lines of JSON, M2 a tag for each argument.

    <tool_calls>
    {"name": "search", "arguments": {"query": "x"}}
    </tool_calls>

    <minimax:tool_call>
    <invoke name="search">
    <parameter name="query">x</parameter>
    </invoke>
    </minimax:tool_call>

How the values of M2 are read is said in `tag_arguments`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial

from ludus.envs import ToolSpec
from ludus.messages import Message, ToolCall

from .arguments import as_json, as_text
from .qwen import HermesFormat
from .scan import scan
from .tag_arguments import TagGrammar, unwrapped, wrapped


class MiniMaxM1Format(HermesFormat):
    """Calls of MiniMax-M1 and Text-01: a line of JSON for each, between one pair of tags."""

    name = "minimax_m1"
    opening, closing = "<tool_calls>", "</tool_calls>"

    def render(self, calls: Sequence[ToolCall], *, tools: Sequence[ToolSpec] = ()) -> str:
        """Write calls as the model would."""
        lines = "\n".join(as_json(call) for call in calls)
        return f"{self.opening}\n{lines}\n{self.closing}" if calls else ""


_OUTER = "minimax:tool_call"
_QUOTED = r"\"[^\"<>\n]{0,256}\"|'[^'<>\n]{0,256}'|[^\"'<>\s]{1,256}"
_INVOKE = rf"(?:<{_OUTER}>\s*)?<invoke\s+name=(?P<name>{_QUOTED})\s*>"
_GRAMMAR = TagGrammar(
    beginning=re.compile(rf"{_INVOKE}|<{_OUTER}>(?:\s*<invoke)?|<invoke\s+name="),
    function=re.compile(_INVOKE),
    parameter=re.compile(rf"<parameter\s+name=(?P<key>{_QUOTED})\s*>"),
    closing=re.compile("</parameter>"),
    end=re.compile(rf"</invoke>(?:\s*</{_OUTER}>)?|</{_OUTER}>"),
    follows=re.compile(
        rf"\s*(?:<parameter\s+name=|</invoke>|(?:</{_OUTER}>\s*)?(?:\Z|<{_OUTER}>))"
    ),
    inner=unwrapped,
    form='a call is <invoke name="name">, then <parameter name="key">value</parameter> for each '
    "argument",
)


class MiniMaxM2Format:
    """Calls of MiniMax-M2, between one pair of tags."""

    name = "minimax_m2"

    def parse(self, text: str, *, complete: bool = True, tools: Sequence[ToolSpec] = ()) -> Message:
        """Read an assistant turn; see `ToolFormat.parse`."""
        return scan(text, _GRAMMAR.find, partial(_GRAMMAR.read, complete=complete, tools=tools))

    def render(self, calls: Sequence[ToolCall], *, tools: Sequence[ToolSpec] = ()) -> str:
        """Write calls as the model would."""
        written: list[str] = []
        for call in calls:
            parameters = "".join(
                f'<parameter name="{name}">{wrapped(as_text(value))}</parameter>\n'
                for name, value in call.arguments.items()
            )
            written.append(f'<invoke name="{call.name}">\n{parameters}</invoke>\n')
        return f"<{_OUTER}>\n{''.join(written)}</{_OUTER}>" if calls else ""
