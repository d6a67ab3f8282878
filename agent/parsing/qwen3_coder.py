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

How values are read is said in `tag_arguments`. A function may also end with its call, before
another call or at the end of the turn.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial

from ludus.envs import ToolSpec
from ludus.messages import Message, ToolCall

from .json_calls import as_text
from .scan import scan
from .tag_arguments import TagGrammar, unpadded

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


class Qwen3CoderFormat:
    """Calls written as XML-like tags."""

    name = "qwen3_coder"

    def parse(self, text: str, *, complete: bool = True, tools: Sequence[ToolSpec] = ()) -> Message:
        """Read an assistant turn; see `ToolFormat.parse`."""
        return scan(text, _GRAMMAR.find, partial(_GRAMMAR.read, complete=complete, tools=tools))

    def render(self, calls: Sequence[ToolCall], *, tools: Sequence[ToolSpec] = ()) -> str:
        """Write calls as the model would."""
        written: list[str] = []
        for call in calls:
            parameters = "".join(
                f"<parameter={name}>\n{as_text(value)}\n</parameter>\n"
                for name, value in call.arguments.items()
            )
            function = f"<function={call.name}>\n{parameters}</function>"
            written.append(f"<tool_call>\n{function}\n</tool_call>")
        return "\n".join(written)
