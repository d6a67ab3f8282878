"""The values that stand at the places of the expert's deeds, and other values of the same kind.

A **way** is the list of all actions of one episode. A **column** is what stands at one place in all
deeds of a way. In the way `send ann 12`, `send ben 20`, `done` the place `("send", 1)` has the
column `12`, `20`. Another value of the same kind is one that the task shows in the same position:
where the task says `ann owes 12`, `ben owes 20` and `cid owes 7`, `cid` is another value beside
`ann` and `ben`.
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
"""From so many deeds of a name on, one of them alone is not a fair part of the task."""
FEWEST_ALIKE = 4
"""From so many different values on, one value given for all is not a fair part of the task."""
FEWEST_LETTERS = 4
"""From so many letters on, the first letter of a text says nothing of the rest."""
USUAL = 0.9
"""A value that the expert gives on this share of the tasks is not what a task asks for."""
MOST_KINDS = 8
"""A place with at most so many values has labels, such as levels, and no free values."""
MOST_SAID = 24
"""Most values of a place that are tried in place of the expert's."""
AS_LETTERS = str.maketrans("0123456789", "abcdefghij")
"""Turns an invented number into an invented word."""


def columns_of(lesson: Lesson) -> dict[Place, list[Any]]:
    """Return the values that stand at each place of the expert's deeds, in order.

    >>> columns_of(Lesson("task", "", ("send ann 12", "send ben 20", "done")))
    {('send', 0): ['ann', 'ben'], ('send', 1): ['12', '20']}
    """
    columns = dict[Place, list[Any]]()
    for place, value in itertools.chain(*map(places_of, lesson.actions)):
        columns.setdefault(place, []).append(value)
    return columns


def places_of(action: Action) -> list[tuple[Place, Any]]:
    """Return the pairs (place, value) of a deed, in order.

    >>> places_of("send ann 12")
    [(('send', 0), 'ann'), (('send', 1), '12')]
    """
    places = list[tuple[Place, Any]]()
    changed(action, lambda place, value: places.append((place, value)))
    return places


def with_values(lesson: Lesson, place: Place, values: Sequence[Any]) -> Way:
    """Return the expert's way with other values at a place: one value for each time that a deed has
    this place.
    """
    row = iter(values)
    return [changed(a, lambda at, v: next(row) if at == place else v) for a in lesson.actions]


def put(place: Place, other: Any, at: Place, value: Any) -> Any:
    """Return `other` if `at` is `place`, else `value`: `partial(put, place, other)` is a change for
    `changed`.
    """
    return other if at == place else value


def constants_of(lessons: Sequence[Lesson]) -> frozenset[Hashable]:
    """Return what the expert does on nearly all tasks, which no task asks for: deeds, and pairs
    (place, `repr` of the value).
    """
    said = Counter[Hashable]()
    for lesson in lessons:
        columns = columns_of(lesson).items()
        said.update({(at, repr(value)) for at, column in columns for value in column})
        said.update({deed(action) for action in lesson.actions})
    return frozenset(each for each, times in said.items() if times >= USUAL * len(lessons) > 1)


def labels_of(lessons: Sequence[Lesson]) -> list[str]:
    """Return the labels of the longest answers, such as `spam` and `ham`: words that stand at least
    twice in an answer on average, on most tasks; none if one word does, or more than `MOST_KINDS`.
    """
    known, times = Counter[str](), Counter[str]()
    for lesson in lessons:
        longest = max((str(deed(action)) for action in lesson.actions), key=len)
        said = Counter(re.findall(r"[^\W\d_]{2,}", longest))
        known.update({*said})
        times.update(said)
    labels = [word for word, n in times.items() if n >= 2 * len(lessons) < 4 * known[word]]
    return labels if 1 < len(labels) <= MOST_KINDS else []


def said_once(lessons: Sequence[Lesson]) -> dict[Place, list[Any]]:
    """Return the values that stand on any task at the places of deeds that are done once.

    A deed counts if it is done on most tasks, on no task twice, and not last. A place with more
    than `MOST_SAID` values is left out.
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
    """Return the different values of a place on all tasks, the most frequent first; an empty list
    if they are many, so that they are no labels.
    """
    values = [value for lesson in lessons for value in columns_of(lesson).get(place, [])]
    known = Counter(value for value in values if isinstance(value, (str, int, float)))
    is_kind = len(known) <= MOST_KINDS and 3 * len(known) <= len(values)
    return [value for value, _ in known.most_common()] if is_kind else []


def others_of(values: Sequence[Any], lesson: Lesson) -> list[Any]:
    """Return further values of the same kind: what stands in the position of `values` in other
    lines of the task, or beside them in the same line.

    The replies are read in place of the task if the task shows none of the values.

    >>> task = "ann owes 12\\nben owes 20\\ncid owes 7"
    >>> others_of(["ann", "ben"], Lesson("task", task, ()))
    ['cid']
    """
    lines, spots = list[list[str]](), list[tuple[list[str], int]]()
    for text in (lesson.opening, "\n".join(lesson.replies)):
        if not spots:
            lines = [NAME.findall(line) for line in text.splitlines()]
            spots = [(line, line.index(str(v))) for v in values for line in lines if str(v) in line]
    if not spots:
        return []
    (at, times), *_ = Counter(at for _, at in spots).most_common(1)
    candidates = [line[at] for line in lines if len(line) > at]
    if times == 1:  # several in a line
        places = [at for line, at in spots if line == spots[0][0]]
        candidates = spots[0][0][min(places) :]
    kinds = {class_of(str(value)) for value in values}
    known = {str(value) for value in values}
    others = [
        each for each in dict.fromkeys(candidates) if each not in known and class_of(each) in kinds
    ]
    is_text = isinstance(values[0], str)
    return [each if is_text else number_of(each) for each in others]


def class_of(text: str) -> tuple[bool, ...]:
    """Return the class of a text: whether it is a number, in small letters, of letters alone."""
    return text.isdecimal(), text.islower(), text.isalpha()


def unlike_most(values: Sequence[Any], but: Sequence[Any] = ()) -> list[Any]:
    """Return the different values that are unlike at least half of all values, without those in
    `but`, which may be the answer; an empty list if there are fewer than `FEWEST_ALIKE` values.

    Two numbers are alike if they differ by less than half of the larger one.

    >>> unlike_most(["a", "a", "a", "b"])
    ['b']
    """

    def are_alike(value: Any, other: Any) -> bool:
        left, right = number_of(str(value)), number_of(str(other))
        if isinstance(left, (int, float)) and isinstance(right, (int, float)):
            return abs(left - right) < max(abs(left), abs(right)) / 2 or left == right
        return repr(value) == repr(other)

    return [
        value
        for value in {repr(v): v for v in values if len(values) >= FEWEST_ALIKE}.values()
        if value not in but and 2 * sum(are_alike(value, v) for v in values) <= len(values)
    ]


def in_a_row(values: Sequence[Any]) -> list[Any]:
    """Return numbers that count up from the least of `values`, one for each value; an empty list if
    the values are few, or are mostly neighbours already.

    >>> in_a_row([3, 9, 20, 31])
    [3, 4, 5, 6]
    """
    numbers = [number_of(str(value)) for value in values if not isinstance(value, bool)]
    whole = sorted(number for number in numbers if isinstance(number, int))
    gaps = list(map(operator.sub, whole[1:], whole))
    if len(whole) < max(FEWEST_DEEDS, len(values)) or 2 * sum(gap > 1 for gap in gaps) <= len(gaps):
        return []
    return [of_kind(str(whole[0] + n), value) for n, value in enumerate(values)]


def fresh(value: Any, number: int) -> Any:
    """Return an invented value of the type of `value`, which no task shows.

    >>> fresh("ann", 0), fresh(12, 1)
    ('zoaaa', 90001)
    """
    if isinstance(value, str) and not value.lstrip("-")[:1].isdecimal():
        return f"zo{number:03}".translate(AS_LETTERS)
    return of_kind(str(90_000 + number), value) if isinstance(value, (str, int, float)) else value


def of_kind(text: str, value: Any) -> Any:
    """Return the number that a text says in the type of `value`: as a text, float or int."""
    if isinstance(value, str):
        return text
    return float(text) if isinstance(value, float) or text == "nan" else int(text)


def is_amount(value: Any) -> bool:
    """Return whether a value is a finite number, or a text that says one; no bool is one."""
    number = number_of(str(value))
    return not isinstance(value, bool) and isinstance(number, (int, float)) and isfinite(number)


def numbered(number: str, action: Action) -> Action:
    """Return an action in which each number is replaced by `number`.

    >>> numbered("0", "send ann 12")
    'send ann 0'
    """

    def of(place: Place, value: Any) -> Any:
        if not is_amount(value):
            return value
        return number if isinstance(value, str) else number_of(number)

    return changed(action, of)


def spellings(text: str) -> list[str]:
    """Return different spellings of a word or number, beginning with `text` itself.

    >>> spellings("7")
    ['7', '07', '+7', '007']
    """
    ways = [text, text.lower(), text.upper(), text.title(), text.swapcase()]
    ways += [text[:1].swapcase() + text[1:]]
    if number := re.search(r"\d+$", text):
        short, head = number[0].lstrip("0") or "0", text[: number.start()]
        heads = [head, ""] if head else [head]
        ways += [f"{name}{sign}{short}" for name in heads for sign in ("", "0", "+", "00")]
    return [*dict.fromkeys(ways)]
