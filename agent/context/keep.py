"""Managers that forget: everything but the last exchanges, or everything but the opening.

None of these writes anything, so what leaves the window is lost.
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
    """The manager `none`: an episode that outgrows the window ends."""

    name: str = "none"
    tools: Sequence[ToolSpec] = ()

    def limit(self, window: int) -> int:
        """Return the whole window as the limit."""
        return window

    def when_full(self, history: History) -> Stop:
        """End the episode, since nothing may be dropped."""
        return Stop.CONTEXT_FULL

    def check(self, sizes: Sizes) -> None:
        """Require that the first prompt fits."""
        if sizes.opening >= sizes.window:
            raise ConfigError(
                f"the first prompt has {sizes.opening} tokens, the window {sizes.window}: make "
                "rollout.window larger"
            )

    def handle(self, action: Message, view: Sequence[Message]) -> Handled | None:
        """Leave every action to the environment."""
        return None


@dataclass(frozen=True, slots=True)
class KeepLast:
    """The manager `keep_last_k`: a new window with the opening and the last `keep` exchanges,
    unchanged.

    Args:
        keep: how many exchanges are kept, the newest included; at least 1.
        threshold: the share of the window from which the window counts as full.
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
        """Return `threshold` times the window."""
        return int(self.threshold * window)

    def when_full(self, history: History) -> Reopen:
        """Start a window with the last exchanges."""
        return Reopen(last_exchanges(history, self.keep), self.name)

    def check(self, sizes: Sizes) -> None:
        """Require that the opening leaves room; the length of the kept exchanges is unknown
        beforehand.
        """
        require_room_to_act(
            self.name, sizes, self.limit(sizes.window), sizes.opening, "the first prompt"
        )

    def handle(self, action: Message, view: Sequence[Message]) -> Handled | None:
        """Leave every action to the environment."""
        return None


@dataclass(frozen=True, slots=True)
class Discard:
    """The manager `discard`: a new window with the opening alone, plus the newest exchange if
    `carry`.

    Without `carry` the policy starts over from the first prompt. That suits a policy that can
    fetch what it needs again, and fails where the environment waits for an answer to its last
    message.
    """

    carry: bool = True
    threshold: float = 0.95
    name: str = "discard"
    tools: Sequence[ToolSpec] = ()

    def limit(self, window: int) -> int:
        """Return `threshold` times the window."""
        return int(self.threshold * window)

    def when_full(self, history: History) -> Reopen:
        """Start over with the opening."""
        return Reopen(last_exchanges(history, int(self.carry)), self.name)

    def check(self, sizes: Sizes) -> None:
        """Require that the opening leaves room to act."""
        require_room_to_act(
            self.name, sizes, self.limit(sizes.window), sizes.opening, "the first prompt"
        )

    def handle(self, action: Message, view: Sequence[Message]) -> Handled | None:
        """Leave every action to the environment."""
        return None


def last_exchanges(history: History, count: int) -> list[Message]:
    """Return the opening and the last `count` exchanges."""
    return [*history.opening, *history.last(count)]
