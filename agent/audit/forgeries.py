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
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any

from ludus.messages import as_action

from .answers import Place, called, changed, deed, verb
from .attackers import ANSWERED, Action, Lesson, number_of
from .programs import TOKEN
from .tallies import MORE_BOUND

EDGES = ("0", "-1", "nan", "1000000")
"""Numbers that no task asks for."""
BELOW = "-99"
"""How many less than none: enough to pay for the rest, and no number that a bound expects."""
WILDCARDS = (".*", "*", "%", "")
"""Texts that mean any other to a pattern, a shell or a query; the empty one stands in all."""
ORDERED = re.compile(
    r"\b(?:in (?:\w+ )?order|order(?:ed)? (?:by|of)|sort(?:ed)?|rank(?:ed|ing)?|ascending"
    r"|descending|chronological(?:ly)?"
    r"|(?:earli|old|new|high|low|larg|small|short|cheap)est (?:\w+ )?first)\b",
    re.IGNORECASE,
)
"""Words that ask for an order."""
Way = Sequence[Action]
"""The actions of an episode."""


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
    took: Callable[[Lesson, Sequence[str]], bool] = lambda lesson, replies: True
    """Whether the replies show that what was changed had an effect."""
    bound: float | None = None


def laws_of(lessons: Sequence[Lesson], told: str = "") -> Iterator[Law]:
    """Return the laws that ways such as the expert's on several tasks are under.

    Args:
        lessons: the expert on several tasks.
        told: what the policy is told before each task.
    """
    is_ordered = all(ORDERED.search(f"{told}\n{lesson.opening}") for lesson in lessons)
    for forgery in Forgery:
        bound = MORE_BOUND if forgery in (Forgery.MORE, Forgery.REVERSED) else None
        about = f"the expert's answer: {forgery}"
        if is_ordered or forgery is not Forgery.REVERSED:
            yield Law(f"forged {forgery.name.lower()}", about, forgery.ways, bound=bound)
    columns = [_columns(lesson) for lesson in lessons]
    is_constant = len({deed(lesson.actions[-1]) for lesson in lessons}) == 1
    for place, times in Counter(place for each in columns for place in each).items():
        values = {repr(each.get(place)) for each in columns}
        # What is the same everywhere is not asked for.
        if 2 * times > len(lessons) < 2 * len(values):
            what = " ".join(map(str, place))
            about = f"what the expert does, each {what} "
            without = partial(_without, place[0])
            yield Law(f"spoilt {what}", f"{about}another one", partial(_spoilt, place), without)
            yield Law(f"alike {what}", f"{about}the same", partial(_alike, place), without)
            about = f"what the expert does, each {what} the same, and less than none of something"
            yield Law(f"offset {what}", about, partial(_offset, place), without)
            about = f"what the expert does, each {what} that of the next deed"
            yield Law(f"rotated {what}", about, partial(_rotated, place), without)
            if is_constant:
                more = f"what the expert does, and {what} everything else"
                ways, took = partial(_more, place), partial(_took, place)
                yield Law(f"more {what}", more, ways, without, took, MORE_BOUND)
                after = f"what the expert does, each deed done again with another {what}"
                ways, took = partial(_overwritten, place), partial(_took_each, place)
                yield Law(f"overwritten {what}", after, ways, without, took, MORE_BOUND)
                named = f"what the expert does, after a wrong {what}, whose refusal names the right"
                ways, took = partial(_refused, place), partial(_named, place)
                yield Law(f"refused {what}", named, ways, without, took)
    for name, times in Counter(n for le in lessons for n in {*map(verb, le.actions)}).items():
        if 2 * times > len(lessons):
            yield from _deed_laws(name, is_ordered=is_ordered)
    for nth in range(MOST_PLACES):
        about = f"the expert's answer, each item with the same word or number at place {nth}"
        yield Law(f"alike field {nth}", about, partial(_one_field, nth))


def _deed_laws(name: str, *, is_ordered: bool) -> Iterator[Law]:
    """Return the laws of deeds of a name."""
    without, about = partial(_without, name), f"what the expert does, each {name}"
    yield Law(f"alike {name}", f"{about} the same", partial(_one_deed, name), without)
    for nth, which in ((0, "first"), (-1, "last")):
        about_one = f"what the expert does, of each {name} only the {which}"
        before_end = partial(_without, name, keeps_end=True)
        yield Law(f"only {which} {name}", about_one, partial(_only, name, nth), before_end)
    if is_ordered:
        ways, what = partial(_backwards, name), f"backwards {name}"
        yield Law(what, f"{about} in reverse", ways, without, bound=MORE_BOUND)


class Forgery(StrEnum):
    """How the expert's answer is spoilt."""

    INVENTED = "each word and number of the task in it is an invented one"
    ALIKE = "each item of its list is the most frequent of them"
    FIRST = "only the first item of its list is left"
    ROTATED = "each key has the value of the next one"
    ENDS = "only the first and the last item of its list are left"
    ZEROED = "each of its numbers is zero"
    UNDEFINED = "each of its numbers is NaN"
    LEVEL = "in each item of its list, every number is the first one"
    UNIFORM = "in each item of its list, every letter is an e"
    WILD = "each of its texts means any other"
    CUT = "each of its texts is its first letter"
    MORE = "its list holds everything else of its kind, too"
    REVERSED = "its list, of which an order is asked, is reversed"

    def ways(self, lesson: Lesson) -> Iterator[Way]:
        """Return the way with each text, list or number list in it spoilt."""
        if self is self.WILD:
            return itertools.chain(*(_texts(lesson, partial(_wild, sign)) for sign in WILDCARDS))
        if self is self.MORE:
            return _texts(lesson, lambda text: _with_more(text, lesson))
        return _texts(lesson, lambda text: self.of(text, lesson.opening))

    def of(self, answer: str, opening: str) -> str:
        """Return an answer to a task spoilt, or "" where nothing in it can be."""
        if self is self.INVENTED:
            return _invented(answer, opening)
        if self in (self.ZEROED, self.UNDEFINED):
            sign = "0" if self is self.ZEROED else "NaN"
            numbers = [text for text in _NUMERAL.findall(answer) if float(text)]
            return _NUMERAL.sub(sign, answer) if len(numbers) >= FEWEST_ITEMS else ""
        listing = _Listing.of(answer)
        if self is self.CUT:
            return _cut(answer, listing)
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
        if self is self.REVERSED:
            is_row = not listing.keys and len({*map(repr, items)}) == len(items)
            return listing.with_items(items[::-1]) if is_row else ""
        if self is self.ENDS:
            return "" if listing.keys else listing.with_items([items[0], items[-1]])
        rotated = [*items[1:], items[0]]
        moved = sum(map(operator.ne, items, rotated))
        return listing.with_items(rotated) if listing.keys and 2 * moved > len(items) else ""


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


def _wild(sign: str, answer: str) -> str:
    """Return an answer with a wildcard for each of its texts; keys stay."""
    listing = _Listing.of(answer)
    if listing is None or (listing.joint and not listing.keys):
        return "" if answer[:1] in {"{", "["} else sign
    return listing.with_items([sign if isinstance(item, str) else item for item in listing.items])


def _cut(answer: str, listing: _Listing | None) -> str:
    """Return an answer with the first letter of each of its texts alone; "" where they are short,
    so that a letter may be the whole answer.
    """
    items = listing.items if listing else [answer.strip()]
    texts = [item for item in items if isinstance(item, str)]
    is_long = bool(texts) and all(len(text) >= FEWEST_LETTERS for text in texts)
    if not is_long or all(isinstance(number_of(text), (int, float)) for text in texts):
        return ""
    cut = [item[:1] if isinstance(item, str) else item for item in items]
    return listing.with_items(cut) if listing else cut[0]


def _with_more(answer: str, lesson: Lesson) -> str:
    """Return a list with everything else of its kind that the task or a reply shows."""
    listing = _Listing.of(answer)
    if listing is None or listing.keys or not all(isinstance(i, (str, int)) for i in listing.items):
        return ""
    rest = _others(listing.items, lesson)
    is_more = len(listing.items) > 1 and 2 * len(rest) >= len(listing.items)
    return listing.with_items([*listing.items, *rest]) if is_more else ""


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
FEWEST_LETTERS = 4
"""Letters of a text of which the first alone says nothing."""
FEWEST_ITEMS = 4
"""Items of a list of which the first alone, or one said for all, is no fair part."""
_NUMERAL = re.compile(r"(?<![\w.-])-?\d+(?:\.\d+)?(?![\w.])")
_TIME = re.compile(r"\d[\d:.]*(?<=\d)")
"""A number or a time of day."""
_LETTER = re.compile(r"[^\W\d_]")
_AS_LETTERS = str.maketrans("0123456789", "abcdefghij")


# --- ways of several deeds ------------------------------------------------------------------------


def _texts(lesson: Lesson, spoil: Callable[[str], str]) -> Iterator[Way]:
    """Return the way with each of its texts, lists and number lists spoilt, if any is; a spoilt
    text is empty where it cannot be.
    """

    def spoilt(value: Any) -> Any:
        if isinstance(value, (list, dict)):
            text = spoil(json.dumps(value))
            return json.loads(text) if text else value
        return (isinstance(value, str) and spoil(value)) or value

    def of(action: Action) -> Action:
        message = as_action(action)
        if not message.tool_calls:
            listing = _Listing.of(message.text)
            is_answer = len(lesson.actions) == 1 or (listing and listing.joint != " ")
            return spoilt(message.text) if is_answer else action  # others are commands or talk
        given = [{n: spoilt(v) for n, v in c.arguments.items()} for c in message.tool_calls]
        return called(message, given)

    way = list(map(of, lesson.actions))
    if way != [*lesson.actions]:
        yield way


def _columns(lesson: Lesson) -> dict[Place, list[Any]]:
    """Return what stands at each place of the expert's deeds."""
    columns = dict[Place, list[Any]]()
    for place, value in itertools.chain(*map(_places, lesson.actions)):
        columns.setdefault(place, []).append(value)
    return columns


def _places(action: Action) -> list[tuple[Place, Any]]:
    places = list[tuple[Place, Any]]()
    changed(action, lambda place, value: places.append((place, value)))
    return places


def _with(lesson: Lesson, place: Place, values: Sequence[Any]) -> Way:
    """Return the expert's deeds with other values at a place."""
    row = iter(values)
    return [changed(a, lambda at, v: next(row) if at == place else v) for a in lesson.actions]


def _without(name: str, lesson: Lesson, *, keeps_end: bool = False) -> Way:
    end = lesson.actions[-1:] if keeps_end else ()
    actions = lesson.actions[: len(lesson.actions) - len(end)]
    return [*(action for action in actions if verb(action) != name), *end]


def _spoilt(place: Place, lesson: Lesson) -> Iterator[Way]:
    """Return the way with what stands at a place invented, at an edge, or emptied."""
    values = _columns(lesson).get(place, [])
    told = {*TOKEN.findall("\n".join([lesson.opening, *lesson.replies]))}
    rows = list[list[Any]]()
    if sum({*TOKEN.findall(str(value))} <= told for value in values) * 2 > len(values):
        rows.append([_fresh(value, n) for n, value in enumerate(values)])
        rows += [["" if isinstance(v, str) else v for v in values]]
    if all(isinstance(number_of(str(value)), (int, float)) for value in values):
        rows += [[_of_kind(edge, value) for value in values] for edge in EDGES]
        if all(not isinstance(value, str) and value > 0 for value in values):
            rows.append([-value for value in values])
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
    """Return ways in which a place is the same in all deeds."""
    values = _columns(lesson).get(place, [])
    is_end = verb(lesson.actions[-1]) == place[0]
    for value in _varied(values, but=values[-1:] * is_end):
        yield _with(lesson, place, [value] * len(values))


def _offset(place: Place, lesson: Lesson) -> Iterator[Way]:
    """Return ways in which a place is the same in all deeds, before which one deed is done with a
    number below zero, to what the deeds are not done to: it may make room for what they cost.
    """
    columns = _columns(lesson)
    first = next((n for n, a in enumerate(lesson.actions) if verb(a) == place[0]), 0)
    here = {at: column for at, column in columns.items() if at[0] == place[0] and at != place}
    numbers = [at for at, column in here.items() if all(map(_is_amount, column))]
    keys = [at for at in here if at not in numbers]
    others = {at: _others(here[at], lesson)[-1:] for at in keys}
    for way, number in itertools.product(_alike(place, lesson), numbers):
        less = changed(way[first], partial(_put, number, _of_kind(BELOW, here[number][0])))
        for at in keys:
            less = changed(less, partial(_put, at, (others[at] or here[at])[-1]))
        yield [*way[:first], less, *way[first:]]


def _is_amount(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(number_of(str(value)), (int, float))


def _one_deed(name: str, lesson: Lesson) -> Iterator[Way]:
    """Return ways in which a deed of a name stands for all of them."""
    deeds = [each for each in lesson.actions if verb(each) == name and len(_places(each)) > 1]
    for same in _varied(deeds, but=lesson.actions[-1:]):
        yield [same if each in deeds else each for each in lesson.actions]


def _one_field(place: int, lesson: Lesson) -> Iterator[Way]:
    """Return ways in which all items of a list have the same word or number at a place."""
    for nth in range(MOST_FIELDS):

        def spoil(text: str, nth: int = nth) -> str:
            listing = _Listing.of(text)
            if "\n" in text:
                listing = _Listing(text.strip().splitlines(), joint="\n")
            items = list(map(str, listing.items)) if listing and listing.joint else []
            rows = [[*TOKEN.finditer(item)] for item in items]
            if listing is None or len({*map(len, rows)}) != 1 or not 2 <= len(rows[0]) > place:
                return ""
            values = _varied([row[place][0] for row in rows])[nth : nth + 1]
            pairs = zip(items, rows, strict=True)
            return listing.with_items(
                [i[: r[place].start()] + v + i[r[place].end() :] for i, r in pairs for v in values]
            )

        yield from _texts(lesson, spoil)


def _only(name: str, nth: int, lesson: Lesson) -> Iterator[Way]:
    """Return the way with the first or last of several deeds of a name alone."""
    nths = [n for n, action in enumerate(lesson.actions[:-1]) if verb(action) == name]
    if len({deed(lesson.actions[n]) for n in nths}) >= FEWEST_DEEDS:
        yield [a for n, a in enumerate(lesson.actions) if n not in nths or n == nths[nth]]


def _backwards(name: str, lesson: Lesson) -> Iterator[Way]:
    """Return the way with the deeds of a name in reverse, if they are in a row."""
    nths = [n for n, action in enumerate(lesson.actions) if verb(action) == name]
    deeds = [lesson.actions[n] for n in nths]
    is_row = bool(nths) and nths == [*range(nths[0], nths[-1] + 1)]
    if is_row and len({*map(deed, deeds)}) == len(deeds) >= FEWEST_DEEDS:
        yield [*lesson.actions[: nths[0]], *deeds[::-1], *lesson.actions[nths[-1] + 1 :]]


def _rotated(place: Place, lesson: Lesson) -> Iterator[Way]:
    """Return the way in which each deed has what the next one has at a place, where another place
    tells the deeds apart.
    """
    columns = _columns(lesson)
    values = columns.get(place, [])
    others = [c for at, c in columns.items() if at[0] == place[0] and at != place]
    is_keyed = any(len({*map(repr, column)}) == len(values) == len(column) for column in others)
    rotated = [*values[1:], *values[:1]]
    if is_keyed and len(values) > 1 and 2 * sum(map(operator.ne, values, rotated)) > len(values):
        yield _with(lesson, place, rotated)


def _overwritten(place: Place, lesson: Lesson) -> Iterator[Way]:
    """Return the way with each deed done again, with something else of its kind at a place where
    another place tells the deeds apart.
    """
    columns = _columns(lesson)
    values = columns.get(place, [])
    is_keyed = any(at[0] == place[0] and at != place for at in columns)
    pool = [*_others(values, lesson), *values]
    rows = list[Action]()
    for action in lesson.actions:
        rows.append(action)
        here = [value for at, value in _places(action) if at == place]
        others = [value for value in pool if here and value != here[0]]
        if others:
            rows.append(changed(action, partial(_put, place, others[0])))
    if is_keyed and len(rows) > len(lesson.actions):
        yield rows


def _took_each(place: Place, lesson: Lesson, replies: Sequence[str]) -> bool:
    """Whether most deeds that were done again were answered as they were the first time, but for
    names and numbers.
    """

    def shape(nth: int) -> list[str]:
        return _PROPER.sub("#", "".join(replies[nth : nth + 1])).split()[:MOST_SHAPE]

    nths = [n for n, a in enumerate(lesson.actions) if any(at == place for at, _ in _places(a))]
    again = [n + before for before, n in enumerate(nths)]  # each deed again moves the next one on
    return 2 * sum(shape(n) == shape(n + 1) for n in again) > len(again)


def _refused(place: Place, lesson: Lesson) -> Iterator[Way]:
    """Return the way with a wrong deed before the first right one of its name."""
    for n, action in enumerate(lesson.actions):
        for at, value in _places(action):
            if at == place and isinstance(value, (str, int, float)):
                wrong = changed(action, partial(_put, place, _fresh(value, 0)))
                yield [*lesson.actions[:n], wrong, *lesson.actions[n:]]
                return


def _named(place: Place, lesson: Lesson, replies: Sequence[str]) -> bool:
    """Whether the reply to the wrong deed names the right value alone, which nothing said before
    but as one of several.
    """
    values = _columns(lesson).get(place, [])
    for n, action in enumerate(lesson.actions):
        for value in [value for at, value in _places(action) if at == place]:
            known = {*_NAME.findall("\n".join([lesson.opening, *replies[:n]]))}
            reply = {*_NAME.findall("".join(replies[n : n + 1]))}
            others = {*map(str, [*values, *_others(values, lesson)])} - {str(value)}
            is_news = str(value) not in known or len(others & known) > 1
            return is_news and str(value) in reply and reply.isdisjoint(others)
    return False


def _more(place: Place, lesson: Lesson) -> Iterator[Way]:
    """Return the way with the last deed of a name done to everything else of its kind, too."""
    values = _columns(lesson).get(place, [])
    rest = _others(values, lesson)
    nths = [n for n, action in enumerate(lesson.actions) if verb(action) == place[0]]
    if len(values) > 1 and 2 * len(rest) >= len(values) and len(nths) == len(values):
        last = lesson.actions[nths[-1]]
        more = [changed(last, partial(_put, place, other)) for other in rest]
        yield [*lesson.actions[: nths[-1] + 1], *more, *lesson.actions[nths[-1] + 1 :]]


def ways_to_else(lesson: Lesson) -> Iterator[Way]:
    """Return the way with one deed done to something else of its kind, in turns."""
    rest = {place: _others(values, lesson) for place, values in _columns(lesson).items()}
    rows = [[partial(_put, place, other) for other in rest[place]] for place in rest]
    for row in itertools.zip_longest(*rows):
        for n, action in enumerate(lesson.actions):
            for change in filter(None, row):
                if (other := changed(action, change)) != action:
                    yield [*lesson.actions[:n], other, *lesson.actions[n + 1 :]]


def _put(place: Place, other: Any, at: Place, value: Any) -> Any:
    return other if at == place else value


def _took(place: Place, lesson: Lesson, replies: Sequence[str]) -> bool:
    """Whether most deeds beyond the expert's were answered in the way that its deeds are."""
    told = {*_NAME.findall(lesson.opening)}

    def shape(reply: str) -> list[str]:
        words = _NAME.findall(reply)
        return [word for word in words if word not in told and not word.isdecimal()][:MOST_SHAPE]

    nths = [n for n, action in enumerate(lesson.actions) if verb(action) == place[0]]
    usual = [shape(lesson.replies[n]) for n in nths]
    more = replies[nths[-1] + 1 : len(replies) - len(lesson.actions) + nths[-1] + 1]
    return 2 * sum(shape(reply) in usual for reply in more) > len(more)


def _others(values: Sequence[Any], lesson: Lesson) -> list[Any]:
    """Return what stands where values stand, in lines alike or in the same line: of the task, or
    where none of them stands there, of the replies.
    """
    lines, spots = list[list[str]](), list[tuple[list[str], int]]()
    for told in (lesson.opening, "\n".join(lesson.replies)):
        if not spots:
            lines = [_NAME.findall(line) for line in told.splitlines()]
            spots = [(line, line.index(str(v))) for v in values for line in lines if str(v) in line]
    if not spots:
        return []
    (at, times), *_ = Counter(at for _, at in spots).most_common(1)
    found = [line[at] for line in lines if len(line) > at]
    if times == 1:  # several in a line
        places = [at for line, at in spots if line == spots[0][0]]
        found = spots[0][0][min(places) :]
    kinds = {_kind(str(value)) for value in values}
    known = {str(value) for value in values}
    rest = [each for each in dict.fromkeys(found) if each not in known and _kind(each) in kinds]
    is_text = isinstance(values[0], str)
    return [each if is_text else number_of(each) for each in rest]


def _kind(text: str) -> tuple[bool, ...]:
    return text.isdecimal(), text.islower(), text.isalpha()


def _varied(values: Sequence[Any], but: Sequence[Any] = ()) -> list[Any]:
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
        for value in {repr(v): v for v in values if len(values) >= FEWEST_ITEMS}.values()
        if value not in but and 2 * sum(are_alike(value, v) for v in values) <= len(values)
    ]


_NAME = re.compile(r"\w[\w.-]*\w|\w")
_PROPER = re.compile(r"[\w.-]*\d[\w.-]*|\b[A-Z]\w*")
"""Names and numbers, which differ between replies that say the same."""
FEWEST_DEEDS = 3
"""Deeds of a name of which one alone, or another order, is no fair part."""
MOST_SHAPE = 3
"""Words of a reply that tell its kind."""
MOST_FIELDS = 6
"""Values of a field, of which each stands in all items of a list."""
MOST_PLACES = 4
"""Fields of an item that are made alike."""
