"""Where a model thinks: calls in its thoughts are not calls."""

from __future__ import annotations

OPEN, CLOSE = "<think>", "</think>"


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
    begun = text.lstrip().startswith(OPEN)
    closed = text.find(CLOSE)
    if closed >= 0:
        opened = text.find(OPEN)
        if begun or opened < 0 or closed < opened:
            return closed + len(CLOSE)
    return len(text) if begun else 0
