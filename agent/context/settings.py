"""Settings of the context manager, as in a run's `[context]` section."""

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
    """How an episode continues after outgrowing the window."""

    manager: ManagerName = "none"
    threshold: float = 0.95
    """The share of the window from which the window counts as full; `none` uses the whole
    window.
    """
    keep: int = 4
    """How many exchanges keep_last_k keeps."""
    carry: bool = True
    """Whether discard shows the newest exchange again."""
    max_summaries: int = 7
    """The most summaries of an episode, for summarize; the most branches, for fold."""
    summary_tokens: int = 256
    """The most sampled tokens of a summary."""
    last_pair: LastPair = "discard"
    """What summarize does with the last action and observation: discard (as in SUPO), carry or
    keep.
    """
    train_summaries: bool = True
    """Whether summaries count in the loss."""
    instruction: str = ""
    """The text that asks for a summary; empty means the built-in text."""
    continuation: str = ""
    """The text after the first prompt that follows a summary, containing {summary}; empty means the
    built-in text.
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
    """Return the context manager that `settings` describe.

    Raises:
        UnknownName: no manager has that name.
        ConfigError: the settings cannot work.
    """
    if settings.manager not in MANAGERS:
        raise UnknownName.near(settings.manager, MANAGERS, hint="context managers")
    return MANAGERS[settings.manager](settings)
