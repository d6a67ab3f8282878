"""Managers that forget: nothing, all but the last exchanges, or everything.

None of them writes anything, so what falls out of the window is gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ludus.envs import ToolSpec
from ludus.errors import ConfigError
from ludus.messages import Message

from ..trajectory import Stop
from .protocol import Handled, History, Reopen, Sizes, require_room_to_act


@dataclass(frozen=True, slots=True)
class KeepEverything:
    """`none`: the window is all there is; an episode that outgrows it ends."""

    name: str = "none"
    tools: Sequence[ToolSpec] = ()

    def limit(self, window: int) -> int:
        """The whole window."""
        return window

    def when_full(self, history: History) -> Stop:
        """End."""
        return Stop.CONTEXT_FULL

    def check(self, sizes: Sizes) -> None:
        """Only the first prompt has to fit."""
        if sizes.opening >= sizes.window:
            raise ConfigError(
                f"the first prompt has {sizes.opening} tokens, the window {sizes.window}: make "
                "rollout.window larger"
            )

    def handle(self, action: Message, view: Sequence[Message]) -> Handled | None:
        """Everything is the environment's."""
        return None


@dataclass(frozen=True, slots=True)
class KeepLast:
    """`keep_last_k`: a new window of the opening and the last `keep` exchanges, as they were.

    Args:
        keep: exchanges kept, the newest included; at least 1.
        threshold: the share of the window from which on it counts as full.
    """

    keep: int = 4
    threshold: float = 0.95
    name: str = "keep_last_k"
    tools: Sequence[ToolSpec] = ()

    def __post_init__(self) -> None:
        if self.keep < 1:
            raise ConfigError(
                f"context.keep must be at least 1, got {self.keep}; `discard` keeps none"
            )

    def limit(self, window: int) -> int:
        """`threshold` of the window."""
        return int(self.threshold * window)

    def when_full(self, history: History) -> Reopen:
        """Keep the last exchanges."""
        return Reopen(last_exchanges(history, self.keep), self.name)

    def check(self, sizes: Sizes) -> None:
        """The opening must leave room; how long the kept exchanges are is known only later."""
        require_room_to_act(
            self.name, sizes, self.limit(sizes.window), sizes.opening, "the first prompt"
        )

    def handle(self, action: Message, view: Sequence[Message]) -> Handled | None:
        """Everything is the environment's."""
        return None


@dataclass(frozen=True, slots=True)
class Discard:
    """`discard`: a new window of the opening alone, and the newest exchange if `carry`.

    Without `carry` the policy starts over in front of its first prompt: right where it fetches what
    it needs, wrong where the environment waits for an answer to what it said last.
    """

    carry: bool = True
    threshold: float = 0.95
    name: str = "discard"
    tools: Sequence[ToolSpec] = ()

    def limit(self, window: int) -> int:
        """`threshold` of the window."""
        return int(self.threshold * window)

    def when_full(self, history: History) -> Reopen:
        """Start over."""
        return Reopen(last_exchanges(history, int(self.carry)), self.name)

    def check(self, sizes: Sizes) -> None:
        """The opening must leave room."""
        require_room_to_act(
            self.name, sizes, self.limit(sizes.window), sizes.opening, "the first prompt"
        )

    def handle(self, action: Message, view: Sequence[Message]) -> Handled | None:
        """Everything is the environment's."""
        return None


def last_exchanges(history: History, count: int) -> list[Message]:
    """The opening and the last `count` exchanges."""
    return [*history.opening, *history.last(count)]
