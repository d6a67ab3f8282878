"""What a sentence does with a value: it claims the value, or checks, supposes, denies, quotes it.

One classifier judges every candidate, boxes and announced answers alike. Its words are data
(`phrases.STANCES`): each row names a stance, the side of the value on which its words stand, and
the words in all languages.
"""

from __future__ import annotations

import re
from enum import StrEnum
from functools import lru_cache

from ..reading.vocabulary import NUMBER_WORDS
from .phrases import (
    ATTRIBUTED,
    CONTRAST,
    DENIED,
    DENIED_BEHIND,
    DETERMINERS,
    FRAMES,
    RELATED,
    SPEAKERS,
    STANCES,
    TURN,
)
from .surface import REACH, clause_before, clause_behind, crossed_out, lowered

NEAR = 64
"""How many characters before a value may contain words that govern the value."""
CLAUSES = 512
"""How many clauses before a value keep what they say of it in a cache."""
BEHIND = 80
"""How many characters behind a value are searched for words that take the value back."""


class Stance(StrEnum):
    """What the writer does with a value. Only `CLAIM` can be the answer."""

    CLAIM = ""
    CHECK = "it is checked, not claimed"
    SUPPOSITION = "it is only supposed"
    DENIAL = "it is denied"
    DOUBT = "it is doubted"
    BOUND = "it is only bounded"
    CONDITION = "it holds only under a condition"
    QUOTATION = "it is quoted"
    QUESTION = "it is asked"
    EXAMPLE = "it is an example"
    ANOTHER = "it is not the writer's answer"
    CROSSED_OUT = "it is crossed out"


_BEHIND = [row for row in STANCES if row.side == "behind"]
_AHEAD = {
    marked: [row for row in STANCES if row not in _BEHIND and row.marked in (None, marked)]
    for marked in (False, True)
}
"""The rows for words before a value, for formal marks and for announcements."""
_SILENT = " \n$.\\])}*"
"""What closes a formula, and says nothing behind it."""
_DIGIT = re.compile(r"-?\d")
_NAME = re.compile(r"(?<![A-Za-z\\\\])[A-Za-z]\s*=[\s$\\\\(]*$")
_QUOTES = re.compile(r"[\"“”]")
_DENIED_AHEAD = re.compile(rf"(?i)^\W{{0,4}}(?:[a-z]+ly\s+)?(?:{DENIED.pattern}|pas\b)")
INSTEAD = re.compile(
    r"(?P<not>\W{0,4}(?:not|nicht|pas|no(?!,)|non)\b)?"
    r"(?:(?!\b(?:since|because|as|which)\b)[^.\n]){1,60}?[,;\s]\s*"
    r"(?:(?:but|sondern|mais|sino|ma)\b|(?:it|that) is\b|it's\b)"
)
"""A denied value followed by the right one: `not 8 but 5`, `not 8; it is 5`."""
_VALUE = re.compile(r"\d|[$\\]|\b[A-J]\b")
# `If x were 2, the answer would be 5` is supposed; `would` alone is mere politeness.
_COUNTERFACT = re.compile(r"(?i)\b(?:had|if|were|without|otherwise)\b")


@lru_cache(maxsize=256)
def related(clause: str) -> bool:
    """Return whether the words before a value relate the answer to it, or leave it to others.

    Cached, since a value is judged as a statement and again at each lower rank.
    """
    clause = lowered(clause)
    contrasts = [contrast.end() for contrast in CONTRAST.finditer(clause)]
    return RELATED.search(clause[contrasts[-1] if contrasts else 0 :]) is not None


def before_noun(text: str, start: int = 0) -> int:
    """Return where the articles and adjectives begin that end a text, or its end."""
    determiner = DETERMINERS.search(lowered(text), start)
    return determiner.start() if determiner else len(text)


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


def announced_stance(body: str, said_from: int, link: str, start: int, end: int) -> str:
    """Return why the writer does not claim the announced answer at `start`, or "".

    `link` is the text between the noun and the value ("is not").
    """
    if DENIED.search(link) or _DENIED_AHEAD.match(body[start : start + 40]):
        return Stance.DENIAL if _VALUE.search(body, start, end) else ""
    number = _DIGIT.search(body, start, end)
    sentence = (
        clause_before(body, said_from) + body[said_from : number.start() if number else start]
    )
    if related(sentence):
        return Stance.ANOTHER
    if "would" in link and _COUNTERFACT.search(clause_before(body, said_from)):
        return Stance.SUPPOSITION
    if not body.isascii() and DENIED_BEHIND.match(body[start : end + 30].partition("。")[0]):
        return Stance.DENIAL
    return stance(body, said_from, start, end)


def stance(body: str, said_from: int, start: int, end: int, *, marked: bool = False) -> str:
    """Return why a statement is not the writer's own claim, or "".

    Args:
        body: the searched text.
        said_from: where the statement begins, with its mark or noun.
        start: where the value begins.
        end: where the statement ends.
        marked: the value stands in a formal mark, around which words stand that would be part of
            an announcement.
    """
    clause = clause_before(body, said_from)
    if clause.strip() and (unclaimed := _led(clause, marked)):
        return unclaimed
    if marked:
        behind = lowered(body[end : end + BEHIND])
        for row in _BEHIND if behind.strip(_SILENT) else ():
            if row.words.match(behind):
                return Stance[row.stance]
    if crossed_out(body, start, end):
        return Stance.CROSSED_OUT
    return Stance.QUOTATION if quoted(body, said_from, end) else ""


@lru_cache(maxsize=CLAUSES)
def _led(clause: str, marked: bool) -> str:
    """Return why the words of a clause do not claim the value behind them, or "".

    Cached, since responses lead to their answers in the same words.
    """
    # A name before the value belongs to the value: `unless n = 11`.
    clause = _NAME.sub("", clause)
    if not clause.strip():
        return ""
    before = clause[-NEAR:]
    before = before.rstrip(" $\\([{*_\n") if marked else before
    if marked and related(clause.rstrip(" $\\([{*_\n")):
        return Stance.ANOTHER
    bare = before if marked else before[: before_noun(before)]
    small = lowered(clause), lowered(before), lowered(bare)
    for row in _AHEAD[marked]:
        text = small[0] if row.side == "clause" else small[1] if row.whole else small[2]
        if row.words.search(text):
            return Stance[row.stance]
    return attributed(bare)


_THE_ONE = re.compile(r"(?i)\bthe(?: \w+)? $")
"""Before a `one` that is no person: `the natural one says`."""


def attributed(before: str) -> str:
    """Return why words before a statement leave it to somebody else (`my friend says`), or ""."""
    speaker = ATTRIBUTED.search(before)
    name = speaker[1].lower() if speaker else ""
    says = name not in SPEAKERS and not (name.isdigit() or name in NUMBER_WORDS - {"one"})
    if speaker and speaker[1] == "one" and _THE_ONE.search(before, 0, speaker.start(1)):
        return ""
    return f"it is what {speaker[1]!r} says" if speaker and says else ""


def framed(body: str, place: int, stop: int) -> str:
    """Return why the sentence around `place` to `stop` does not claim what it says there, or "".

    The frames of a sentence stand anywhere before or behind what they govern: `I doubt that ...`,
    `... or so`.
    """
    before = lowered(clause_before(body, place))
    turn = TURN.match(before)
    behind = lowered(clause_behind(body, stop))
    texts = {"before": before[turn.end() if turn else 0 :], "behind": behind}
    for row in FRAMES:
        if row.words.search(texts[row.side]):
            return Stance[row.stance]
    return ""


def quoted(body: str, start: int, end: int) -> bool:
    """Return whether a statement is in quotation marks, in code, or in a block quote followed by
    prose.
    """
    line = body.rfind("\n", max(0, start - 400), start) + 1 or max(0, start - 400)
    open_quotes = body.count('"', line, start)
    if not body.isascii():
        open_quotes += body.count("“", line, start) + body.count("”", line, start)
    if open_quotes % 2 and _QUOTES.search(body, end, end + 200):
        return True
    # A fenced code block that text follows quotes as well.
    fences = body.count("```", max(0, start - REACH), start)
    close = body.find("```", start) if fences % 2 else -1
    if close >= 0 and any(map(str.isalnum, body[close + 3 : close + 400])):
        return True
    if not body[line : start + 1].lstrip().startswith(">"):
        return False
    lines = body[end : end + 2000].partition("\n")[2]
    return any(line.strip() and not line.lstrip().startswith(">") for line in lines.split("\n"))
