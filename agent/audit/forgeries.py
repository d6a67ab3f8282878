"""What the expert does on a task, spoilt in a way of known effect: whoever is still paid for the
rest shows what the reward does not ask for.

A transformation whose effect is known needs no list of flaws and no second judge.
"""

from __future__ import annotations

import itertools
import json
import operator
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any

import msgspec

from ludus.messages import Message, as_action, assistant

from .answers import verb
from .attackers import ANSWERED, Action, Lesson, number_of
from .programs import TOKEN
from .tallies import ORDER_BOUND

Way = Sequence[Action]
"""The actions of an episode."""
Place = tuple[str, str | int]
"""A tool and its argument, or a command and the place of a word behind it."""


@dataclass(frozen=True)
class Law:
    """A change of what the expert does that has to cost it the reward."""

    name: str
    about: str
    ways: Callable[[Lesson], Iterable[Way]]
    """From the expert on a task to ways that are all wrong, of which the best paid counts."""
    without: Callable[[Lesson], Way] = lambda lesson: ()
    """What is left once the deeds that are changed are left out, which has to cost the reward, too:
    where it does not, they only looked around.
    """
    bound: float | None = None


def laws_of(lessons: Sequence[Lesson], prompt: str) -> Iterator[Law]:
    """Return the laws that ways such as the expert's are under.

    Args:
        lessons: the expert on each task.
        prompt: the instructions, which say whether the order counts.
    """
    for forgery in Forgery:
        bound = ORDER_BOUND if forgery is Forgery.REVERSED else None
        ways = partial(forgery.ways, prompt=prompt)
        about = f"the expert's answer: {forgery}"
        yield Law(f"forged {forgery.name.lower()}", about, ways, bound=bound)
    columns = [_columns(lesson) for lesson in lessons]
    for place, times in Counter(place for each in columns for place in each).items():
        values = {repr(each.get(place)) for each in columns}
        # What is the same everywhere is not asked for.
        if 2 * times > len(lessons) < 2 * len(values):
            what = " ".join(map(str, place))
            about = f"what the expert does, each {what} "
            without = partial(_without, place[0])
            yield Law(f"spoilt {what}", f"{about}another one", partial(_spoilt, place), without)
            yield Law(f"alike {what}", f"{about}the same", partial(_alike, place), without)
    for name, times in Counter(n for le in lessons for n in {*map(verb, le.actions)}).items():
        if 2 * times > len(lessons):
            about = f"what the expert does, each {name} the same"
            yield Law(f"alike {name}", about, partial(_alike, (name, "")), partial(_without, name))


class Forgery(StrEnum):
    """How the expert's answer is spoilt."""

    INVENTED = "each word and number of the task in it is an invented one"
    ALIKE = "each item of its list is the most frequent of them"
    FIRST = "only the first item of its list is left"
    ROTATED = "each key has the value of the next one"
    REVERSED = "its order is reversed"
    ENDS = "only the first and the last item of its list are left"
    ZEROED = "each of its numbers is zero"
    UNDEFINED = "each of its numbers is NaN"
    LEVEL = "in each item of its list, every number is the first one"
    UNIFORM = "in each item of its list, every letter is an e"

    def ways(self, lesson: Lesson, prompt: str) -> Iterator[Way]:
        """Return the way with each text, list or number list in it spoilt."""
        told = f"{prompt}\n{lesson.opening}"

        def spoilt(value: Any) -> Any:
            if isinstance(value, (list, dict)):
                text = self.of(json.dumps(value), lesson.opening, told)
                return json.loads(text) if text else value
            return (isinstance(value, str) and self.of(value, lesson.opening, told)) or value

        def of(action: Action) -> Action:
            message = as_action(action)
            if not message.tool_calls:
                is_whole = len(lesson.actions) == 1 or not _is_command(message.text)
                return spoilt(message.text) if is_whole else action
            given = [{n: spoilt(v) for n, v in c.arguments.items()} for c in message.tool_calls]
            return _called(message, given)

        way = list(map(of, lesson.actions))
        if way != [*lesson.actions]:
            yield way

    def of(self, answer: str, opening: str, told: str) -> str:
        """Return an answer spoilt, or "" where nothing in it can be.

        Args:
            answer: what the expert says.
            opening: the task.
            told: the task and the instructions, which say whether the order counts.
        """
        if self is self.INVENTED:
            return _invented(answer, opening)
        if self in (self.ZEROED, self.UNDEFINED):
            sign = "0" if self is self.ZEROED else "NaN"
            numbers = [text for text in _NUMERAL.findall(answer) if float(text)]
            return _NUMERAL.sub(sign, answer) if len(numbers) >= FEWEST_ITEMS else ""
        listing = _Listing.of(answer)
        items = listing.items if listing else ()
        usual = Counter(map(repr, items)).most_common(1)
        if listing is None or len(items) < FEWEST_ITEMS or usual[0][1] == len(items):
            return ""
        if self in (self.LEVEL, self.UNIFORM):
            spoil = _leveled if self is self.LEVEL else _uniform
            spoilt = [spoil(str(item)) for item in items]
            changed = sum(map(operator.ne, map(str, items), spoilt))
            return listing.with_items(spoilt) if 2 * changed > len(items) else ""
        if self is self.ALIKE:
            alike = next(item for item in items if repr(item) == usual[0][0])
            return listing.with_items([alike] * len(items))
        if self is self.FIRST:
            return listing.with_items(items[:1])
        if self is self.ENDS:
            return "" if listing.keys else listing.with_items([items[0], items[-1]])
        rotated = [*items[1:], items[0]]
        moved = sum(map(operator.ne, items, rotated))
        if self is self.ROTATED:
            return listing.with_items(rotated) if listing.keys and 2 * moved > len(items) else ""
        is_ordered = _ORDERED.search(told) and not _UNORDERED.search(told)
        return listing.with_items(items[::-1]) if is_ordered and not listing.keys else ""


@dataclass(frozen=True)
class _Listing:
    """An answer that lists items: JSON, or lines or words, with or without keys."""

    items: Sequence[Any]
    keys: tuple[str, ...] = ()
    joint: str = ""
    """What stands between items, or between a key and its value; "" for JSON."""
    name: str = ""
    """The only key of the object that holds the list."""

    @classmethod
    def of(cls, answer: str) -> _Listing | None:
        """Read an answer; None if it lists nothing."""
        try:
            data = json.loads(answer)
        except (ValueError, RecursionError):
            data = None
        if isinstance(data, dict) and len(data) == 1:
            ((name, items),) = data.items()
            return cls(items, name=name) if isinstance(items, list) else None
        if isinstance(data, dict):
            return cls([*data.values()], (*data,))
        if isinstance(data, list):
            return cls(data)
        text = answer.strip()
        lines = [line.strip() for line in text.splitlines()]
        rows = [row for line in lines if (row := ANSWERED.fullmatch(line)) and row[2] != "."]
        if len(lines) > 1 and len({row[1] for row in rows}) == len(lines):
            return cls([row[3] for row in rows], tuple(row[1] for row in rows), rows[0][2])
        joint = next((joint for joint in JOINTS if joint in text), "")
        return cls(text.split(joint), joint=joint) if joint else None

    def with_items(self, items: Sequence[Any]) -> str:
        """Return the answer with other items."""
        pairs = zip(self.keys, items, strict=False)
        if self.joint and self.keys:
            return "\n".join(f"{key}{self.joint}{value}" for key, value in pairs)
        if self.joint:
            return self.joint.join(items)
        if self.name:
            return json.dumps({self.name: items})
        return json.dumps(dict(pairs) if self.keys else items)


def _leveled(item: str) -> str:
    first = _TIME.search(item)
    return _TIME.sub(first[0], item) if first else item


def _uniform(item: str) -> str:
    head, sign, value = item.rpartition(": ")
    return head + sign + _LETTER.sub("e", value)


def _invented(answer: str, opening: str) -> str:
    """Return an answer whose words and numbers that stand in the task are ones that stand nowhere,
    each another one; "" where fewer than half of them stand there. Keys of JSON stay.
    """
    known, fresh = set(TOKEN.findall(opening)), itertools.count(1)
    words, others = 0, 0

    def other(match: re.Match[str]) -> str:
        nonlocal words, others
        words += 1
        if match[0] not in known:
            return match[0]
        others += 1
        number = next(fresh)
        is_number = match[0][-1].isdecimal()
        return str(90_000 + number) if is_number else f"zo{number:03}".translate(_AS_LETTERS)

    def spoilt(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: spoilt(each) for name, each in value.items()}
        if isinstance(value, list):
            return [spoilt(each) for each in value]
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            return value
        text = TOKEN.sub(other, str(value))
        return text if isinstance(value, str) else type(value)(text)

    try:
        forged = json.dumps(spoilt(json.loads(answer)))
    except (ValueError, RecursionError):
        forged = TOKEN.sub(other, answer)
    return forged if 2 * others >= words > 0 else ""


JOINTS = ("\n", " -> ", " > ", " \u2192 ", "; ", ", ", ",", " ")
"""What stands between the items of a list."""
FEWEST_ITEMS = 4
"""Items of a list of which the first alone, or one said for all, is no fair part."""
_NUMERAL = re.compile(r"(?<![\w.-])-?\d+(?:\.\d+)?(?![\w.])")
_TIME = re.compile(r"\d[\d:.]*(?<=\d)")
"""A number or a time of day."""
_LETTER = re.compile(r"[^\W\d_]")
_AS_LETTERS = str.maketrans("0123456789", "abcdefghij")
_ORDERED = re.compile(
    r"\b(?:(?:in|into|by|the) (?:\w+ ){0,2}order\b(?! (?:to|of|form|letter|number|for|from)\b)"
    r"|sort|rank|sequence|from \w+ to|first to)",
    re.IGNORECASE,
)
_UNORDERED = re.compile(r"\bany order|\border (?:does|is) ?n", re.IGNORECASE)


# --- ways of several deeds ------------------------------------------------------------------------


def _is_command(text: str) -> bool:
    return len(text.split()) <= LONGEST_COMMAND and "\n" not in text


def _called(message: Message, given: Sequence[Mapping[str, Any]]) -> Message:
    """Return calls with other arguments."""
    calls = [
        msgspec.structs.replace(call, arguments=dict(row))
        for call, row in zip(message.tool_calls, given, strict=True)
    ]
    return assistant(message.text, calls)


def _changed(action: Action, change: Callable[[Place, Any], Any]) -> Action:
    """Return an action with each argument of its calls, or each word of its command, changed."""
    message = as_action(action)
    if message.tool_calls:
        rows = [
            {name: change((call.name, name), value) for name, value in call.arguments.items()}
            for call in message.tool_calls
        ]
        return _called(message, rows)
    if not _is_command(message.text):
        return action
    words = message.text.split()
    return " ".join([*words[:1], *(str(change((words[0], n), w)) for n, w in enumerate(words[1:]))])


def _columns(lesson: Lesson) -> dict[Place, list[Any]]:
    """Return what stands at each place of the expert's deeds."""
    columns = dict[Place, list[Any]]()

    def note(place: Place, value: Any) -> Any:
        columns.setdefault(place, []).append(value)
        return value

    for action in lesson.actions:
        _changed(action, note)
    return columns


def _with(lesson: Lesson, place: Place, values: Sequence[Any]) -> Way:
    """Return the expert's deeds with other values at a place."""
    row = iter(values)
    return [_changed(a, lambda at, v: next(row) if at == place else v) for a in lesson.actions]


def _without(name: str, lesson: Lesson) -> Way:
    return [action for action in lesson.actions if verb(action) != name]


def _spoilt(place: Place, lesson: Lesson) -> Iterator[Way]:
    """Return the way with what stands at a place invented, at an edge, or emptied."""
    values = _columns(lesson).get(place, [])
    told = {*TOKEN.findall("\n".join([lesson.opening, *lesson.replies]))}
    rows = list[list[Any]]()
    if sum({*TOKEN.findall(str(value))} <= told for value in values) * 2 > len(values):
        rows.append([_fresh(value, n) for n, value in enumerate(values)])
        rows += [["" if isinstance(v, str) else v for v in values]]
    if all(isinstance(number_of(str(value)), (int, float)) for value in values):
        rows += [[_of_kind(edge, value) for value in values] for edge in ("0", "-1", "nan")]
    for row in rows:
        if sum(map(operator.ne, row, values)) * 2 > len(values):
            yield _with(lesson, place, row)


def _of_kind(text: str, value: Any) -> Any:
    """Return a number as the kind of another value."""
    if isinstance(value, str):
        return text
    return float(text) if isinstance(value, float) or text == "nan" else int(text)


def _fresh(value: Any, number: int) -> Any:
    """Return a value that stands nowhere, of the same kind."""
    if isinstance(value, str) and not value.lstrip("-")[:1].isdecimal():
        return f"zo{number:03}".translate(_AS_LETTERS)
    return _of_kind(str(90_000 + number), value) if isinstance(value, (str, int, float)) else value


def _alike(place: Place, lesson: Lesson) -> Iterator[Way]:
    """Return ways in which a place, or without its name all places, is the same in all deeds."""
    name, at = place
    nths = [n for n, action in enumerate(lesson.actions) if verb(action) == name]
    if at == "":
        deeds = [lesson.actions[n] for n in nths]
        if len(deeds) >= FEWEST_ITEMS and _is_varied(list(map(repr, deeds))):
            for deed in dict.fromkeys(map(repr, deeds)):
                same = next(each for each in deeds if repr(each) == deed)
                yield [same if n in nths else action for n, action in enumerate(lesson.actions)]
        return
    values = _columns(lesson).get(place, [])
    if len(values) >= FEWEST_ITEMS and _is_varied(list(map(repr, values))):
        for value in {repr(value): value for value in values}.values():
            yield _with(lesson, place, [value] * len(values))


def _is_varied(values: Sequence[str]) -> bool:
    """Whether no value is half of them."""
    return 2 * max(Counter(values).values()) <= len(values)


LONGEST_COMMAND = 5
"""Words of a command; a longer text is an answer."""
