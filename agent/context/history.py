"""The history of an episode, as a context manager sees it when asked for a decision."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ludus.messages import Message, Part, Role, TextPart

from ..images import ESTIMATED_TOKENS, images_of

LETTERS_PER_TOKEN = 3
"""Characters per token where nothing better is known."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """An action and the messages that answered."""

    action: Message
    answer: list[Message]


def estimate_tokens(messages: Sequence[Message]) -> int:
    """Return an estimate of a prompt's length in tokens, from characters and a fixed price of
    images.
    """
    letters = sum(len(message.text) for message in messages)
    return letters // LETTERS_PER_TOKEN + ESTIMATED_TOKENS * len(images_of(messages))


def _as_it_is(opening: list[Message], _: object) -> list[Message]:
    return opening


@dataclass(frozen=True, slots=True)
class History:
    """An episode so far, across all windows.

    Exchanges are computed on access: episodes are long, and most managers look at the end only.
    """

    messages: tuple[Message, ...]
    actions: tuple[int, ...] = ()
    """Indices of the policy's actions in `messages`. Calls that a context manager answered are not
    actions and are not in `messages`.
    """
    summaries: int = 0
    """How many summaries have been written so far, by whomever."""
    view: tuple[Message, ...] = ()
    """The messages that the current window shows, calls answered by a context manager included;
    empty before the first window.
    """
    opens: Callable[[list[Message], History], list[Message]] = _as_it_is
    """Returns the first prompt as a new window shows it now; see `ContextManager.opens`."""
    window: int = 0
    """W in tokens; 0 if unknown."""
    length: int = 0
    """The length of the current window in tokens; 0 before a window is measured."""
    measure: Callable[[Sequence[Message]], int] = estimate_tokens
    """Returns the length of a prompt in tokens."""

    @property
    def opening(self) -> list[Message]:
        """The messages before the first action (s_1), as a new window shows them now."""
        first = self.actions[0] if self.actions else len(self.messages)
        return self.opens(list(self.messages[:first]), self)

    @property
    def exchanges(self) -> list[Exchange]:
        """Return every action with the messages that answered."""
        exchange_ends = [*self.actions, len(self.messages)][1:]
        return [
            Exchange(self.messages[start], list(self.messages[start + 1 : end]))
            for start, end in zip(self.actions, exchange_ends, strict=True)
        ]

    def last(self, count: int) -> list[Message]:
        """Return the messages of the last `count` exchanges, or of all if fewer exist."""
        kept_positions = self.actions[max(0, len(self.actions) - count) :]
        return list(self.messages[kept_positions[0] :]) if kept_positions else []


def add_to_prompt(messages: Sequence[Message], text: str) -> list[Message]:
    """Return `messages` with `text` appended to the last user message, or as a new user message.

    The templates of some models refuse two user messages in a row.
    """
    last = messages[-1] if messages else None
    if last is None or last.role is not Role.USER:
        return [*messages, Message(role=Role.USER, content=text)]
    content: str | list[Part] = f"{last.content}\n\n{text}" if last.content else text
    if isinstance(last.content, list):  # parts, among them images
        content = [*last.content, TextPart(f"\n\n{text}")]
    return [*messages[:-1], Message(role=Role.USER, content=content, name=last.name)]
