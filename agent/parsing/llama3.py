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
from collections.abc import Callable, Sequence
from typing import Any

from ludus.envs import ToolSpec
from ludus.messages import Message, Role, ToolCall

from .json_calls import CUT, after_space, as_call, as_json, decoder, fault_of
from .scan import MOST_CALLS, bounded
from .thoughts import CLOSE, OPEN, end_of_thoughts

PYTHON_TAG = "<|python_tag|>"
MAX_PYTHON_CHARS = 1 << 17
"""Longer lists of calls are refused unread: Python's parser needs far more memory than the text."""


class Llama3JsonFormat:
    """A JSON object, or several: in a list, or with `;` between them."""

    name = "llama3_json"

    def parse(self, text: str, *, complete: bool = True, tools: Sequence[ToolSpec] = ()) -> Message:
        """Read an assistant turn; see `ToolFormat.parse`."""
        cut = after_thoughts(text, lambda said: _all_whole(_calls_of(said)))
        calls = _calls_of(text[cut:])
        if calls is None:
            return Message(role=Role.ASSISTANT, content=text)
        if not complete:  # nothing says that it was not to go on
            calls[-1] = ToolCall(name="", id=calls[-1].id, error=CUT)
        return Message(role=Role.ASSISTANT, content=text[:cut].strip(), tool_calls=calls)

    def render(self, calls: Sequence[ToolCall]) -> str:
        """Write calls as the model would."""
        return "; ".join(as_json(call, "parameters") for call in calls)


def _all_whole(calls: Sequence[ToolCall] | None) -> bool:
    return calls is not None and not any(call.error for call in calls)


def after_thoughts(text: str, is_call: Callable[[str], bool]) -> int:
    """Where the turn begins that follows the thoughts. A turn that is a call as it stands has none:
    tags in it are part of its arguments.
    """
    begun = text.lstrip().startswith(OPEN)
    return 0 if CLOSE not in text or (not begun and is_call(text)) else end_of_thoughts(text)


def _calls_of(said: str) -> list[ToolCall] | None:
    """The calls a turn consists of; None if it is text."""
    start = after_space(said, 0)
    tagged = said.startswith(PYTHON_TAG, start)
    start += len(PYTHON_TAG) if tagged else 0
    calls = _read_objects(without_ends(said), start)
    if tagged and not calls:
        return [ToolCall(name="", id="call_0", error="no JSON object after the tag")]
    meant = tagged or (bool(calls) and (bool(calls[0].name) or _begins_call(said, start)))
    return calls if meant else None


_BEGINNING = re.compile(r'\s*(?:\[\s*)?\{\s*"name"\s*:')


def _begins_call(text: str, start: int) -> bool:
    """Whether an object that could not be read was going to be a call."""
    return _BEGINNING.match(text, start) is not None


_ENDS = ("<|eom_id|>", "<|eot_id|>", "<|end_of_text|>")


def without_ends(text: str) -> str:
    """`text` without the marks that end a turn and the space around them."""
    end = _before_space(text, len(text))
    while mark := next((one for one in _ENDS if text.endswith(one, 0, end)), ""):
        end = _before_space(text, end - len(mark))
    return text[:end]


def _before_space(text: str, end: int) -> int:
    while end and text[end - 1].isspace():
        end -= 1
    return end


def _read_objects(text: str, start: int) -> list[ToolCall]:
    calls: list[ToolCall] = []
    position = after_space(text, start)
    while text.startswith(("{", "["), position) and len(calls) < MOST_CALLS:
        try:
            decoded, end = decoder.raw_decode(text, position)
        except (ValueError, RecursionError) as error:
            reason = f"not valid JSON: {error}"
            return [*calls, ToolCall(name="", id=f"call_{len(calls)}", error=reason)]
        for one in decoded if isinstance(decoded, list) else [decoded]:
            calls.append(as_call(one, f"call_{len(calls)}"))
        position = after_space(text, end)
        if text.startswith((";", ","), position):
            position = after_space(text, position + 1)
    if calls and text[position:].strip():
        reason = f"text after the call's JSON: {text[position : position + 40]!r}"
        calls[-1] = ToolCall(name="", id=calls[-1].id, error=reason)
    return bounded(calls)


class Llama3PythonicFormat:
    """A Python list of calls with keyword arguments."""

    name = "llama3_pythonic"

    def parse(self, text: str, *, complete: bool = True, tools: Sequence[ToolSpec] = ()) -> Message:
        """Read an assistant turn; see `ToolFormat.parse`."""
        cut = after_thoughts(text, _is_list)
        body = _body(text[cut:])
        if _FIRST_CALL.match(body) is None:
            return Message(role=Role.ASSISTANT, content=text)
        try:
            calls = _read_list(body)
        except _Unreadable as error:
            calls = [ToolCall(name="", id="call_0", error=str(error))]
        if not complete:  # nothing says that it was not to go on
            calls[-1] = ToolCall(name="", id=calls[-1].id, error=CUT)
        return Message(role=Role.ASSISTANT, content=text[:cut].strip(), tool_calls=calls)

    def render(self, calls: Sequence[ToolCall]) -> str:
        """Write calls as the model would."""
        return f"[{', '.join(map(_as_python, calls))}]" if calls else ""


def _as_python(call: ToolCall) -> str:
    arguments = ", ".join(f"{name}={value!r}" for name, value in call.arguments.items())
    return f"{call.name}({arguments})"


_FIRST_CALL = re.compile(r"\[\s*[A-Za-z_][\w.]*\s*\(")


def _body(said: str) -> str:
    return without_ends(said).strip().removeprefix(PYTHON_TAG).strip()


def _is_list(said: str) -> bool:
    """Whether `said` is a list of calls as it stands."""
    body = _body(said)
    if _FIRST_CALL.match(body) is None:
        return False
    try:
        return not any(call.error for call in _read_list(body))
    except _Unreadable:
        return False


class _Unreadable(Exception):
    """Why a list of calls cannot be read."""


def _read_list(body: str) -> list[ToolCall]:
    if len(body) > MAX_PYTHON_CHARS:
        raise _Unreadable(f"{len(body)} characters; at most {MAX_PYTHON_CHARS} are read")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # escapes Python does not know
            tree = ast.parse(body, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError, SystemError) as error:
        raise _Unreadable(f"not a Python list of calls: {error}") from None
    if not isinstance(tree, ast.List):
        raise _Unreadable("not a Python list of calls")
    if len(tree.elts) > MOST_CALLS:
        raise _Unreadable(f"{len(tree.elts)} calls; at most {MOST_CALLS} are read")
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
    if fault := fault_of([name, arguments]):
        return ToolCall(name="", id=identity, error=fault)
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
