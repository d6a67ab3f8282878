"""Measures the lengths that a context manager's settings are checked against."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ludus.messages import Message

from .decisions import Delegate, Reopen, WriteSummary, WriteText
from .history import History
from .protocol import ContextManager, Sizes


def measure_sizes(
    context: ContextManager,
    opening: Sequence[Message],
    measure: Callable[[Sequence[Message]], int],
    *,
    window: int,
    row: int | None,
    answer: int,
    measure_instruction: Callable[[Message], int],
) -> Sizes:
    """Let a manager open the first windows of an episode, and measure these.

    Args:
        context: the manager; asked as at the beginning of an episode.
        opening: the first prompt.
        measure: returns the length of a prompt in tokens, the tools on offer included.
        window: W in tokens.
        row: the most tokens that the engine accepts; None is whatever a summary takes.
        answer: the most tokens of an action.
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
        window=window,
        row=window + instruction + written_tokens if row is None else row,
        opening=measure(reopened_messages),
        reopened=measure(reopened),
        instruction=instruction,
        answer=answer,
        reading=measure(first.messages) if isinstance(first, WriteText) else 0,
    )
