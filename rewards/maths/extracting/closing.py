"""Answers that nothing marks: a whole short response, else what its end stresses, its last
formulas, its last number.
"""

from __future__ import annotations

import re

from ..reading.vocabulary import words
from .excerpt import HOPE, PROSE, TAIL, Extraction

MAX_WHOLE = 200
"""Characters of a response that may be an answer as it stands."""
NUMBER_TAIL = 1200
"""Characters at the end of a response in which a bare last number is looked for."""
_NUMBER = re.compile(
    r"(?<![A-Za-z0-9_.,])[-+−]?(?:[$£€]\s?)?[-+]?\d[\d,]*(?:\.\d+)?(?:/\d+)?(?:\s?%|\\%)?"
    r"(?![A-Za-z0-9_])"
)
_POINT = re.compile(r"[(\[]\s*[-−]?\d[\d./]*(?:\s*,\s*[-−]?\d[\d./]*)+\s*[)\]]")
_BOLD = re.compile(r"\*\*([^*\n]{1,120})\*\*[\s.!,]*+(?:\([^()\d]{0,40}\)[\s.!]*+)?$")
_NARRATIVE = words("there are then hence thus have get gives therefore find add so since")
_HOLDS_ANSWER = re.compile(r"\d|\\\(|\\\[|\$")
_KNOWN = words(
    "sin cos tan cot sec csc log exp sqrt frac max min gcd lcm and inf infinity for all mod pmod"
)


def last_expression(body: str) -> Extraction:
    """The best guess at an answer that nothing marks."""
    stripped = body.strip()
    if len(stripped) <= MAX_WHOLE and not _is_prose(stripped):
        start = body.find(stripped)
        return Extraction(stripped, "whole", start, start + len(stripped))
    base = max(0, len(body) - TAIL)
    found = _stressed(body[base:]) or _last_formulas(body[base:])
    formula = None if found is None else (base + found[0], base + found[1])
    base = max(0, len(body) - NUMBER_TAIL)
    number = _last_number(_without_remark(HOPE.sub("", body[base:])))
    if formula is not None and (number is None or base + number[0] <= formula[1]):
        return Extraction(body[slice(*formula)], "last formula", *formula)
    if number is None:
        return Extraction(None, "none", 0, 0, "no box, no announced answer, no expression")
    start, end = (base + place for place in number)
    return Extraction(body[start:end], "last number", start, end)


def _stressed(tail: str) -> tuple[int, int] | None:
    """What the last words of a response set in bold, if it holds a value: `are **(3, -2)**.`"""
    found = _BOLD.search(tail, max(0, tail.rfind("\n", 0, len(tail.rstrip()))))
    return found.span(1) if found and _HOLDS_ANSWER.search(found[1]) else None


_REMARK = re.compile(r"\([^()\n]{1,80}\)[\s.!]*+$")


def _without_remark(tail: str) -> str:
    """Without a last `(6 x 7)`, if its line holds a number before it."""
    found = _REMARK.search(tail)
    if found is None or _POINT.match(found[0].strip(" .!\n")):
        return tail
    line = tail[tail.rfind("\n", 0, found.start()) + 1 : found.start()]
    return tail[: found.start()] if any(map(str.isdigit, line)) else tail


def _last_number(tail: str) -> tuple[int, int] | None:
    """The last number, or the point it ends."""
    numbers = list(_NUMBER.finditer(tail))
    if not numbers:
        return None
    for point in _POINT.finditer(tail, max(0, numbers[-1].start() - 60)):
        if point.start() < numbers[-1].start() < point.end():
            return point.span()
    return numbers[-1].span()


_DOLLARS = re.compile(r"\\.|\$\$?", re.DOTALL)
_JOINT = re.compile(r"\s*(?:,|;|,?\s*(?:and|or))\s*$")
_NAME = re.compile(r"\s*([A-Za-z](?:_\{?\w\}?)?)\s*=")


def _last_formulas(tail: str) -> tuple[int, int] | None:
    """(start, end) of the last `$..$`, `\\(..\\)` or `\\[..\\]`, with those joined to it by "and"
    that give the same thing (`$x = 5$ and $x = -5$`). Linear time.
    """
    spans = _formulas(tail)
    if not spans:
        return None
    last = spans.pop()
    start = last[0]
    while spans and _JOINT.match(tail[spans[-1][1] : start].strip("$\\()[]")):
        names = [_NAME.match(tail, *span) for span in (spans[-1], last)]
        if len({name[1] if name else "" for name in names}) > 1:
            break
        start = spans.pop()[0]
    return start, last[1]


def _formulas(tail: str) -> list[tuple[int, int]]:
    """The insides of the last few formulas of one kind of delimiter, in order."""
    ends = {closer: tail.rfind(closer) for closer in ("\\)", "\\]")}
    dollars = [match for match in _DOLLARS.finditer(tail) if match[0][0] == "$"]
    if dollars and dollars[-1].start() > max(ends.values()):
        if tail[dollars[-1].end() : dollars[-1].end() + 1].isdigit():
            return []  # an amount of money closes nothing
        pairs = zip(dollars[len(dollars) % 2 :: 2], dollars[len(dollars) % 2 + 1 :: 2], strict=True)
        spans = [(first.end(), second.start()) for first, second in pairs]
    else:
        closer = max(ends, key=lambda mark: ends[mark])
        opener = {"\\)": "\\(", "\\]": "\\["}[closer]
        spans = []
        end = ends[closer]
        while end >= 0 and len(spans) < 8 and (start := tail.rfind(opener, 0, end)) >= 0:
            spans.insert(0, (start + 2, end))
            end = tail.rfind(closer, 0, start)
    return [(start, end) for start, end in spans[-8:] if tail[start:end].strip()]


_IDEOGRAPHS = re.compile("[一-鿿]")
_OPENED = re.compile(r"^[A-Za-z][A-Za-z ,]+(?:\$[^$]+\$|\\\(.+\\\))[.\s]*$")
"""`In conclusion, $x = 7/2$.`"""


def _is_prose(text: str) -> bool:
    """Whether text reads as sentences rather than as one answer."""
    if len(_IDEOGRAPHS.findall(text)) > 2:
        return any(map(str.isdigit, text))
    bare = re.sub(r"\\[A-Za-z]+\s*(?:\{[A-Za-z ]*\})?", " ", text)
    found = [word for word in PROSE.findall(bare) if word.lower() not in _KNOWN]
    holds = _HOLDS_ANSWER.search(text) is not None
    return (
        len(found) > 5
        or (holds and re.search(r"[.!?]\s+[A-Z]", text) is not None)
        or (holds and any(word.lower() in _NARRATIVE for word in found))
        or (len(found) > 2 and "$" in text)
        or (len(found) > 1 and re.search(r"\$.+\$", text) is not None)
        or (len(found) > 0 and _OPENED.search(text) is not None)
    )
