"""The formats of Gemma: values without JSON's quotation marks between marks of their own.

    <start_function_call>call:search{query:<escape>x<escape>,count:3}<end_function_call>
    <|tool_call>call:search{query:<|"|>x<|"|>,count:3}<tool_call|>

FunctionGemma writes the first way and Gemma 4 the second. Gemma 3 has no marks for calls; its
documentation asks for a list of Python calls, or for JSON, in a `tool_code` block or without.

A string that contains the mark for strings has no form of its own. Such a string is written, and
read, as JSON; so is a key that contains what ends keys.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ludus.envs import ToolSpec
from ludus.llm.chat_wire import CUT, MAX_NESTED, decoder
from ludus.messages import ToolCall

from .arguments import UnreadableCall, after_space, read_value, schemas_of, sound, unreadable
from .llama import Llama3PythonicFormat
from .protocol import MarkedFormat

_FORM = "a call is call:name{key:value}"


class Gemma3Format(Llama3PythonicFormat):
    """A list of Python calls, as the documentation of Gemma 3 asks for."""

    name = "gemma3"


class FunctionGemmaFormat(MarkedFormat):
    """Calls of FunctionGemma."""

    name = "functiongemma"
    opening, closing, string = "<start_function_call>", "<end_function_call>", "<escape>"

    def written(self, call: ToolCall, number: int) -> str:
        """See `MarkedFormat.written`."""
        return f"{self.opening}call:{call.name}{_write(call.arguments, self.string)}{self.closing}"

    def read(
        self, text: str, start: int, identity: str, *, complete: bool, tools: Sequence[ToolSpec]
    ) -> tuple[list[ToolCall], int]:
        """See `MarkedFormat.read`."""
        name_match = _NAME.match(text, start + len(self.opening))
        position = start + len(self.opening)
        try:
            if name_match is None:
                raise UnreadableCall(_FORM, position)
            schemas = schemas_of(name_match[1], tools)
            arguments, position = _Values(text, self.string, schemas).mapping(name_match.end(), 0)
            end = after_space(text, position)
            has_another = text.startswith(self.opening, end)
            closed = text.startswith(self.closing, end)
            if not closed and not has_another and not (complete and end == len(text)):
                raise UnreadableCall(f"{self.closing} is missing", position)
        except UnreadableCall as error:
            ends = [text.find(mark, error.position) for mark in (self.closing, self.opening)]
            if max(ends) < 0:
                reason = str(error) if complete else CUT
                return [unreadable(identity, reason)], len(text)
            # Go on after the mark that closes the call, or at the next call.
            ends[0] += len(self.closing) if ends[0] >= 0 else 0
            after = min(end for end in ends if end >= 0)
            return [unreadable(identity, str(error))], after
        after = end + len(self.closing) if closed else end
        return [sound(name_match[1], arguments, identity)], after


class Gemma4Format(FunctionGemmaFormat):
    """Calls of Gemma 4."""

    name = "gemma4"
    opening, closing, string = "<|tool_call>", "<tool_call|>", '<|"|>'


_NAME = re.compile(r"\s*call:\s*([^\s{}<>:]{1,256})\s*(?=\{)")
_KEY = re.compile(r"\s*([^\s\"'{}\[\],:<>][^\"'{}\[\],:<>]{0,255}?)\s*:")
_BARE = re.compile(r"[^,{}\[\]<>\"]{1,4096}")
_PLAIN_KEY = re.compile(r"[^\s\"'{}\[\],:<>](?:[^\"'{}\[\],:<>]{0,254}[^\s\"'{}\[\],:<>])?")


def _write(value: Any, mark: str) -> str:
    """Return a value in the model's own notation."""
    if isinstance(value, str):
        return json.dumps(value) if mark in value else f"{mark}{value}{mark}"
    if isinstance(value, Mapping):
        mapping: Mapping[str, Any] = value
        keys = sorted(mapping, key=str.lower)  # as the templates do
        return "{" + ",".join(f"{_key(key)}:{_write(mapping[key], mark)}" for key in keys) + "}"
    if isinstance(value, list):
        return "[" + ",".join(_write(item, mark) for item in value) + "]"
    return json.dumps(value)


def _key(key: str) -> str:
    return key if _PLAIN_KEY.fullmatch(key) else json.dumps(key)


class _Values:
    """Reads values from a text.

    Args:
        text: the model's text.
        mark: what stands before and after a string.
        schemas: the JSON types of the tool's parameters.
    """

    def __init__(self, text: str, mark: str, schemas: Mapping[str, set[str]]) -> None:
        self.text, self.mark, self.schemas = text, mark, schemas

    def mapping(self, start: int, depth: int) -> tuple[dict[str, Any], int]:
        """Return the mapping whose brace stands at `start`, and the position after its end."""
        mapping: dict[str, Any] = {}
        position = after_space(self.text, start + 1)
        while not self.text.startswith("}", position):
            key, position = self._key(position)
            if key in mapping:
                raise UnreadableCall(f"{key[:80]} is given twice", position)
            types = self.schemas.get(key, set()) if not depth else set[str]()
            mapping[key], position = self._value(position, depth, types)
            position = self._past_comma(position, "}")
        return mapping, position + 1

    def _list(self, start: int, depth: int) -> tuple[list[Any], int]:
        items: list[Any] = []
        position = after_space(self.text, start + 1)
        while not self.text.startswith("]", position):
            value, position = self._value(position, depth, set())
            items.append(value)
            position = self._past_comma(position, "]")
        return items, position + 1

    def _past_comma(self, position: int, end: str) -> int:
        """Return the position of the next element, or of `end`."""
        position = after_space(self.text, position)
        if self.text.startswith(",", position):
            return after_space(self.text, position + 1)
        if not self.text.startswith(end, position):
            raise UnreadableCall(f"{end!r} or a comma is missing", position)
        return position

    def _key(self, position: int) -> tuple[str, int]:
        """Return a key, and the position of its value."""
        key_match = _KEY.match(self.text, position)
        if key_match is not None:
            return key_match[1], after_space(self.text, key_match.end())
        key, position = self._string(position)
        position = after_space(self.text, position)
        if not self.text.startswith(":", position):
            raise UnreadableCall(f"a colon is missing after {key[:80]!r}", position)
        return key, after_space(self.text, position + 1)

    def _string(self, position: int) -> tuple[str, int]:
        """Return the string at `position`, between marks or as JSON, and where the string ends."""
        if self.text.startswith(self.mark, position):
            text_start = position + len(self.mark)
            end = self.text.find(self.mark, text_start)
            if end < 0:
                raise UnreadableCall("a string is not closed", position)
            return self.text[text_start:end], end + len(self.mark)
        if self.text.startswith('"', position):
            try:
                decoded, end = decoder.raw_decode(self.text, position)
            except (ValueError, RecursionError) as error:
                raise UnreadableCall(f"not a string: {error}", position) from None
            return str(decoded), end
        raise UnreadableCall(_FORM, position)

    def _value(self, position: int, depth: int, types: set[str]) -> tuple[Any, int]:
        if depth > MAX_NESTED:
            raise UnreadableCall(f"values are nested more than {MAX_NESTED} deep", position)
        if self.text.startswith("{", position):
            return self.mapping(position, depth + 1)
        if self.text.startswith("[", position):
            return self._list(position, depth + 1)
        if self.text.startswith((self.mark, '"'), position):
            return self._string(position)
        value_match = _BARE.match(self.text, position)
        if value_match is None:
            raise UnreadableCall("a value is missing", position)
        try:
            return read_value(value_match[0].strip(), types), value_match.end()
        except (ValueError, RecursionError) as error:
            raise UnreadableCall(f"not a value: {error}", position) from None
