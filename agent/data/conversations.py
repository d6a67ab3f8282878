"""Conversations in rows of data sets, read as messages.

    {"messages": [{"role": "user", "content": ...}, ...], "tools": [...]}     OpenAI, TRL, axolotl
    {"conversations": [{"from": "human", "value": ...}, ...], "system": ...}  sharegpt
    {"prompt": ..., "completion": ...}                                        TRL, text or messages
    {"instruction": ..., "input": ..., "output": ...}                         alpaca
    {"question": ..., "response": ...}                                        its relatives

What cannot be learned from as it stands is refused row by row, with the reason.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

import msgspec

from ludus.envs import ToolSpec
from ludus.envs.problem_files import UnusableRow
from ludus.llm.chat_wire import decoder, read_arguments
from ludus.messages import ImagePart, Message, Part, Role, TextPart, ToolCall
from ludus.thoughts import apart

ROLES = {
    "system": Role.SYSTEM, "developer": Role.SYSTEM,
    "user": Role.USER, "human": Role.USER,
    "assistant": Role.ASSISTANT, "gpt": Role.ASSISTANT, "chatgpt": Role.ASSISTANT,
    "bot": Role.ASSISTANT, "model": Role.ASSISTANT, "function_call": Role.ASSISTANT,
    "tool": Role.TOOL, "function": Role.TOOL, "observation": Role.TOOL,
    "function_response": Role.TOOL, "ipython": Role.TOOL,
}  # fmt: skip
"""The names that data sets have for roles."""
_TURN_MARKS = re.compile(
    r"<\|(?:im_start|im_end|start_header_id|end_header_id|eot_id|user|assistant|system|channel)\|>"
    r"|\[/?INST\]|<</?SYS>>|<(?:start|end)_of_turn>|<｜(?:User|Assistant)｜>"  # noqa: RUF001
)
"""Marks of turns that templates write, and nobody says."""
_TEXT_MARKS = re.compile(
    r"\A\s*(?:<s>(?!.*</s>)|<bos>|<\|begin_of_text\|>)"
    r"|\A(?!.*<s>).*(</s>)\s*\Z|(?:<eos>|<\|end\w*text\|>)\s*\Z",
    re.DOTALL,
)
"""Marks with which templates begin or end a whole text."""
_CONVERSATIONS = ("messages", "conversations", "conversation")
_PROMPTS = ("prompt", *_CONVERSATIONS)
_QUESTIONS = ("prompt", "instruction", "question", "input")
_ANSWERS = ("output", "response", "answer")
_PLACEHOLDER = re.compile(r"<image>\n?")


class Conversation(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation to learn from."""

    messages: list[Message]
    tools: list[ToolSpec] = []
    first: int = 0
    """The index from which the assistant's turns are learned; those before are given."""
    given: tuple[int, ...] = ()
    """Places of turns behind `first` that the data set marks as not to be learned."""

    def learns(self, place: int) -> bool:
        """Whether a message is a turn that is learned."""
        is_turn = self.messages[place].role is Role.ASSISTANT
        return is_turn and place >= self.first and place not in self.given

    @property
    def prompt(self) -> list[Message]:
        """The messages before the first turn that is learned."""
        places = range(len(self.messages))
        return self.messages[: next(place for place in places if self.learns(place))]


class ConversationReader:
    """Reads rows of a data set.

    Args:
        folder: the folder that paths of images are relative to.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self, row: Mapping[str, Any]) -> Conversation:
        """Return the conversation of a row.

        Raises:
            UnusableRow: the row has none, or one that nothing can be learned from.
        """
        tools = tools_of(row.get("tools"))
        learned = next((row[key] for key in _CONVERSATIONS if row.get(key) is not None), None)
        first = 0
        if learned is not None:
            messages = self.messages(learned, row)
        elif "completion" in row:
            asked, learned = self.prompt(row), row["completion"]
            messages, first = [*asked, *self.answer(learned, row)], len(asked)
        else:
            messages = _question_and_answer(row)
        said = with_system(messages, row)
        first += len(said) - len(messages)
        given = untrained(learned, first)
        # What stands behind the last turn of the assistant is answered by nobody.
        while said and said[-1].role is not Role.ASSISTANT:
            said.pop()
        conversation = Conversation(messages=said, tools=tools, first=first, given=given)
        refuse_unlearnable(conversation)
        return conversation

    def prompt(self, row: Mapping[str, Any]) -> list[Message]:
        """Return the prompt of a row: messages, or a text in one of several columns; [] without."""
        listed = next((row[key] for key in _PROMPTS if isinstance(row.get(key), list)), None)
        if isinstance(row.get("prompt"), str) and row["prompt"]:
            listed = None  # data sets of pairs may repeat what was chosen under messages
        return self.messages(asked_in(row) if listed is None else listed, row)

    def messages(self, value: object, row: Mapping[str, Any]) -> list[Message]:
        """Return a text as a user's message, or a list of rows as messages."""
        if isinstance(value, str):
            return [_said(Role.USER, value)] if value else []
        if isinstance(value, bytes) or not isinstance(value, Sequence):
            raise UnusableRow(f"without messages: a {type(value).__name__} in their place")
        given = row.get("images")
        if not isinstance(given, Sequence) or isinstance(given, str | bytes):
            given = []
        images = iter([self.image(image) for image in given])
        messages = [self._message(part, images) for part in value]
        if next(images, None) is not None:
            raise UnusableRow("with images that no message shows")
        return messages

    def answer(self, value: object, row: Mapping[str, Any]) -> list[Message]:
        """Return a text as the assistant's message, or a list of rows as messages."""
        if isinstance(value, str):
            return [_said(Role.ASSISTANT, value)]
        return self.messages(value, {key: row[key] for key in row if key != "images"})

    def _message(self, row: object, images: Iterator[ImagePart]) -> Message:
        if not isinstance(row, Mapping):
            raise UnusableRow(f"with a message that is a {type(row).__name__}")
        named = row.get("role", row.get("from"))
        role = ROLES.get(str(named))
        if named is None:
            raise UnusableRow(
                f"with a message without a role: its fields are {', '.join(map(str, row))}; say "
                "what they are, such as --fields role=NAME content=NAME"
            )
        if role is None:
            raise UnusableRow(
                f"with an unknown role: {named!r}; say which it is, such as --fields "
                f"assistant={named}"
            )
        content = self._content(row.get("content", row.get("value")), images)
        calls = [_call(call) for call in _listed_calls(row.get("tool_calls"))]
        if str(named) == "function_call":
            # The role function_call of sharegpt writes its calls as JSON.
            try:
                decoded = decoder.decode(content) if isinstance(content, str) else None
            except (ValueError, RecursionError):
                decoded = None
            rows = decoded if isinstance(decoded, list) else [decoded]
            if not all(isinstance(row, dict) for row in rows):
                raise UnusableRow("with a call that cannot be read: it is not JSON")
            calls, content = [_call(row) for row in rows], ""
        message = Message(
            role=role,
            content=content,
            tool_calls=calls if role is Role.ASSISTANT else [],
            tool_call_id=_id(row.get("tool_call_id")) if role is Role.TOOL else "",
            name=_id(row.get("name")) if role is Role.TOOL else "",
            reasoning=_thought(row),
        )
        return apart(message) if role is Role.ASSISTANT and not message.reasoning else message

    def _content(self, value: object, images: Iterator[ImagePart]) -> str | list[Part]:
        if value is None:
            return ""
        if isinstance(value, str):
            return _shown(value, images) if "<image>" in value else value
        if not isinstance(value, Sequence):
            raise UnusableRow(f"with content that is a {type(value).__name__}")
        parts: list[Part] = []
        for part in value:
            if isinstance(part, Mapping) and isinstance(part.get("text"), str):
                parts.append(TextPart(part["text"]))
            elif isinstance(part, Mapping) and part.get("type") in ("image", "image_url"):
                given = part.get("image", part.get("image_url", part.get("path")))
                parts.append(_next(images) if given is None else self.image(given))
            else:
                raise UnusableRow("with a part of a message that is neither text nor an image")
        if any(isinstance(part, ImagePart) for part in parts):
            return parts
        return "".join(part.text for part in parts if isinstance(part, TextPart))

    def image(self, given: object) -> ImagePart:
        """Return an image from a path, a `data:` URL, or what a data set holds of a file."""
        if isinstance(given, Mapping):
            given = given.get("bytes") or given.get("url") or given.get("path")
        if isinstance(given, bytes):
            return ImagePart(data=given)
        if not isinstance(given, str) or not given:
            raise UnusableRow("with images that are gone: neither bytes nor a path")
        if given.startswith("data:"):
            try:
                return ImagePart(data=base64.b64decode(given.partition(",")[2], validate=True))
            except ValueError:  # not base64, or not even ASCII
                raise UnusableRow("with images that are gone: a data: URL is not base64") from None
        if "://" in given:
            raise UnusableRow(f"with images at an address: nothing is fetched from {given[:40]!r}")
        path = self.folder / given
        try:
            if path.exists() and not path.is_file():
                raise ValueError("it is no file")  # a pipe or a device would have no end
            return ImagePart(data=path.read_bytes())
        except (OSError, ValueError) as error:  # also a path with a null byte
            reason = error.strerror if isinstance(error, OSError) else error
            raise UnusableRow(f"with images that are gone: {given!r}, {reason}") from None


def refuse_unlearnable(conversation: Conversation) -> None:
    """Refuse a conversation that teaches nothing in its present form.

    Raises:
        UnusableRow: with the reason.
    """
    messages = conversation.messages
    if not any(map(conversation.learns, range(len(messages)))):
        raise UnusableRow("without a turn of the assistant to learn")
    for place, message in enumerate(messages):
        before = messages[place - 1] if place else None
        if message.role is Role.ASSISTANT:
            if before is not None and before.role is Role.ASSISTANT:
                raise UnusableRow("with two turns of the assistant in a row")
            if not message.text.strip() and not message.tool_calls:
                raise UnusableRow("with an empty turn of the assistant")
            _refuse_marks(_TURN_MARKS.search(message.written))
            _refuse_marks(_TEXT_MARKS.search(message.written))
            if faults := [call.error for call in message.tool_calls if call.error]:
                raise UnusableRow(f"with a call that cannot be read: {faults[0]}")
            if message.tool_calls and place + 1 < len(messages):
                _refuse_unpaired(message, messages[place + 1 :])
        elif message.role is Role.TOOL and (
            before is None or (before.role is not Role.TOOL and not before.tool_calls)
        ):
            raise UnusableRow("with a result that no call asked for")
        else:  # who asks may speak of marks, but does not begin with one
            _refuse_marks(_TURN_MARKS.match(message.text.lstrip()))
            _refuse_marks(_TEXT_MARKS.match(message.text))


def _refuse_marks(mark: re.Match[str] | None) -> None:
    if mark:
        text = next((part for part in mark.groups() if part), mark[0]).strip()
        raise UnusableRow(f"already written in a chat template: {text!r}")


def _refuse_unpaired(message: Message, after: Sequence[Message]) -> None:
    """Refuse calls without results, and results without calls."""
    calls = message.tool_calls
    results = list(takewhile(lambda each: each.role is Role.TOOL, after))
    if len(results) > len(calls):
        raise UnusableRow("with a result that no call asked for")
    named = {call.id for call in calls if call.id}
    answered = {each.tool_call_id for each in results if each.tool_call_id}
    if len(results) < len(calls) or (named and answered and named != answered):
        name = calls[len(results) - len(calls)].name
        raise UnusableRow(f"with a call without a result: {name!r}")


def _question_and_answer(row: Mapping[str, Any]) -> list[Message]:
    """Return what alpaca and its relatives have in columns."""
    asked = asked_in(row)
    answer = next((row[key] for key in _ANSWERS if isinstance(row.get(key), str)), None)
    if asked and answer is not None:
        return [_said(Role.USER, asked), _said(Role.ASSISTANT, answer)]
    columns = ", ".join(map(str, row))
    if any(key in row for key in ("text", "segments")):
        raise UnusableRow(
            f"of plain text: a policy learns turns; its columns are {columns}. Write prompt and "
            "completion, or messages"
        )
    if any(row.get(key) for key in _PROMPTS):
        raise UnusableRow(f"without an answer to learn: its columns are {columns}")
    raise UnusableRow(
        f"without a conversation: its columns are {columns}. Say what they are, such as --fields "
        "messages=NAME, or prompt=NAME completion=NAME"
    )


def asked_in(row: Mapping[str, Any]) -> str:
    """Return the question that a row has in columns of text, with its further input.

    Raises:
        UnusableRow: the further input is no text.
    """
    asked = next((key for key in _QUESTIONS if isinstance(row.get(key), str) and row[key]), "")
    further = ("input", "context") if asked in ("instruction", "question") else ()
    more = {key: row[key] for key in further if not _is_gap(row.get(key)) and row[key]}
    for key, value in more.items():
        if not isinstance(value, str | int | float):
            raise UnusableRow(
                f"with further input that is no text: {key} is a {type(value).__name__}; write the "
                "text that the model is to read into it"
            )
    return "\n\n".join(map(str, [row[asked], *more.values()])) if asked else ""


def with_system(messages: Sequence[Message], row: Mapping[str, Any]) -> list[Message]:
    """Return messages behind the system prompt that a row has in a column of its own."""
    said = next((row[key] for key in ("system", "system_prompt") if row.get(key)), None)
    if _is_gap(said) or (messages and messages[0].role is Role.SYSTEM):
        return list(messages)
    if not isinstance(said, str):
        raise UnusableRow(f"with a system prompt that is a {type(said).__name__}, not a text")
    return [Message(role=Role.SYSTEM, content=said), *messages]


def untrained(rows: object, offset: int) -> tuple[int, ...]:
    """Return the places of the turns that are not to be learned: `weight` 0 (OpenAI), `train` or
    `training` false (axolotl).

    Raises:
        UnusableRow: a weight that is neither 0 nor 1, or parts of a turn are marked.
    """
    places: list[int] = []
    for place, row in enumerate(rows if isinstance(rows, Sequence) else ()):
        if not isinstance(row, Mapping):
            continue
        fields = ("train", "training", "weight")
        marks = [row[key] for key in fields if not _is_gap(row.get(key))]
        if any(mark not in (0, 1) for mark in marks):
            raise UnusableRow(f"with a weight of a turn that is neither 0 nor 1: {marks[0]!r}")
        if row.get("train_detail") or row.get("training_detail"):
            raise UnusableRow("with parts of a turn marked for training: whole turns are learned")
        if not all(marks):
            places.append(place + offset)
    return tuple(places)


def tools_of(value: object) -> list[ToolSpec]:
    """Return the tools of a row: a list in OpenAI's form, or its JSON.

    Raises:
        UnusableRow: something else.
    """
    if isinstance(value, str):
        try:
            value = decoder.decode(value) if value.strip() else []
        except (ValueError, RecursionError):
            raise UnusableRow("with tools that are not JSON") from None
    if _is_gap(value) or not value:
        return []
    if not isinstance(value, Sequence):
        raise UnusableRow(f"with tools that are a {type(value).__name__}, not a list")
    specs: list[ToolSpec] = []
    for tool in value:
        function = tool.get("function", tool) if isinstance(tool, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            raise UnusableRow("with a tool that has no name")
        schema = function.get("parameters") or {"type": "object", "properties": {}}
        if not isinstance(schema, Mapping):
            raise UnusableRow("with a tool whose schema is no object")
        about = str(function.get("description") or "")
        try:
            parameters = _without_null(schema)
        except RecursionError:
            raise UnusableRow("with a tool whose schema is nested too deeply") from None
        specs.append(ToolSpec(name=function["name"], description=about, parameters=parameters))
    return specs


def _without_null(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema without the empty columns that tables add to every row."""
    return {
        key: _without_null(value) if isinstance(value, Mapping) else value
        for key, value in schema.items()
        if value is not None
    }


def _said(role: Role, text: str) -> Message:
    message = Message(role=role, content=text)
    return apart(message) if role is Role.ASSISTANT else message


def _shown(text: str, images: Iterator[ImagePart]) -> list[Part]:
    """Return the parts of a text that contains `<image>`."""
    parts: list[Part] = []
    for place, said in enumerate(_PLACEHOLDER.split(text)):
        parts += [*([_next(images)] if place else []), *([TextPart(said)] if said else [])]
    return parts


def _next(images: Iterator[ImagePart]) -> ImagePart:
    image = next(images, None)
    if image is None:
        raise UnusableRow("with images that are gone: a message shows more than it has")
    return image


def _listed_calls(value: object) -> Sequence[object]:
    if _is_gap(value):
        return ()
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        raise UnusableRow(f"with tool_calls that are a {type(value).__name__}, not a list")
    return value


def _call(row: object) -> ToolCall:
    function = row.get("function", row) if isinstance(row, Mapping) else {}
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise UnusableRow("with a call that cannot be read: it has no name")
    arguments = function.get("arguments")
    if isinstance(arguments, Mapping):
        arguments = {key: value for key, value in arguments.items() if value is not None}
    read, fault = read_arguments(arguments)
    identity = _id(row.get("id")) if isinstance(row, Mapping) else ""
    return ToolCall(name=function["name"], arguments=read, id=identity, error=fault)


def _id(value: object) -> str:
    return "" if _is_gap(value) else str(value)


def _thought(row: Mapping[str, Any]) -> str:
    """Return what a message was thought before it was said."""
    fields = ("reasoning_content", "thinking")
    thought = next((row[key] for key in fields if not _is_gap(row.get(key)) and row[key]), "")
    if not isinstance(thought, str):
        raise UnusableRow(f"with reasoning that is a {type(thought).__name__}, not a text")
    return thought


def _is_gap(value: object) -> bool:
    """Whether a cell of a table holds nothing: a gap may be written as NaN."""
    return value is None or value == "" or value != value
