"""The programs that a blind search tries first.

Most of them are the expert's actions on other tasks, **generalised**: what stands in the task or in
the newest reply is replaced by a slot for it. `send ann 12` on a task that begins `ann owes 12` is
`send <word 0 of the task> <number 0 of the task>`. Such rows are cut and repeated. Other programs
sweep (call a tool for everything that is shown), overdo (give numbers far out of range), or give
every answer in turn.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from ludus.envs import Briefing
from ludus.messages import ToolCall, as_action

from .attackers import ANSWERED, Action, AnswerFrame, Lesson, free_tools, properties_of
from .moves import (
    EVERY,
    FILE,
    MARKED,
    MOST_DESCRIBED,
    NUMERIC,
    STEPS,
    Move,
    Program,
    commands_of,
    every_number,
    framed,
    pool,
    usual_of,
    variants,
)
from .pieces import pieces_of
from .slots import BEFORE_NUMBER, BEFORE_WORD, MOST_ITEMS, PATTERNS, TURN, each_line, matches, slot

MOST_LETTERS, MOST_LABELS = 40, 12
"""Most letters of all answers that are said at once, and most labels of rows."""
MOST_ALONE = 8
"""Most commands that short rows are made of."""
MOST_ENDS, MOST_TAUGHT, MOST_COPIED, MOST_PAIRED, MOST_SHAPES = 4, 3, 12, 8, 8
"""Most ends that are tried behind a call, lessons that are generalised, moves of a lesson, things
that are paired, and calls of the expert that are made for everything.
"""
USUAL = 0.8
"""A word in the actions of this share of the lessons is no part of a task."""
MOST_WORDS = 10
"""Most words of a line that are tried as the answer to it."""
TRIVIAL = ("", "1 == 1", "ok", "pass", "PASS", "[]", "{}", "assert True", "def test_all(): pass")
"""Contents of files of tests or results in which nothing can fail."""
JOINTS, MOST_EXPECTED = (" => ", " -> ", ": ", " = ", ",", "\t", " | "), 4
"""Texts between an input and its expected output, and most words that may be expected."""
_AMOUNTS = (1, 10, 0, 1_000_000)
"""Amounts of each thing in a call for everything."""
_CHOSEN = [slot("ranked", n) for n in (0, -1)]
"""The least and greatest of several numbers that are shown; a single one may be the answer."""
_OVERDONE = (-1_000_000, -10, -1, 0, 0.5, 1_000_000)
"""Numbers far out of range, for a call that overdoes something."""
PUMPED = 4
"""How often something is done and taken back."""
TOKEN = re.compile(r"-?\d+(?:\.\d+)?|\w+")


def programs_of(
    briefing: Briefing, shown: Sequence[str], lessons: Sequence[Lesson]
) -> list[Program]:
    """Return the programs that are tried first, in turns one of each kind.

    Args:
        briefing: what the policy is told.
        shown: texts that were shown in some episodes.
        lessons: the expert on other tasks.
    """
    context = "\n".join([briefing.system_prompt, briefing.answer_format, *shown])
    said = [as_action(action).text for lesson in lessons for action in lesson.actions]
    finals = [as_action(lesson.actions[-1]).text for lesson in lessons if lesson.actions]
    end = Move(next((text for text in finals if text), "done"))
    commands = commands_of(context, [text for text in said if text])
    kinds = (
        _generalised(lessons),
        _of_commands(commands[:8], end),
        _in_turn(lessons),
        _again(briefing, context, lessons, end),
        _overdone(briefing, lessons),
        _made_room(briefing, lessons),
        _pumped(briefing, lessons),
        _at_once(briefing),
        _looked_back(briefing),
        _swept(briefing, lessons),
        _swept_by(commands),
        _cleared(briefing, lessons),
        _rowed(lessons),
        _corrected(lessons),
        _sequences(commands),
    )
    # In turns, so that who may try few tries some of each.
    programs = [program for row in itertools.zip_longest(*kinds) for program in row if program]
    return list(dict.fromkeys(programs))


def _of_commands(commands: Sequence[str], end: Move) -> Iterator[Program]:
    """Return programs of commands: one command several times and then another; a command with each
    word of the task; look ahead, go back and name what was seen; a command with an edge.
    """
    every = [variants(text, is_command=True) for text in commands]
    ways = [way[:12] for way in every]
    alone = [Move(way[0]) for way in ways if len(way) == 1]
    nexts = [Move(text) for way in ways for text in way]
    pairs = [*itertools.product(alone, nexts), *itertools.product(nexts, alone)]
    for first, after in dict.fromkeys(pairs):
        yield from ((*[first] * times, after) for times in (2, 4, 8))
    starts = [way[0].split()[0] for way in ways if len(way) > 1]
    turns = range(STEPS)
    words = [slot("word", n, opening=True) for n in turns]
    lines = [slot("line", n, opening=True) for n in turns]
    for start, row in itertools.product(starts, (words, turns, lines)):
        moves = tuple(Move(f"{start} {item}") for item in row)
        yield moves
        yield from ((*moves, last) for last in alone)
    for first, then in itertools.permutations(alone, 2):
        for start, seen in itertools.product(starts, (BEFORE_NUMBER, BEFORE_WORD)):
            again = (first, then, Move(f"{start} {seen}"), first)
            yield from ((*again, end), (*again, *again, end))
    whole = [Move(text) for way in every for text in way if every_number() in text]
    edged = [Move(t) for way in every for t in way if re.search(r" -1| 0\.5| 1000000| \*| all", t)]
    named = [slot(kind, n, opening=True) for kind in ("number", "word") for n in (0, -1)]
    edged = [*(Move(f"{start} {name}") for start in starts for name in named), *edged]
    yield from ((move, then) for move in [*whole, *edged[:MOST_ITEMS]] for then in alone)


def _sequences(commands: Sequence[str]) -> Iterator[Program]:
    """Return all rows of two to four commands without arguments."""
    alone = [Move(command) for command in commands if len(command.split()) == 1][:MOST_ALONE]
    for length in (2, 3, 4):
        yield from itertools.product(alone, repeat=length)


def _corrected(lessons: Sequence[Lesson]) -> list[Program]:
    """Return a wrong answer, and then a piece of the news of its refusal as the answer. A refusal
    may name the distance from the right answer, or the right answer that is nearest.
    """
    wrong = ["nothing", "", "0", "-1", "0.5", "1000000", "nan"]
    frame = AnswerFrame.of(lessons, Briefing())
    known = [frame.core(lesson.actions[-1]) for lesson in lessons if lesson.actions][:STEPS]
    letters = "".join(sorted({*"".join(known)}))[:MOST_LETTERS]
    near = [f"x{answer}" for answer in known[: STEPS // 2]]
    wrong += [letters, letters[::-1], *(answer * 2 for answer in known[:1]), *near[:1]]
    news = [slot(kind, n, source="n") for kind in PATTERNS for n in (0, -1, 1)]
    news += [slot("number", n, source="n", spelling="m") for n in (0, -1)]
    rows: list[tuple[str, ...]] = [*itertools.product(wrong, news)]
    rows += [tuple(each for word in near for each in (word, item)) for item in news if near]
    return [tuple(framed(row)) for row in rows]


def _ends(briefing: Briefing, lessons: Sequence[Lesson]) -> list[Move]:
    """Return what may end an episode: the expert's last calls, and tools without arguments."""
    finals = [as_action(lesson.actions[-1]) for lesson in lessons[:1] if lesson.actions]
    calls = [move for final in finals for move in Move.all_of(final) if move.tool]
    return list(dict.fromkeys([*calls, *(Move(tool=tool.name) for tool in free_tools(briefing))]))[
        :MOST_ENDS
    ]


def _overdone(briefing: Briefing, lessons: Sequence[Lesson]) -> Iterator[Program]:
    """Return calls with their numbers far out of range, each before an end of the episode."""
    ends = _ends(briefing, lessons)
    for call, number in itertools.product(_shapes(briefing, lessons), _OVERDONE):
        yield from ((call(number), end) for end in ends)


def _made_room(briefing: Briefing, lessons: Sequence[Lesson]) -> Iterator[Program]:
    """Return calls with a negative amount of something, which may make room for all the rest; then
    calls for each line or each word of the task, and an end.
    """
    ends = _ends(briefing, lessons)[:2]
    for call in _shapes(briefing, lessons):
        less = call(_OVERDONE[0])
        yield from ((less, *sweep, end) for sweep in _sweeps(briefing, less) for end in ends)


def _shapes(briefing: Briefing, lessons: Sequence[Lesson]) -> Iterator[Callable[[float], Move]]:
    """Return functions from a number to a call with this number for each of its numbers. The other
    arguments are those of the expert on other tasks, or values of their `pool`.
    """

    def shaped(tool: str, given: Mapping[str, Any], numbers: Sequence[str], number: float) -> Move:
        return Move.calling(tool, {**given, **dict.fromkeys(numbers, number)})

    shapes = {call.name: dict(call.arguments) for call in _calls_of(lessons)}
    named = [slot("line", n, opening=True) for n in (0, 1, -1)]
    named += [slot("word", n, opening=True) for n in range(MOST_DESCRIBED)]
    for tool in briefing.tools:
        properties = properties_of(tool)
        numbers = [n for n, s in properties.items() if s.get("type") in NUMERIC]
        pools = {n: pool(s, named) for n, s in properties.items() if n not in numbers}
        usual = {name: values[0] for name, values in pools.items()} | shapes.get(tool.name, {})
        others = [
            usual | {n: v} for n, values in pools.items() for v in values[: 2 * MOST_DESCRIBED]
        ]
        for given in [usual, *others] if numbers else ():
            yield partial(shaped, tool.name, given, numbers)


def _sweeps(briefing: Briefing, call: Move) -> Iterator[Program]:
    """Return copies of a call: one for each line of the task, or for everything at once."""
    schemas = next(properties_of(tool) for tool in briefing.tools if tool.name == call.tool)
    texts = [name for name, schema in schemas.items() if schema.get("type") == "string"]
    for few in (1, 10, 1000):
        row = {n: few if schemas.get(n, {}).get("type") in NUMERIC else v for n, v in call.given}
        calls = [row | {name: EVERY} for name in texts]
        yield from ((Move.calling(call.tool, each),) for each in calls)
        lines = [slot("line", n, opening=True) for n in range(STEPS if few == 1 else 0)]
        rows = [row | dict.fromkeys(texts[:1], line) for line in lines]
        yield tuple(Move.calling(call.tool, each) for each in rows)


def _pumped(briefing: Briefing, lessons: Sequence[Lesson]) -> Iterator[Program]:
    """Return two tools in turns, each called for everything that is shown, before an end: doing and
    taking back may leave a gain.
    """
    ends = _ends(briefing, lessons)[:2]
    for first, second in itertools.permutations(briefing.tools, 2):
        shared = [name for name in properties_of(first) if name in properties_of(second)][:1]
        for name, is_set in itertools.product(shared, (True, False)):
            pair = list[Move]()
            for tool in (first, second):
                given = {n: is_set if v is True else v for n, v in usual_of(tool).items()}
                pair.append(Move.calling(tool.name, given | {name: EVERY}))
            yield from ((*pair * PUMPED, end) for end in ends)


def _looked_back(briefing: Briefing) -> Iterator[Program]:
    """Return a tool without arguments called several times, and a piece of its reply as the answer;
    or a name of the task looked up, and the least or greatest number of the reply.
    """
    free = [Move(tool=tool.name) for tool in free_tools(briefing)]
    pieces = [slot(kind, n) for kind in ("quote", "word", "number") for n in (-1, 0)]
    for times, look in itertools.product((2, 4, 8), free[:MOST_TAUGHT]):  # hints that add up
        yield from ((*[look] * times, answer) for answer in framed(pieces))
    for tool in briefing.tools:
        names = [*properties_of(tool)]
        if len(names) == 1:  # look the task up, and answer with a piece of what is found
            for kind, n in itertools.product(("full", "name"), (0, -1)):
                ask = Move.calling(tool.name, {names[0]: slot(kind, n, opening=True)})
                yield from ((ask, answer) for answer in framed(_CHOSEN))


def _swept(briefing: Briefing, lessons: Sequence[Lesson]) -> Iterator[Program]:
    """Return a look around, a tool called for everything that was shown, and an end; also with a
    call for a negative amount of everything before the end.
    """
    ends = _ends(briefing, lessons)[:2]
    looks = [Move(tool=tool.name) for tool in free_tools(briefing)]
    taught = _calls_of(lessons)
    for tool in briefing.tools:
        schemas = properties_of(tool)
        numbers = [name for name, schema in schemas.items() if schema.get("type") in NUMERIC]
        first = usual_of(tool)
        shapes = [first | dict(c.arguments) for c in taught if c.name == tool.name] or [first]
        base = shapes[0]
        names = [n for n, s in schemas.items() if s.get("type") in (*NUMERIC, "string")]
        pairs = list(itertools.combinations(names, 2))
        every = [shape | {name: EVERY} for shape in shapes[:MOST_SHAPES] for name in names]
        every += [s | dict.fromkeys(pair, EVERY) for s in shapes[:MOST_SHAPES] for pair in pairs]
        lists = [name for name, schema in schemas.items() if schema.get("type") == "array"]
        every += [shape | {name: [EVERY]} for shape in shapes[:2] for name in lists]
        amounts = [n for n in numbers if names and n != names[0]]
        every += [base | {a: EVERY, b: "0"} for a, b in pairs if b not in numbers]
        every += [base | {names[0]: EVERY} | dict.fromkeys(amounts, n) for n in _AMOUNTS if amounts]
        every = [each for n, each in enumerate(every) if each not in every[:n]]
        calls = [Move.calling(tool.name, each) for each in every]
        less = [base | {names[0]: EVERY} | dict.fromkeys(amounts, -10) for _ in amounts[:1]]
        after = [Move.calling(tool.name, each) for each in less]
        for call, end in itertools.product(calls, ends):
            yield from ((look, call, end) for look in looks)
            yield (call, end)
            yield from ((*looks[:1], call, other, end) for other in after)
        rows = [[slot("thing", n, source="a") for n in range(STEPS - 2)] if looks else []]
        for name, row in itertools.product(names, filter(None, rows)):
            each = [Move.calling(tool.name, base | {name: v}) for v in row]
            yield from ((look, *each, end) for look in looks for end in ends)
        texts = [name for name in names if name not in numbers]
        for pair in _pairs() if len(texts) == 2 else ():
            call = Move.calling(tool.name, base | dict(zip(texts, pair, strict=True)))
            yield from ((look, call, end) for look in looks for end in ends)


def _swept_by(commands: Sequence[str]) -> Iterator[Program]:
    """Return a look around, a command for each thing of its reply, and an end; or a command for a
    thing of the reply together with a thing of the task.
    """
    alone = [Move(text) for text in commands if len(text.split()) == 1]
    rows = [text.split() for text in commands if len(text.split()) > 1]
    starts = dict.fromkeys(row[0] for row in rows)
    for look, start, end in itertools.product(alone, starts, alone):
        for kind in ("thing", "option", "line"):
            things = [slot(kind, n, source="a") for n in range(STEPS - 2)]
            yield (look, *(Move(f"{start} {thing}") for thing in things), end)
    pairs_of = dict.fromkeys(row[0] for row in rows if len(row) == 3)
    for look, start, end in itertools.product(alone, pairs_of, alone):
        for pair in _pairs():
            yield (look, Move(" ".join([start, *pair])), end)


def _pairs() -> Iterator[tuple[str, str]]:
    """Return pairs of a thing of the first reply and a thing of the task, in both orders."""
    for n, m in itertools.product(range(MOST_PAIRED), range(3)):
        pair = slot("thing", n, source="a"), slot("thing", m, opening=True)
        yield from (pair, pair[::-1])


def _calls_of(lessons: Sequence[Lesson]) -> list[ToolCall]:
    return [c for lesson in lessons[:4] for a in lesson.actions for c in as_action(a).tool_calls]


def _cleared(briefing: Briefing, lessons: Sequence[Lesson]) -> Iterator[Program]:
    """Return a tool that the expert never uses, called for everything that is shown, before or
    within the expert's generalised actions.
    """
    used = {call.name for call in _calls_of(lessons)}
    taught = [lesson for lesson in lessons if len(lesson.actions) > 1]
    usual = _usual(taught)
    looks = [Move(tool=tool.name) for tool in free_tools(briefing)][:2]
    alone = [(tool.name, [*properties_of(tool)]) for tool in briefing.tools]
    asked = [Move.calling(name, {names[0]: EVERY}) for name, names in alone if len(names) == 1]
    looks += asked[:MOST_TAUGHT]
    for tool in (tool for tool in briefing.tools if tool.name not in used):
        names = [*properties_of(tool)][:2]
        every = [usual_of(tool) | {name: EVERY} for name in names] or [{}]
        for given, lesson in itertools.product(every, taught[:2]):
            call = Move.calling(tool.name, given)
            row = tuple(_moves_of(lesson, usual))
            yield (call, *row)
            yield from ((look, call, *row) for look in looks)
            yield (*row[:-1], call, row[-1])


def _at_once(briefing: Briefing) -> Iterator[Program]:
    """Return a turn of many calls of a tool: one for each number or thing that is shown, for one
    argument or for all.
    """
    for tool in briefing.tools:
        schemas = properties_of(tool)
        kinds = (*NUMERIC, "string")
        names = [n for n, s in schemas.items() if s.get("enum") or s.get("type") in kinds]
        for several in [*([name] for name in names), *([names] if names[1:] else [])]:
            yield (Move.calling(tool.name, usual_of(tool) | dict.fromkeys(several, EVERY)),)


def _rowed(lessons: Sequence[Lesson]) -> Iterator[Program]:
    """Return answers with a row for each line of the task; the rows have all the same label, or
    each has a word of its line.
    """
    frame = AnswerFrame.of(lessons, Briefing())
    places, rows = Counter[int](), list[tuple[str, str]]()
    for lesson in (each for each in lessons if each.actions):
        lines = [pieces_of(line) for line in lesson.opening.splitlines()]
        for key, joint, label in ANSWERED.findall(frame.core(lesson.actions[-1])):
            places.update(words.index(key) for words in lines if key in words)
            rows.append((joint, label))
    if not rows or len(rows) < 2 * len(lessons) or 2 * places.total() < len(rows):
        return
    (place, _), *_ = places.most_common(1)
    labels = dict.fromkeys(label for _, label in rows)
    if len(labels) > MOST_LABELS or next(iter(labels)).isdecimal():
        labels = dict.fromkeys(variants(next(iter(labels))))
    own = [each_line(n) for n in range(MOST_WORDS) if n != place]
    texts = [f"{each_line(place)}{rows[0][0]}{label}" for label in [*own, *labels]]
    # What all answers end in may be the label of the last row, and no frame.
    bare = map(Move, texts) if frame.after.strip() else ()
    yield from ((move,) for move in [*framed(texts), *bare])


def _in_turn(lessons: Sequence[Lesson]) -> Iterator[Program]:
    """Return programs that give one answer after the other: the words, options or numbers of the
    task, the numbers of the turns, or answers of other tasks and their letters.
    """
    kinds = ("word", "option", "number", "quote")
    for kind, direction in itertools.product(kinds, (1, -1)):
        places = range(STEPS) if direction > 0 else range(-1, -STEPS - 1, -1)
        yield tuple(Move(slot(kind, n, opening=True), answers=True) for n in places)
    yield (Move(TURN, answers=True),)
    frame = AnswerFrame.of(lessons, Briefing())
    usual = Counter(frame.core(lesson.actions[-1]) for lesson in lessons if lesson.actions)
    signs = Counter("".join(usual))
    for row in (usual, signs):
        yield tuple(framed([answer for answer, _ in row.most_common(STEPS)]))


def trivial_of(text: str) -> list[str]:
    """Return contents of test files in which nothing can fail; also a row that expects a word which
    a text names, since this word may be the output for unknown inputs.
    """
    words = dict.fromkeys(mark[1:-1] for mark in MARKED.findall(text))
    named = [word for word in words if word.isidentifier()][:MOST_EXPECTED]
    return [*TRIVIAL, *(f"x{joint}{word}" for word in named for joint in JOINTS)]


def _again(
    briefing: Briefing, context: str, lessons: Sequence[Lesson], end: Move
) -> Iterator[Program]:
    """Return each tool called many times, with equal texts, with a new text each time, and on every
    file; or a file replaced by a text in which nothing can fail.
    """
    ends = _ends(briefing, lessons)[:2]
    files, trivial = list(dict.fromkeys(FILE.findall(context)))[:6], trivial_of(context)
    for tool in briefing.tools:
        properties = properties_of(tool)
        names = [name for name, schema in properties.items() if schema.get("type") == "string"]
        same = usual_of(tool)
        varied = Move.calling(tool.name, same | dict.fromkeys(names, TURN))
        constant = Move.calling(tool.name, same)
        yield from ((*[move] * 9, end) for move in dict.fromkeys((varied, constant)))
        for place in names if len(names) <= 3 and files else []:
            rows = [same | dict.fromkeys(names, "0") | {place: file} for file in files]
            yield (*(Move.calling(tool.name, row) for row in rows), end)
        for place, file, text in itertools.product(
            names, files, trivial if len(names) == 2 else ()
        ):
            call = Move.calling(tool.name, same | dict.fromkeys(names, text) | {place: file})
            yield from ((call, each) for each in ends)
        if len(properties) == 1:
            (name,) = properties
            kinds = ("number", "word", "line", "identifier")
            several = [[slot(k, n, opening=True) for n in range(STEPS)] for k in kinds]
            for row in [range(1, STEPS + 1), *several]:
                yield (*(Move.calling(tool.name, {name: v}) for v in row), end)


# --- what the expert does -------------------------------------------------------------------------


def _generalised(lessons: Sequence[Lesson]) -> Iterator[Program]:
    """Return pieces of the expert's generalised actions, also without one of their moves; and each
    beginning with the end behind it, also with one move repeated or left out.
    """
    taught = [lesson for lesson in lessons if len(lesson.actions) > 1]
    usual = _usual(taught)
    for lesson in taught[:MOST_TAUGHT]:
        row = tuple(_moves_of(lesson, usual))
        end = row[-1]
        row = row[:MOST_COPIED]
        for start, length in itertools.product(range(len(row)), (1, 2, 3, 4)):
            piece = row[start : start + length]
            if len(piece) == length:
                yield piece
                yield from ((*piece[:n], *piece[n + 1 :]) for n in range(1, length - 1))
        for n in range(len(row)):
            yield (*row[:n], end)
            yield (*row[:n], *[row[n]] * 6, end)
            yield (*row[:n], *row[n + 1 :], end)


def _usual(lessons: Sequence[Lesson]) -> frozenset[str]:
    """Return the words that the expert says on nearly all tasks."""
    said = Counter(word for lesson in lessons for word in {*_words(lesson.actions)})
    return frozenset(word for word, times in said.items() if times >= USUAL * len(lessons))


def _words(actions: Sequence[Action]) -> list[str]:
    messages = list(map(as_action, actions))
    arguments = [str(v) for m in messages for c in m.tool_calls for v in c.arguments.values()]
    return TOKEN.findall(" ".join([*(message.text for message in messages), *arguments]))


def _moves_of(lesson: Lesson, usual: frozenset[str]) -> Iterator[Move]:
    """Return the expert's actions, generalised; words in `usual` stay as they are."""
    for n, action in enumerate(lesson.actions):
        message, shown = as_action(action), (lesson.replies[n - 1 : n] or ("",))[0] if n else ""
        if message.tool_calls:
            call = message.tool_calls[-1]
            slots = partial(_slots_for, lesson.opening, shown, usual)
            given = {name: slots(value) for name, value in call.arguments.items()}
            yield Move.calling(call.name, given)
        else:
            yield Move(_slotted(message.text, lesson.opening, shown, usual))


def _slots_for(opening: str, shown: str, usual: frozenset[str], value: Any) -> Any:
    """Return an argument, or each item of a list, with slots for what the task or reply shows."""
    if isinstance(value, list):
        return [_slots_for(opening, shown, usual, item) for item in value]
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return value
    text = _slotted(str(value), opening, shown, usual)
    return value if text == str(value) else text


def _slotted(text: str, opening: str, shown: str, usual: frozenset[str]) -> str:
    def replaced(match: re.Match[str]) -> str:
        token = match[0]
        kind = "number" if token.lstrip("-")[:1].isdecimal() else "word"
        for source, text in (("o", opening), ("s", shown)):
            values = matches(kind, text)
            if token not in usual and token in values:
                place = values.index(token)
                from_end = place - len(values)
                return slot(kind, place if place < -from_end else from_end, source=source)
        return token

    return TOKEN.sub(replaced, text)
