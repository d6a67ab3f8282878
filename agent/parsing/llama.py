"""The formats of Llama 3: JSON, and calls in the syntax of Python.

    [f(a=1), g()]

Calls are read if the turn begins with the list, after any thoughts, or if a tag of the model (such
as `<|python_start|>`) announces the list later. Calls of tools on offer are also read without the
brackets. The Python is parsed and never run, so arguments must be literals. Names that Python would
not accept, such as `get-weather` or the argument `from`, are read all the same, because tools have
such names.

    <|python_tag|>{"name": "f", "parameters": {"a": 1}}; {"name": "g", "parameters": {}}
    <function=f>{"a": 1}</function>

The second form is that of Llama 3.1 for functions described in the prompt. Both are read only if
the turn, or the text after the tag, begins with a call: prose that contains braces stays prose,
and so does an object that is not a call. A code fence around the whole turn is ignored.
"""

from __future__ import annotations

import ast
import keyword
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from ludus.envs import ToolSpec
from ludus.llm.chat_wire import CUT, decoder
from ludus.messages import Message, Role, ToolCall
from ludus.thoughts import ALL

from .arguments import (
    MAX_PYTHON_CHARS,
    UnreadableLiteral,
    after_space,
    as_call,
    as_json,
    expression,
    given_arguments,
    literal,
    sound,
    unreadable,
)
from .scan import MAX_CALLS, begins_here, bounded, find_result, find_turn, own_beginnings

PYTHON_TAG = "<|python_tag|>"
_TAGS = (PYTHON_TAG, "<|python_start|>")
TAG = rf"(?:{'|'.join(map(re.escape, _TAGS))})"
_ENDS = (
    "<|eom_id|>", "<|eot_id|>", "<|eom|>", "<|eot|>", "<|end_of_text|>", "<|python_end|>",
    "<end_of_turn>", "<|im_end|>",
)  # fmt: skip
_FENCE = re.compile(r"```[a-z_]{0,16}\s")


class Body(NamedTuple):
    """The text of a turn without the surroundings, and what these were."""

    text: str
    tagged: bool
    """Whether the text began with a tag that announces a call."""
    fenced: bool
    """Whether the text stood in a Markdown code block."""


def body_of(whole_text: str) -> Body:
    r"""Return `whole_text` without tag, end marks and code fence.

    >>> body_of("```json\n{}\n```<|eot_id|>")
    Body(text='{}', tagged=False, fenced=True)
    """
    text = without_ends(whole_text).lstrip()
    tag = next((candidate for candidate in _TAGS if text.startswith(candidate)), "")
    text = text[len(tag) :].lstrip()
    fence = _FENCE.match(text)
    if fence is not None:
        text = text[fence.end() :].removesuffix("```").strip()
    return Body(text, bool(tag), fence is not None)


def after_thoughts(text: str, is_call: Callable[[str], bool]) -> int:
    """Return the position where the turn begins after any thoughts.

    A turn that is a call as a whole has no thoughts: tags inside are part of the arguments.
    """
    begun = ALL.leading(text)
    parts = None if begun else ALL.split(text)
    return begun if parts is None or is_call(text) else len(text) - len(parts[3])


def announced(text: str, start: int, call: re.Pattern[str]) -> int:
    """Return the position where a tag announces a call after some text, or the end of the text."""
    match = call.search(text, start)
    if match is None or 0 <= ALL.opening(text, start) < match.start():  # a thought
        return len(text)
    # A tag inside a made-up result or turn announces nothing (decision 0517).
    invented = (find_result(text, start), find_turn(text, start))
    if any(0 <= position < match.start() for position in invented):
        return len(text)
    return match.start()


def own_words_end(text: str, position: int) -> bool:
    """Return whether the turn ends at `position`, or somebody else's words begin there."""
    while True:
        position = after_space(text, position)
        mark = next((candidate for candidate in _ENDS if text.startswith(candidate, position)), "")
        if not mark:
            return begins_here(text, position)
        position += len(mark)


def without_ends(text: str) -> str:
    """Return `text` without trailing end-of-turn marks and white space."""
    end = _before_space(text, len(text))
    while mark := next((candidate for candidate in _ENDS if text.endswith(candidate, 0, end)), ""):
        end = _before_space(text, end - len(mark))
    return text[:end]


def _before_space(text: str, end: int) -> int:
    while end and text[end - 1].isspace():
        end -= 1
    return end


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
            calls = read_list(body.text)
        except UnreadableLiteral as error:
            calls = [unreadable("call_0", str(error))]
            # Perhaps somebody else's words, which the policy made up, begin after the list.
            for head in own_beginnings(body.text):
                with suppress(UnreadableLiteral):
                    calls = read_list(without_ends(head))
                    break
        if not complete:  # the turn was cut off, so the last call may be unfinished
            calls[-1] = unreadable(calls[-1].id, CUT)
        return Message(role=Role.ASSISTANT, content=text[:calls_start].strip(), tool_calls=calls)

    def render(self, calls: Sequence[ToolCall], *, tools: Sequence[ToolSpec] = ()) -> str:
        """Write calls as the model would; "" for no calls."""
        return f"[{', '.join(map(python_call, calls))}]" if calls else ""


def python_call(call: ToolCall) -> str:
    """Return a call in the syntax of Python."""
    arguments = ", ".join(f"{name}={value!r}" for name, value in call.arguments.items())
    return f"{call.name}({arguments})"


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
        return not any(call.error for call in read_list(body.text))
    except UnreadableLiteral:
        return False


def read_list(body: str, identity: str = "call_0") -> list[ToolCall]:
    """Return the calls of a list, or of calls without brackets, whose ids count on from `identity`.

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
    first = int(identity.rpartition("_")[2])
    return [_read_call(node, f"call_{n}", names) for n, node in enumerate(tree.elts, first)]


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
        return unreadable(identity, "an element of the list is not a call")
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
    return sound(name, arguments, identity)


def _dotted(node: ast.expr) -> str:
    """Return the name that `node` is, such as `f` or `a.b`; "" for any other expression."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


class Llama3JsonFormat:
    """A JSON object, or several in a list or separated by `;`."""

    name = "llama3_json"

    def parse(self, text: str, *, complete: bool = True, tools: Sequence[ToolSpec] = ()) -> Message:
        """Read an assistant turn; see `ToolFormat.parse`."""
        names = frozenset(tool.name for tool in tools)

        def holds_calls(said: str) -> bool:
            calls = _find(said, 0, names)[1]
            return calls is not None and not any(call.error for call in calls)

        calls_start, calls = _find(text, after_thoughts(text, holds_calls), names)
        if calls is None:
            return Message(role=Role.ASSISTANT, content=text)
        if not complete:  # the turn was cut, so the last call may be unfinished
            calls[-1] = unreadable(calls[-1].id, CUT)
        return Message(role=Role.ASSISTANT, content=text[:calls_start].strip(), tool_calls=calls)

    def render(self, calls: Sequence[ToolCall], *, tools: Sequence[ToolSpec] = ()) -> str:
        """Write calls as the model would."""
        return "; ".join(as_json(call, "parameters") for call in calls)


def _find(text: str, start: int, names: frozenset[str]) -> tuple[int, list[ToolCall] | None]:
    """Return the position from `start` on where calls begin, and the calls.

    If the text at `start` is not a call, the position is that of a tag which announces calls later.
    """
    calls = _calls_of(text[start:], names)
    if calls is not None:
        return start, calls
    position = announced(text, start, _ANNOUNCED_JSON)
    return position, _calls_of(text[position:], names)


def _calls_of(body_text: str, names: frozenset[str]) -> list[ToolCall] | None:
    """Return the calls that a turn consists of, or None for text."""
    body = body_of(body_text)
    objects, fault = _read_objects(body.text)
    is_meant = _is_call(objects[0], names) if objects else bool(_BEGINNING.match(body.text))
    if not body.tagged and not is_meant:
        return None
    if not objects and not fault:
        fault = "no JSON object after the tag"
    calls = [as_call(row, f"call_{index}") for index, row in enumerate(objects)]
    if fault:
        calls.append(unreadable(f"call_{len(calls)}", fault))
    return bounded(calls)


_BEGINNING = re.compile(
    r"""\s*(?:\[\s*)?\{\s*["'](?:type["']\s*:\s*["']function"""
    r"""|(?:name|function|function_name|arguments|parameters)["']\s*:)"""
    r"|<function="
)
"""How an unreadable object begins that was meant as a call."""
_ANNOUNCED_JSON = re.compile(rf"{TAG}\s*(?:[\[{{]|<function=)")


def _is_call(decoded: Any, names: frozenset[str]) -> bool:
    """Return whether an object is meant as a call, with arguments, or nothing but the name of a
    tool.
    """
    if not isinstance(decoded, dict):
        return False
    inner = decoded.get("function")
    if given_arguments(decoded) or (isinstance(inner, dict) and "name" in inner):
        return True
    if names:
        return decoded.get("name") in names if isinstance(decoded.get("name"), str) else False
    return decoded.keys() <= {"name", "type", "id"} and "name" in decoded


def _read_objects(text: str) -> tuple[list[Any], str]:
    """Return the objects that `text` consists of, and why later text cannot be read ("" if
    it can).

    Text after the last object makes that object doubtful, so that it is left out.
    """
    objects: list[Any] = []
    position = 0
    while len(objects) < MAX_CALLS and (
        text.startswith(("{", "["), position) or _NAMED.match(text, position) is not None
    ):
        try:
            decoded, position = _read_object(text, position)
        except (ValueError, RecursionError) as error:
            return objects, f"not valid JSON: {error}"
        objects += decoded if isinstance(decoded, list) else [decoded]
        position = after_space(text, position)
        separator = next(
            (candidate for candidate in _BETWEEN if text.startswith(candidate, position)), ""
        )
        position = after_space(text, position + len(separator))
    if objects and text[position:].strip() and not own_words_end(text, position):
        return objects[:-1], f"text after the call's JSON: {text[position : position + 40]!r}"
    return objects, ""


_BETWEEN = (";", ",", PYTHON_TAG)
_NAMED = re.compile(r"<function=([^<>\s]{1,256})>\s*")
_END_OF_NAMED = "</function>"


def _read_object(text: str, position: int) -> tuple[Any, int]:
    """Return the JSON value at `position` (as a call if a tag names a function) and the end.

    Raises:
        ValueError: the text is not JSON, or the tag is not closed.
    """
    name_match = _NAMED.match(text, position)
    decoded, end = decoder.raw_decode(
        text, name_match.end() if name_match is not None else position
    )
    if name_match is None:
        return decoded, end
    end = after_space(text, end)
    if not text.startswith(_END_OF_NAMED, end):
        raise ValueError(f"{name_match[0].strip()} is not closed")
    return {"name": name_match[1], "arguments": decoded}, end + len(_END_OF_NAMED)
