"""Splitting of long texts at spaces, by length in tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ludus.messages import Message, user


def split_text(
    text: str, max_tokens: int, measure: Callable[[Sequence[Message]], int]
) -> list[str]:
    """Split a text into chunks of at most `max_tokens` tokens, as long as possible, at spaces.

    Joined, the chunks are the text again. A single word of more than `max_tokens` tokens is split
    inside; a chunk has at least one character, whatever its length in tokens.

    Args:
        text: the text.
        max_tokens: the most tokens of a chunk, as a message.
        measure: returns the length of messages in tokens.

    >>> split_text("one two three", 9, lambda messages: len(messages[0].text))
    ['one two ', 'three']
    """
    chunks: list[str] = []
    while text:
        end = _fitting(text, max_tokens, measure)
        if end < len(text):
            space = max(text.rfind(" ", 0, end), text.rfind("\n", 0, end)) + 1
            end = space or end
        chunks.append(text[:end])
        text = text[end:]
    return chunks


def _fitting(text: str, max_tokens: int, measure: Callable[[Sequence[Message]], int]) -> int:
    """Return the most characters of the text's beginning that have at most `max_tokens` tokens."""
    fits, too_many = 1, len(text) + 1
    # Begin with a guess, since measuring a whole book many times is slow.
    guess = 4 * max_tokens
    while too_many - fits > 1:
        middle = min(guess, too_many - 1) if guess > fits else (fits + too_many) // 2
        if measure([user(text[:middle])]) <= max_tokens:
            fits = middle
            guess = 2 * middle
        else:
            too_many = middle
            guess = 0
    return fits
