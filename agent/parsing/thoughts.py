"""Thought blocks in a model's text, in which calls do not count. Seed-OSS uses `<seed:think>`."""

from __future__ import annotations

import re

CLOSE = "</think>"
_OPENING, _CLOSING = re.compile(r"<(?:seed:)?think>"), re.compile(r"</(?:seed:)?think>")


def opening(text: str, start: int = 0) -> int:
    """Return the position from `start` on where thoughts begin, or -1."""
    found = _OPENING.search(text, start)
    return -1 if found is None else found.start()


def closing(text: str, start: int = 0) -> int:
    """Return the position from `start` on of a tag that ends thoughts, or -1."""
    found = _CLOSING.search(text, start)
    return -1 if found is None else found.start()


def past(text: str, tag: int) -> int:
    """Return the position after the tag at position `tag`."""
    return text.index(">", tag) + 1


def thinks_first(text: str) -> bool:
    """Return whether `text` begins with thoughts."""
    return _OPENING.match(text.lstrip()) is not None


def end_of_thoughts(text: str) -> int:
    """Return the position after `</think>`, or the end of the text if thoughts began and never
    ended.

    This is for formats whose calls form the whole turn. The templates of some models write the
    opening tag themselves, so a closing tag alone ends thoughts. Only the first block counts:
    text after that block is spoken, even if the tags occur again.

    >>> end_of_thoughts("<think>a</think>b")
    16
    >>> end_of_thoughts("b")
    0
    """
    begun, closed = thinks_first(text), closing(text)
    if closed >= 0:
        opened = opening(text)
        if begun or opened < 0 or closed < opened:
            return past(text, closed)
    return len(text) if begun else 0
