"""The last formula or number of a response: the answer where nothing else marks one."""

from __future__ import annotations

import re

from .candidate import Candidate, Kind
from .sentence import NUMBER, POINT, closing_sentence, denied, governed, labels, unanswered

TAIL = 3000
"""Characters at the end of a response in which formulas are looked for."""
NUMBER_TAIL = 1200
"""Characters at the end of a response in which a bare last number is looked for."""
MAX_NUMBERS = 40
_RELATION = re.compile(
    r"(?:-?\d[\d./]*\s*(?:<=|[<≤])\s*)?(?<![A-Za-z])[A-Za-z]\s*(?:<=|>=|!=|[<>≤≥≠])\s*$"
)
_OR = re.compile(r"\s*(?:,|,?\s*or(?:\s+[a-z]\s*=)?)\s*")


def last_expression(body: str) -> Candidate | None:
    """The last formula or the last number, whichever is later; one beside the point (`for 50
    minutes`) only if the closing sentence has no other.
    """
    start, end = closing_sentence(body)
    if refused := unanswered(body, start, end):
        return refused
    base = max(0, len(body) - TAIL)
    found = _last_formulas(body[base:])
    formula = None if found is None else (base + found[0], base + found[1])
    number = _last_number(body, start, end)
    if formula is not None and denied(body, start, end, *formula):
        formula = None
    if formula is not None and (number is None or number[0] <= formula[1]):
        return Candidate(Kind.FORMULA, body[slice(*formula)], *formula, *formula)
    if number is None:
        return None
    return Candidate(Kind.NUMBER, body[slice(*number)], *number, *number)


def _last_number(body: str, start: int, end: int) -> tuple[int, int] | None:
    """The number the closing sentence states, else the last before it; or the point it ends."""
    base = max(0, len(body) - NUMBER_TAIL)
    numbers = [
        one
        for one in list(NUMBER.finditer(body, base, end))[-MAX_NUMBERS:]
        if not denied(body, start, end, *one.span()) and not labels(body, one.start())
    ]
    if not numbers:
        return None
    closing = [one for one in numbers if one.start() >= start]
    free = [one for one in closing if not governed(body, start, one.start())]
    last = (free or closing or numbers)[-1]
    for point in POINT.finditer(body, max(0, last.start() - 60), end):
        if point.start() < last.start() < point.end():
            return point.span()
    first = last
    for one in reversed(closing[: closing.index(last)] if last in closing else []):
        if not _OR.fullmatch(body, one.end(), first.start()):
            break
        first = one
    if first is last and (
        relation := _RELATION.search(body, max(base, last.start() - 40), last.start())
    ):
        return relation.start(), last.end()
    return first.start(), last.end()


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
    begins = closing_sentence(tail)[0]
    closing = [span for span in spans if span[0] >= begins]
    free = [span for span in closing if not governed(tail, begins, span[0])]
    while free and spans[-1] is not free[-1]:
        spans.pop()
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
