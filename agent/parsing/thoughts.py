"""Where a model thinks: calls in its thoughts are not calls. Seed-OSS thinks in `<seed:think>`."""

from __future__ import annotations

import re

CLOSE = "</think>"
_OPENING, _CLOSING = re.compile(r"<(?:seed:)?think>"), re.compile(r"</(?:seed:)?think>")


def opening(text: str, start: int = 0) -> int:
    """Where, from `start` on, thoughts begin; -1 if nowhere."""
    found = _OPENING.search(text, start)
    return -1 if found is None else found.start()


def closing(text: str, start: int = 0) -> int:
    """Where, from `start` on, a tag ends thoughts; -1 if nowhere."""
    found = _CLOSING.search(text, start)
    return -1 if found is None else found.start()


def past(text: str, tag: int) -> int:
    """The position after the tag that stands at `tag`."""
    return text.index(">", tag) + 1


def thinks_first(text: str) -> bool:
    """Whether `text` begins with thoughts."""
    return _OPENING.match(text.lstrip()) is not None


def end_of_thoughts(text: str) -> int:
    """The position after `</think>`; the end of the text if thoughts were begun and not ended.

    For formats whose calls are the whole turn. Templates of some models write the opening tag
    themselves, so a closing tag alone ends thoughts. Only the first block counts: what comes after
    it is said, even if it holds the tags again.

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
