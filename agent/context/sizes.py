"""Measures the lengths that a context manager's settings are checked against."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ludus.messages import Message

from .decisions import Delegate, Reopen, WriteSummary, WriteText
from .history import History
from .protocol import ContextManager, Sizes


@dataclass(frozen=True, kw_only=True)
class TokenBounds:
    """How many tokens the windows, segments and answers of an episode may have."""

    window: int
    """W: the most tokens that the policy sees at once."""
    row: int | None = None
    """The most tokens of a segment; a summary may exceed the window up to this length. None is
    whatever a summary takes.
    """
    answer: int
    """The most tokens of one action."""


def measure_sizes(
    context: ContextManager,
    opening: Sequence[Message],
    bounds: TokenBounds,
    *,
    measure: Callable[[Sequence[Message]], int],
    measure_instruction: Callable[[Message], int],
) -> Sizes:
    """Let a manager open the first windows of an episode, and measure these.

    Args:
        context: the manager; asked as at the beginning of an episode.
        opening: the first prompt.
        bounds: the bounds of windows, segments and answers.
        measure: returns the length of a prompt in tokens, the tools on offer included.
        measure_instruction: returns the length of a message that is appended to a window.
    """
    manager = context.begin()
    history = History(tuple(opening), opens=manager.opens, measure=measure)
    first = manager.before_turn(history)
    reopened_messages = first.messages if isinstance(first, Reopen | WriteText) else history.opening
    step = manager.when_full(history)
    reopened, instruction, written_tokens = reopened_messages, 0, 0
    if isinstance(step, WriteSummary | Delegate):
        reopened = step.resume("").messages
    if isinstance(step, WriteSummary):
        instruction, written_tokens = measure_instruction(step.instruction), step.max_tokens
    return Sizes(
        window=bounds.window,
        row=bounds.window + instruction + written_tokens if bounds.row is None else bounds.row,
        opening=measure(reopened_messages),
        reopened=measure(reopened),
        instruction=instruction,
        answer=bounds.answer,
        reading=measure(first.messages) if isinstance(first, WriteText) else 0,
    )
