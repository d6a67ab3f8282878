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

from ludus.envs import ToolSpec
from ludus.messages import ToolCall

from .arguments import as_json
from .qwen import HermesFormat
from .tag_arguments import TaggedFormat, TagGrammar, unwrapped


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


class MiniMaxM2Format(TaggedFormat):
    """Calls of MiniMax-M2, between one pair of tags."""

    name = "minimax_m2"
    grammar = _GRAMMAR
    block = _OUTER
    call_form = '<invoke name="{name}">\n{arguments}</invoke>\n'
    argument_form = '<parameter name="{name}">{value}</parameter>\n'
