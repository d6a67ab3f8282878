"""The pieces of what a task or a reply shows: tokens, numbers, names, rows, and what is offered to
choose from.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable
from functools import lru_cache

Find = Callable[[str], list[str]]
"""A function from a text to the pieces of one kind."""
_TOKEN = re.compile(r"[^\s,;?()\[\]{}<>\"']*[^\s,;?()\[\]{}<>\"'.:!]")
NUMERAL = re.compile(r"-?\d+(?:\.\d+)?")
_MARKED = re.compile(r"[\[(<{\"'`]([^\])>}\"'`\n]{1,200})[\])>}\"'`]")
_CHOICE = re.compile(r"^\s*(\(?(?:[A-Za-z]|\d{1,2})[.):]\s+.+)$", re.MULTILINE)
_CAPITAL = re.compile(r"\b[A-Z][a-z]\w*")
_LONG = re.compile(r"\b[a-z]{4,}\b")
_APART = re.compile(r"(?<=[ ,:(\[])-?\d+(?:\.\d+)?(?=[\s,.;)\]]|$)")


def listed(text: str) -> list[str]:
    """Return what a task offers to choose from: the items of its last enumeration.

    >>> listed("Which one is hot: ice, snow or fire?")
    ['ice', 'snow', 'fire']
    """
    tail = re.split(r"[:?\n]", text.strip().rstrip(".?"))
    for part in reversed(tail):
        items = [item.strip(" .") for item in re.split(r",|\bor\b|\band\b", part) if item.strip()]
        if len(items) > 2:
            return items
        words = part.split()
        if len(words) > 2:
            return words
    return []


def _matching(pattern: re.Pattern[str]) -> Find:
    @lru_cache(maxsize=256)  # many rules read the same texts
    def find(text: str) -> list[str]:
        return [match[match.lastindex or 0] for match in pattern.finditer(text)]

    return find


def options(text: str) -> list[str]:
    """Return what a task offers to choose from: the lines of its list, or if it has none, the items
    of its last enumeration.
    """
    lines = listed_lines(text)
    return lines if len(lines) > 1 else listed(text)


def choices(text: str) -> list[str]:
    """Return the choices of a task with their labels: from lines, or from within one line.

    >>> choices("Which one is hot? A) ice B) fire")
    ['A) ice', 'B) fire']
    """
    lines = _matching(_CHOICE)(text)
    if len(lines) > 2:
        return lines
    inline = [*_INLINE.finditer(text)]
    labels = "".join(match[1].lower() for match in inline)
    return [match[0] for match in inline] if labels and labels in string.ascii_lowercase else lines


_INLINE = re.compile(
    r"(?<![^\s(])\(?([A-Za-z])[.):]\s+.+?(?=[,;.]?\s+\(?[A-Za-z][.):]\s|[.;]?\s*$)", re.MULTILINE
)


def counted(text: str) -> list[str]:
    """Return the first number of each clause of the most frequent shape: the numbers of a list of
    records, and no other number of the task.

    >>> counted("Choose 2: ann has 5, ben has 7")
    ['5', '7']
    """
    clauses = [part.strip() for part in re.split(r"[;,\n]|[:.]\s", text) if part.strip()]
    shapes = [re.sub(r"\d+", "0", re.sub(r"[^\W\d]\w*", "w", clause)) for clause in clauses]
    alike = Counter(shape for shape in shapes if "0" in shape).most_common(1)
    rows = [c for c, shape in zip(clauses, shapes, strict=True) if alike and shape == alike[0][0]]
    return [NUMERAL.findall(row)[0] for row in rows]


_LEADING = re.compile(r"\w+|^.")
listed_lines = _matching(
    re.compile(r"^\s*(?:\(?(?:[A-Za-z]|\d{1,2})[.):]|[-*\u2022])\s+(.+?)\s*$", re.MULTILINE)
)
"""The lines of a list in a text, without their labels."""
labels = _matching(re.compile(r"^(\w[^:\n]*): ", re.MULTILINE))
"""What stands before the colon of each line of a text."""
FINDERS: dict[str, Find] = {
    "token": _matching(_TOKEN),
    "number": _matching(NUMERAL),
    "mark": _matching(_MARKED),
    "name": _matching(_CAPITAL),
    "identifier": _matching(re.compile(r"\b[A-Za-z]+[-_]?\d\w*")),
    "word": _matching(_LONG),
    "number apart": _matching(_APART),
    "number of a clause": counted,
    "item": listed,
    "option": options,
    "choice": choices,
    "leading word": lambda text: [_LEADING.findall(option)[0] for option in options(text)],
    "end of line": _matching(re.compile(rf"({_TOKEN.pattern})[^\w\n]*$", re.MULTILINE)),
    "initial": lambda text: ["".join(line.strip()[:1] for line in text.splitlines())],
    "initial of a word": lambda text: ["".join(word[:1] for word in text.split())],
}
"""From a kind of piece to the function that finds the pieces of this kind in a text."""
THING = re.compile(r"(?<![\w@#])(?:\.(?=[a-z_]))?[\w/@#](?:[\w./@:+-]*\w)?")
"""A word, number, time or path, or the name of a hidden file."""


def rows_of(text: str) -> list[tuple[str, ...]]:
    """Return the pieces of the lines of the most frequent shape; of all lines if no two lines have
    the same shape.
    """
    lines = text.splitlines()
    shapes = [re.sub(r"\w+", "w", line) for line in lines]
    (usual, times), *_ = [*Counter(shapes).most_common(1), ("", 0)]
    alike = [line for line, shape in zip(lines, shapes, strict=True) if shape == usual]
    return [pieces_of(line) for line in (alike if times > 1 else lines)]


def pieces_of(line: str) -> tuple[str, ...]:
    """Return the words, numbers, times and paths of a line."""
    return tuple(THING.findall(line))


@lru_cache(maxsize=256)
def compared(text: str) -> list[tuple[str, ...]]:
    """Return the pieces of each line; an empty list if the lines are a name and a number each,
    since the task can then ask only for that number.
    """
    columns = [{*column} for column in zip(*rows_of(text), strict=False)]
    differing = [column for column in columns if len(column) > 1]
    has_number = any(all(map(NUMERAL.search, column)) for column in differing)
    return [] if has_number and len(differing) < 3 else [*map(pieces_of, text.splitlines())]
