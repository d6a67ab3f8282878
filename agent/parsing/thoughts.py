"""Thought blocks in a model's text, in which calls do not count.

Most models write `<think>`, Seed-OSS `<seed:think>`, Mistral `[THINK]`. A format whose models
write thoughts in another way has `Thoughts` of its own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

CLOSE = "</think>"


@dataclass(frozen=True)
class Thoughts:
    """The marks around thoughts, as pairs of regular expressions.

    Args:
        pairs: how thoughts begin and end. A block that never ends reaches to the end of the turn.
        No
            expression may have a capturing group, since groups number the pairs; see `kind`.
        whole: further pairs, which count only where both marks are there.
        lone: an end that counts without a beginning, because templates write the beginning. The
            default matches nowhere.
    """

    pairs: tuple[tuple[str, str], ...]
    whole: tuple[tuple[str, str], ...] = ()
    lone: str = r"(?!)"

    def opening(self, text: str, start: int = 0) -> int:
        """Return the position from `start` on where thoughts begin, or -1."""
        match = self._opening.search(text, start)
        return -1 if match is None else match.start()

    def kind(self, text: str, position: int) -> int:
        """Return the number of the pair whose beginning stands at `position`, from 0 on."""
        # Each pair is one group of `_opening`, so the number of the group that matched is the
        # pair's.
        match = self._opening.match(text, position)
        assert match is not None
        assert match.lastindex is not None
        return match.lastindex - 1

    def may_be_open(self, kind: int) -> bool:
        """Return whether thoughts of this kind may be left open, up to the end of the turn."""
        return kind < len(self.pairs)

    def end(self, text: str, start: int, kind: int) -> int:
        """Return the position from `start` on where thoughts of a kind end, or -1."""
        match = self._endings[kind].search(text, start)
        return -1 if match is None else match.start()

    def closing(self, text: str, start: int = 0) -> int:
        """Return the position from `start` on of an end that counts by itself, or -1."""
        match = self._lone.search(text, start)
        return -1 if match is None else match.start()

    def past(self, text: str, position: int) -> int:
        """Return the position after the mark at `position`, which is a beginning or an end."""
        matches = (
            pattern.match(text, position) for pattern in (self._opening, self._lone, *self._endings)
        )
        return max(match.end() for match in matches if match is not None)

    @property
    def kinds(self) -> int:
        """The number of pairs."""
        return len(self.pairs) + len(self.whole)

    @cached_property
    def _opening(self) -> re.Pattern[str]:
        return re.compile("|".join(f"({begin})" for begin, _ in (*self.pairs, *self.whole)))

    @cached_property
    def _endings(self) -> list[re.Pattern[str]]:
        return [re.compile(end) for _, end in (*self.pairs, *self.whole)]

    @cached_property
    def _lone(self) -> re.Pattern[str]:
        return re.compile(self.lone)


_ENDS = r"</(?:seed:)?think>"
_TAGS = (r"<(?:seed:)?think>", _ENDS)
_OTHERS = tuple(
    (f"<{tag}>", f"</{tag}>")
    for tag in ("thinking", "thought", "thoughts", "reasoning", "reflection", "scratchpad")
)
THINK = Thoughts((_TAGS,), _OTHERS, _ENDS)
MISTRAL = Thoughts((_TAGS, (r"\[THINK\]", r"\[/THINK\]")), _OTHERS, rf"{_ENDS}|\[/THINK\]")
GEMMA = Thoughts(
    (_TAGS, (r"<\|channel>thought\b", r"<channel\|>")), _OTHERS, rf"{_ENDS}|<channel\|>"
)
HARMONY = Thoughts(
    (_TAGS, (r"<\|channel\|>analysis\s*<\|message\|>", r"<\|end\|>|(?=<\|start\|>)")),
    _OTHERS,
    _ENDS,
)


def opening(text: str, start: int = 0) -> int:
    """Return the position from `start` on where thoughts in `<think>` begin, or -1."""
    return THINK.opening(text, start)


def closing(text: str, start: int = 0) -> int:
    """Return the position from `start` on of a tag that ends thoughts, or -1."""
    return THINK.closing(text, start)


def past(text: str, tag: int) -> int:
    """Return the position after the tag at position `tag`."""
    return text.index(">", tag) + 1


def thinks_first(text: str) -> bool:
    """Return whether `text` begins with thoughts."""
    stripped = text.lstrip()
    return THINK.opening(stripped) == 0


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
    has_begun = thinks_first(text)
    if has_begun:
        start = opening(text)
        kind = THINK.kind(text, start)
        end = THINK.end(text, start, kind)
        if end >= 0:
            return past(text, end)
        return len(text) if THINK.may_be_open(kind) else 0
    closed = closing(text)
    if closed >= 0:
        next_opening = opening(text)
        if next_opening < 0 or closed < next_opening:
            return past(text, closed)
    return 0
