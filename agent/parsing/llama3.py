"""The two formats of Llama 3: an object as the whole turn, and a list of Python calls.

    <|python_tag|>{"name": "f", "parameters": {"a": 1}}; {"name": "g", "parameters": {}}
    [f(a=1), g()]

Both are read only where the turn begins with one: prose that holds braces or brackets is prose.
Python is parsed, never run: arguments must be literals.
"""

from __future__ import annotations

import ast
import math
import re
import warnings
from collections.abc import Sequence
from typing import Any

from ludus.envs import ToolSpec
from ludus.messages import Message, Role, ToolCall

from .json_calls import CUT, after_space, as_call, as_json, decoder, is_unicode
from .thoughts import end_of_thoughts

PYTHON_TAG = "<|python_tag|>"
MAX_PYTHON_CHARS = 1 << 17
"""Longer lists of calls are refused unread: Python's parser needs far more memory than the text."""


class Llama3JsonFormat:
    """A JSON object, or several with `;` between them."""

    name = "llama3_json"

    def parse(self, text: str, *, complete: bool = True, tools: Sequence[ToolSpec] = ()) -> Message:
        """Read an assistant turn; see `ToolFormat.parse`."""
        start = after_space(text, end_of_thoughts(text))
        spoken = text[:start].strip()
        tagged = text.startswith(PYTHON_TAG, start)
        start += len(PYTHON_TAG) if tagged else 0
        calls = _read_objects(text, start, complete)
        meant = tagged or (bool(calls) and (bool(calls[0].name) or _begins_call(text, start)))
        if not meant:
            return Message(role=Role.ASSISTANT, content=text)
        if not calls:
            calls = [ToolCall(name="", id="call_0", error="no JSON object after the tag")]
        return Message(role=Role.ASSISTANT, content=spoken, tool_calls=calls)

    def render(self, calls: Sequence[ToolCall]) -> str:
        """Write calls as the model would."""
        return "; ".join(as_json(call, "parameters") for call in calls)


def _begins_call(text: str, start: int) -> bool:
    """Whether an object that could not be read was going to be a call."""
    return re.compile(r'\s*\{\s*"name"\s*:').match(text, start) is not None


def _read_objects(text: str, start: int, complete: bool) -> list[ToolCall]:
    calls: list[ToolCall] = []
    position = after_space(text, start)
    while text.startswith("{", position):
        identity = f"call_{len(calls)}"
        try:
            decoded, end = decoder.raw_decode(text, position)
        except (ValueError, RecursionError) as error:
            reason = f"not valid JSON: {error}" if complete else CUT
            return [*calls, ToolCall(name="", id=identity, error=reason)]
        calls.append(as_call(decoded, identity))
        position = after_space(text, end)
        if text.startswith(";", position):
            position = after_space(text, position + 1)
    if calls and text[position:].strip():
        reason = f"text after the call's JSON: {text[position : position + 40]!r}"
        calls[-1] = ToolCall(name="", id=calls[-1].id, error=reason)
    return calls


class Llama3PythonicFormat:
    """A Python list of calls with keyword arguments."""

    name = "llama3_pythonic"

    def parse(self, text: str, *, complete: bool = True, tools: Sequence[ToolSpec] = ()) -> Message:
        """Read an assistant turn; see `ToolFormat.parse`."""
        cut = end_of_thoughts(text)
        body = text[cut:].replace(PYTHON_TAG, "").strip()
        if re.match(r"\[\s*[A-Za-z_][\w.]*\s*\(", body) is None:
            return Message(role=Role.ASSISTANT, content=text)
        spoken = text[:cut].strip()
        try:
            calls = _read_list(body)
        except _Unreadable as error:
            reason = CUT if not complete and not body.endswith("]") else str(error)
            calls = [ToolCall(name="", id="call_0", error=reason)]
        return Message(role=Role.ASSISTANT, content=spoken, tool_calls=calls)

    def render(self, calls: Sequence[ToolCall]) -> str:
        """Write calls as the model would."""
        return f"[{', '.join(map(_as_python, calls))}]" if calls else ""


def _as_python(call: ToolCall) -> str:
    arguments = ", ".join(f"{name}={value!r}" for name, value in call.arguments.items())
    return f"{call.name}({arguments})"


class _Unreadable(Exception):
    """Why a list of calls cannot be read."""


def _read_list(body: str) -> list[ToolCall]:
    if len(body) > MAX_PYTHON_CHARS:
        raise _Unreadable(f"{len(body)} characters; at most {MAX_PYTHON_CHARS} are read")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # escapes Python does not know
            tree = ast.parse(body, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise _Unreadable(f"not a Python list of calls: {error}") from None
    if not isinstance(tree, ast.List):
        raise _Unreadable("not a Python list of calls")
    return [_read_call(node, f"call_{index}") for index, node in enumerate(tree.elts)]


def _read_call(node: ast.expr, identity: str) -> ToolCall:
    """One call; what is wrong with it is in `error`, the others are read all the same."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name | ast.Attribute):
        return ToolCall(name="", id=identity, error="an element of the list is not a call")
    name = ast.unparse(node.func)
    if node.args or any(keyword.arg is None for keyword in node.keywords):
        return ToolCall(name=name, id=identity, error="name each argument: f(a=1)")
    try:
        arguments = {str(keyword.arg): _literal(keyword.value) for keyword in node.keywords}
    except (_Unreadable, RecursionError) as error:
        return ToolCall(name=name, id=identity, error=str(error))
    if not is_unicode(arguments):
        return ToolCall(name=name, id=identity, error="half of a surrogate pair is not text")
    return ToolCall(name=name, arguments=arguments, id=identity)


_NAMES = {"true": True, "false": False, "null": None}


def _literal(node: ast.expr) -> Any:
    """The value of a literal that JSON can carry."""
    match node:
        case ast.Constant(value=None | bool() | str() as value):
            return value
        case ast.Constant(value=int() as number) if -(1 << 63) <= number < 1 << 64:
            return number
        case ast.Constant(value=float() as number) if math.isfinite(number):
            return number
        case ast.Name(id=name) if name in _NAMES:
            return _NAMES[name]
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
            return _literal(ast.Constant(-number))
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            return [_literal(element) for element in elements]
        case ast.Dict(keys=keys, values=values):
            return {_key(key): _literal(value) for key, value in zip(keys, values, strict=True)}
        case _:
            raise _Unreadable(f"an argument must be a literal, got {type(node).__name__}")


def _key(node: ast.expr | None) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    raise _Unreadable("the keys of a dict must be strings")
