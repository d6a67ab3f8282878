"""The expert's way on a task with some of its deeds spoilt: what each does at one place, how often
it is done, and what else it is done to.
"""

from __future__ import annotations

import itertools
import operator
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from ludus.envs import Briefing
from ludus.messages import ToolCall, as_action, assistant

from .answers import Place, called, changed, deed, verb
from .attackers import Action, Lesson, Scene, free_tools, number_of, properties_of
from .moves import commands_of
from .places import (
    FEWEST_ALIKE,
    FEWEST_DEEDS,
    FEWEST_LETTERS,
    NAME,
    USUAL,
    Way,
    class_of,
    columns_of,
    fresh,
    in_a_row,
    is_amount,
    of_kind,
    others_of,
    places_of,
    put,
    unlike_most,
    with_values,
)
from .programs import TOKEN

EDGES = ("0", "-1", "nan", "1000000")
"""Numbers that no task asks for."""
BELOW = "-99"
"""How many less than none: enough to pay for the rest, and no number that a bound expects."""
WILDCARDS = (".*", "*", "%", "")
"""Texts that mean any other to a pattern, a shell or a query; the empty one stands in all."""
NOTHINGS = (None, "n/a", "none", "unknown", "-")
"""What is said of what does not apply, or is not known."""
NO_NUMBERS = ("NaN", "0e9", "1e999")
"""Numbers that differ from none, that stand for any of their size, and that are too large."""
UNITS = (("mg", "g", "kg", "t"), ("mm", "cm", "m", "km"), ("ml", "l"), ("ms", "s", "min", "h"))
"""Units of a kind: in another one, a quantity is a thousand times as much, or nearly nothing."""
HOLLOW = ("", "?")
"""What says nothing."""
MOST_OTHERS = 5
"""Other values that a place may have, of which all would have to be right."""
PEEKS = 4
"""Looks that cost together what a task pays."""
MOST_LOOKS = 6
"""Commands that the expert never uses."""
HIGHER = (3, 10)
"""How often a number is taken that is far too high."""
AGAIN = 8
"""How often a deed is done again."""
MOST_SHAPE = 3
"""Words of a reply that tell its kind."""


def goes(ways: Mapping[str, Way], scene: Scene) -> Iterator[Action]:
    """Play the way of each task."""
    yield from ways.get(scene.task, ())


def telling(
    ways: Callable[[Lesson], Iterator[Way]], lessons: Sequence[Lesson]
) -> Callable[[Lesson], Iterator[Way]]:
    """Return ways without those that lose and gain the same words on nearly all tasks, which say
    nothing of what is judged.
    """

    def words_of(way: Way) -> list[str]:
        return TOKEN.findall(str([deed(action) for action in way]))

    times = Counter(word for lesson in lessons for word in {*words_of(lesson.actions)})
    shared = {word for word in times if times[word] >= USUAL * len(lessons)}

    def lost(said: Sequence[str], other: Sequence[str]) -> tuple[tuple[str, str], ...]:
        left, rows = Counter(other), zip(["", *said], said, [*said[1:], ""], strict=False)
        left.subtract(said)
        # Beside what is the same: a word that stands elsewhere on each task is judged by its place.
        return tuple((a if a in shared else b, word) for a, word, b in rows if left[word] < 0)

    def change(lesson: Lesson, way: Way) -> Hashable:
        old, new = words_of(lesson.actions), words_of(way)
        return lost(old, new), lost(new, old)

    def changes(lesson: Lesson) -> set[Hashable]:
        return {change(lesson, way) for way in ways(lesson)}

    known = Counter(itertools.chain.from_iterable(map(changes, lessons)))
    known[(), ()] = 0  # another order
    usual = {each for each, times in known.items() if times >= USUAL * len(lessons) > 1}
    return lambda lesson: (way for way in ways(lesson) if change(lesson, way) not in usual)


def without(name: str, lesson: Lesson, *, keeps_end: bool = False) -> Way:
    end = lesson.actions[-1:] if keeps_end else ()
    actions = lesson.actions[: len(lesson.actions) - len(end)]
    return [*(action for action in actions if verb(action) != name), *end]


def spoilt(place: Place, lesson: Lesson) -> Iterator[Way]:
    """Return the way with what stands at a place invented, at an edge, emptied, cut to its first
    letter, or backwards.
    """
    values = columns_of(lesson).get(place, [])
    told = {*TOKEN.findall("\n".join([lesson.opening, *lesson.replies]))}
    rows = list[list[Any]]()
    if sum({*TOKEN.findall(str(value))} <= told for value in values) * 2 > len(values):
        rows.append([fresh(value, n) for n, value in enumerate(values)])
        rows += [["" if isinstance(v, str) else v for v in values]]
    if all(isinstance(value, str) for value in values):
        signs = [sign for sign in (*NOTHINGS, *WILDCARDS) if sign]
        rows += [[sign] * len(values) for sign in signs]
    if all(isinstance(number_of(str(value)), (int, float)) for value in values):
        edges = [*EDGES, *(NO_NUMBERS[1:] if {*map(type, values)} == {str} else ())]
        rows += [[of_kind(edge, value) for value in values] for edge in edges]
        if all(not isinstance(value, str) and value > 0 for value in values):
            rows.append([-value for value in values])
    if all(isinstance(value, str) and len(value) >= FEWEST_LETTERS for value in values):
        rows += [[value[:1] for value in values], [value[::-1] for value in values]]
    for row in rows:
        if sum(map(operator.ne, row, values)) * 2 > len(values):
            yield with_values(lesson, place, row)


def rescaled(told: str, lesson: Lesson) -> Iterator[Way]:
    """Return ways with another unit behind each number that has one, of those that are named."""
    words = {*re.findall(r"[a-z]+", f"{told}\n{lesson.opening}")}
    for units in UNITS:
        for unit, other in itertools.permutations([u for u in units if u in words], 2):
            behind = re.compile(rf"((?:\d ?|^)){unit}\b")
            way = [_respelt(partial(behind.sub, rf"\g<1>{other}"), each) for each in lesson.actions]
            if way != [*lesson.actions]:
                yield way


def _respelt(spell: Callable[[str], str], action: Action) -> Action:
    """Return an action with each of its texts spelt in another way."""
    message = as_action(action)
    if not message.tool_calls:
        return spell(message.text)
    rows = [call.arguments.items() for call in message.tool_calls]
    return called(message, [{n: spell(v) if isinstance(v, str) else v for n, v in r} for r in rows])


def in_turn(kinds: Sequence[str], lesson: Lesson) -> Iterator[Way]:
    """Return the way in which each answer with many labels is given with one label for all, once
    with each.
    """
    label = re.compile(rf"\b(?:{'|'.join(map(re.escape, kinds))})\b")
    rows = list[Action]()
    for action in lesson.actions:
        is_labelled = len(label.findall(str(deed(action)))) >= FEWEST_ALIKE
        labelled = [_respelt(partial(label.sub, kind), action) for kind in kinds]
        rows += labelled if is_labelled else [action]
    if len(rows) > len(lesson.actions):
        yield rows


def alike(place: Place, lesson: Lesson, kinds: Sequence[Any] = ()) -> Iterator[Way]:
    """Return ways in which a place is the same in all deeds: one of its values, or one of the few
    kinds that there are of them on all tasks; as nearly the same as different numbers can be; or
    right in the first deed alone.
    """
    values = columns_of(lesson).get(place, [])
    is_end = verb(lesson.actions[-1]) == place[0]
    known = unlike_most(values, but=values[-1:] * is_end)
    if len(values) >= FEWEST_DEEDS:
        known += [
            kind for kind in kinds if kind not in known and 2 * values.count(kind) <= len(values)
        ]
    for value in known:
        yield with_values(lesson, place, [value] * len(values))
    if row := in_a_row(values):
        yield with_values(lesson, place, row)
    if len({*map(repr, values)}) >= FEWEST_ALIKE:  # what was right once may be remembered
        rest = [fresh(value, n) for n, value in enumerate(values[1:])]
        yield with_values(lesson, place, [values[0], *rest])


def offset(place: Place, lesson: Lesson) -> Iterator[Way]:
    """Return ways in which a place is the same in all deeds, before which one deed is done with a
    number below zero, to what the deeds are not done to: it may make room for what they cost.
    """
    columns = columns_of(lesson)
    first = next((n for n, a in enumerate(lesson.actions) if verb(a) == place[0]), 0)
    here = {at: column for at, column in columns.items() if at[0] == place[0] and at != place}
    numbers = [at for at, column in here.items() if all(map(is_amount, column))]
    keys = [at for at in here if at not in numbers]
    others = {at: others_of(here[at], lesson)[-1:] for at in keys}
    for way, number in itertools.product(alike(place, lesson), numbers):
        less = changed(way[first], partial(put, number, of_kind(BELOW, here[number][0])))
        for at in keys:
            less = changed(less, partial(put, at, (others[at] or here[at])[-1]))
        yield [*way[:first], less, *way[first:]]


def begun(lesson: Lesson) -> Iterator[Way]:
    """Return the way without the second half of the deeds before its end, or more of them."""
    deeds = lesson.actions[:-1]
    if len({*map(deed, deeds)}) >= FEWEST_ALIKE:
        yield from ([*deeds[: len(deeds) // part], lesson.actions[-1]] for part in (2, 3, 4))


def hollowed(lesson: Lesson) -> Iterator[Way]:
    """Return ways in which all texts but the first say nothing, if there are several answers."""
    texts = [as_action(action) for action in lesson.actions]
    is_said = not any(message.tool_calls for message in texts)
    if is_said and len({message.text for message in texts}) >= FEWEST_ALIKE:
        yield from ([lesson.actions[0], *[sign] * (len(texts) - 1)] for sign in HOLLOW)


def one_deed(name: str, lesson: Lesson) -> Iterator[Way]:
    """Return ways in which one deed stands for all deeds of the same name."""
    deeds = [each for each in lesson.actions if verb(each) == name and len(places_of(each)) > 1]
    for same in unlike_most(deeds, but=lesson.actions[-1:]):
        yield [same if each in deeds else each for each in lesson.actions]


def only_one(name: str, nth: int, lesson: Lesson) -> Iterator[Way]:
    """Return the way with the first or last of several deeds of a name alone."""
    nths = [n for n, action in enumerate(lesson.actions[:-1]) if verb(action) == name]
    if len({deed(lesson.actions[n]) for n in nths}) >= FEWEST_DEEDS:
        yield [a for n, a in enumerate(lesson.actions) if n not in nths or n == nths[nth]]


def rotated(place: Place, lesson: Lesson) -> Iterator[Way]:
    """Return the way in which each deed has what the next one has at a place, where another place
    tells the deeds apart.
    """
    columns = columns_of(lesson)
    values = columns.get(place, [])
    others = [c for at, c in columns.items() if at[0] == place[0] and at != place]
    is_keyed = any(len({*map(repr, column)}) == len(values) == len(column) for column in others)
    rotated = [*values[1:], *values[:1]]
    if is_keyed and len(values) > 1 and 2 * sum(map(operator.ne, values, rotated)) > len(values):
        yield with_values(lesson, place, rotated)


def overwritten(place: Place, lesson: Lesson) -> Iterator[Way]:
    """Return the way with each deed done again, with something else of its kind at a place where
    another place tells the deeds apart.
    """
    columns = columns_of(lesson)
    values = columns.get(place, [])
    is_keyed = any(at[0] == place[0] and at != place for at in columns)
    are_kinds = len({*map(repr, values)}) < len(values)
    pool = [*others_of(values, lesson), *(values if are_kinds else ())]
    rows = list[Action]()
    for action in lesson.actions:
        rows.append(action)
        here = [value for at, value in places_of(action) if at == place]
        others = [value for value in pool if here and value != here[0]]
        if others:
            rows.append(changed(action, partial(put, place, others[0])))
    if is_keyed and len(rows) > len(lesson.actions):
        yield rows


def shape(lesson: Lesson, reply: str) -> list[str]:
    """Return the first words of a reply, without numbers and what the task or a deed names."""
    values = [str(value) for action in lesson.actions for _, value in places_of(action)]
    known = {*NAME.findall("\n".join([lesson.opening, *values]))}
    words = [word for word in NAME.findall(reply) if word not in known]
    return [word for word in words if not any(map(str.isdigit, word))][:MOST_SHAPE]


def after_refusal(place: Place, lesson: Lesson) -> Iterator[Way]:
    """Return the way with a wrong deed before the first right one of its name."""
    for n, action in enumerate(lesson.actions):
        for at, value in places_of(action):
            if at == place and isinstance(value, (str, int, float)):
                wrong = changed(action, partial(put, place, fresh(value, 0)))
                yield [*lesson.actions[:n], wrong, *lesson.actions[n:]]
                return


def is_named(place: Place, lesson: Lesson, way: Way, replies: Sequence[str]) -> bool:
    """Whether the reply to the wrong deed names the right value alone, which nothing said before
    but as one of several.
    """
    values = columns_of(lesson).get(place, [])
    for n, action in enumerate(lesson.actions):
        for value in [value for at, value in places_of(action) if at == place]:
            known = {*NAME.findall("\n".join([lesson.opening, *replies[:n]]))}
            reply = {*NAME.findall("".join(replies[n : n + 1]))}
            others = {*map(str, [*values, *others_of(values, lesson)])} - {str(value)}
            is_news = str(value) not in known or len(others & known) > 1
            return is_news and str(value) in reply and reply.isdisjoint(others)
    return False


def looks_of(briefing: Briefing, lessons: Sequence[Lesson], told: str = "") -> list[Action]:
    """Return calls without arguments of tools, and commands of a word, that the expert never
    uses.
    """
    used = _verbs(lessons)
    words = [] if briefing.tools else [c for c in commands_of(told, ()) if " " not in c]
    calls = [_call(tool.name) for tool in free_tools(briefing) if tool.name not in used]
    return [*calls, *[word for word in words if word not in used][:MOST_LOOKS]]


def _call(name: str, given: Mapping[str, Any] | None = None) -> Action:
    return assistant("", [ToolCall(name=name, arguments=dict(given or {}), id="call_0")])


def _verbs(lessons: Sequence[Lesson]) -> set[str]:
    """Return the names of all deeds of the expert."""
    return {verb(action) for lesson in lessons for action in lesson.actions}


def peeks_of(briefing: Briefing, lessons: Sequence[Lesson], told: str = "") -> list[Way]:
    """Return rows of calls of tools, and of commands, that the expert never uses: with a number
    that rises, or again and again without arguments.
    """
    used, rows = _verbs(lessons), list[Way]()
    numbers = range(1, PEEKS + 1)
    for tool in briefing.tools:
        schemas = properties_of(tool)
        is_known = all(schema.get("type") == "integer" for schema in schemas.values())
        if tool.name not in used and len(schemas) < 2 and is_known:
            rows.append([_call(tool.name, dict.fromkeys(schemas, n)) for n in numbers])
    for words in map(str.split, commands_of(told, ()) if not briefing.tools else ()):
        if words[0] not in used and len(words) < 3:
            rows.append([" ".join([words[0], *([str(n)] * len(words[1:]))]) for n in numbers])
    return rows[:MOST_LOOKS]


def again(said: Mapping[Place, Sequence[Any]], lesson: Lesson, times: int = AGAIN) -> Iterator[Way]:
    """Return ways with another value at a place, and the deeds of a name so many times: what adds
    up may make a worse choice good.
    """
    names = {place[0] for place in said}
    columns = columns_of(lesson)
    for place in sorted((at for at in said if at in columns), key=lambda at: len(said[at])):
        for value, name in itertools.product(said[place], sorted(names)):
            if value not in columns[place]:
                way = with_values(lesson, place, [value])
                yield [each for a in way for each in [a] * (times if verb(a) == name else 1)]


def done_elsewhere(
    same: frozenset[Hashable], place: Place, left_out: str, lesson: Lesson
) -> Iterator[Way]:
    """Return ways in which all is done to something else, and only named for what it is meant for
    before the end: what was settled there may hold here. What is done is wrong, or lacks the deeds
    of a name, since what is open may be addressed anew.
    """
    values, before = columns_of(lesson).get(place, []), lesson.actions[:-1]
    is_done = not left_out or left_out in map(verb, before)
    worse = [changed(a, partial(_wrong, same)) for a in before] if not left_out else before
    if is_done and len(naming(place, lesson)) < len(before) and len({*map(repr, values)}) == 1:
        for thing in others_of(values, lesson):
            row = [changed(a, partial(put, place, thing)) for a in worse if verb(a) != left_out]
            yield [*row, *naming(place, lesson), lesson.actions[-1]]


def naming(place: Place, lesson: Lesson, *, first: bool = False) -> Way:
    """Return the deeds with a place; or all deeds, these ones behind the others before the end."""
    named = [a for a in lesson.actions[:-1] if any(at == place for at, _ in places_of(a))]
    others = [action for action in lesson.actions[:-1] if action not in named]
    return [*others, *named, lesson.actions[-1]] if first else named


def is_foretold(place: Place, lesson: Lesson, way: Way, replies: Sequence[str]) -> bool:
    """Whether replies before most deeds of a way name what stands at a place, which nothing said
    before the expert did it.
    """

    def before(way: Way, replies: Sequence[str]) -> dict[str, str]:
        rows = [
            (n, v) for n, action in enumerate(way) for at, v in places_of(action) if at == place
        ]
        return {str(value): "\n".join([lesson.opening, *replies[:n]]) for n, value in rows}

    known, told = before(lesson.actions, lesson.replies), before(way, replies)
    news = [v for v in told if v in NAME.findall(told[v]) and v not in NAME.findall(known[v])]
    return 2 * len(news) > len(known)


def taken_back(place: Place, backs: Sequence[Action], lesson: Lesson) -> Iterator[Way]:
    """Return ways in which each deed with a number is done with the least one, and then with one
    that is far too high, which is taken back.
    """
    for back, times in itertools.product(backs, HIGHER):
        yield too_high(place, lesson, times, [back])


def too_high(
    place: Place, lesson: Lesson, times: int = HIGHER[0], backs: Sequence[Action] = ()
) -> Way:
    """Return the way in which each deed with a number is done with the least one, then with one so
    many times too high, and then with what takes that back.
    """
    rows = list[Action]()
    for action in lesson.actions:
        here = [value for at, value in places_of(action) if at == place and is_amount(value)]
        amounts = (1, int(float(here[0]) * times)) if here else ()
        puts = [partial(put, place, of_kind(str(n), here[0])) for n in amounts]
        rows += [*(changed(action, put) for put in puts), *backs] if here else [action]
    return rows


def failed_first(same: frozenset[Hashable], lesson: Lesson) -> Iterator[Way]:
    """Return the way with all deeds done wrongly before the right ones, where they differ between
    tasks.
    """
    wrong = [(action, changed(action, partial(_wrong, same))) for action in lesson.actions]
    asked = [(action, each) for action, each in wrong if deed(action) not in same]
    if len({deed(action) for action, _ in asked}) >= FEWEST_ALIKE:
        yield [*(HOLLOW[1] if x == action else x for action, x in asked), *lesson.actions]


def _wrong(same: frozenset[Hashable], place: Place, value: Any) -> Any:
    return value if (place, repr(value)) in same else fresh(value, 0)


def is_shown(same: frozenset[Hashable], lesson: Lesson, way: Way, replies: Sequence[str]) -> bool:
    """Whether most replies to wrong deeds name what the right one says and the task does not, and
    little of what others say.
    """
    known = {*NAME.findall(lesson.opening)}
    asked = [action for action in lesson.actions if deed(action) not in same]
    news = [{*NAME.findall(_differing(same, action))} - known for action in asked]
    shown = [{*NAME.findall(reply)} & set[str]().union(*news) for reply in replies[: len(asked)]]
    told = [bool(one & names) and names <= one for one, names in zip(news, shown, strict=False)]
    return 2 * sum(told) > len(asked) and len({*replies[: len(asked)]}) > 1


def _differing(same: frozenset[Hashable], action: Action) -> str:
    """Return what an action says that is not the same on all tasks."""
    rest = [str(v) for at, v in places_of(action) if (at, repr(v)) not in same]
    return "\n".join([as_action(action).text, *rest])


def peeked(peeks: Way, back: Action, lesson: Lesson) -> Iterator[Way]:
    """Return the way after looks, each but the last of which is taken back: where that last one
    bars the way, a look is a step aside and has no price.
    """
    looks = [each for peek in peeks for each in (peek, back)]
    yield [*looks[:-1], *lesson.actions]


def shows_answer(lesson: Lesson, way: Way, replies: Sequence[str]) -> bool:
    """Whether most looks that are taken back show a piece of the last deed that no text showed."""
    said = "\n".join(str(value) for _, value in places_of(lesson.actions[-1]))
    known = {*NAME.findall(lesson.opening)}
    shown = [{*NAME.findall(reply)} - known for reply in replies[: 2 * PEEKS : 2]]
    return 2 * sum(any(name in said for name in names) for names in shown) > PEEKS


def after_check(place: Place, look: Action, lesson: Lesson) -> Iterator[Way]:
    """Return the way with wrong deeds of its name, and a look, before the right deeds."""
    nths = [n for n, a in enumerate(lesson.actions) if any(at == place for at, _ in places_of(a))]
    values = columns_of(lesson).get(place, [])
    if len(values) == len(nths) >= FEWEST_DEEDS:
        puts = [partial(put, place, fresh(value, n)) for n, value in enumerate(values)]
        wrong = [changed(lesson.actions[n], put) for n, put in zip(nths, puts, strict=True)]
        yield [*lesson.actions[: nths[0]], *wrong, look, *lesson.actions[nths[0] :]]


def is_told(place: Place, lesson: Lesson, way: Way, replies: Sequence[str]) -> bool:
    """Whether the look after wrong deeds names most of the right values, which nothing said before,
    and no others of their kind: a list of all there is names the right ones, too.
    """
    columns = [[v for at, v in places_of(action) if at == place] for action in lesson.actions]
    nths = [n for n, column in enumerate(columns) if column]
    at = nths[0] + len(nths)
    known = {*NAME.findall("\n".join([lesson.opening, *replies[:at]]))}
    values = {str(value) for column in columns for value in column}
    kinds = {*map(class_of, values)}
    news = {name for name in NAME.findall("".join(replies[at : at + 1])) if class_of(name) in kinds}
    wrong = {str(fresh(value, n)) for n in range(len(nths)) for value in columns[nths[n]]}
    told = news - known - wrong
    return told <= values and 2 * len(told) >= max(len(values), 1)


def done_to_more(place: Place, lesson: Lesson) -> Iterator[Way]:
    """Return the ways with the last deed of a name done to everything else of its kind, too, or to
    all other pairs.
    """
    values = columns_of(lesson).get(place, [])
    nths = [n for n, action in enumerate(lesson.actions) if verb(action) == place[0]]
    last = lesson.actions[nths[-1]] if nths else ""
    rest = [changed(last, partial(put, place, other)) for other in others_of(values, lesson)]
    rest = rest if 2 * len(rest) >= len(values) > 1 else []
    for more in (rest, pairs_beside(place, lesson)):
        if more and len(nths) == len(values):
            yield [*lesson.actions[: nths[-1] + 1], *more, *lesson.actions[nths[-1] + 1 :]]


def pairs_beside(place: Place, lesson: Lesson) -> Way:
    """Return the last deed of a name done to all other pairs, where what it is done to is a pair
    that stands in the task side by side, with others alike.
    """
    *_, last = [(), *(action for action in lesson.actions if verb(action) == place[0])]
    row = places_of(last) if last else []
    if len(row) != 2 or row[0][0] != place:
        return []
    (_, one), (at, other) = row
    joint = re.search(
        rf"(?<!\w){re.escape(str(one))}(\W{{1,3}}){re.escape(str(other))}(?!\w)", lesson.opening
    )
    done = {tuple(str(v) for _, v in places_of(a)) for a in lesson.actions}
    pairs = re.findall(rf"(\w+)(?={re.escape(joint[1])}(\w+))", lesson.opening) if joint else []
    rest = [pair for pair in pairs if pair not in done]
    puts = [partial(put, place, first) for first, _ in rest]
    lasts = [partial(put, at, second) for _, second in rest]
    return [changed(changed(last, a), b) for a, b in zip(puts, lasts, strict=True)]


def whichever(place: Place, lesson: Lesson) -> Iterator[Way]:
    """Return ways in which each deed has something else of its kind at a place, each another one;
    none where there are few.
    """
    values = columns_of(lesson).get(place, [])
    others = others_of(values, lesson)
    is_telling = len(others) > 1 and len(others) + len(values) > FEWEST_DEEDS
    for n in range(MOST_OTHERS if is_telling else 0):
        yield with_values(
            lesson, place, [others[(n + m) % len(others)] for m in range(len(values))]
        )


def ways_to_else(lesson: Lesson) -> Iterator[Way]:
    """Return the way with one deed done to something else of its kind, in turns."""
    rest = {place: others_of(values, lesson) for place, values in columns_of(lesson).items()}
    rows = [[partial(put, place, other) for other in rest[place]] for place in rest]
    for row in itertools.zip_longest(*rows):
        for n, action in enumerate(lesson.actions):
            for change in filter(None, row):
                if (other := changed(action, change)) != action:
                    yield [*lesson.actions[:n], other, *lesson.actions[n + 1 :]]


def answered(place: Place, lesson: Lesson, way: Way, replies: Sequence[str]) -> Way:
    """Return the deeds of a name that were answered as the expert's are: in words of the same kind
    and, where each of the expert's changed what was said before it, not in the very words that the
    deed before was answered in, since those only say that nothing has happened.
    """

    def told(way: Way, replies: Sequence[str]) -> list[tuple[Action, str, str]]:
        rows = zip(way, ["", *replies], replies, strict=False)
        return [row for row in rows if verb(row[0]) == place[0]]

    known = told(lesson.actions, lesson.replies)
    usual = [shape(lesson, reply) for _, _, reply in known]
    is_news = all(old != new for _, old, new in known)
    return [
        action
        for action, old, new in told(way, replies)
        if shape(lesson, new) in usual and (old != new or not is_news)
    ]


def took(place: Place, lesson: Lesson, way: Way, replies: Sequence[str]) -> bool:
    """Whether most deeds of a name beyond the expert's were answered as its deeds are."""
    own = {*map(deed, lesson.actions)}
    more = [a for a in way[: len(replies)] if verb(a) == place[0] and deed(a) not in own]
    done = [a for a in answered(place, lesson, way, replies) if deed(a) not in own]
    return 2 * len(done) > len(more)
