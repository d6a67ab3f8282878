"""Several values in rows: bullets, lines and tables, each row with a label and its value, and the
labelled parts of a solution.

Whether a response has as many rows as the gold has values is the caller's question; a value that
the writer does not claim is none of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from .candidate import Candidate, CandidateKind

MAX_TAIL = 4000
MAX_ROWS = 12
_NAME = r"(?:[^\W\d_](?:_\{?\w{1,2}\}?|[₀-₉])?|\\?[^\W\d_]{2,}(?:[ -][^\W\d_]{2,}){0,3})"
_PART = r"\(?(?:[a-h]|[1-9]|i{1,3}|iv|v)\)"
_ROW = re.compile(
    rf"(?:[-*•+]\s+|\d{{1,2}}[.)]\s+)?[*_$`]*(?:(?P<part>{_PART})(?P<rest>[^:=→]*?)|(?P<name>{_NAME})"
    r"|(?P<key>\d{1,2}|[A-Za-z]))[*_$`]*\s*(?P<sign>[:=→]|->|\\to(?![a-z]))[*_$`]*\s*(?P<value>\S.*)"
)
_POINT = re.compile(
    r"(?:[-*•]\s+)?[*_$]*[A-Z](?:_?\d|[₀-₉])?\s*=?\s*(?P<point>\([^()]*[,;|][^()]*\))[*_$.,;]*"
)
_REMARK = re.compile(r"\s*\((?=[^()]*[A-Za-z]{2})[^()]*\)[\s.]*$")
_RULE = re.compile(r"\|?[\s:|-]+\|?")
_TOTAL = re.compile(
    r"\W*(?:grand )?(?:total|sum|altogether|summe|gesamt|somme|suma|soma|totale)\W*", re.I
)


class ValueRow(NamedTuple):
    """A row: the label, and the value behind it."""

    label: str
    value: str


def rows_of(body: str, count: int) -> Candidate | None:
    """Return the values of the rows that end a text, with their labels, if there are `count`."""
    tail = body.rstrip()[-MAX_TAIL:]
    block = tail.rpartition("\n\n")[2]
    lines = [line.strip() for line in block.split("\n") if line.strip()]
    found = _table(lines) if lines and lines[-1].startswith("|") else _lines(lines)
    if found and len(found) == count + 1 and _TOTAL.fullmatch(found[-1].label):
        found = found[:-1]
    labels = {row.label.casefold() for row in found}
    if len(found) != count or len(labels) != count or count > MAX_ROWS:
        return None
    start, end = body.rfind(block), len(body.rstrip())
    return Candidate(CandidateKind.WHOLE, _joined(found), start, end, start, end)


def _joined(found: list[ValueRow]) -> str:
    """Return rows as one answer, those with the letters of parts in their order."""
    if all(re.fullmatch(_PART, row.label) for row in found):
        found = sorted(found)
        return ", ".join(f"({row.label.strip('()')}) {row.value}" for row in found)
    if any(row.label.isdigit() for row in found):
        return ", ".join(f"{row.label} → {row.value}" for row in found)
    return ", ".join(
        f"{_named(row.label)} = {row.value}" if row.value else row.label for row in found
    )


def _named(label: str) -> str:
    return (
        label if len(re.sub(r"_?\{?\d\}?", "", label)) == 1 else rf"\text{{{label.strip(chr(92))}}}"
    )


def _lines(lines: list[str]) -> list[ValueRow]:
    """Return the rows of lines that all have a label; a heading before them is left out."""
    while lines and lines[0].rstrip("*_ ").endswith(":"):
        lines = lines[1:]
    if lines and all(map(_POINT.fullmatch, lines)):
        return [ValueRow(match["point"], "") for line in lines if (match := _POINT.fullmatch(line))]
    found = [_ROW.fullmatch(line) for line in lines]
    rows = [
        ValueRow(
            (match["part"] or match["name"] or match["key"]).strip("*_$` "),
            _value(match["value"], is_key=match["sign"] not in {":", "="}),
        )
        for match in found
        if match
    ]
    return rows if len(rows) == len(lines) and all(row.value for row in rows) else []


def _table(lines: list[str]) -> list[ValueRow]:
    """Return the first and last cells of the rows of a Markdown table."""
    begin = next((n for n in range(len(lines) - 1, -1, -1) if not lines[n].startswith("|")), -1) + 1
    table = lines[begin:]
    if len(table) < 4 or not _RULE.fullmatch(table[1]):
        return []
    cells = [[cell.strip(" *_$`") for cell in line.strip("|").split("|")] for line in table[2:]]
    if any(len(row) < 2 for row in cells):
        return []
    labels = [(re.match(_PART, row[0]) or re.match(r".*", row[0]))[0] for row in cells]  # type: ignore[index]
    rows = [ValueRow(label, _value(row[-1])) for label, row in zip(labels, cells, strict=True)]
    plain = all(
        re.fullmatch(rf"{_PART}|{_NAME}|\d{{1,2}}", row.label) and row.value for row in rows
    )
    return rows if plain else []


def _value(text: str, *, is_key: bool = False) -> str:
    """Return the value of a row: what a calculation ends in, without a remark in brackets; "" if
    it is words.
    """
    bare = _REMARK.sub("", text.strip(" .*_$`")).strip(" .*_$`,;")
    last = bare.rpartition("=")[2] if not re.search(r"[<>≤≥≠]|\\[lg]e", bare) else bare
    last = last.replace("**", "").strip(" *_$`")
    if is_key:
        return last if re.fullmatch(r"\(?(?:[A-Za-z]|\d{1,2}|[ivx]{1,4})\)?", last) else ""
    return last if re.search(r"\d|\\|[∞π√]", last) and "?" not in last else ""


# --- the parts of a solution ---

_HEADING = re.compile(
    r"(?m)^[\s#*_>-]*(?:\*\*)?(?i:part|teil|partie)?\s*\(?(?P<label>[a-h]|(?<=\()[1-8]|(?<=\()i{1,3})\)[\s*_.:)]*"
)


def parts_of(body: str, count: int, answer: Callable[[str], str | None]) -> Candidate | None:
    """Return the answers of the labelled parts of a solution as `(a) 20, (b) 0.4`, if there are
    `count` parts in order and each has one.
    """
    headings = list(_HEADING.finditer(body))[-count:]
    labels = [heading["label"] for heading in headings]
    if labels not in (
        list("abcdefgh"[:count]),
        list("12345678"[:count]),
        ["i", "ii", "iii"][:count],
    ):
        return None
    ends = [heading.start() for heading in headings[1:]] + [len(body)]
    values = [answer(body[h.end() : end]) for h, end in zip(headings, ends, strict=True)]
    if not all(values) or any("," in (value or "") for value in values):
        return None
    text = ", ".join(f"({'abcdefgh'[n]}) {value}" for n, value in enumerate(values))
    start = headings[0].start()
    return Candidate(CandidateKind.WHOLE, text, start, len(body), start, len(body))
