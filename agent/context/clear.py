"""The manager `clear`: old tool results are replaced by a placeholder.

    before   call 1, result 1, call 2, result 2, call 3, result 3
    after    call 1, (cleared), call 2, (cleared), call 3, result 3      keep = 1

The parameters are those of the context editing that a large vendor offers in its public API
(`clear_tool_uses_20250919`): a trigger in tokens or in tool uses, how many of the newest tool uses
stay, the least that a clearing must save, tools whose results always stay, and whether the
arguments of cleared calls go too. The policy's own words stay. Each clearing begins a new segment.

Where the API leaves something open: results of excluded tools do not count as kept ones, and the
trigger in tool uses counts the results that are not cleared yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from ludus.errors import ConfigError
from ludus.messages import Message, Role

from ..trajectory import Stop
from .decisions import Reopen
from .history import History
from .protocol import ContextManager, Sizes, require_room_to_act

PLACEHOLDER = "[this old result was cleared; call the tool again if it is needed]"


@dataclass(frozen=True, slots=True)
class ClearToolResults(ContextManager):
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

    def limit(self, window: int) -> int:
        """Return `threshold` times the window."""
        return int(self.threshold * window)

    def before_turn(self, history: History) -> Reopen | None:
        """Clear where there are more results than `max_tool_uses`."""
        if not self.max_tool_uses or len(self._results(history.view)) <= self.max_tool_uses:
            return None
        return self._clear(history)

    def when_full(self, history: History) -> Reopen | Stop:
        """Clear, or end the episode if too little can be cleared."""
        return self._clear(history) or Stop.CONTEXT_FULL

    def check(self, sizes: Sizes) -> None:
        """Require that the opening leaves room to act."""
        require_room_to_act(
            self.name, sizes, self.limit(sizes.window), sizes.opening, "the first prompt"
        )

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
