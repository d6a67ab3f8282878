"""A space of text: any Unicode string, or a list of messages.

gymnasium's own `Text` holds a fixed character set without spaces or newlines, which no model's
answer fits.
"""

from __future__ import annotations

from typing import Any

import gymnasium

from ludus.messages import Message

ALPHABET = "abc xyz 0189 .,?!\n\t{}<>\"'\\/ äß λ 数 🙂"


class TextSpace(gymnasium.Space[Any]):
    """`str | Message | list[Message]`, without a length limit."""

    def __init__(self, seed: int | None = None) -> None:
        super().__init__(shape=None, dtype=None, seed=seed)

    @property
    def is_np_flattenable(self) -> bool:
        """Text is not an array."""
        return False

    def sample(self, mask: None = None, probability: None = None) -> str:
        """A short random text with spaces, newlines, punctuation and letters of several scripts."""
        length = int(self.np_random.integers(1, 24))
        return "".join(ALPHABET[i] for i in self.np_random.integers(len(ALPHABET), size=length))

    def contains(self, x: object) -> bool:
        """Whether `x` is text, a message or a list of messages."""
        if isinstance(x, list):
            return all(isinstance(message, Message) for message in x)
        return isinstance(x, (str, Message))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TextSpace)

    def __hash__(self) -> int:
        return hash(TextSpace)

    def __repr__(self) -> str:
        return "TextSpace()"
