"""Settings of the context manager, as a run's `[context]` section holds them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from ludus.errors import ConfigError, UnknownName

from .fold import Fold
from .keep import Discard, KeepEverything, KeepLast
from .protocol import ContextManager
from .summarize import CONTINUATION, INSTRUCTION, LastPair, Summarize

ManagerName = Literal["none", "keep_last_k", "discard", "summarize", "fold"]


@dataclass(frozen=True)
class ContextSettings:
    """What happens when an episode outgrows the window."""

    manager: ManagerName = "none"
    threshold: float = 0.95
    """Share of the window from which on it counts as full; none uses all of it."""
    keep: int = 4
    """Exchanges keep_last_k keeps."""
    carry: bool = True
    """Whether discard shows the newest exchange again."""
    max_summaries: int = 7
    """Summaries an episode, of summarize; branches of fold."""
    summary_tokens: int = 256
    """Most sampled tokens of a summary."""
    last_pair: LastPair = "discard"
    """What summarize does with the last action and observation: discard (SUPO), carry, keep."""
    train_summaries: bool = True
    """False leaves the summaries out of the loss."""
    instruction: str = ""
    """What asks for a summary; empty is the built-in text."""
    continuation: str = ""
    """What follows the first prompt after a summary, with {summary} in it; empty is the built-in
    text.
    """

    def __post_init__(self) -> None:
        if not 0 < self.threshold <= 1:
            raise ConfigError(f"context.threshold must be in (0, 1], got {self.threshold}")


def _summarize(settings: ContextSettings) -> ContextManager:
    return Summarize(
        threshold=settings.threshold,
        max_summaries=settings.max_summaries,
        summary_tokens=settings.summary_tokens,
        last_pair=settings.last_pair,
        train_summaries=settings.train_summaries,
        instruction=settings.instruction or INSTRUCTION,
        continuation=settings.continuation or CONTINUATION,
    )


MANAGERS: dict[str, Callable[[ContextSettings], ContextManager]] = {
    "none": lambda settings: KeepEverything(),
    "keep_last_k": lambda settings: KeepLast(settings.keep, settings.threshold),
    "discard": lambda settings: Discard(settings.carry, settings.threshold),
    "summarize": _summarize,
    "fold": lambda settings: Fold(settings.max_summaries),
}


def make_context(settings: ContextSettings) -> ContextManager:
    """The manager that `settings` describe.

    Raises:
        UnknownName: no manager has that name.
        ConfigError: its fields cannot work.
    """
    if settings.manager not in MANAGERS:
        raise UnknownName.near(settings.manager, MANAGERS, hint="context managers")
    return MANAGERS[settings.manager](settings)
