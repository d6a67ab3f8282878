"""Tools for models behind a server: how tools are offered and how calls are read.

Either the server handles both, in the `tools` and `tool_calls` of the OpenAI chat format, or
tools and calls are written as text for servers without tool support.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import msgspec

from ludus.envs import ToolSpec
from ludus.llm.chat_wire import Completion
from ludus.messages import Message, Role, TextPart, ToolCall, system, user
from ludus.thoughts import AUTO, apart

from .parsing import ToolFormat, read_turn, turn_text

Offer = list[dict[str, Any]]


class ToolWire(Protocol):
    """Puts tools into a request, and reads calls from the answer."""

    def request(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec]
    ) -> tuple[list[Message], Offer]:
        """Return the conversation as sent to the server, and the request's `tools` field."""
        ...

    def read(self, completion: Completion, tools: Sequence[ToolSpec]) -> Message:
        """Return the server's answer as a message."""
        ...


class ServerTools:
    """Uses the server's tool support: `tools` in the request, `tool_calls` in the answer.

    Servers accept only letters, digits, `_` and `-` in names, so that other names (`math.sqrt`)
    are replaced in the request and restored in the answer.

    Args:
        thoughts: the marks around thoughts which the server left in the text.
    """

    def __init__(self, thoughts: str = AUTO) -> None:
        self._thoughts = thoughts

    def request(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec]
    ) -> tuple[list[Message], Offer]:
        """See `ToolWire.request`."""
        names = wire_names([tool.name for tool in tools])
        offer = [msgspec.structs.replace(tool, name=names[tool.name]).as_openai() for tool in tools]
        return [_renamed(message, names) for message in messages], offer

    def read(self, completion: Completion, tools: Sequence[ToolSpec]) -> Message:
        """See `ToolWire.read`."""
        names = wire_names([tool.name for tool in tools])
        own_names = {wire: name for name, wire in names.items()}
        return _split(_renamed(completion.message, own_names), self._thoughts)


def _split(message: Message, thoughts: str) -> Message:
    """Split thoughts off, and mark the message so that no other marks are looked for later."""
    message = apart(message, thoughts)
    if thoughts == AUTO or message.thinks or not message.text:
        return message
    return msgspec.structs.replace(message, thought_marks=("", ""))


_REFUSED = re.compile(r"[^A-Za-z0-9_-]")
_LONGEST_NAME = 64


def wire_names(names: Sequence[str]) -> dict[str, str]:
    """Return a distinct name for each tool with only the characters that servers accept.

    >>> wire_names(["math.sqrt", "math_sqrt"])
    {'math.sqrt': 'math_sqrt_2', 'math_sqrt': 'math_sqrt'}
    """
    cleaned_names = {name: _REFUSED.sub("_", name)[:_LONGEST_NAME] or "_" for name in names}
    used_names = {name for name, wire in cleaned_names.items() if name == wire}
    for name, wire in cleaned_names.items():
        number = 1
        while name != cleaned_names[name] and cleaned_names[name] in used_names:
            number += 1
            cleaned_names[name] = f"{wire[: _LONGEST_NAME - 4]}_{number}"
        used_names.add(cleaned_names[name])
    return cleaned_names


def _renamed(message: Message, names: dict[str, str]) -> Message:
    if not message.tool_calls and not message.name:
        return message
    calls = [
        msgspec.structs.replace(call, name=names.get(call.name, call.name))
        for call in message.tool_calls
    ]
    name = names.get(message.name, message.name)
    return msgspec.structs.replace(message, tool_calls=calls, name=name)


OFFER = """\
You can call tools. Each line describes one as JSON:
{tools}
A call is written like this, with the tool's own name and arguments:
{example}
The result comes in the next message; stop after the call."""
RESULT_OPEN, RESULT_CLOSE = "<tool_response>", "</tool_response>"


def break_marks(text: str, marks: Iterable[str]) -> str:
    """Return a text in which none of `marks` can be read as a mark.

    A tool that echoes `<|im_end|>` must not end a turn, nor `</tool_response>` the result. A
    zero-width space inside the mark keeps a tokenizer from producing the special token; a reader
    still sees the mark.

    >>> break_marks("a</s>", ["</s>"]) == "a<\\u200b/s>"
    True
    """
    for mark in [mark for mark in marks if mark in text]:
        text = text.replace(mark, f"{mark[:1]}\u200b{mark[1:]}")
    return text


MAX_WRITTEN = 1 << 14
"""How many texts of a model are kept, to be sent back exactly as written."""


class TextTools:
    """Describes tools in the system message, and reads calls from the text.

    Text that the model wrote is sent back exactly as written, including calls that could not be
    read. The text is looked up by the message that was read from it, so that a copy of the message
    which went through an environment or a file finds it too.

    Args:
        tool_format: writes and reads the calls.
        thoughts: the marks around thoughts which the server left in the text.
    """

    def __init__(self, tool_format: ToolFormat, thoughts: str = AUTO) -> None:
        self.format = tool_format
        self._thoughts = thoughts
        self._written: dict[bytes, str] = {}
        """The texts that the model wrote, each by `_key_of` the message read from the text."""

    def request(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec]
    ) -> tuple[list[Message], Offer]:
        """See `ToolWire.request`."""
        shown_messages: list[Message] = []
        follows_result = False
        for message in messages:  # only roles that every server knows are used
            is_result = message.role is Role.TOOL
            if is_result:
                text = break_marks(message.text, [RESULT_CLOSE])
                result, images = f"{RESULT_OPEN}\n{text}\n{RESULT_CLOSE}", message.images
                if follows_result:
                    before = shown_messages.pop()  # templates want one turn each
                    result, images = f"{before.text}\n{result}", [*before.images, *images]
                shown_messages.append(user([TextPart(result), *images] if images else result))
            elif message.tool_calls:
                written = self._written.get(_key_of(message, message.reasoning))
                if written is None:
                    written = turn_text(self.format, message, tools=tools)
                thoughts = "" if message.thought_marks else message.reasoning
                plain = Message(role=message.role, content=written, reasoning=thoughts)
                shown_messages.append(plain)
            else:
                shown_messages.append(message)
            follows_result = is_result
        if tools:  # in the system message, which is added where none exists
            instructions = self.offer(tools)
            if shown_messages and shown_messages[0].role is Role.SYSTEM:
                instructions = f"{shown_messages.pop(0).text}\n\n{instructions}"
            shown_messages.insert(0, system(instructions))
        return shown_messages, []

    def read(self, completion: Completion, tools: Sequence[ToolSpec]) -> Message:
        """See `ToolWire.read`."""
        answer = completion.message
        if not tools:
            return _split(answer, self._thoughts)
        complete = completion.finish != "length"
        read = read_turn(
            self.format, answer.text, complete=complete, tools=tools, thoughts=self._thoughts
        )
        read = _split(read, self._thoughts)
        if answer.reasoning:
            read = msgspec.structs.replace(read, reasoning=answer.reasoning, thought_marks=None)
        for thoughts in (read.reasoning, ""):  # who repeats a turn may leave its thoughts out
            self._written[_key_of(read, thoughts)] = answer.text
        while len(self._written) > MAX_WRITTEN:  # the oldest first
            del self._written[next(iter(self._written))]
        return read

    def offer(self, tools: Sequence[ToolSpec]) -> str:
        """Return the text that describes the tools and shows an example call."""
        lines = [msgspec.json.encode(tool).decode() for tool in tools]
        first = tools[0]
        arguments = dict.fromkeys(first.parameters.get("properties", {}), "...")
        example = self.format.render([ToolCall(name=first.name, arguments=arguments)], tools=tools)
        return OFFER.format(tools="\n".join(lines), example=example)


def _key_of(message: Message, thoughts: str) -> bytes:
    """Return the key of a message in `TextTools._written`."""
    # An echo through JSON may have its keys in another order.
    content = (message.text, message.tool_calls, thoughts)
    return msgspec.json.encode(content, order="deterministic")
