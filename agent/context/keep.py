"""Managers that forget: everything but the last exchanges, or everything but the opening.

None of these writes anything, so what leaves the window is lost.
"""

from __future__ import annotations

from dataclasses import dataclass

from ludus.errors import ConfigError
from ludus.messages import Message

from ..trajectory import Stop
from .decisions import Reopen
from .history import History
from .protocol import ContextManager, Sizes, require_room_to_act


class KeepEverything(ContextManager):
    """The manager `none`: an episode that outgrows the window ends."""

    name = "none"
    needs_window = False

    def when_full(self, history: History) -> Stop:
        """End the episode, since nothing may be dropped."""
        return Stop.CONTEXT_FULL


@dataclass(frozen=True, slots=True)
class KeepLast(ContextManager):
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


@dataclass(frozen=True, slots=True)
class Discard(ContextManager):
    """The manager `discard`: a new window with the opening alone, plus the newest exchange if
    `carry`.

    Without `carry` the policy starts over from the first prompt. That suits a policy that can
    fetch what it needs again, and fails where the environment waits for an answer to its last
    message.
    """

    carry: bool = True
    threshold: float = 0.95
    name = "discard"

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


def last_exchanges(history: History, count: int) -> list[Message]:
    """Return the opening and the last `count` exchanges."""
    return [*history.opening, *history.last(count)]
