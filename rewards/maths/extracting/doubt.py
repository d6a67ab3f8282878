"""Objections to a statement: whether the writer denies, supposes or quotes the answer instead of
claiming it.
"""

from __future__ import annotations

import re

from .phrases import (
    ATTRIBUTED,
    DENIED,
    DENIED_BEHIND,
    DETERMINERS,
    EXAMPLE,
    NOT_MINE,
    SPEAKERS,
    SUPPOSED,
)
from .sentence import DENIED_BY_VERB
from .surface import REACH, clause_before, crossed_out

_QUOTES = re.compile(r"[\"“”]")
_DENIED_AHEAD = re.compile(rf"^\W{{0,4}}(?:[a-z]+ly\s+)?(?:{DENIED.pattern}|pas\b)", re.IGNORECASE)
INSTEAD = re.compile(
    r"(?P<not>\W{0,4}(?:not|nicht|pas|no|non)\b)?[^.\n]{1,60}?[,;\s]\s*"
    r"(?:(?:but|sondern|mais|sino|ma)\b|(?:it|that) is\b|it's\b)"
)
"""A denied value followed by the right one: `not 8 but 5`, `not 8; it is 5`."""


def instead(body: str, link: str, place: int) -> int:
    """Return the offset of the value that replaces a denied one at `place`, or `place` if nothing
    is replaced.
    """
    correction = INSTEAD.match(body[place : place + 80])
    return (
        place + correction.end()
        if correction and (correction["not"] or DENIED.search(link))
        else place
    )


_VALUE = re.compile(r"\d|[$\\]|\b[A-J]\b")
# `If x were 2, the answer would be 5` is supposed; `would` alone is mere politeness.
_CONDITIONAL = re.compile(r"\bwould\b")
_COUNTERFACT = re.compile(r"\b(?:had|if|were|without|otherwise)\b", re.IGNORECASE)


def doubt(body: str, said_from: int, link: str, start: int, end: int) -> str:
    """Return why the writer does not claim the announced answer at `start`, or "".

    `link` is the text between the noun and the value ("is not").
    """
    if DENIED.search(link) or _DENIED_AHEAD.match(body[start : start + 40]):
        return "it is denied" if _VALUE.search(body, start, end) else ""
    if _CONDITIONAL.search(link) and _COUNTERFACT.search(clause_before(body, said_from)):
        return "it is only supposed"
    if not body.isascii() and DENIED_BEHIND.match(body[start : end + 30].partition("。")[0]):
        return "it is denied"
    return unclaimed(body, said_from, start, end)


def unclaimed(body: str, said_from: int, start: int, end: int) -> str:
    """Return why a statement is not the writer's own claim, or ""."""
    before = clause_before(body, said_from)[-NEAR:]
    if before.strip():
        if NOT_MINE.search(before):
            return "it is not the writer's answer"
        before = DETERMINERS.sub("", before)
        if SUPPOSED.search(before):
            return "it is only supposed"
        if (speaker := ATTRIBUTED.search(before)) and speaker[1].lower() not in SPEAKERS:
            return f"it is what {speaker[1]!r} says"
    if crossed_out(body, start, end):
        return "it is crossed out"
    return "it is quoted" if quoted(body, said_from, end) else ""


_DENIED_MARK = re.compile(
    r"(?:\b(?:not|never|cannot be|neither|instead of|rather than|except|tempt\w* to (?:say|answer"
    r"|write|claim)|far from|wrong (?:to say|answer(?: is)?))|n't(?: be)?)\s*:?$",
    re.IGNORECASE,
)
NEAR = 64
"""How many characters before a mark may contain words that deny the mark or call it an example."""


def mark_doubt(body: str, start: int, end: int) -> str:
    """Return why the writer does not claim the content of a mark, or ""."""
    before = clause_before(body, start)[-NEAR:].rstrip(" $\\([{*_\n")
    if before:
        if EXAMPLE.search(before):
            return "it is an example"
        if _DENIED_MARK.search(before):
            return "it is denied"
        if (speaker := ATTRIBUTED.search(before)) and speaker[1].lower() not in SPEAKERS:
            return f"it is what {speaker[1]!r} says"
    if DENIED_BY_VERB.match(body, end):
        return "it is denied"
    if crossed_out(body, start, end):
        return "it is crossed out"
    return "it is quoted" if quoted(body, start, end) else ""


def quoted(body: str, start: int, end: int) -> bool:
    """Return whether a statement is in quotation marks, in code, or in a block quote followed by
    prose.
    """
    line = body.rfind("\n", max(0, start - 400), start) + 1 or max(0, start - 400)
    open_quotes = sum(1 for _ in _QUOTES.finditer(body, line, start))
    if open_quotes % 2 and _QUOTES.search(body, end, end + 200):
        return True
    # A fenced code block that text follows quotes as well.
    fences = body.count("```", max(0, start - REACH), start)
    close = body.find("```", start) if fences % 2 else -1
    if close >= 0 and any(map(str.isalnum, body[close + 3 : close + 400])):
        return True
    if not body[line : start + 1].lstrip().startswith(">"):
        return False
    rest = body[end : end + 2000].partition("\n")[2]
    return any(line.strip() and not line.lstrip().startswith(">") for line in rest.split("\n"))
