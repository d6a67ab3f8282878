"""The formats of DeepSeek: V3, V3.1, and the marked-up calls of V3.2 and V4.

    <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>search
    ```json
    {"query": "x"}
    ```<｜tool▁call▁end｜><｜tool▁calls▁end｜>

    <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>search<｜tool▁sep｜>{"query": "x"}<｜tool▁call▁end｜>
    <｜tool▁calls▁end｜>

Both formats read both ways, because models of the one are served with templates of the other.

    <｜DSML｜function_calls>
    <｜DSML｜invoke name="search">
    <｜DSML｜parameter name="query" string="true">x</｜DSML｜parameter>
    <｜DSML｜parameter name="count" string="false">3</｜DSML｜parameter>
    </｜DSML｜invoke>
    </｜DSML｜function_calls>

V4 writes `tool_calls` in the place of `function_calls`. Both formats read either name of the block,
calls without the block, which V4 models write too, and `|` in the place of the wide `｜`. The
attribute `string` decides whether a value is text or JSON, whatever the tool's schema says. The
module `tag_arguments` explains where a value ends.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import partial

from ludus.envs import ToolSpec
from ludus.messages import Message, ToolCall

from .marked_json import JsonGrammar
from .scan import scan
from .tag_arguments import TaggedFormat, TagGrammar

_ALL, _ALL_END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
_ONE, _ONE_END, _SEPARATOR = "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁sep｜>"
_GRAMMAR = JsonGrammar(
    beginning=re.compile(rf"(?:{_ALL}\s*)?{_ONE}|{_ALL}"),
    header=re.compile(
        rf"(?:{_ALL}\s*)?{_ONE}\s*(?:function\s*{_SEPARATOR}\s*(?=[^\s<{{`]))?"
        rf"(?P<name>[^\s<{{`]{{1,256}})\s*(?:{_SEPARATOR}\s*)?(?:```(?:json)?\s*)?"
    ),
    closing=re.compile(rf"{_ONE_END}(?:\s*{_ALL_END})?|{_ALL_END}"),
    form=f"a call is {_ONE}, a name and {_SEPARATOR}, then a JSON object",
    padding="```",
)


class DeepSeekV3Format:
    """Calls of DeepSeek V3 and R1, with the arguments in a Markdown block."""

    name = "deepseek_v3"

    def parse(self, text: str, *, complete: bool = True, tools: Sequence[ToolSpec] = ()) -> Message:
        """Read an assistant turn; see `ToolFormat.parse`."""
        return scan(text, _GRAMMAR.find, partial(_GRAMMAR.read, complete=complete))

    def render(self, calls: Sequence[ToolCall], *, tools: Sequence[ToolSpec] = ()) -> str:
        """Write calls as the model would."""
        rendered_calls = "\n".join(
            f"{_ONE}function{_SEPARATOR}{call.name}\n```json\n{_arguments(call)}\n```{_ONE_END}"
            for call in calls
        )
        return f"{_ALL}{rendered_calls}{_ALL_END}" if calls else ""


class DeepSeekV31Format(DeepSeekV3Format):
    """Calls of DeepSeek V3.1, with the arguments right after the name."""

    name = "deepseek_v31"

    def render(self, calls: Sequence[ToolCall], *, tools: Sequence[ToolSpec] = ()) -> str:
        """Write calls as the model would."""
        rendered_calls = "".join(
            f"{_ONE}{call.name}{_SEPARATOR}{_arguments(call)}{_ONE_END}" for call in calls
        )
        return f"{_ALL}{rendered_calls}{_ALL_END}" if calls else ""


def _arguments(call: ToolCall) -> str:
    return json.dumps(call.arguments, ensure_ascii=False)


_MARK = r"[｜|]DSML[｜|]"
_OUTER = rf"{_MARK}(?:function_calls|tool_calls)"
_QUOTED = r"\"[^\"<>\n]{0,256}\"|'[^'<>\n]{0,256}'|[^\"'<>\s]{1,256}"
_INVOKE = rf"(?:<{_OUTER}>\s*)?<{_MARK}invoke\s+name=(?P<name>{_QUOTED})\s*>"
_DSML_GRAMMAR = TagGrammar(
    beginning=re.compile(rf"{_INVOKE}|<{_OUTER}>(?:\s*<{_MARK}invoke)?|<{_MARK}invoke\s+name="),
    function=re.compile(_INVOKE),
    parameter=re.compile(
        rf"<{_MARK}parameter\s+name=(?P<key>{_QUOTED})"
        r"(?:\s+string=[\"']?(?P<string>true|false)[\"']?)?\s*>"
    ),
    closing=re.compile(rf"</{_MARK}parameter>"),
    end=re.compile(rf"</{_MARK}invoke>(?:\s*</{_OUTER}>)?|</{_OUTER}>"),
    follows=re.compile(
        rf"\s*(?:<{_MARK}parameter\s+name=|</{_MARK}invoke>|(?:</{_OUTER}>\s*)?(?:\Z|<{_OUTER}>))"
    ),
    inner=str,
    form='a call is <｜DSML｜invoke name="name">, then <｜DSML｜parameter name="key" '
    'string="true">value</｜DSML｜parameter> for each argument',
)


class DeepSeekV32Format(TaggedFormat):
    """Calls of DeepSeek V3.2, in a block named `function_calls`."""

    name = "deepseek_v32"
    grammar = _DSML_GRAMMAR
    block = "｜DSML｜function_calls"
    call_form = '<｜DSML｜invoke name="{name}">\n{arguments}</｜DSML｜invoke>\n'
    argument_form = (
        '<｜DSML｜parameter name="{name}" string="{is_text}">{value}</｜DSML｜parameter>\n'
    )


class DeepSeekV4Format(DeepSeekV32Format):
    """Calls of DeepSeek V4, in a block named `tool_calls`."""

    name = "deepseek_v4"
    block = "｜DSML｜tool_calls"
