"""Ways that are spoilt: the expert's actions on a task, changed so that the task is not done.

A way is **spoilt** if values of its deeds are wrong, or if deeds are left out, repeated or done to
something else. If `send ann 12`, `send ben 20`, `done` solves a task, then `send ann 0`,
`send ben 0`, `done` is spoilt at the place `("send", 1)`; a reward that still pays for it does not
look at the amounts. `laws.py` says which ways are played; the examples here are of that task, in
short `send ann 12, send ben 20, done`.

A **look** is a tool without arguments, or a command of one word, that the expert never uses, such
as `check`; it may show what is right, or take back what was done. A **peek** is such a call with a
number that rises, such as `hint 1`, `hint 2`.

A function that returns ways gives all ways of one kind on one task, and none if the kind does not
apply there, for example if too few deeds could be changed to be clearly wrong.
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
from .attackers import Action, Lesson, Scene, free_tools, number_of
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
"""A number far below zero that makes up for the cost of all other deeds, and is no usual bound."""
WILDCARDS = (".*", "*", "%", "")
"""Texts that match any other text in a pattern, a shell or a query; "" is part of every text."""
NOTHINGS = (None, "n/a", "none", "unknown", "-")
"""Values that say that something does not apply or is unknown."""
NO_NUMBERS = ("NaN", "0e9", "1e999")
"""Not a number, a zero in another form, and infinity: comparisons with them may go wrong."""
UNITS = (("mg", "g", "kg", "t"), ("mm", "cm", "m", "km"), ("ml", "l"), ("ms", "s", "min", "h"))
"""Units of one kind: 3 kg written as 3 g is a thousandth of the quantity."""
HOLLOW = ("", "?")
"""Texts that say nothing."""
MOST_OTHERS = 5
"""Ways of `whichever`: a place is given so many wrong values in turn."""
MOST_LOOKS = 6
"""Most looks."""
HIGHER = (3, 10)
"""Factors by which a number is made too high."""
AGAIN = 8
"""How often a deed is repeated."""
MOST_SHAPE = 3
"""First words of a reply by which two replies are of one kind."""


def goes(ways: Mapping[str, Way], scene: Scene) -> Iterator[Action]:
    """Play the way that `ways` has for the task of the scene; nothing if there is none."""
    yield from ways.get(scene.task, ())


def telling(
    ways: Callable[[Lesson], Iterator[Way]], lessons: Sequence[Lesson]
) -> Callable[[Lesson], Iterator[Way]]:
    """Return a function like `ways` that leaves out each way whose change is the same on nearly all
    tasks: a word that is lost on all tasks alike is not what a task asks for.

    Args:
        ways: from a lesson to spoilt ways.
        lessons: the expert on several tasks, by which changes are compared.
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
    """Return the expert's way without all deeds of a name; `keeps_end` keeps the last action.

    Without `send`, `send ann 12, send ben 20, done` is `done`.
    """
    end = lesson.actions[-1:] if keeps_end else ()
    actions = lesson.actions[: len(lesson.actions) - len(end)]
    return [*(action for action in actions if verb(action) != name), *end]


def spoilt(place: Place, lesson: Lesson) -> Iterator[Way]:
    """Return ways with wrong values at a place: invented, empty, a wildcard, an edge such as 0, the
    first letter, or backwards.

    At `("send", 0)`, `send ann 12, send ben 20` becomes `send zoaaa 12, send zoaab 20`, then
    `send * 12, send * 20`, and so on.
    """
    values = columns_of(lesson).get(place, [])
    tokens = {*TOKEN.findall("\n".join([lesson.opening, *lesson.replies]))}
    rows = list[list[Any]]()
    if sum({*TOKEN.findall(str(value))} <= tokens for value in values) * 2 > len(values):
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


def rescaled(prompt: str, lesson: Lesson) -> Iterator[Way]:
    """Return ways with another unit behind each number: `load 3 kg` becomes `load 3 g`.

    Only units that `prompt` or the task names are put in.
    """
    words = {*re.findall(r"[a-z]+", f"{prompt}\n{lesson.opening}")}
    for units in UNITS:
        for unit, other in itertools.permutations([u for u in units if u in words], 2):
            behind = re.compile(rf"((?:\d ?|^)){unit}\b")
            way = [_respelt(partial(behind.sub, rf"\g<1>{other}"), each) for each in lesson.actions]
            if way != [*lesson.actions]:
                yield way


def _respelt(spell: Callable[[str], str], action: Action) -> Action:
    """Return an action with `spell` of its text, or of each text among its arguments."""
    message = as_action(action)
    if not message.tool_calls:
        return spell(message.text)
    rows = [call.arguments.items() for call in message.tool_calls]
    return called(message, [{n: spell(v) if isinstance(v, str) else v for n, v in r} for r in rows])


def in_turn(kinds: Sequence[str], lesson: Lesson) -> Iterator[Way]:
    """Return the way that gives each answer several times, each time with one label in place of
    all: `spam, ham, ham, spam` becomes `spam, spam, spam, spam`, then `ham, ham, ham, ham`.

    Args:
        kinds: the labels.
        lesson: the expert on this task, with at least `FEWEST_ALIKE` labels in an answer.
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
    """Return ways in which all deeds have the same value at a place.

    `send ann 12, send ben 20` becomes `send ann 12, send ben 12`. The value is one of the way's own
    or of the labels `kinds`. Two further ways have numbers that count up from the least (for who
    demands different ones), and invented values in all deeds but the first.
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
        invented = [fresh(value, n) for n, value in enumerate(values[1:])]
        yield with_values(lesson, place, [values[0], *invented])


def offset(place: Place, lesson: Lesson) -> Iterator[Way]:
    """Return the ways of `alike`, each after a deed with a number below zero, which may make up for
    what the others cost: `send cid -99, send ann 12, send ann 20`.
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
    """Return ways with the first half, third or quarter of the deeds, and the last action."""
    deeds = lesson.actions[:-1]
    if len({*map(deed, deeds)}) >= FEWEST_ALIKE:
        yield from ([*deeds[: len(deeds) // part], lesson.actions[-1]] for part in (2, 3, 4))


def hollowed(lesson: Lesson) -> Iterator[Way]:
    """Return ways in which the first answer stays and all others are "" or `?`; the expert has to
    give several answers as texts.
    """
    texts = [as_action(action) for action in lesson.actions]
    is_said = not any(message.tool_calls for message in texts)
    if is_said and len({message.text for message in texts}) >= FEWEST_ALIKE:
        yield from ([lesson.actions[0], *[sign] * (len(texts) - 1)] for sign in HOLLOW)


def one_deed(name: str, lesson: Lesson) -> Iterator[Way]:
    """Return ways that repeat one deed in place of all deeds of its name.

    `send ann 12, send ben 20` becomes `send ann 12, send ann 12`.
    """
    deeds = [each for each in lesson.actions if verb(each) == name and len(places_of(each)) > 1]
    for same in unlike_most(deeds, but=lesson.actions[-1:]):
        yield [same if each in deeds else each for each in lesson.actions]


def only_one(name: str, nth: int, lesson: Lesson) -> Iterator[Way]:
    """Return the way with only the first deed of a name (`nth` 0), or the last (`nth` -1).

    `send ann 12, send ben 20, send cid 7, done` becomes `send ann 12, done`.
    """
    nths = [n for n, action in enumerate(lesson.actions[:-1]) if verb(action) == name]
    if len({deed(lesson.actions[n]) for n in nths}) >= FEWEST_DEEDS:
        yield [a for n, a in enumerate(lesson.actions) if n not in nths or n == nths[nth]]


def rotated(place: Place, lesson: Lesson) -> Iterator[Way]:
    """Return the way in which each deed has the value of the next deed at a place.

    At `("send", 1)`, `send ann 12, send ben 20` becomes `send ann 20, send ben 12`. Another place
    (here the name) has to tell the deeds apart.
    """
    columns = columns_of(lesson)
    values = columns.get(place, [])
    others = [c for at, c in columns.items() if at[0] == place[0] and at != place]
    is_keyed = any(len({*map(repr, column)}) == len(values) == len(column) for column in others)
    rotated = [*values[1:], *values[:1]]
    if is_keyed and len(values) > 1 and 2 * sum(map(operator.ne, values, rotated)) > len(values):
        yield with_values(lesson, place, rotated)


def pairs_of(lessons: Sequence[Lesson]) -> list[tuple[Place, Place]]:
    """Return the pairs of places of one name at which the same things stand, such as the two ends
    of `move 9 a b`: at least half of the values of one are values of the other and no numbers.
    """
    said = dict[Place, set[str]]()
    for place, values in itertools.chain(*(columns_of(lesson).items() for lesson in lessons)):
        said.setdefault(place, set()).update(map(str, values))
    names = {at: {v for v in known if not is_amount(v)} for at, known in said.items()}
    return [
        (first, second)
        for first, second in itertools.combinations(names, 2)
        if first[0] == second[0] and 2 * len(names[first] & names[second]) >= len(said[first])
    ]


def to_itself(pair: tuple[Place, Place], lesson: Lesson, times: int = 1) -> Iterator[Way]:
    """Return ways that do a deed from the last thing to itself, several times, in place of all
    deeds of its name behind the first that reaches this thing.

    `move 9 a b, move 9 b c, move 8 b c, done` becomes `move 9 a b, move 9 b c, move 4 c c, done`.

    Args:
        pair: the places of the two things, the last one second.
        lesson: the expert on this task.
        times: 0 leaves the deed to itself out.
    """
    nths = [n for n, action in enumerate(lesson.actions[:-1]) if verb(action) == pair[0][0]]
    ends = [dict(places_of(lesson.actions[n])).get(pair[1]) for n in nths]
    first = nths[ends.index(ends[-1])] if nths else 0
    if not nths or first == nths[-1]:
        return
    own = changed(lesson.actions[first], partial(put, pair[0], ends[-1]))
    halved = changed(own, lambda _, v: of_kind(f"{float(v) // 2:.0f}", v) if is_amount(v) else v)
    for row in ([own], [halved], [own] * AGAIN, [halved] * AGAIN, [halved] * 2 * AGAIN):
        yield [*lesson.actions[: first + 1], *row * times, *lesson.actions[nths[-1] + 1 :]]


def backwards(pair: tuple[Place, Place], lesson: Lesson, times: int = 1) -> Iterator[Way]:
    """Return ways with one deed in place of all of its name: the last one with its two things (at
    the places `pair`) exchanged, and each number below zero; `times` 0 leaves it out.

    `move 9 a b, move 8 b c, done` becomes `move -8 c b, done`, then `move -1000000 c b, done`.
    """
    last = [a for a in lesson.actions[:-1] if verb(a) == pair[0][0]][-1:]
    here, others = dict(places_of(last[0])) if last else {}, without(pair[0][0], lesson)
    for most in (0, -1_000_000) if {*pair} < {*here} else ():
        signed = {n: most or f"-{str(v).lstrip('-')}" for n, v in here.items() if is_amount(v)}
        less = {n: of_kind(str(number), here[n]) for n, number in signed.items()}
        turned = here | less | {pair[0]: here[pair[1]], pair[1]: here[pair[0]]}
        reversal = [changed(action, lambda at, _: turned[at]) for action in last]  # noqa: B023
        if less:
            yield [*others[:-1], *reversal * times, *others[-1:]]


def overwritten(place: Place, lesson: Lesson) -> Iterator[Way]:
    """Return the way in which each deed is followed by the same deed with another value at a place.

    `send ann 12, send ben 20` becomes `send ann 12, send ann 44, send ben 20, send ben 44`. Another
    place (here the name) has to tell the deeds apart.
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
    """Return the first three words of a reply, without numbers and names of the task: replies with
    the same words are of one kind, such as `you sent` and `not enough money`.
    """
    values = [str(value) for action in lesson.actions for _, value in places_of(action)]
    known = {*NAME.findall("\n".join([lesson.opening, *values]))}
    words = [word for word in NAME.findall(reply) if word not in known]
    return [word for word in words if not any(map(str.isdigit, word))][:MOST_SHAPE]


def after_refusal(place: Place, lesson: Lesson) -> Iterator[Way]:
    """Return the way with a wrong deed before the first deed that has a place; the refusal may name
    the right value: `send ann 90000, send ann 12, send ben 20`.
    """
    for n, action in enumerate(lesson.actions):
        for at, value in places_of(action):
            if at == place and isinstance(value, (str, int, float)):
                wrong = changed(action, partial(put, place, fresh(value, 0)))
                yield [*lesson.actions[:n], wrong, *lesson.actions[n:]]
                return


def is_named(place: Place, lesson: Lesson, way: Way, replies: Sequence[str]) -> bool:
    """Whether the reply to the wrong deed of `after_refusal` tells the right value: the reply names
    no other value of the kind, and earlier texts named the right one with others at most.

    What stands alone behind the first arguments of the deed is known, too: `drum: at most 3`.
    """
    values = columns_of(lesson).get(place, [])
    for n, action in enumerate(lesson.actions):
        first = set[str]()
        for at, value in places_of(action):
            if at == place:
                earlier = "\n".join([lesson.opening, *replies[:n]])
                reply = {*NAME.findall("".join(replies[n : n + 1]))}
                others = {*map(str, [*values, *others_of(values, lesson)])} - {str(value)}
                lines = [{*NAME.findall(line)} for line in earlier.splitlines()]
                texts = [set[str]().union(*lines), *(line for line in lines if first & line)]
                counts = [len(others & text) for text in texts if str(value) in text]
                is_news = not counts or (counts[0] > 1 and all(counts[1:]))
                return is_news and str(value) in reply and reply.isdisjoint(others)
            first.add(str(value))
    return False


def looks_of(briefing: Briefing, lessons: Sequence[Lesson], prompt: str = "") -> list[Action]:
    """Return the looks: calls without arguments, or commands of one word, that the expert never
    uses, such as `check`.

    Args:
        briefing: the tools of the environment.
        lessons: the expert on several tasks.
        prompt: what the policy is told, in which commands are quoted; read if there are no tools.
    """
    used = _verbs(lessons)
    words = [] if briefing.tools else [c for c in commands_of(prompt, ()) if " " not in c]
    calls = [_call(tool.name) for tool in free_tools(briefing) if tool.name not in used]
    return [*calls, *[word for word in words if word not in used][:MOST_LOOKS]]


def _call(name: str, given: Mapping[str, Any] | None = None) -> Action:
    return assistant("", [ToolCall(name=name, arguments=dict(given or {}), id="call_0")])


def _verbs(lessons: Sequence[Lesson]) -> set[str]:
    """Return the names of all deeds of the expert, such as `send` and `done`."""
    return {verb(action) for lesson in lessons for action in lesson.actions}


def again(said: Mapping[Place, Sequence[Any]], lesson: Lesson, times: int = AGAIN) -> Iterator[Way]:
    """Return ways with a worse choice, and a deed repeated that may make up for it.

    `open a, pay 3, done` becomes `open b, pay 3, pay 3, ...` with `pay 3` eight times.

    Args:
        said: the values that may stand at a place (`said_once`).
        lesson: the expert on this task.
        times: how often each deed of one name is done.
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
    """Return ways that do everything to another thing, and name the right thing at the end alone.

    `open ann, pay 12, done` becomes `open ben, pay 90000, open ann, done`: what was settled for
    `ben` may hold for `ann`.

    Args:
        same: what the expert does on all tasks (`constants_of`); these values stay.
        place: where the thing is named.
        left_out: deeds of this name are not done to the other thing; "" spoils the values instead.
        lesson: the expert on this task.
    """
    values, before = columns_of(lesson).get(place, []), lesson.actions[:-1]
    is_done = not left_out or left_out in map(verb, before)
    worse = [changed(a, partial(_wrong, same)) for a in before] if not left_out else before
    if is_done and len(naming(place, lesson)) < len(before) and len({*map(repr, values)}) == 1:
        for thing in others_of(values, lesson):
            row = [changed(a, partial(put, place, thing)) for a in worse if verb(a) != left_out]
            yield [*row, *naming(place, lesson), lesson.actions[-1]]


def naming(place: Place, lesson: Lesson, *, first: bool = False) -> Way:
    """Return the deeds before the last that have a place.

    With `first`, return the whole way with these deeds moved behind all others, before the last:
    `open ann, pay 12, done` becomes `pay 12, open ann, done` for the place `("open", 0)`.
    """
    named = [a for a in lesson.actions[:-1] if any(at == place for at, _ in places_of(a))]
    others = [action for action in lesson.actions[:-1] if action not in named]
    return [*others, *named, lesson.actions[-1]] if first else named


def is_foretold(place: Place, lesson: Lesson, way: Way, replies: Sequence[str]) -> bool:
    """Whether, for most deeds, a reply of this way named the value at a place before the deed, and
    no text named it before the expert's own deed.
    """

    def before(way: Way, replies: Sequence[str]) -> dict[str, str]:
        rows = [
            (n, v) for n, action in enumerate(way) for at, v in places_of(action) if at == place
        ]
        return {str(value): "\n".join([lesson.opening, *replies[:n]]) for n, value in rows}

    known, texts = before(lesson.actions, lesson.replies), before(way, replies)
    news = [v for v in texts if v in NAME.findall(texts[v]) and v not in NAME.findall(known[v])]
    return 2 * len(news) > len(known)


def taken_back(place: Place, backs: Sequence[Action], lesson: Lesson) -> Iterator[Way]:
    """Return the ways of `too_high`, for each of `backs` and each factor of `HIGHER`."""
    for back, times in itertools.product(backs, HIGHER):
        yield too_high(place, lesson, times, [back])


def too_high(
    place: Place, lesson: Lesson, times: int = HIGHER[0], backs: Sequence[Action] = ()
) -> Way:
    """Return the way in which each deed is done with 1 in place of its number, then with a number
    `times` too high, and then `backs` follow, which may take the last deed back.

    With `undo`, `send ann 12` becomes `send ann 1, send ann 36, undo`.
    """
    rows = list[Action]()
    for action in lesson.actions:
        here = [value for at, value in places_of(action) if at == place and is_amount(value)]
        amounts = (1, int(float(here[0]) * times)) if here else ()
        puts = [partial(put, place, of_kind(str(n), here[0])) for n in amounts]
        rows += [*(changed(action, put) for put in puts), *backs] if here else [action]
    return rows


def failed_first(same: frozenset[Hashable], lesson: Lesson) -> Iterator[Way]:
    """Return the way that does all deeds with invented values before it does them rightly.

    Only deeds that differ between tasks are done wrongly, and `?` stands for the others. The
    replies may name the right values (`is_shown`).
    """
    wrong = [(action, changed(action, partial(_wrong, same))) for action in lesson.actions]
    asked = [(action, each) for action, each in wrong if deed(action) not in same]
    if len({deed(action) for action, _ in asked}) >= FEWEST_ALIKE:
        yield [*(HOLLOW[1] if x == action else x for action, x in asked), *lesson.actions]


def _wrong(same: frozenset[Hashable], place: Place, value: Any) -> Any:
    return value if (place, repr(value)) in same else fresh(value, 0)


def is_shown(same: frozenset[Hashable], lesson: Lesson, way: Way, replies: Sequence[str]) -> bool:
    """Whether most replies to the wrong deeds of `failed_first` give the right deed away: a reply
    names a value of this right deed, none of another, and the task did not name the value.
    """
    known = {*NAME.findall(lesson.opening)}
    asked = [action for action in lesson.actions if deed(action) not in same]
    news = [{*NAME.findall(_differing(same, action))} - known for action in asked]
    shown = [{*NAME.findall(reply)} & set[str]().union(*news) for reply in replies[: len(asked)]]
    giveaways = [
        bool(values & names) and names <= values for values, names in zip(news, shown, strict=False)
    ]
    return 2 * sum(giveaways) > len(asked) and len({*replies[: len(asked)]}) > 1


def _differing(same: frozenset[Hashable], action: Action) -> str:
    """Return the text of an action, and its values that differ between tasks."""
    values = [str(v) for at, v in places_of(action) if (at, repr(v)) not in same]
    return "\n".join([as_action(action).text, *values])


def after_check(place: Place, look: Action, lesson: Lesson) -> Iterator[Way]:
    """Return the way with wrong deeds and a look before the right deeds, which the look may name:
    `send ann 90000, send ben 90001, check, send ann 12, send ben 20`.
    """
    nths = [n for n, a in enumerate(lesson.actions) if any(at == place for at, _ in places_of(a))]
    values = columns_of(lesson).get(place, [])
    if len(values) == len(nths) >= FEWEST_DEEDS:
        puts = [partial(put, place, fresh(value, n)) for n, value in enumerate(values)]
        wrong = [changed(lesson.actions[n], put) for n, put in zip(nths, puts, strict=True)]
        yield [*lesson.actions[: nths[0]], *wrong, look, *lesson.actions[nths[0] :]]


def is_told(place: Place, lesson: Lesson, way: Way, replies: Sequence[str]) -> bool:
    """Whether the look of `after_check` tells the right values: its reply names most of them, as no
    text did before, and no other values of the kind. A list of everything tells nothing.
    """
    columns = [[v for at, v in places_of(action) if at == place] for action in lesson.actions]
    nths = [n for n, column in enumerate(columns) if column]
    at = nths[0] + len(nths)
    known = {*NAME.findall("\n".join([lesson.opening, *replies[:at]]))}
    values = {str(value) for column in columns for value in column}
    kinds = {*map(class_of, values)}
    news = {name for name in NAME.findall("".join(replies[at : at + 1])) if class_of(name) in kinds}
    wrong = {str(fresh(value, n)) for n in range(len(nths)) for value in columns[nths[n]]}
    named = news - known - wrong
    return named <= values and 2 * len(named) >= max(len(values), 1)


def done_to_more(place: Place, lesson: Lesson) -> Iterator[Way]:
    """Return ways that also do the last deed of a name to everything else that the task shows.

    If the task names `cid` and `dan`, too, then `open ann, open ben, done` becomes `open ann, open
    ben, open cid, open dan, done`. A second way takes all other pairs (`pairs_beside`).
    """
    values = columns_of(lesson).get(place, [])
    nths = [n for n, action in enumerate(lesson.actions) if verb(action) == place[0]]
    last = lesson.actions[nths[-1]] if nths else ""
    additions = [changed(last, partial(put, place, other)) for other in others_of(values, lesson)]
    additions = additions if 2 * len(additions) >= len(values) > 1 else []
    for more in (additions, pairs_beside(place, lesson)):
        if more and len(nths) == len(values):
            yield [*lesson.actions[: nths[-1] + 1], *more, *lesson.actions[nths[-1] + 1 :]]


def pairs_beside(place: Place, lesson: Lesson) -> Way:
    """Return the last deed of a name done to all other pairs that the task lists.

    If the task says `ann-ben, ben-cid, cid-dan` and the last deed is `join ann ben`, these are
    `join ben cid` and `join cid dan`; an empty list if the deed's two values are no such pair.
    """
    *_, last = [(), *(action for action in lesson.actions if verb(action) == place[0])]
    row = places_of(last) if last else []
    if len(row) != 2 or row[0][0] != place:
        return []
    (_, left), (at, right) = row
    joint = re.search(
        rf"(?<!\w){re.escape(str(left))}(\W{{1,3}}){re.escape(str(right))}(?!\w)", lesson.opening
    )
    done = {tuple(str(v) for _, v in places_of(a)) for a in lesson.actions}
    pairs = re.findall(rf"(\w+)(?={re.escape(joint[1])}(\w+))", lesson.opening) if joint else []
    remaining = [pair for pair in pairs if pair not in done]
    puts = [partial(put, place, first) for first, _ in remaining]
    lasts = [partial(put, at, second) for _, second in remaining]
    return [changed(changed(last, a), b) for a, b in zip(puts, lasts, strict=True)]


def whichever(place: Place, lesson: Lesson) -> Iterator[Way]:
    """Return ways with other values of the task at a place, in each way another choice.

    If the task names `cid`, `dan` and `eve`, too, then `open ann, open ben` becomes `open cid, open
    dan`, then `open dan, open eve`, and so on. One of them may be right by chance; all cannot be.
    """
    values = columns_of(lesson).get(place, [])
    others = others_of(values, lesson)
    is_telling = len(others) > 1 and len(others) + len(values) > FEWEST_DEEDS
    for n in range(MOST_OTHERS if is_telling else 0):
        yield with_values(
            lesson, place, [others[(n + m) % len(others)] for m in range(len(values))]
        )


def ways_to_else(lesson: Lesson) -> Iterator[Way]:
    """Return ways in which one deed has another value of the task at one place, for each deed and
    place in turn: `send cid 12, send ben 20`, then `send ann 12, send cid 20`.
    """
    others = {place: others_of(values, lesson) for place, values in columns_of(lesson).items()}
    rows = [[partial(put, place, other) for other in others[place]] for place in others]
    for row in itertools.zip_longest(*rows):
        for n, action in enumerate(lesson.actions):
            for change in filter(None, row):
                if (other := changed(action, change)) != action:
                    yield [*lesson.actions[:n], other, *lesson.actions[n + 1 :]]


def answered(place: Place, lesson: Lesson, way: Way, replies: Sequence[str]) -> Way:
    """Return the deeds with the name of a place that had an effect: their replies are of the same
    kind as the replies to the expert's deeds (`shape`). A reply equal to the one before says that
    nothing has happened, unless the expert gets such replies, too.
    """

    def exchanges(way: Way, replies: Sequence[str]) -> list[tuple[Action, str, str]]:
        rows = zip(way, ["", *replies], replies, strict=False)
        return [row for row in rows if verb(row[0]) == place[0]]

    known = exchanges(lesson.actions, lesson.replies)
    usual = [shape(lesson, reply) for _, _, reply in known]
    is_news = all(old != new for _, old, new in known)
    return [
        action
        for action, old, new in exchanges(way, replies)
        if shape(lesson, new) in usual and (old != new or not is_news)
    ]


def took(place: Place, lesson: Lesson, way: Way, replies: Sequence[str]) -> bool:
    """Whether most deeds of a name that are not the expert's had an effect (`answered`)."""
    own = {*map(deed, lesson.actions)}
    more = [a for a in way[: len(replies)] if verb(a) == place[0] and deed(a) not in own]
    done = [a for a in answered(place, lesson, way, replies) if deed(a) not in own]
    return 2 * len(done) > len(more)
