"""Calls whose arguments stand between tags as plain text: Qwen3-Coder, GLM, MiniMax-M2 and DSML.

    <function=write>
    <parameter=path>a.txt</parameter>
    <parameter=lines>[1, 2]</parameter>
    </function>

A value is text if the tool's schema says string, else JSON. Without a schema, a value that is JSON
but no JSON string is read as JSON, and any other as text. Where the tag itself says whether the
value is a string, the tag decides. A closing tag ends a value only if another argument, or the end
of the call, follows, because values may be code that contains the tag.

A value whose closing tag is missing ends where the parsers of vLLM and SGLang end it: before the
next argument, or before the end of the call. The end of the turn ends no value, though it does in
those parsers: nothing tells `false` from half of a longer word, and a call may delete.

DSML of DeepSeek V3.2, which V4 writes with `tool_calls` for `function_calls`. Both formats read
either name of the block, calls without the block, which V4 models write too, and `|` in the place
of the wide `｜`. The attribute `string` decides whether a value is text or JSON.

    <｜DSML｜function_calls>
    <｜DSML｜invoke name="search">
    <｜DSML｜parameter name="query" string="true">x</｜DSML｜parameter>
    <｜DSML｜parameter name="count" string="false">3</｜DSML｜parameter>
    </｜DSML｜invoke>
    </｜DSML｜function_calls>

MiniMax-M2 and GLM:

    <minimax:tool_call>
    <invoke name="search">
    <parameter name="query">x</parameter>
    </invoke>
    </minimax:tool_call>

    <tool_call>search
    <arg_key>query</arg_key>
    <arg_value>x</arg_value>
    </tool_call>
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from itertools import islice
from typing import Any

from ludus.envs import ToolSpec
from ludus.llm.chat_wire import CUT
from ludus.messages import ToolCall
from ludus.thoughts import ALL

from .arguments import UnreadableCall, as_text, read_value, schemas_of, sound, unreadable
from .protocol import MarkedFormat


class TaggedFormat(MarkedFormat):
    """A format of calls with tags, as regular expressions."""

    function: re.Pattern[str]
    """The beginning of a call up to its arguments, with the group `name`."""
    parameter: re.Pattern[str]
    """The beginning of an argument up to its value, with the group `key`, and the group `string`
    (true or false) where the tag may say whether the value is text.
    """
    closing: re.Pattern[str]
    """The tag that ends a value."""
    end: re.Pattern[str]
    """The end of a call, with the outer tag if there is one."""
    follows: re.Pattern[str]
    """What may stand after the closing tag of a value."""
    expected: str
    """How a call is written, for errors."""
    argument: str
    """How an argument is written: its `name`, its `value`, and whether it `is_text`."""

    @cached_property
    def marks(self) -> re.Pattern[str]:
        """What may end a value: the closing tag, the end of the call, the next argument, or another
        call, in the groups `closing`, `end`, `key` and `another`.
        """
        # A pattern cannot have two groups of one name, and that of the other call is not needed.
        function = re.sub(r"\(\?P<\w+>", "(?:", self.function.pattern)
        return re.compile(
            rf"(?P<closing>{self.closing.pattern})|(?P<end>{self.end.pattern})"
            rf"|{self.parameter.pattern}|(?P<another>{function})"
        )

    def inner(self, value: str) -> str:
        """Take from a value what is layout: the line ends next to the tags."""
        return unwrapped(value)

    def layout(self, value: str) -> str:
        """Return the value that `inner` reads back."""
        return f"\n{value}\n" if unwrapped(value) != value else value

    def written(self, call: ToolCall, number: int) -> str:
        """See `MarkedFormat.written`."""
        arguments = "".join(
            self.argument.format(
                name=name,
                value=self.layout(as_text(value)),
                is_text=str(isinstance(value, str)).lower(),
            )
            for name, value in call.arguments.items()
        )
        return self.form.format(name=call.name, arguments=arguments)

    def read(
        self, text: str, start: int, identity: str, *, complete: bool, tools: Sequence[ToolSpec]
    ) -> tuple[list[ToolCall], int]:
        """See `MarkedFormat.read`."""
        opening = self.function.match(text, start)
        name = bare(opening["name"]) if opening is not None else ""
        if opening is None or not name:
            return self._no_function(text, start, identity, complete=complete)
        body = _Body(self, text, opening.end(), schemas_of(name, tools), complete=complete)
        try:
            arguments, position = body.read()
        except UnreadableCall as error:
            closed = self.end.search(text, error.position)
            reason = CUT if error.unclosed and closed is None and not complete else str(error)
            after = len(text) if closed is None else closed.end()
            return [unreadable(identity, reason)], after
        return [sound(name, arguments, identity)], position

    def _no_function(
        self, text: str, start: int, identity: str, *, complete: bool
    ) -> tuple[list[ToolCall], int]:
        """Return the error for a call tag that contains something else or nothing."""
        opening = self.beginning.match(text, start)
        assert opening is not None
        closed = self.end.search(text, opening.end())
        next_opening = self.beginning.search(text, opening.end())
        has_ended = closed is not None and (
            next_opening is None or closed.end() <= next_opening.start()
        )
        if not complete and closed is None and next_opening is None:
            return [unreadable(identity, CUT)], len(text)
        after = closed.end() if closed is not None and has_ended else opening.end()
        return [unreadable(identity, self.expected)], after


def bare(name: str) -> str:
    """Return a name without the quotes of an attribute value."""
    stripped = name.strip()
    quoted = len(stripped) > 1 and stripped[0] == stripped[-1] and stripped[0] in "\"'"
    return stripped[1:-1] if quoted else stripped


_SPACE = re.compile(r"\s*")
# The types to try for a value whose tag says that it is no string, where no schema names its type.
_NOT_STRING = {"integer", "number", "boolean", "null", "array", "object"}
MAX_MARKS = 2000
"""The most tags inside a value among which its end is searched. It bounds the time that a value of
nothing but tags takes.
"""


class _Body:
    """The arguments of a call, read from a position on."""

    def __init__(
        self,
        grammar: TaggedFormat,
        text: str,
        start: int,
        schemas: dict[str, set[str]],
        *,
        complete: bool,
    ) -> None:
        self.grammar, self.text, self.position = grammar, text, start
        self.schemas, self.complete = schemas, complete
        self.arguments: dict[str, Any] = {}
        self.counts_tags = True
        """Whether tags inside values are counted. False after a value in which more tags open than
        close: the count would then take the rest of the call for part of each value.
        """

    def read(self) -> tuple[dict[str, Any], int]:
        """Return the arguments, and the position after the call's end.

        Raises:
            UnreadableCall: the arguments cannot be read, or the call may have been cut.
        """
        while (parameter := self._match_here(self.grammar.parameter)) is not None:
            key = bare(parameter["key"])
            start = parameter.end()
            end, self.position = self._end_of_value(start, key)
            value = self.text[start:end]
            thought_end = ALL.closing(value)
            if thought_end >= 0 and self.grammar.function.search(value, thought_end) is not None:
                # The value runs into a thought, after whose end the call is written again.
                raise UnreadableCall(f"the parameter {key!r} is not closed", start)
            types = self.schemas.get(key, set())
            if (is_string := parameter.groupdict().get("string")) is not None:
                types = {"string"} if is_string == "true" else types - {"string"} or _NOT_STRING
            try:
                self.arguments[key] = read_value(self.grammar.inner(value), types)
            except (ValueError, RecursionError) as error:
                reason = f"the parameter {key!r} is not JSON: {error}"
                raise UnreadableCall(reason, self.position) from None
        closed = self._match_here(self.grammar.end)
        if closed is not None:
            return self.arguments, closed.end()
        has_ended = self._next() == len(self.text)
        if has_ended and self.complete and self.arguments:
            return self.arguments, len(self.text)
        reason = "the function is not closed" if has_ended else self.grammar.expected
        raise UnreadableCall(reason, self.position, unclosed=True)

    def _next(self) -> int:
        """Return the next position that is not white space."""
        space = _SPACE.match(self.text, self.position)
        return space.end() if space is not None else self.position

    def _match_here(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        return pattern.match(self.text, self._next())

    def _end_of_value(self, start: int, key: str) -> tuple[int, int]:
        """Return where a value ends, and the position after its closing tag.

        An argument that opens and closes inside a value is part of that value, which is why tags
        are counted: `open_inside` have opened and not closed. Where the count does not come out
        even, the first closing tag decides; without one, the first end of a call (`call_end`).
        """
        open_inside, first_closing, call_end = 0, None, -1
        for mark in islice(self.grammar.marks.finditer(self.text, start), MAX_MARKS):
            if mark["key"] is not None:
                if self._begins_the_next(mark, key, start):
                    return mark.start(), mark.start()
                open_inside += self.counts_tags
            elif mark["closing"] is not None:
                if self.grammar.follows.match(self.text, mark.end()) is None:
                    continue
                if not open_inside:
                    return mark.start(), mark.end()
                first_closing = first_closing or mark
                open_inside -= 1
            elif mark["end"] is not None:
                call_end = mark.start() if call_end < 0 and not open_inside else call_end
            elif call_end >= 0 and first_closing is None and not open_inside:
                # The closing tags from here on are those of the next call.
                return call_end, call_end
        self.counts_tags = False
        if first_closing is not None:
            return first_closing.start(), first_closing.end()
        if call_end >= 0:
            return call_end, call_end
        raise UnreadableCall(f"the parameter {key!r} is not closed", start, unclosed=True)

    def _begins_the_next(self, mark: re.Match[str], key: str, start: int) -> bool:
        """Return whether an argument that begins inside a value is the next of this call.

        It is if the tool has a parameter of that name for which the call has no value yet. Without
        a schema it is if its tag begins a line.
        """
        name = bare(mark["key"])
        if name == key or name in self.arguments:
            return False
        if self.schemas:
            return name in self.schemas
        line = self.text.rfind("\n", start, mark.start())
        return line >= 0 and not self.text[line : mark.start()].strip()


def unwrapped(value: str) -> str:
    """Return a value without the line ends around the value, if both sides have a line end."""
    has_both = len(value) > 1 and value[0] == value[-1] == "\n"
    return value[1:-1] if has_both else value


_QUOTED = r"\"[^\"<>\n]{0,256}\"|'[^'<>\n]{0,256}'|[^\"'<>\s]{1,256}"


class NestedFormat(TaggedFormat):
    """A format whose arguments stand in the tag of a call, and calls in an outer tag."""

    outer, tag, inside = "", "invoke", "parameter"
    """The names of the outer tag, of a call's and of an argument's, as regular expressions."""
    naming, key, more = r"\s+name=", rf"(?:{_QUOTED})\s*", ""
    """What stands before a name, a name itself, and what may stand behind an argument's name."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        begin, end = rf"<{cls.tag}{cls.naming}", rf"</{cls.tag}>"
        argument, outer_end = rf"<{cls.inside}{cls.naming}", rf"</{cls.outer}>"
        opening = rf"(?:<{cls.outer}>\s*)?{begin}(?P<name>{cls.key})>"
        cls.beginning = re.compile(
            rf"{opening}|<{cls.outer}>(?:\s*<{cls.tag}(?:{cls.naming})?)?|{begin}"
        )
        cls.function = re.compile(opening)
        cls.parameter = re.compile(rf"{argument}(?P<key>{cls.key}){cls.more}>")
        cls.closing = re.compile(rf"</{cls.inside}>")
        cls.end = re.compile(rf"{end}(?:\s*{outer_end})?|{outer_end}")
        cls.follows = re.compile(
            rf"\s*(?:{argument}|{end}|(?:{outer_end}\s*)?(?:\Z|<{cls.outer}>))"
        )


class Qwen3CoderFormat(NestedFormat):
    """Calls of Qwen3-Coder and of Seed-OSS, which has another outer tag."""

    name = "qwen3_coder"
    outer, tag, naming, key = r"(?:seed:)?tool_call", "function", "=", r"[^<>\n]{0,256}"
    expected = "a call is <function=name>, then <parameter=key>value</parameter> for each argument"
    form, between = "<tool_call>\n<function={name}>\n{arguments}</function>\n</tool_call>", "\n"
    argument = "<parameter={name}>\n{value}\n</parameter>\n"

    def inner(self, value: str) -> str:
        """Take a line end after the opening tag, and one before the closing tag, from a value."""
        end = "\r\n" if value.startswith("\r\n") else "\n"
        return value.removeprefix(end).removesuffix(end)

    def layout(self, value: str) -> str:
        """Return the value: the line ends stand in the form of an argument."""
        return value


class MiniMaxM2Format(NestedFormat):
    """Calls of MiniMax-M2, between one pair of tags."""

    name = "minimax_m2"
    outer = "minimax:tool_call"
    expected = (
        'a call is <invoke name="name">, then <parameter name="key">value</parameter> for each '
        "argument"
    )
    before, after = f"<{outer}>\n", f"</{outer}>"
    form = '<invoke name="{name}">\n{arguments}</invoke>\n'
    argument = '<parameter name="{name}">{value}</parameter>\n'


_MARK = r"[｜|]DSML[｜|]"


class DeepSeekV32Format(NestedFormat):
    """Calls of DeepSeek V3.2, in a block named `function_calls`."""

    name = "deepseek_v32"
    outer = rf"{_MARK}(?:function_calls|tool_calls)"
    tag, inside = rf"{_MARK}invoke", rf"{_MARK}parameter"
    more = r"(?:\s*string=[\"']?(?P<string>true|false)[\"']?)?\s*"
    expected = (
        'a call is <｜DSML｜invoke name="name">, then <｜DSML｜parameter name="key" '
        'string="true">value</｜DSML｜parameter> for each argument'
    )
    before, after = "<｜DSML｜function_calls>\n", "</｜DSML｜function_calls>"
    form = '<｜DSML｜invoke name="{name}">\n{arguments}</｜DSML｜invoke>\n'
    argument = '<｜DSML｜parameter name="{name}" string="{is_text}">{value}</｜DSML｜parameter>\n'

    def inner(self, value: str) -> str:
        """Return the value: no part of a value is layout."""
        return value

    layout = inner


class DeepSeekV4Format(DeepSeekV32Format):
    """Calls of DeepSeek V4, in a block named `tool_calls`."""

    name = "deepseek_v4"
    before, after = "<｜DSML｜tool_calls>\n", "</｜DSML｜tool_calls>"


class Glm4Format(TaggedFormat):
    """Calls of GLM-4.5, 4.6 and 4.7: the tool's name, then a pair of tags for each argument."""

    name = "glm4"
    beginning = re.compile(r"<tool_call>")
    function = re.compile(
        r"<tool_call>\s*(?P<name>[^\s<>{}\[\]]{1,256})\s*(?=<arg_key>|</tool_call>|\Z)"
    )
    parameter = re.compile(r"<arg_key>(?P<key>[^<>]{0,256})</arg_key>\s*<arg_value>")
    closing = re.compile("</arg_value>")
    end = re.compile(r"</tool_call>")
    follows = re.compile(r"\s*(?:<arg_key>|</tool_call>|<tool_call>|\Z)")
    expected = (
        "a call is <tool_call>name, then <arg_key>key</arg_key> and <arg_value>value</arg_value> "
        "for each argument"
    )
    form, between = "<tool_call>{name}\n{arguments}</tool_call>", "\n"
    argument = "<arg_key>{name}</arg_key>\n<arg_value>{value}</arg_value>\n"
