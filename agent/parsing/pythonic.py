"""The list of Python calls of Llama 3.2 and later.

    [f(a=1), g()]

A list is read only if the turn, or the text after the tag of Llama 4, begins with one; calls of
tools on offer are also read without the brackets. Python is parsed, never run: arguments must be
literals. Names that Python would not accept, such as `get-weather` or the argument `from`, are
read all the same, because tools have such names.
"""

from __future__ import annotations

import ast
import keyword
import re
from collections import Counter
from collections.abc import Mapping, Sequence

from ludus.envs import ToolSpec
from ludus.messages import Message, Role, ToolCall

from .json_calls import CUT, fault_of
from .literals import MAX_PYTHON_CHARS, UnreadableLiteral, expression, literal
from .scan import MAX_CALLS
from .whole_turn import TAG, Body, after_thoughts, announced, body_of


class Llama3PythonicFormat:
    """A Python list of calls with keyword arguments."""

    name = "llama3_pythonic"

    def parse(self, text: str, *, complete: bool = True, tools: Sequence[ToolSpec] = ()) -> Message:
        """Read an assistant turn; see `ToolFormat.parse`."""
        cut, body = _find(text, after_thoughts(text, _is_list), tools)
        if not _begins_list(body, tools):
            return Message(role=Role.ASSISTANT, content=text)
        try:
            calls = _read_list(body.text)
        except UnreadableLiteral as error:
            calls = [ToolCall(name="", id="call_0", error=str(error))]
        if not complete:  # the turn was cut, so the last call may be unfinished
            calls[-1] = ToolCall(name="", id=calls[-1].id, error=CUT)
        return Message(role=Role.ASSISTANT, content=text[:cut].strip(), tool_calls=calls)

    def render(self, calls: Sequence[ToolCall], *, tools: Sequence[ToolSpec] = ()) -> str:
        """Write calls as the model would."""
        return f"[{', '.join(map(_as_python, calls))}]" if calls else ""


def _as_python(call: ToolCall) -> str:
    arguments = ", ".join(f"{name}={value!r}" for name, value in call.arguments.items())
    return f"{call.name}({arguments})"


_FIRST_CALL = re.compile(r"(\[\s*)?([A-Za-z_][\w.-]*)\s*\(")
_NAMED_OR_NONE = re.compile(r"\s*(?:\)\s*[\],]|[\w$@.-]++\s*=)")
"""What may follow the parenthesis in a list of calls: its end, or a named argument."""
_ANNOUNCED = re.compile(rf"{TAG}\s*{_FIRST_CALL.pattern}")


def _find(text: str, start: int, tools: Sequence[ToolSpec]) -> tuple[int, Body]:
    """Return the position from `start` on where the list begins, and the body.

    If no list begins at `start`, the position is that of a tag which announces calls later.
    """
    body = body_of(text[start:])
    if _begins_list(body, tools):
        return start, body
    at = announced(text, start, _ANNOUNCED)
    return at, body_of(text[at:])


def _begins_list(body: Body, tools: Sequence[ToolSpec]) -> bool:
    """Return whether a turn is meant as a list of calls.

    Code may begin in the same way, and so may prose: with `[Smith (2020)]`, or with `search (the
    tool)` where the brackets are left out.
    """
    first = _FIRST_CALL.match(body.text)
    if first is None:
        return False
    offered = any(first[2] == tool.name for tool in tools)
    if first[1] is None:
        return offered and (body.tagged or _is_list(body.text))
    if offered or body.tagged or not tools:
        return True
    return not body.fenced and _NAMED_OR_NONE.match(body.text, first.end()) is not None


def _is_list(said: str) -> bool:
    """Return whether `said` is a readable list of calls, by itself or after a tag that announces
    calls.
    """
    body = body_of(said)
    if _FIRST_CALL.match(body.text) is None:
        body = body_of(said[announced(said, 0, _ANNOUNCED) :])
    if _FIRST_CALL.match(body.text) is None:
        return False
    try:
        return not any(call.error for call in _read_list(body.text))
    except UnreadableLiteral:
        return False


def _read_list(body: str) -> list[ToolCall]:
    try:
        made, names = _plain(body if body.startswith("[") else f"[{body}\n]")
        tree = expression(made)
    except UnreadableLiteral as error:
        raise UnreadableLiteral(f"not a Python list of calls: {error}") from None
    if not isinstance(tree, ast.List):
        raise UnreadableLiteral("not a Python list of calls")
    if len(tree.elts) > MAX_CALLS:
        raise UnreadableLiteral(f"{len(tree.elts)} calls; at most {MAX_CALLS} are read")
    return [_read_call(node, f"call_{index}", names) for index, node in enumerate(tree.elts)]


_STRING_OR_NAME = re.compile(
    r"""'{3}.*?(?:'{3}|\Z)|"{3}.*?(?:"{3}|\Z)"""
    r"""|'(?:\\.|[^'\\])*+(?:'|\\?\Z)|"(?:\\.|[^"\\])*+(?:"|\\?\Z)"""
    r"""|(?<=[\[,\s])(?P<function>[A-Za-z_][\w.-]*+)(?=\s*\()"""
    r"""|(?<=[(,\s])(?P<argument>[\w$@.-]++)(?=\s*=(?!=))""",
    re.DOTALL,
)


def _plain(body: str) -> tuple[str, dict[str, str]]:
    """Return `body` with all names replaced by valid Python names, and a map back to the
    originals.
    """
    names: dict[str, str] = {}
    if len(body) > MAX_PYTHON_CHARS:  # refused unread
        return body, names
    mark = "name_"
    while mark in body:
        mark += "_"

    def put(found: re.Match[str]) -> str:
        name = found["function"] or found["argument"] or ""
        parts = found["function"].split(".") if found["function"] else [name]
        if not name or all(part.isidentifier() and not keyword.iskeyword(part) for part in parts):
            return found[0]
        made = f"{mark}{len(names)}"
        names[made] = name
        return made

    return _STRING_OR_NAME.sub(put, body), names


def _read_call(node: ast.expr, identity: str, names: Mapping[str, str]) -> ToolCall:
    """Convert a list element to a call; an unusable element carries `error`, and the other elements
    are still read.
    """
    name = _dotted(node.func) if isinstance(node, ast.Call) else ""
    if not isinstance(node, ast.Call) or not name:
        return ToolCall(name="", id=identity, error="an element of the list is not a call")
    name = names.get(name, name)
    if node.args or any(one.arg is None for one in node.keywords):
        return ToolCall(name=name, id=identity, error="name each argument: f(a=1)")
    given = [names.get(str(one.arg), str(one.arg)) for one in node.keywords]
    if twice := [key for key, times in Counter(given).items() if times > 1]:
        return ToolCall(name=name, id=identity, error=f"{twice[0][:80]} is given twice")
    try:
        values = [literal(one.value) for one in node.keywords]
    except (UnreadableLiteral, RecursionError) as error:
        return ToolCall(name=name, id=identity, error=str(error))
    arguments = dict(zip(given, values, strict=True))
    if fault := fault_of([name, arguments]):
        return ToolCall(name="", id=identity, error=fault)
    return ToolCall(name=name, arguments=arguments, id=identity)


def _dotted(node: ast.expr) -> str:
    """Return a name, in the form `a.b` for a method; "" for anything else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""
