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
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import islice
from typing import Any

from ludus.envs import ToolSpec
from ludus.messages import Message, ToolCall
from ludus.thoughts import ALL

from .arguments import CUT, as_text, fault_of, read_value, schemas_of
from .scan import scan


@dataclass(frozen=True, slots=True)
class TagGrammar:
    """The tags of a format, as regular expressions.

    Args:
        beginning: whatever begins a call, whole or damaged.
        function: the beginning of a call up to its arguments, with the group `name`.
        parameter: the beginning of an argument up to its value, with the group `key`, and the group
            `string` (true or false) where the tag may say whether the value is text.
        closing: the tag that ends a value.
        end: the end of a call, with the outer tag if there is one.
        follows: what may stand after the closing tag of a value.
        inner: takes from a value what is layout: the line ends next to the tags.
        form: how a call is written, for errors.
    """

    beginning: re.Pattern[str]
    function: re.Pattern[str]
    parameter: re.Pattern[str]
    closing: re.Pattern[str]
    end: re.Pattern[str]
    follows: re.Pattern[str]
    inner: Callable[[str], str]
    form: str

    def find(self, text: str, start: int) -> int:
        """Return the position from `start` on where a call begins, or -1."""
        match = self.beginning.search(text, start)
        return -1 if match is None else match.start()

    def read(
        self, text: str, start: int, identity: str, *, complete: bool, tools: Sequence[ToolSpec]
    ) -> tuple[list[ToolCall], int]:
        """Return the call that begins at `start`, and the position to continue at."""
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
            return [ToolCall(name="", id=identity, error=reason)], after
        fault = fault_of([name, arguments])
        if fault:
            return [ToolCall(name="", id=identity, error=fault)], position
        return [ToolCall(name=name, arguments=arguments, id=identity)], position

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
            return [ToolCall(name="", id=identity, error=CUT)], len(text)
        after = closed.end() if closed is not None and has_ended else opening.end()
        return [ToolCall(name="", id=identity, error=self.form)], after


class UnreadableCall(Exception):
    """A call cannot be read; holds the reason and the position of the fault."""

    def __init__(self, reason: str, position: int, *, unclosed: bool = False) -> None:
        super().__init__(reason)
        self.position = position
        self.unclosed = unclosed


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
        grammar: TagGrammar,
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
        reason = "the function is not closed" if has_ended else self.grammar.form
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
        for mark in islice(_marks(self.grammar).finditer(self.text, start), MAX_MARKS):
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


@cache
def _marks(grammar: TagGrammar) -> re.Pattern[str]:
    """Return a pattern that finds whatever may end a value.

    The groups `closing`, `end`, `key` and `another` say which it is: the closing tag, the end of
    the call, the next argument, or another call.
    """
    # The names of groups are removed, since a pattern cannot have two groups of one name; the name
    # of the other call is not needed.
    opening_pattern = re.sub(r"\(\?P<\w+>", "(?:", grammar.function.pattern)
    return re.compile(
        rf"(?P<closing>{grammar.closing.pattern})|(?P<end>{grammar.end.pattern})"
        rf"|{grammar.parameter.pattern}|(?P<another>{opening_pattern})"
    )


def unpadded(value: str) -> str:
    """Return a value without a line end after the opening tag or before the closing tag."""
    end = "\r\n" if value.startswith("\r\n") else "\n"
    return value.removeprefix(end).removesuffix(end)


def unwrapped(value: str) -> str:
    """Return a value without the line ends around it, if there is one at both sides."""
    has_both = len(value) > 1 and value[0] == value[-1] == "\n"
    return value[1:-1] if has_both else value


def wrapped(value: str) -> str:
    """Return a value as `unwrapped` reads it back."""
    return f"\n{value}\n" if unwrapped(value) != value else value


class TaggedFormat:
    """A tool format whose calls a grammar reads and three forms write."""

    name: str
    grammar: TagGrammar
    block: str = ""
    """The name of the tag around all calls of a turn; empty for none."""
    call_form: str
    """How a call is written, with its `name` and its `arguments`."""
    argument_form: str
    """How an argument is written: its `name`, its `value`, and whether it `is_text`."""
    between: str = ""
    """What stands between two calls."""

    def parse(self, text: str, *, complete: bool = True, tools: Sequence[ToolSpec] = ()) -> Message:
        """Read an assistant turn; see `ToolFormat.parse`."""
        read = partial(self.grammar.read, complete=complete, tools=tools)
        return scan(text, self.grammar.find, read)

    def render(self, calls: Sequence[ToolCall], *, tools: Sequence[ToolSpec] = ()) -> str:
        """Write calls as the model would."""
        written = self.between.join(
            self.call_form.format(name=call.name, arguments=self._arguments(call)) for call in calls
        )
        return f"<{self.block}>\n{written}</{self.block}>" if self.block and calls else written

    def _arguments(self, call: ToolCall) -> str:
        pad = wrapped if self.grammar.inner is unwrapped else str
        return "".join(
            self.argument_form.format(
                name=name, value=pad(as_text(value)), is_text=str(isinstance(value, str)).lower()
            )
            for name, value in call.arguments.items()
        )
