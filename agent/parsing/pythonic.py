"""The tool-call format of Llama 3.2 and later: a list of calls in Python syntax.

    [f(a=1), g()]

Calls are read if the turn begins with the list, after any thoughts, or if a tag of the model (such
as `<|python_start|>`) announces the list later. Calls of tools on offer are also read without the
brackets. The Python is parsed and never run, so arguments must be literals. Names that Python would
not accept, such as `get-weather` or the argument `from`, are read all the same, because tools have
such names.
"""

from __future__ import annotations

import ast
import keyword
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress

from ludus.envs import ToolSpec
from ludus.messages import Message, Role, ToolCall

from .json_calls import CUT, fault_of
from .literals import MAX_PYTHON_CHARS, UnreadableLiteral, expression, literal
from .made_up import own_beginnings
from .scan import MAX_CALLS
from .whole_turn import TAG, Body, after_thoughts, announced, body_of, without_ends


class Llama3PythonicFormat:
    """A Python list of calls with keyword arguments."""

    name = "llama3_pythonic"

    def parse(self, text: str, *, complete: bool = True, tools: Sequence[ToolSpec] = ()) -> Message:
        """Read an assistant turn; see `ToolFormat.parse`."""
        calls_start = after_thoughts(text, _is_list)
        body = body_of(text[calls_start:])
        if not _begins_list(body, tools):  # perhaps a tag announces the list later
            calls_start = announced(text, calls_start, _ANNOUNCED)
            body = body_of(text[calls_start:])
        if not _begins_list(body, tools):
            return Message(role=Role.ASSISTANT, content=text)
        try:
            calls = _read_list(body.text)
        except UnreadableLiteral as error:
            calls = [ToolCall(name="", id="call_0", error=str(error))]
            # Perhaps somebody else's words, which the policy made up, begin after the list.
            for head in own_beginnings(body.text):
                with suppress(UnreadableLiteral):
                    calls = _read_list(without_ends(head))
                    break
        if not complete:  # the turn was cut off, so the last call may be unfinished
            calls[-1] = ToolCall(name="", id=calls[-1].id, error=CUT)
        return Message(role=Role.ASSISTANT, content=text[:calls_start].strip(), tool_calls=calls)

    def render(self, calls: Sequence[ToolCall], *, tools: Sequence[ToolSpec] = ()) -> str:
        """Write calls as the model would; "" for no calls."""
        if not calls:
            return ""
        written: list[str] = []
        for call in calls:
            arguments = ", ".join(f"{name}={value!r}" for name, value in call.arguments.items())
            written.append(f"{call.name}({arguments})")
        return f"[{', '.join(written)}]"


_FIRST_CALL = re.compile(r"(\[\s*)?([A-Za-z_][\w.-]*)\s*\(")
_NAMED_OR_NONE = re.compile(r"\s*(?:\)\s*[\],]|[\w$@.-]++\s*=)")
"""A pattern of the text that may follow the opening parenthesis of a call: the closing one, or a
named argument.
"""
_ANNOUNCED = re.compile(rf"{TAG}\s*{_FIRST_CALL.pattern}")
"""A tag and the call that follows, anywhere in a turn."""


def _begins_list(body: Body, tools: Sequence[ToolSpec]) -> bool:
    """Return whether a turn is meant as a list of calls.

    Code may begin in the same way, and so may prose: with `[Smith (2020)]`, or with `search (the
    tool)` where the brackets are left out. So without brackets the first name must be a tool on
    offer, after a tag or in a list that can be read. With brackets, a tag or the name of a tool on
    offer is enough; any other name needs a named argument or `)` behind it, outside a code fence,
    unless no tools are known.
    """
    first = _FIRST_CALL.match(body.text)
    if first is None:
        return False
    is_tool = any(first[2] == tool.name for tool in tools)
    if first[1] is None:
        return is_tool and (body.tagged or _is_list(body.text))
    if is_tool or body.tagged or not tools:
        return True
    return not body.fenced and _NAMED_OR_NONE.match(body.text, first.end()) is not None


def _is_list(text: str) -> bool:
    """Return whether `text` is a readable list of calls, by itself or after a tag that announces
    calls.
    """
    body = body_of(text)
    if _FIRST_CALL.match(body.text) is None:
        body = body_of(text[announced(text, 0, _ANNOUNCED) :])
    if _FIRST_CALL.match(body.text) is None:
        return False
    try:
        return not any(call.error for call in _read_list(body.text))
    except UnreadableLiteral:
        return False


def _read_list(body: str) -> list[ToolCall]:
    """Return the calls of a list, or of calls without brackets.

    Raises:
        UnreadableLiteral: the text is not a list in Python syntax, or has more than `MAX_CALLS`.
    """
    try:
        # The line feed keeps the added bracket out of a comment at the end of the body.
        plain_text, names = _plain(body if body.startswith("[") else f"[{body}\n]")
        tree = expression(plain_text)
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
"""A string, which is skipped so that nothing in it is taken for a name; or the name of a function
before `(`, or of an argument before `=`. Possessive quantifiers (`*+`) avoid backtracking.
"""


def _plain(body: str) -> tuple[str, dict[str, str]]:
    """Return `body` with all names replaced by valid Python names, and a map back to the
    originals.
    """
    names: dict[str, str] = {}
    if len(body) > MAX_PYTHON_CHARS:  # `expression` will refuse the body
        return body, names
    # Replacements must not collide with a name of the body.
    mark = "name_"
    while mark in body:
        mark += "_"

    def placeholder(match: re.Match[str]) -> str:
        name = match["function"] or match["argument"] or ""
        parts = match["function"].split(".") if match["function"] else [name]
        if not name or all(part.isidentifier() and not keyword.iskeyword(part) for part in parts):
            return match[0]
        mark_name = f"{mark}{len(names)}"
        names[mark_name] = name
        return mark_name

    return _STRING_OR_NAME.sub(placeholder, body), names


def _read_call(node: ast.expr, identity: str, names: Mapping[str, str]) -> ToolCall:
    """Convert an element of the list to a call; an unusable element becomes a call with an `error`,
    so that the other elements still count.
    """
    name = _dotted(node.func) if isinstance(node, ast.Call) else ""
    if not isinstance(node, ast.Call) or not name:
        return ToolCall(name="", id=identity, error="an element of the list is not a call")
    name = names.get(name, name)
    if node.args or any(named.arg is None for named in node.keywords):
        return ToolCall(name=name, id=identity, error="name each argument: f(a=1)")
    argument_names = [names.get(str(named.arg), str(named.arg)) for named in node.keywords]
    if twice := [key for key, times in Counter(argument_names).items() if times > 1]:
        return ToolCall(name=name, id=identity, error=f"{twice[0][:80]} is given twice")
    try:
        values = [literal(named.value) for named in node.keywords]
    except (UnreadableLiteral, RecursionError) as error:
        return ToolCall(name=name, id=identity, error=str(error))
    arguments = dict(zip(argument_names, values, strict=True))
    if fault := fault_of([name, arguments]):
        return ToolCall(name="", id=identity, error=fault)
    return ToolCall(name=name, arguments=arguments, id=identity)


def _dotted(node: ast.expr) -> str:
    """Return the name that `node` is, such as `f` or `a.b`; "" for any other expression."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""
