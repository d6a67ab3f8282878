"""What stands at the places of deeds: the values that the expert gives there, and others of their
kind.
"""

from __future__ import annotations

import itertools
import operator
import re
from collections import Counter
from collections.abc import Hashable, Sequence
from math import isfinite
from typing import Any

from .answers import Place, changed, deed, verb
from .attackers import Action, Lesson, number_of

Way = Sequence[Action]
"""The actions of an episode."""
NAME = re.compile(r"\w[\w.-]*\w|\w")
"""A word, an identifier or a number of a text."""
FEWEST_DEEDS = 3
"""Deeds of a name of which one alone, or another order, is no fair part."""
FEWEST_ALIKE = 4
"""Values of which one said for all is no fair part."""
FEWEST_LETTERS = 4
"""Letters of a text of which the first alone says nothing."""
USUAL = 0.9
"""Share of tasks on which what stands at the same place is not asked for."""
MOST_KINDS = 8
"""Values of a place that are kinds, such as levels or labels."""
MOST_SAID = 24
"""Values that may stand at a place of deeds that are done once."""
AS_LETTERS = str.maketrans("0123456789", "abcdefghij")
"""Turns an invented number into an invented word."""


def columns_of(lesson: Lesson) -> dict[Place, list[Any]]:
    """Return what stands at each place of the expert's deeds."""
    columns = dict[Place, list[Any]]()
    for place, value in itertools.chain(*map(places_of, lesson.actions)):
        columns.setdefault(place, []).append(value)
    return columns


def places_of(action: Action) -> list[tuple[Place, Any]]:
    """Return the places of a deed, each with what stands there, in order."""
    places = list[tuple[Place, Any]]()
    changed(action, lambda place, value: places.append((place, value)))
    return places


def with_values(lesson: Lesson, place: Place, values: Sequence[Any]) -> Way:
    """Return the expert's deeds with other values at a place."""
    row = iter(values)
    return [changed(a, lambda at, v: next(row) if at == place else v) for a in lesson.actions]


def put(place: Place, other: Any, at: Place, value: Any) -> Any:
    """Return another value at a place, and the own value elsewhere; `changed` calls it."""
    return other if at == place else value


def constants_of(lessons: Sequence[Lesson]) -> frozenset[Hashable]:
    """Return what the expert says on nearly all tasks: places with their values, and texts."""
    said = Counter[Hashable]()
    for lesson in lessons:
        columns = columns_of(lesson).items()
        said.update({(at, repr(value)) for at, column in columns for value in column})
        said.update({deed(action) for action in lesson.actions})
    return frozenset(each for each, times in said.items() if times >= USUAL * len(lessons) > 1)


def labels_of(lessons: Sequence[Lesson]) -> list[str]:
    """Return the few words that stand again and again in an answer, on most tasks."""
    known, times = Counter[str](), Counter[str]()
    for lesson in lessons:
        longest = max((str(deed(action)) for action in lesson.actions), key=len)
        said = Counter(re.findall(r"[^\W\d_]{2,}", longest))
        known.update({*said})
        times.update(said)
    labels = [word for word, n in times.items() if n >= 2 * len(lessons) < 4 * known[word]]
    return labels if 1 < len(labels) <= MOST_KINDS else []


def said_once(lessons: Sequence[Lesson]) -> dict[Place, list[Any]]:
    """Return what stands on any task at places of deeds that are done once on most tasks, never
    twice, and not last; of places where it is not much.
    """
    ends, rows = {verb(lesson.actions[-1]) for lesson in lessons}, dict[Place, list[list[Any]]]()
    for place, values in itertools.chain(*(columns_of(lesson).items() for lesson in lessons)):
        rows.setdefault(place, []).append(values)
    said = dict[Place, list[Any]]()
    for place, columns in rows.items():
        is_once = all(len(c) == 1 and isinstance(c[0], (str, int, float)) for c in columns)
        if is_once and place[0] not in ends and 2 * len(columns) > len(lessons):
            said[place] = [*dict.fromkeys(value for (value,) in columns)]
    return {place: values for place, values in said.items() if len(values) <= MOST_SAID}


def kinds_of(place: Place, lessons: Sequence[Lesson]) -> list[Any]:
    """Return the values of a place, the most frequent first, if the values are few."""
    values = [value for lesson in lessons for value in columns_of(lesson).get(place, [])]
    known = Counter(value for value in values if isinstance(value, (str, int, float)))
    is_kind = len(known) <= MOST_KINDS and 3 * len(known) <= len(values)
    return [value for value, _ in known.most_common()] if is_kind else []


def others_of(values: Sequence[Any], lesson: Lesson) -> list[Any]:
    """Return what stands where values stand, in lines alike or in the same line: of the task, or
    where none of them stands there, of the replies.
    """
    lines, spots = list[list[str]](), list[tuple[list[str], int]]()
    for told in (lesson.opening, "\n".join(lesson.replies)):
        if not spots:
            lines = [NAME.findall(line) for line in told.splitlines()]
            spots = [(line, line.index(str(v))) for v in values for line in lines if str(v) in line]
    if not spots:
        return []
    (at, times), *_ = Counter(at for _, at in spots).most_common(1)
    found = [line[at] for line in lines if len(line) > at]
    if times == 1:  # several in a line
        places = [at for line, at in spots if line == spots[0][0]]
        found = spots[0][0][min(places) :]
    kinds = {class_of(str(value)) for value in values}
    known = {str(value) for value in values}
    rest = [each for each in dict.fromkeys(found) if each not in known and class_of(each) in kinds]
    is_text = isinstance(values[0], str)
    return [each if is_text else number_of(each) for each in rest]


def class_of(text: str) -> tuple[bool, ...]:
    """Return whether a text is a number, in small letters, and of letters alone."""
    return text.isdecimal(), text.islower(), text.isalpha()


def unlike_most(values: Sequence[Any], but: Sequence[Any] = ()) -> list[Any]:
    """Return those of the values that most others are unlike, but some, which may be the answer;
    none where they are few. A number is unlike one that is at least twice as much.
    """

    def are_alike(one: Any, other: Any) -> bool:
        left, right = number_of(str(one)), number_of(str(other))
        if isinstance(left, (int, float)) and isinstance(right, (int, float)):
            return abs(left - right) < max(abs(left), abs(right)) / 2 or left == right
        return repr(one) == repr(other)

    return [
        value
        for value in {repr(v): v for v in values if len(values) >= FEWEST_ALIKE}.values()
        if value not in but and 2 * sum(are_alike(value, v) for v in values) <= len(values)
    ]


def in_a_row(values: Sequence[Any]) -> list[Any]:
    """Return whole numbers that differ by one from the least of some on, in place of numbers that
    mostly are further apart; none where they are few.
    """
    numbers = [number_of(str(value)) for value in values if not isinstance(value, bool)]
    whole = sorted(number for number in numbers if isinstance(number, int))
    gaps = list(map(operator.sub, whole[1:], whole))
    if len(whole) < max(FEWEST_DEEDS, len(values)) or 2 * sum(gap > 1 for gap in gaps) <= len(gaps):
        return []
    return [of_kind(str(whole[0] + n), value) for n, value in enumerate(values)]


def fresh(value: Any, number: int) -> Any:
    """Return a value that stands nowhere, of the same kind."""
    if isinstance(value, str) and not value.lstrip("-")[:1].isdecimal():
        return f"zo{number:03}".translate(AS_LETTERS)
    return of_kind(str(90_000 + number), value) if isinstance(value, (str, int, float)) else value


def of_kind(text: str, value: Any) -> Any:
    """Return a number as the kind of another value."""
    if isinstance(value, str):
        return text
    return float(text) if isinstance(value, float) or text == "nan" else int(text)


def is_amount(value: Any) -> bool:
    """Return whether a value is a finite number, or the text of such."""
    number = number_of(str(value))
    return not isinstance(value, bool) and isinstance(number, (int, float)) and isfinite(number)


def numbered(number: str, action: Action) -> Action:
    """Return an action with another number for each of its numbers."""

    def of(place: Place, value: Any) -> Any:
        if not is_amount(value):
            return value
        return number if isinstance(value, str) else number_of(number)

    return changed(action, of)


def spellings(text: str) -> list[str]:
    """Return the ways in which a word or a number may be written, as it stands first."""
    ways = [text, text.lower(), text.upper(), text.title(), text.swapcase()]
    ways += [text[:1].swapcase() + text[1:]]
    if number := re.search(r"\d+$", text):
        short, head = number[0].lstrip("0") or "0", text[: number.start()]
        heads = [head, ""] if head else [head]
        ways += [f"{name}{sign}{short}" for name in heads for sign in ("", "0", "+", "00")]
    return [*dict.fromkeys(ways)]
