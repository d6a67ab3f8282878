"""Several values in rows: bullets, lines and tables, each row with a label and its value, and the
labelled parts of a solution.

Whether a response has as many rows as the gold has values is the caller's question; a value that
the writer does not claim is none of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from ..reading.locales import joined_by_and
from .candidate import Candidate, CandidateKind

MAX_TAIL = 4000
MAX_ROWS = 12
_NAME = r"(?:[^\W\d_](?:_\{?\w{1,2}\}?|[₀-₉])?|\\?[^\W\d_]{2,}(?:[ -][^\W\d_]{2,}){0,3})"
_LETTER = re.compile(r"[^\W\d_](?:_\{?\w{1,2}\}?|[₀-₉])?")
_PART = r"\(?(?:[a-h]|[1-9]|i{1,3}|iv|v)\)"
_ROW = re.compile(
    rf"(?P<mark>[-*•+]\s+|\d{{1,2}}[.)]\s+)?[*_$`]*(?i:the )?"
    rf"(?:(?P<part>{_PART})(?P<rest>[^:=→,]*?)|(?P<name>{_NAME})|(?P<key>\d{{1,2}}|[A-Za-z]))[*_$`]*\s*"
    r"(?P<sign>[:=→]|->|\\to(?![a-z])|(?(mark)is\b|(?!)))[*_$`]*\s*(?P<value>(?![*_]+$)\S.*)"
)
_COUNTED = re.compile(
    r"(?:[-*•+]\s+)?[*_$`]*(?P<number>\d[\d.,]*)[*_$`]*\s+"
    r"(?P<noun>[^\W\d_]{3,}(?: [^\W\d_]{3,})?)[*_.]*"
)
_APART = re.compile(r",\s+(?:and\s+)?|;\s+|\s+and\s+")
_SENTENCE = re.compile(r"^.*[.!?]\s+(?=[A-Z])")
_POINT = re.compile(
    r"(?:[-*•]\s+)?[*_$]*[A-Z](?:_?\d|[₀-₉])?\s*=?\s*(?P<point>\([^()]*[,;|][^()]*\))[*_$.,;]*"
)
_REMARK = re.compile(r"\s*\((?=[^()]*[A-Za-z]{2})[^()]*\)[\s.]*$")
_ITEM = re.compile(
    r"(?:[*_]{0,2}(\d{1,2})[.)][*_]{0,2}|[-*•\U0001f300-\U0001faff])\s+"
    r"((?:[^\W\d_]{4,}\s?){0,2}[^:=→]{1,24}|[-−\d,;$ ]{1,80})"
)
"""An item of a list, without a name or a calculation."""
_RULE = re.compile(r"\|?[\s:|-]+\|?")
_TOTAL = re.compile(
    r"(?i)\W*(?:grand )?(?:total|sum|altogether|summe|gesamt|somme|suma|soma|totale)\W*"
)


class ValueRow(NamedTuple):
    """A row: the label, and the value behind it."""

    label: str
    value: str


def rows_of(body: str, count: int) -> Candidate | None:
    """Return the values of the rows that end a text, with their labels, if there are `count`; the
    rows may be lines, or stand in the last line with commas between.
    """
    tail = body.rstrip()[-MAX_TAIL:]
    written = [line.strip() for line in tail.split("\n")]
    lines = [line for line in written if line]
    if len(items := _items(lines)) == count:
        place = body.rfind(lines[-count]), len(body.rstrip())
        return Candidate(CandidateKind.WHOLE, ", ".join(items), *place, *place)
    if count > MAX_ROWS or not lines:
        return None
    if lines[-1].startswith("|"):
        rows = _table(lines)
        rows = rows[:-1] if rows and _TOTAL.fullmatch(rows[-1].label) else rows
        first = next((line for line in lines if line.startswith("|")), "")
    else:
        rows = _lines(written, count)
        first = lines[-count] if rows else ""
        if not rows:
            first = _SENTENCE.sub("", lines[-1])
            apart = " or " not in joined_by_and(first, foreign=True)
            rows = _lines(_APART.split(first.rstrip(" .")), count) if apart else []
    labels = {row.label.casefold() for row in rows}
    # Each row has a label of its own, or all are values of one letter.
    several = len(labels) == count or (len(labels) == 1 and _LETTER.fullmatch(rows[0].label))
    if len(rows) != count or not several:
        return None
    start, end = body.rfind(first), len(body.rstrip())
    return Candidate(CandidateKind.WHOLE, as_answer(rows), start, end, start, end)


def _items(lines: list[str]) -> list[str]:
    """Return the items of the list that lines end in, all of them numbered from 1 or behind
    bullets; else [].
    """
    items: list[re.Match[str]] = []
    for line in reversed(lines[-MAX_ROWS:]):
        item = _ITEM.fullmatch(line)
        follows = item and (not items or int(items[0][1] or 1) == int(item[1] or 0) + 1)
        if item is None or not follows or bool(item[1]) != bool((items or [item])[0][1]):
            break
        items.insert(0, item)
    begins = items and items[0][1] in {None, "1"}
    return [item[2].strip(" *.;,") for item in items] if begins else []


def lists_in_rows(body: str) -> Candidate | None:
    """Return all values of the rows that end a text, if each is a list of numbers."""
    lines = [line.strip() for line in body.rstrip()[-MAX_TAIL:].split("\n") if line.strip()]
    items = _items(lines)
    if len(items) < 2 or not all(map(_NUMBERS.fullmatch, items)):
        return None
    place = body.rfind(lines[-len(items)]), len(body.rstrip())
    text = ", ".join(item.strip("$ ") for item in items)
    return Candidate(CandidateKind.WHOLE, text, *place, *place)


_NUMBERS = re.compile(r"\$?[-−]?\d+(?:[,;]\s?[-−]?\d+)+\$?")


def as_answer(rows: list[ValueRow]) -> str:
    """Return rows as one answer, those with the letters of parts in their order."""
    if all(re.fullmatch(_PART, row.label) for row in rows):
        rows = sorted(rows)
        return ", ".join(f"({row.label.strip('()')}) {row.value}" for row in rows)
    if any(row.label.isdigit() for row in rows):
        return ", ".join(f"{row.label} → {row.value}" for row in rows)
    return ", ".join(
        f"{_named(row.label)} = {row.value}" if row.value else row.label for row in rows
    )


def _named(label: str) -> str:
    return label if _LETTER.fullmatch(label) else rf"\text{{{label.removeprefix(chr(92))}}}"


def _lines(lines: list[str], count: int) -> list[ValueRow]:
    """Return the last `count` lines as rows, if each has a label and the line before has none."""
    filled = [place for place, line in enumerate(lines) if line]
    last = [lines[place] for place in filled[-count:]]
    for pattern in (_POINT, _COUNTED, _ROW):
        matches = [pattern.fullmatch(line) for line in last]
        if len(last) == count and all(matches):
            break
    else:
        return []
    # A row too many is another list, of which only some would be picked.
    first = filled[-count]
    apart = len(filled) > 1 and filled[-1] - filled[-2] > 1
    above = lines[first - 1 :: -1] if first else []
    if pattern.fullmatch(next((line for line in above if line or not apart), "")):
        return []
    rows = [_row(match) for match in matches if match]
    return rows if all(row.label and row.value is not None for row in rows) else []


def _row(match: re.Match[str]) -> ValueRow:
    groups = match.groupdict()
    if "point" in groups:
        return ValueRow(groups["point"], "")
    if "noun" in groups:
        return ValueRow(groups["noun"], groups["number"])
    label = (groups["part"] or groups["name"] or groups["key"]).strip("*_$` ")
    value = _value(groups["value"], is_key=groups["sign"] not in {":", "=", "is"})
    return ValueRow(label if value else "", value)


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
    known = re.compile(rf"{_PART}|{_NAME}|\d{{1,2}}")
    return rows if all(known.fullmatch(row.label) and row.value for row in rows) else []


def _value(text: str, *, is_key: bool = False) -> str:
    """Return the value of a row: what a calculation ends in, without a remark in brackets; "" if
    it is words.
    """
    bare = _REMARK.sub("", text.strip(" .*_$`")).strip(" .*_$`,;")
    if bare.count("$") > 2 and re.search(r"[,;.]\s", bare):  # several formulas and words
        return ""
    last = bare.rpartition("=")[2] if not re.search(r"[<>≤≥≠]|\\[lg]e", bare) else bare
    last = last.replace("**", "").strip(" *_$`")
    if "$" in last or len(_PROSE.findall(_SET_UPRIGHT.sub("", last))) > MAX_WORDS:
        return ""
    if is_key:
        return last if re.fullmatch(r"\(?(?:[A-Za-z]|\d{1,2}|[ivx]{1,4})\)?", last) else ""
    return last if re.search(r"\d|\\|[∞π√]", last) and "?" not in last else ""


_SET_UPRIGHT = re.compile(r"\\(?:text|mathrm)\s*\{[^{}]*\}|\\[A-Za-z]+")
_PROSE = re.compile(r"[^\W\d_]{3,}")
MAX_WORDS = 2
"""The most words in the value of a row."""


# --- the letters of a question ---

_POINT_OF_LETTERS = re.compile(r"\(([a-z](?:\s*,\s*[a-z]){1,3})\)")
_ASSIGNED = re.compile(
    r"(?<![\w\\^_.)])(?<![-+*/·×^−] )(?P<name>[a-z])[*$]*\s?[:=]\s?(?P<sides>[^,;:\n<>≤≥]*?[\d$)])"
    r"(?=[*$]*(?:[,;.]*\s*$|[,;.]\s|\s+(?![-+−·×*/=^:])))"
)
_TUPLE = re.compile(r"\([-−]?\d[^()]*,[^()]*\)")
_NUMERAL = re.compile(r"[-−]?\d[\d.]*(?:/\d+)?")


def assigned_apart(prompt: str, body: str, count: int) -> Candidate | None:
    """Return the values of the letters of a point that a question asks for (`Give (x, y)`), which
    a text works out one by one; None unless each letter has just one value.
    """
    asked = _POINT_OF_LETTERS.search(prompt)
    letters = re.findall(r"[a-z]", asked[1]) if asked else []
    sides: dict[str, set[str]] = {letter: set() for letter in letters}
    places: list[int] = []
    for match in _ASSIGNED.finditer(body, max(0, len(body) - MAX_TAIL)):
        value = match["sides"].rpartition("=")[2].strip(" $*")
        if match["name"] in sides and _NUMERAL.fullmatch(value):
            sides[match["name"]].add(value)
            places += match.span()
    if len(letters) != count or any(len(values) != 1 for values in sides.values()):
        return None
    if _TUPLE.search(body, places[0]):  # the point itself
        return None
    text = ", ".join(f"{letter} = {values.pop()}" for letter, values in sides.items())
    return Candidate(CandidateKind.WHOLE, text, places[0], places[-1], places[0], places[-1])


# --- the parts of a solution ---

_HEADING = re.compile(
    r"(?m)^[\s#*_>-]*(?:\d{1,2}[.)]\s+[*_]*)?(?i:part|teil|partie)?\s*\(?(?P<label>[a-h]|(?<=\()[1-8]|(?<=\()i{1,3})\)[\s*_.:)]*"
)


def parts_of(body: str, count: int, answer: Callable[[str], str | None]) -> Candidate | None:
    """Return the answers of the labelled parts of a solution as `(a) 20, (b) 0.4`, if there are
    `count` parts in order and each has one.
    """
    headings = list(_HEADING.finditer(body))[-count:]
    labels = [heading["label"] for heading in headings]
    if labels not in [
        list(marks)[:count] for marks in ("abcdefgh", "12345678", ["i", "ii", "iii"])
    ]:
        return None
    ends = [heading.start() for heading in headings[1:]] + [len(body)]
    values = [answer(body[h.end() : end]) for h, end in zip(headings, ends, strict=True)]
    said = [_worked(value) for value in values if value]
    return _labelled(said, headings[0].start(), len(body)) if len(said) == count else None


def _labelled(values: list[str], start: int, end: int) -> Candidate:
    text = "; ".join(f"({'abcdefgh'[n]}) {value}" for n, value in enumerate(values))
    return Candidate(CandidateKind.WHOLE, text, start, end, start, end)


_CASE = re.compile(
    r"\((?P<label>[a-h]|i{1,3}|iv)\)\s*\$?(?P<holds>[^$(),;.]*[<>=≤≥≠][^$,;.?]*|)\$?"
)
_CLAUSES = re.compile(r"[.;]\s+|\n+|,\s(?:and|but|while|whereas)\s")
_SPACES = re.compile(r"[\s$]")
_IF = re.compile(r"^\s*(?:If|When|For)\s")


def values_by_case(
    prompt: str, body: str, count: int, answer: Callable[[str], str | None]
) -> Candidate | None:
    """Return the value that a text gives each of the cases of a question (`(i) a > 0`), as that of
    a part, if one clause each names the case; else None.
    """
    cases = list(_CASE.finditer(prompt))
    start = max(0, len(body) - MAX_TAIL)
    clauses = [(_SPACES.sub("", clause), clause) for clause in _CLAUSES.split(body[start:])]
    values = []
    for case in cases:
        names = filter(None, (f"({case['label']})", _SPACES.sub("", case["holds"])))
        name = re.compile(rf"(?:{'|'.join(map(re.escape, names))})(?![\d.]*\d)")
        named = [said for bare, said in clauses if name.search(bare)]
        values += [answer(f"So {_IF.sub('', said)}.") for said in named[:1] if len(named) == 1]
    said = [value for value in values if value]
    return _labelled(said, start, len(body)) if len(said) == len(cases) == count else None


_TASK = re.compile(r"\\(?:i*int|lim|sum|prod|[dt]?frac\s*\{\s*d)(?![a-z])|∫|∑")


_MEASURE = re.compile(r"\s*-?\d[\d.,]*(?:\s*[A-Za-z°][\w/²³^]{0,6})?\s*")
"""The last side of a calculation, whose other sides may leave the units out."""


def _worked(value: str) -> str:
    """Return the last side of a part that repeats its task (`\\int 2x dx = x^2 + C`), or works out
    a number (`f(-1) = -1 + 3 = 2`).
    """
    value = value.strip(" $").rstrip(".").rstrip(" $")
    if _JOINED.search(value):
        return value
    head, sign, last = value.rpartition("=")
    if ("=" in head or head.rstrip().endswith(")")) and _MEASURE.fullmatch(last):
        return last.strip()
    return last.strip() if sign and _TASK.search(head) else value


_JOINED = re.compile(r"[\w$], |\b(?:and|or)\b")
"""What joins several values of a part."""


def table_row(text: str) -> str:
    """Return a Markdown table of names and one row of values as `a = 3, b = -5`, or ""."""
    table = _ONE_ROW.fullmatch(text)
    if table is None:
        return ""
    names, values = ([cell.strip(" $*") for cell in row.split("|")] for row in table.groups())
    if len(names) == len(values) > 2 and not any(cell[:1].isalpha() for cell in names[1:]):
        return ", ".join(values[1:])  # `| x | 1 | 2 |` above `| y | 3 | 6 |`
    plain = len(names) == len(values) and all(len(name) == 1 and name.isalpha() for name in names)
    return ", ".join(map(" = ".join, zip(names, values, strict=True))) if plain else ""


_ONE_ROW = re.compile(r"\|(.+)\|[ \t]*\n\|[\s:|-]+\|[ \t]*\n\|(.+)\|")
