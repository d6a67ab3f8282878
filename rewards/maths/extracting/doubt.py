"""Whether a statement claims its answer, or denies, supposes or quotes it."""

from __future__ import annotations

import re

from .phrases import (
    ATTRIBUTED,
    DENIED,
    DENIED_BEHIND,
    DETERMINERS,
    EXAMPLE,
    SPEAKERS,
    SUPPOSED,
)
from .surface import clause_before, crossed_out

_QUOTES = re.compile(r"[\"“”]")
_DENIED_AHEAD = re.compile(rf"^\W{{0,4}}(?:[a-z]+ly\s+)?(?:{DENIED.pattern}|pas\b)", re.IGNORECASE)
RATHER = re.compile(
    r"^\W{0,4}(?:not|nicht|pas|no|non)\b[^.\n]{1,60}?[,\s]\s*(?:but|sondern|mais|sino|ma)\b"
)
"""`not 8 but 5`."""


def doubt(body: str, said_from: int, link: str, start: int, end: int) -> str:
    """Why nobody claims the answer at `start`, or ''. `link` is what joins it to its noun."""
    if DENIED.search(link) or _DENIED_AHEAD.match(body[start : start + 40]):
        return "it is denied"
    if not body.isascii() and DENIED_BEHIND.match(body[start : end + 30].partition("。")[0]):
        return "it is denied"
    return unclaimed(body, said_from, start, end)


def unclaimed(body: str, said_from: int, start: int, end: int) -> str:
    """Why a statement is not the writer's own, or ''."""
    before = clause_before(body, said_from)
    if before.strip():
        before = DETERMINERS.sub("", before)
        if SUPPOSED.search(before):
            return "it is only supposed"
        if (speaker := ATTRIBUTED.search(before)) and speaker[1].lower() not in SPEAKERS:
            return f"it is what {speaker[1]!r} says"
    if crossed_out(body, start, end):
        return "it is crossed out"
    return "it is quoted" if quoted(body, said_from, end) else ""


def shown_as_example(body: str, place: int) -> bool:
    """Whether the mark at `place` only shows what an answer looks like."""
    return EXAMPLE.search(clause_before(body, place)) is not None


def quoted(body: str, start: int, end: int) -> bool:
    """Whether a statement is in quotation marks, or in a block quote that prose follows."""
    line = body.rfind("\n", max(0, start - 400), start) + 1 or max(0, start - 400)
    opened = sum(1 for _ in _QUOTES.finditer(body, line, start))
    if opened % 2 and _QUOTES.search(body, end, end + 200):
        return True
    if not body[line : start + 1].lstrip().startswith(">"):
        return False
    rest = body[end : end + 2000].partition("\n")[2]
    return any(line.strip() and not line.lstrip().startswith(">") for line in rest.split("\n"))
