"""Managers that keep a part of what was said, and drop, clear or index the rest.

None of these writes anything, so what leaves the window is lost.

    before   call 1, result 1, call 2, result 2, call 3, result 3
    after    call 1, (cleared), call 2, (cleared), call 3, result 3      keep = 1

The parameters are those of the context editing that a large vendor offers in its public API
(`clear_tool_uses_20250919`): a trigger in tokens or in tool uses, how many of the newest tool uses
stay, the least that a clearing must save, tools whose results always stay, and whether the
arguments of cleared calls go too. The policy's own words stay. Each clearing begins a new segment.

Where the API leaves something open: results of excluded tools do not count as kept ones, and the
trigger in tool uses counts the results that are not cleared yet.

    window 2   s_1
               Records: 1: search(query="Tisenmar Mills") -> Doc 1 ... | 2: ...
               the newest exchanges, fetch_record(id=1), what stood there, ...

After "ECHO: Prune to act, trace to learn with selective turn memory in agentic RL" (arXiv
2606.31650): each completed turn becomes a compact record with the index of its source, a bounded
context is built from records, and a record's source can be reached again. The abstract leaves open
who writes a record and how credit is weighted. Here a record is the call and the beginning of its
answer, cut to `record_chars`, so that nothing untrained writes into the context; the policy selects
by calling `fetch_record`, a sampled turn that shares the rollout's advantage.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from ludus.errors import ConfigError
from ludus.messages import Message, Role, TextPart, tool_result

from ..images import images_of
from ..trajectory import Stop
from .protocol import (
    ContextManager,
    Exchange,
    Handled,
    History,
    Reopen,
    TrimmingManager,
    add_to_prompt,
    own_calls,
    refuse,
    spelled_out,
    tool_spec,
)


class KeepEverything(ContextManager):
    """The manager `none`: an episode that outgrows the window ends."""

    name = "none"
    needs_window = False

    def when_full(self, history: History) -> Stop:
        """End the episode, since nothing may be dropped."""
        return Stop.CONTEXT_FULL


@dataclass(frozen=True, slots=True)
class KeepLast(TrimmingManager):
    """The manager `keep_last_k`: a new window with the opening and the last `keep` exchanges,
    unchanged.

    Args:
        keep: how many exchanges are kept, the newest included; at least 1.
        threshold: the share of the window from which the window counts as full.
    """

    keep: int = 4
    threshold: float = 0.95
    name = "keep_last_k"

    def __post_init__(self) -> None:
        if self.keep < 1:
            raise ConfigError(
                f"context.keep must be at least 1, got {self.keep}; `discard` keeps none"
            )

    def when_full(self, history: History) -> Reopen:
        """Start a window with the last exchanges."""
        return Reopen(last_exchanges(history, self.keep), self.name)


@dataclass(frozen=True, slots=True)
class Discard(TrimmingManager):
    """The manager `discard`: a new window with the opening alone, plus the newest exchange if
    `carry`.

    Without `carry` the policy starts over from the first prompt. That suits a policy that can
    fetch what it needs again, and fails where the environment waits for an answer to its last
    message.
    """

    carry: bool = True
    threshold: float = 0.95
    name = "discard"

    def when_full(self, history: History) -> Reopen:
        """Start over with the opening."""
        return Reopen(last_exchanges(history, int(self.carry)), self.name)


def last_exchanges(history: History, count: int) -> list[Message]:
    """Return the opening and the last `count` exchanges."""
    return [*history.opening, *history.last(count)]


PLACEHOLDER = "[this old result was cleared; call the tool again if it is needed]"


@dataclass(frozen=True, slots=True)
class ClearToolResults(TrimmingManager):
    """Clears the results of old tool calls.

    Args:
        keep: how many of the newest tool results stay.
        threshold: the share of the window from which results are cleared.
        max_tool_uses: more uncleared results than this are cleared although the window is not full;
            0 leaves the trigger to the window.
        clear_at_least: a clearing that would save fewer tokens is not made.
        exclude_tools: names of tools whose results are never cleared.
        clear_inputs: whether the arguments of cleared calls are removed too.
        placeholder: the text in place of a cleared result.
    """

    keep: int = 3
    threshold: float = 0.95
    max_tool_uses: int = 0
    clear_at_least: int = 0
    exclude_tools: tuple[str, ...] = ()
    clear_inputs: bool = False
    placeholder: str = PLACEHOLDER
    name = "clear"

    def __post_init__(self) -> None:
        for field in ("keep", "max_tool_uses", "clear_at_least"):
            if getattr(self, field) < 0:
                raise ConfigError(f"{field} of clear must be 0 or more, got {getattr(self, field)}")
        if not self.placeholder:
            raise ConfigError("the placeholder of clear must be a text: a result cannot be empty")
        if 0 < self.max_tool_uses < self.keep:
            raise ConfigError(
                f"max_tool_uses of clear ({self.max_tool_uses}) must be at least keep "
                f"({self.keep}), or nothing would be cleared"
            )

    def before_turn(self, history: History) -> Reopen | None:
        """Clear old results once the history holds more than `max_tool_uses`."""
        if not self.max_tool_uses or len(self._results(history.view)) <= self.max_tool_uses:
            return None
        return self._clear(history)

    def when_full(self, history: History) -> Reopen | Stop:
        """Clear, or end the episode if too little can be cleared."""
        return self._clear(history) or Stop.CONTEXT_FULL

    def _clear(self, history: History) -> Reopen | None:
        results = self._results(history.view)
        old = results[: max(0, len(results) - self.keep)]
        if not old:
            return None
        cleared = self._without(history.view, set(old))
        if self.clear_at_least:
            saved = history.measure(history.view) - history.measure(cleared)
            if saved < self.clear_at_least:
                return None
        return Reopen(cleared, self.name)

    def _results(self, view: Sequence[Message]) -> list[int]:
        """Return the indices of the results that may be cleared and are not cleared yet."""
        return [
            index
            for index, message in enumerate(view)
            if message.role is Role.TOOL
            and message.name not in self.exclude_tools
            and message.text != self.placeholder
        ]

    def _without(self, view: Sequence[Message], old: set[int]) -> list[Message]:
        """Return the window with the results at the indices `old` replaced."""
        cleared = [
            msgspec.structs.replace(message, content=self.placeholder) if index in old else message
            for index, message in enumerate(view)
        ]
        if not self.clear_inputs:
            return cleared
        return [
            self._without_inputs(index, view, old, cleared[index]) for index in range(len(cleared))
        ]

    def _without_inputs(
        self, index: int, view: Sequence[Message], old: set[int], message: Message
    ) -> Message:
        """Remove the arguments of the calls whose results, right after the message, are cleared."""
        if not message.tool_calls:
            return message
        calls = [
            msgspec.structs.replace(call, arguments={}) if index + place in old else call
            for place, call in enumerate(message.tool_calls, start=1)
        ]
        return msgspec.structs.replace(message, tool_calls=calls)


FETCH = tool_spec(
    "fetch_record",
    "Shows a record in full: an action that has left the view, and what answered.",
    {"id": {"type": "integer", "description": "the number of the record"}},
    required=["id"],
)

INDEX = "Records of what has left the view (fetch_record shows one in full):"


@dataclass(frozen=True, slots=True)
class Records(TrimmingManager):
    """Replaces old exchanges by an index, from which the policy can fetch each exchange.

    Args:
        keep: how many of the newest exchanges stay in view.
        threshold: the share of the window from which exchanges are moved out.
        record_chars: the most characters of a line of the index.
        max_records: the most lines of the index; older records can still be fetched.
    """

    keep: int = 2
    threshold: float = 0.95
    record_chars: int = 80
    max_records: int = 64
    name = "records"
    tools = (FETCH,)

    def __post_init__(self) -> None:
        if self.keep < 0 or self.record_chars < 8 or self.max_records < 1:
            raise ConfigError(
                "records needs keep >= 0, record_chars >= 8 and max_records >= 1, got "
                f"{self.keep}, {self.record_chars} and {self.max_records}"
            )

    def when_full(self, history: History) -> Reopen | Stop:
        """Move all but the newest exchanges out of the window."""
        if len(history.actions) <= self.keep:
            return Stop.CONTEXT_FULL
        return Reopen(last_exchanges(history, self.keep), self.name)

    def opens(self, opening: list[Message], history: History) -> list[Message]:
        """Add the index, once anything has been moved out."""
        exchanges = history.exchanges
        moved_count = len(exchanges) - self.keep
        if moved_count < 1:
            return opening
        first = max(1, moved_count - self.max_records + 1)
        older = [f"(records 1 to {first - 1} are older)"] if first > 1 else []
        lines = [
            f"{number}: {' '.join(_record(exchanges[number - 1]).split())}"[: self.record_chars]
            for number in range(first, moved_count + 1)
        ]
        return add_to_prompt(opening, "\n".join([INDEX, *older, *lines]))

    def handle(self, action: Message, history: History) -> Handled | None:
        """Show a record."""
        record_calls = own_calls(action, self.tools)
        if not record_calls:
            return None
        if len(record_calls) < len(action.tool_calls):
            return refuse(action.tool_calls, "call fetch_record without other tools beside it")
        exchanges = history.exchanges
        answers: list[Message] = []
        for call in record_calls:
            number = call.arguments.get("id")
            # `isinstance` would accept True, which is an int.
            if not call.error and type(number) is int and 1 <= number <= len(exchanges):
                record = exchanges[number - 1]
                images, text = images_of(record.answer), _record(record)
                answers.append(tool_result([TextPart(text), *images] if images else text, call))
                continue
            reason = call.error or f"there are records 1 to {len(exchanges)}, got {number!r}"
            answers += refuse([call], reason).messages
        return Handled(answers)


def _record(exchange: Exchange) -> str:
    """Return an exchange as text."""
    answers = [message.text for message in exchange.answer]
    return "\n".join([f"{spelled_out(exchange.action)} ->", *answers])
