"""Calls whose arguments are a JSON object after a header with the tool's name: DeepSeek V3, Kimi
K2, Mistral from its eleventh tokenizer on, and harmony.

A JSON decoder reads the object from the header on, so that the closing mark may occur inside a
string argument.

DeepSeek V3 and R1 write the arguments in a Markdown block, V3.1 right after the name. Both formats
read both ways, because models of the one are served with templates of the other.

    <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>search
    ```json
    {"query": "x"}
    ```<｜tool▁call▁end｜><｜tool▁calls▁end｜>

    <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>search<｜tool▁sep｜>{"query": "x"}<｜tool▁call▁end｜>
    <｜tool▁calls▁end｜>

In Kimi K2 the id of a call holds the tool's name and the number of the call in the conversation.
Results are addressed by the whole id, which is therefore kept as the id of the call.

    <|tool_calls_section_begin|><|tool_call_begin|>functions.search:0<|tool_call_argument_begin|>
    {"query": "x"}<|tool_call_end|><|tool_calls_section_end|>

Mistral writes a JSON list up to its seventh tokenizer, a name and arguments from the eleventh on.
Each of the two formats reads calls of both kinds, and writes its own. Ids have nine letters or
digits, since Mistral's own templates and servers refuse others.

    [TOOL_CALLS] [{"name": "search", "arguments": {"query": "x"}, "id": "a1b2c3d4e"}]
    [TOOL_CALLS]search[ARGS]{"query": "x"}[TOOL_CALLS]now[CALL_ID]a1b2c3d4e[ARGS]{}

The harmony format of gpt-oss has messages with a channel, and a recipient where they are calls. The
channel `analysis` holds thoughts, which become `Message.reasoning`; `commentary` and `final` hold
what is said, which becomes the content. A message with a recipient is a call, whatever its channel.
The recipient may also stand before the channel, as templates write.

    <|channel|>analysis<|message|>I look it up.<|end|>
    <|start|>assistant<|channel|>commentary to=functions.search <|constrain|>json<|message|>
    {"query": "x"}<|call|>
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

import msgspec

from ludus.envs import ToolSpec
from ludus.llm.chat_wire import CUT, UNREADABLE, decoder, fault_of, read_arguments
from ludus.messages import Message, ToolCall

from .arguments import after_space, numbered, unreadable
from .protocol import MarkedFormat


class HeadedFormat(MarkedFormat):
    """A format of calls with a header and a JSON object."""

    header: re.Pattern[str]
    """The beginning of a call up to its arguments, with the group `name` (or `before`), and `id`
    where models write one.
    """
    closing: re.Pattern[str] | None
    """The mark after the arguments; None where the format has none."""
    expected: str
    """How a call is written, for errors."""
    padding: str = ""
    """What may stand between the arguments and the closing mark."""

    def read(
        self, text: str, start: int, identity: str, *, complete: bool, tools: Sequence[ToolSpec]
    ) -> tuple[list[ToolCall], int]:
        """See `MarkedFormat.read`."""
        header = self.header.match(text, start)
        if header is None:
            opening = self.beginning.match(text, start)
            assert opening is not None
            return self._unreadable(text, opening.end(), identity, self.expected, complete=complete)
        decoded: object = None
        end = after_space(text, header.end())
        # No arguments may be written as nothing.
        if self.closing is None or self.closing.match(text, end) is None:
            try:
                decoded, end = decoder.raw_decode(text, end)
            except (ValueError, RecursionError) as error:
                fault = f"not valid JSON: {error}"
                return self._unreadable(text, header.end(), identity, fault, complete=complete)
        after = self._after(text, end, complete=complete)
        if after is None:
            fault = f"text after the call's JSON: {text[end : end + 40].strip()!r}"
            return self._unreadable(text, end, identity, fault, complete=complete)
        groups = header.groupdict()
        identity = groups.get("id") or identity
        name = (groups["name"] or groups.get("before") or "").strip()
        if fault := fault_of(name):
            return [unreadable(identity, fault)], after
        arguments, fault = read_arguments(decoded)
        return [ToolCall(name=name, arguments=arguments, id=identity, error=fault)], after

    def _after(self, text: str, end: int, *, complete: bool) -> int | None:
        """Return the position after a call whose arguments end at `end`, or None if something else
        follows, or nothing in a turn that was cut.
        """
        following = after_space(text, end)
        if self.closing is not None:
            if self.padding and text.startswith(self.padding, following):
                following = after_space(text, following + len(self.padding))
            closed = self.closing.match(text, following)
            if closed is not None:
                return closed.end()
        if following == len(text):
            return following if complete else None
        if self.closing is None or self.beginning.match(text, following) is not None:
            return end
        return None

    def _unreadable(
        self, text: str, position: int, identity: str, fault: str, *, complete: bool
    ) -> tuple[list[ToolCall], int]:
        """Return a call that cannot be read from `position` on, and the position after that call.

        In a turn that was cut, the reason is the cut unless the call ended.
        """
        closed = None if self.closing is None else self.closing.search(text, position)
        next_opening = self.beginning.search(text, position)
        call_ends = [match.end() for match in (closed,) if match is not None]
        call_ends += [match.start() for match in (next_opening,) if match is not None]
        error = CUT if not call_ends and not complete else fault
        return [unreadable(identity, error)], min(call_ends, default=len(text))


_ALL, _ALL_END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
_ONE, _ONE_END, _SEPARATOR = "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁sep｜>"


class DeepSeekV3Format(HeadedFormat):
    """Calls of DeepSeek V3 and R1, with the arguments in a Markdown block."""

    name = "deepseek_v3"
    beginning = re.compile(rf"(?:{_ALL}\s*)?{_ONE}|{_ALL}")
    header = re.compile(
        rf"(?:{_ALL}\s*)?{_ONE}\s*(?:function\s*{_SEPARATOR}\s*(?=[^\s<{{`]))?"
        rf"(?P<name>[^\s<{{`]{{1,256}})\s*(?:{_SEPARATOR}\s*)?(?:```(?:json)?\s*)?"
    )
    closing = re.compile(rf"{_ONE_END}(?:\s*{_ALL_END})?|{_ALL_END}")
    expected = f"a call is {_ONE}, a name and {_SEPARATOR}, then a JSON object"
    padding = "```"
    before, between, after = _ALL, "\n", _ALL_END
    form = f"{_ONE}function{_SEPARATOR}{{name}}\n```json\n{{arguments}}\n```{_ONE_END}"


class DeepSeekV31Format(DeepSeekV3Format):
    """Calls of DeepSeek V3.1, with the arguments right after the name."""

    name = "deepseek_v31"
    between = ""
    form = f"{_ONE}{{name}}{_SEPARATOR}{{arguments}}{_ONE_END}"


_SECTION, _SECTION_END = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
_BEGIN, _END_OF_CALL, _SAYS_WHAT = (
    "<|tool_call_begin|>", "<|tool_call_end|>", "<|tool_call_argument_begin|>"
)  # fmt: skip
_KIMI_ID = re.compile(r"functions\.[^\s<]{1,256}:\d{1,9}")


class KimiK2Format(HeadedFormat):
    """Calls of Kimi K2."""

    name = "kimi_k2"
    beginning = re.compile(
        rf"(?:{re.escape(_SECTION)}\s*)?{re.escape(_BEGIN)}|{re.escape(_SECTION)}"
    )
    header = re.compile(
        rf"(?:{re.escape(_SECTION)}\s*)?{re.escape(_BEGIN)}\s*"
        rf"(?P<id>(?:functions\.)?(?P<name>[^\s<]{{1,256}}?)(?::\d{{1,9}})?)"
        rf"\s*{re.escape(_SAYS_WHAT)}"
    )
    closing = re.compile(
        rf"{re.escape(_END_OF_CALL)}(?:\s*{re.escape(_SECTION_END)})?|{re.escape(_SECTION_END)}"
    )
    expected = f"a call is {_BEGIN}functions.name:0{_SAYS_WHAT}, then a JSON object"
    before, after = _SECTION, _SECTION_END
    form = f"{_BEGIN}{{id}}{_SAYS_WHAT}{{arguments}}{_END_OF_CALL}"

    def call_id(self, call: ToolCall, number: int) -> str:
        """Return the call's own id if that has the form of Kimi K2 and names the call's tool, else
        one made from `number`; see `HasCallIds`.
        """
        if _KIMI_ID.fullmatch(call.id) and call.id.startswith(f"functions.{call.name}:"):
            return call.id
        return f"functions.{call.name or UNREADABLE}:{number}"


_CALLS, _ID, _ARGUMENTS = "[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"
_MISTRAL_ID = re.compile(r"[A-Za-z0-9]{9}")


class MistralV11Format(HeadedFormat):
    """Calls of Mistral models from the eleventh tokenizer on: a name, then arguments."""

    name = "mistral_v11"
    beginning = re.compile(re.escape(_CALLS))
    header = re.compile(
        rf"{re.escape(_CALLS)}\s*(?P<name>[^\s\[\]{{}}\"]{{1,256}})\s*"
        rf"(?:{re.escape(_ID)}\s*(?P<id>[A-Za-z0-9]{{9}})\s*)?(?:{re.escape(_ARGUMENTS)}|(?=\{{))"
    )
    closing = None
    expected = f"a call is {_CALLS}name{_ARGUMENTS}, then a JSON object"
    form = f"{_CALLS}{{name}}{_ARGUMENTS}{{arguments}}"

    def call_id(self, call: ToolCall, number: int) -> str:
        """Return the call's own id if that has nine characters, else one made from `number`; see
        `HasCallIds`.
        """
        return call.id if _MISTRAL_ID.fullmatch(call.id) else f"call{number:05d}"

    def read(
        self, text: str, start: int, identity: str, *, complete: bool, tools: Sequence[ToolSpec]
    ) -> tuple[list[ToolCall], int]:
        """See `MarkedFormat.read`."""
        body = after_space(text, start + len(_CALLS))
        # A list, or an object without the list around it; anything else is a name with arguments.
        if not text.startswith(("[{", "{", "[]", "[ ", "[\n"), body):
            return super().read(text, start, identity, complete=complete, tools=tools)
        try:
            decoded, end = decoder.raw_decode(text, body)
        except (ValueError, RecursionError) as error:
            next_calls = text.find(_CALLS, body)
            fault = CUT if not complete and next_calls < 0 else f"not valid JSON: {error}"
            after = next_calls if next_calls >= 0 else len(text)
            return [unreadable(identity, fault)], after
        if isinstance(decoded, dict) and not complete and after_space(text, end) == len(text):
            # A list may be closed by its bracket; after a lone object more of the turn may follow.
            return [unreadable(identity, CUT)], end
        rows = decoded if isinstance(decoded, list) and decoded else [decoded]
        calls = numbered(rows, identity)
        for number, row in enumerate(rows):
            own_id = row.get("id") if isinstance(row, dict) else None
            if isinstance(own_id, str) and _MISTRAL_ID.fullmatch(own_id):
                calls[number] = msgspec.structs.replace(calls[number], id=own_id)
        return calls, end


class MistralV3Format(MistralV11Format):
    """Calls of Mistral models up to the seventh tokenizer: a JSON list."""

    name = "mistral_v3"
    before, between, after = f"{_CALLS} [", ", ", "]"

    def written(self, call: ToolCall, number: int) -> str:
        """See `MarkedFormat.written`; an id that the model did not give is not written."""
        row = {"name": call.name, "arguments": call.arguments}
        own_id = {"id": call.id} if _MISTRAL_ID.fullmatch(call.id) else {}
        return json.dumps(row | own_id, ensure_ascii=False)


_START, _CHANNEL, _SAYS = "<|start|>assistant", "<|channel|>", "<|message|>"
_END = "<|end|>"
_TO = r"to=(?:functions\.)?"
# A header has its recipient before the channel or after it. One expression cannot have two groups
# of one name, so the header below calls the name `before` in the first case and `name` in the
# second.
_BEFORE = rf"(?:<\|start\|>assistant)?\s*{_TO}%s\s*(?:<\|channel\|>[^<]{{0,64}})?"
_INSIDE = rf"(?:<\|start\|>assistant\s*)?<\|channel\|>\s*[a-z]{{1,16}}\s+{_TO}%s[^<]{{0,64}}"
_NAME = r"[^\s<]{1,256}"
_TYPE = r"(?:<\|constrain\|>[^<]{0,64})?<\|message\|>"
_THOUGHT = re.compile(
    r"(?:<\|start\|>assistant)?<\|channel\|>analysis\s*<\|message\|>"
    r"(.*?)(?:<\|end\|>|(?=<\|start\|>)|\Z)",
    re.DOTALL,
)
_MARKS = re.compile(
    r"(?:<\|start\|>assistant\s*)?<\|channel\|>[^<]{0,64}(?:<\|constrain\|>[^<]{0,64})?<\|message\|>"
    r"|<\|start\|>assistant(?:<\|message\|>)?|<\|(?:end|return|call)\|>"
)


class HarmonyFormat(HeadedFormat):
    """Messages of gpt-oss."""

    name = "harmony"
    beginning = re.compile(
        r"<\|start\|>assistant\s*to=|(?:<\|start\|>assistant\s*)?<\|channel\|>\s*[a-z]{1,16}\s+to="
        r"|(?:\A|(?<=\s))to=(?=functions\.|[^\s<]{1,256}\s*<\|(?:channel|message)\|>)"
    )
    header = re.compile(
        rf"(?:{_BEFORE % f'(?P<before>{_NAME})'}|{_INSIDE % f'(?P<name>{_NAME})'}){_TYPE}"
    )
    closing = re.compile(r"<\|(?:call|end|return)\|>")
    expected = f"a call is {_CHANNEL}commentary to=functions.name{_SAYS}, then a JSON object"
    form = (
        f"{_CHANNEL}commentary to=functions.{{name}} <|constrain|>json{_SAYS}{{arguments}}<|call|>"
    )
    between = _START

    def parse(self, text: str, *, complete: bool = True, tools: Sequence[ToolSpec] = ()) -> Message:
        """Read an assistant turn; see `ToolFormat.parse`."""
        read = super().parse(text, complete=complete, tools=tools)
        raw_text = read.text
        thoughts = "\n".join(thought[1] for thought in _THOUGHT.finditer(raw_text))
        answer = _MARKS.sub("", _THOUGHT.sub("", raw_text))
        # A text without any mark is no harmony and stays as it is, white space included.
        content = answer.strip() if answer != raw_text else raw_text
        return msgspec.structs.replace(read, content=content, reasoning=thoughts)

    def write(self, message: Message, *, tools: Sequence[ToolSpec] = ()) -> str:
        """Return a whole turn in the model's own notation; see `WritesTurns`."""
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
