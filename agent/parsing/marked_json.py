"""Calls whose arguments are a JSON object after a header with the tool's name: DeepSeek, Kimi K2,
Mistral from its eleventh tokenizer on, and harmony.

    <|tool_call_begin|>functions.search:0<|tool_call_argument_begin|>{"query": "x"}<|tool_call_end|>

A JSON decoder reads the object from the header on, so that the closing mark may occur inside a
string argument.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ludus.messages import ToolCall

from .arguments import CUT, after_space, decoder, fault_of, read_arguments


@dataclass(frozen=True, slots=True)
class JsonGrammar:
    """The marks of a format, as regular expressions.

    Args:
        beginning: whatever begins a call, whole or damaged.
        header: the beginning of a call up to its arguments, with the group `name` (or `before`),
            and `id` where models write one.
        closing: the mark after the arguments; None where the format has none.
        form: how a call is written, for errors.
        padding: what may stand between the arguments and the closing mark.
    """

    beginning: re.Pattern[str]
    header: re.Pattern[str]
    closing: re.Pattern[str] | None
    form: str
    padding: str = ""

    def find(self, text: str, start: int) -> int:
        """Return the position from `start` on where a call begins, or -1."""
        match = self.beginning.search(text, start)
        return -1 if match is None else match.start()

    def read(
        self, text: str, start: int, identity: str, *, complete: bool
    ) -> tuple[list[ToolCall], int]:
        """Return the call that begins at `start`, and the position to continue at."""
        header = self.header.match(text, start)
        if header is None:
            opening = self.beginning.match(text, start)
            assert opening is not None
            return self._unreadable(text, opening.end(), identity, self.form, complete=complete)
        decoded: object = None
        end = after_space(text, header.end())
        # No arguments may be written as nothing.
        if self.closing is None or self.closing.match(text, end) is None:
            try:
                decoded, end = decoder.raw_decode(text, end)
            except (ValueError, RecursionError) as error:
                fault = f"not valid JSON: {error}"
                return self._unreadable(text, header.end(), identity, fault, complete=complete)
        after = self._after(text, end, complete=complete)
        if after is None:
            fault = f"text after the call's JSON: {text[end : end + 40].strip()!r}"
            return self._unreadable(text, end, identity, fault, complete=complete)
        groups = header.groupdict()
        identity = groups.get("id") or identity
        name = (groups["name"] or groups.get("before") or "").strip()
        if fault := fault_of(name):
            return [ToolCall(name="", id=identity, error=fault)], after
        arguments, fault = read_arguments(decoded)
        return [ToolCall(name=name, arguments=arguments, id=identity, error=fault)], after

    def _after(self, text: str, end: int, *, complete: bool) -> int | None:
        """Return the position after a call whose arguments end at `end`, or None if something else
        follows, or nothing in a turn that was cut.
        """
        following = after_space(text, end)
        if self.closing is not None:
            if self.padding and text.startswith(self.padding, following):
                following = after_space(text, following + len(self.padding))
            closed = self.closing.match(text, following)
            if closed is not None:
                return closed.end()
        if following == len(text):
            return following if complete else None
        if self.closing is None or self.beginning.match(text, following) is not None:
            return end
        return None

    def _unreadable(
        self, text: str, position: int, identity: str, fault: str, *, complete: bool
    ) -> tuple[list[ToolCall], int]:
        """Return a call that cannot be read from `position` on, and the position after that call.

        In a turn that was cut, the reason is the cut unless the call ended.
        """
        closed = None if self.closing is None else self.closing.search(text, position)
        next_opening = self.beginning.search(text, position)
        call_ends = [match.end() for match in (closed,) if match is not None]
        call_ends += [match.start() for match in (next_opening,) if match is not None]
        error = CUT if not call_ends and not complete else fault
        return [ToolCall(name="", id=identity, error=error)], min(call_ends, default=len(text))
