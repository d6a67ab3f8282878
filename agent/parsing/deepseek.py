"""The formats of DeepSeek: V3 and R1 with a Markdown block, V3.1 without.

    <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>search
    ```json
    {"query": "x"}
    ```<｜tool▁call▁end｜><｜tool▁calls▁end｜>

    <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>search<｜tool▁sep｜>{"query": "x"}<｜tool▁call▁end｜>
    <｜tool▁calls▁end｜>

Both formats read both ways, because models of the one are served with templates of the other.
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
