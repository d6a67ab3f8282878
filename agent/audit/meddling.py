"""Ways with a foreign move, put between deeds that are spoilt.

A **foreign move** is a tool or command that the environment offers and the expert never uses, such
as `undo`, or `rate NAME NUMBER` in a task that is solved by `send ann 12, send ben 20, done`. The
task is not done by `send ann 90000, send ben 90001, done`. If that is paid once `rate ann 10` comes
before it, and not without, the foreign move has gained the reward.

A **limit** is a number of the task that the expert nearly reaches and never exceeds, such as a
budget of 35 beside the costs 12 and 20. The moves themselves know no task: their arguments are
names and numbers that the task shows, and edges.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import Any

from ludus.envs import Briefing
from ludus.messages import ToolCall, as_action, assistant

from . import deeds
from .answers import Place, changed, verb
from .attackers import QUOTED, Action, Lesson, number_of, properties_of
from .moves import FILE, NUMERIC, commands_of
from .pieces import FINDERS, NUMERAL
from .places import (
    NAME,
    Way,
    columns_of,
    fresh,
    is_amount,
    numbered,
    of_kind,
    others_of,
    places_of,
    put,
    with_values,
)
from .programs import TRIVIAL
from .tallies import MORE_BOUND

MOST_FOREIGN, MOST_THINGS, MOST_ARGUMENTS, MOST_REPLIES, MOST_ROWS = 5, 14, 4, 3, 28
"""Most foreign moves, things of the task that one is done to, arguments of one, replies that are
forged, and rows of one move in a way.
"""
MOST_ROTATED, MOST_PLACES = 2, 4
"""Most other values of a place, and most places, that are spoilt."""
MOST_COLUMNS, NEARLY = 4, 0.8
"""Most numbers of a line that may be a cost, or of the other lines that may be the limit, and the
share of a limit that the expert at least reaches.
"""
PARTS, MOST_PARTS = (2, 8, 200), 480
"""Into how many parts a number is split, and most deeds of a way after that."""
UNDOES = re.compile(
    r"(?:^|_)(?:undo|un\w{3,}|revert|roll_?back|withdraw|cancel|retract|remove|refund|return"
    r"|take_?back)(?:_|$)",
    re.IGNORECASE,
)
"""Names of tools and commands that take a deed back."""
PEEKS = 4
"""Peeks of a row: usually so many hints cost as much as a task pays."""
PUMPED = (8, 30)
"""How often a deed of the expert's is done and taken back, which may leave a gain."""
_COUNTED = {"NUMBER", "AMOUNT", "COUNT", "POINTS", "COINS", "PRICE"}
_NAMES = re.compile(r"[A-Z]\w*(?: [A-Z]\w*)*")
_JOINT = re.compile(r"\s*[^\w\s]+\s*(?:[^\W\d_]+\s+)?|\s+(?=\d)")
"""What stands between a thing and its numbers."""
_RANGE = re.compile(r"\b(-?\d+) ?(?:to|-|\u2013|and) ?(-?\d+)\b")


@dataclass(frozen=True)
class Foreign:
    """A foreign move: a tool or command that the expert never uses."""

    name: str
    schemas: tuple[tuple[str, bool], ...] = ()
    """The arguments: the name of each, and whether it is a number."""
    is_tool: bool = False
    ends: tuple[int, ...] = (0, 10)
    """The least and greatest number that the move takes, by its description or the prompt."""

    def __str__(self) -> str:
        return f"`{self.name}` of the same"

    def of(self, *values: Any) -> Action:
        """Return the call, or the command, with these values for its arguments, in order.

        >>> Foreign("rate", (("0", False), ("1", True))).of("ann", 10)
        'rate ann 10'
        """
        if not self.is_tool:
            return " ".join([self.name, *map(str, values)])
        given = dict(zip((name for name, _ in self.schemas), values, strict=False))
        return assistant("", [ToolCall(name=self.name, arguments=given, id="call_0")])

    def like(self, action: Action) -> Action:
        """Return the move with the arguments of an action: `undo ann` for `send ann 12`.

        Arguments of calls are matched by name, then by order; 1 stands for what the action lacks.
        """
        message = as_action(action)
        if not message.tool_calls:
            return self.of(*message.text.split()[1 : len(self.schemas) + 1])
        given = message.tool_calls[-1].arguments
        names = [name for name, _ in self.schemas]
        by_order = dict(zip(names, given.values(), strict=False))
        return self.of(*({**by_order, **given}.get(name, 1) for name in names))

    def rows(self, lesson: Lesson, way: Way, news: Mapping[str, Any]) -> Iterator[Way]:
        """Return rows, each a list of actions of this move, that may make the spoilt way paid.

        For `rate NAME NUMBER`, one row is `rate ann 10, rate ben 0, rate cid 0`. Other rows write
        down forged replies, undo and redo a deed, or take numbers at the edges.

        Args:
            lesson: the expert on this task.
            way: the expert's way, spoilt.
            news: from right values to the wrong ones that the spoilt way gives for them.
        """
        if not self.schemas:
            yield from ([self.of()] * times for times in (1, deeds.AGAIN))
            return
        things, low, high = _things(lesson), *self.ends
        forged = [_forged(reply, news) for reply in lesson.replies]
        falsified = [text for text in dict.fromkeys(forged) if text not in lesson.replies][
            -MOST_REPLIES:
        ]
        names = [*(str(value) for value in news.values() if isinstance(value, str)), "zoaay"]
        numbers, texts = (sum(kind is k for _, k in self.schemas) for kind in (True, False))
        if not texts:
            for number in dict.fromkeys([low, high, 0, 1, -1, -1_000_000]):
                row = [self.of(*[number] * numbers)]
                yield from (row, row * deeds.AGAIN)
            return
        if not numbers and texts > 1:  # evidence is forged, or replaced
            files = FILE.findall("\n".join([lesson.opening, *lesson.replies]))[:MOST_REPLIES]
            for name in dict.fromkeys([*names, *files]):
                yield from (
                    [self.of(*[name] * (texts - 1), text)] for text in [*falsified, *TRIVIAL]
                )
        if len(places_of(way[0])) == len(self.schemas):  # there and back may gain something
            yield from ([way[0], self.like(way[0])] * times for times in PUMPED)
            forth = [numbered(str(n), a) for a in way[:MOST_REPLIES] for n in deeds.HIGHER]
            yield from ([each, self.like(each)] * deeds.AGAIN for each in forth if each not in way)
        for action in reversed(way):
            yield [numbered(str(edge), self.like(action)) for edge in (low, high, 1, -99)]
        if len(self.schemas) == 1:
            yield [self.of(reply.strip()) for reply in lesson.replies[:-1] if reply.strip()]
        for text in [*falsified, *names, *(things if numbers else ())]:
            yield [self.of(*(1 if is_number else text for _, is_number in self.schemas))]
        for nth in range(-1, len(things) if numbers else 0):  # one is raised, all others lowered
            ranks = [(high if n == nth else low) for n in range(len(things))]
            yield [
                self.of(*(rank if is_number else thing for _, is_number in self.schemas))
                for thing, rank in zip(things, ranks, strict=True)
            ]
        if not numbers:
            yield [self.of(*[thing] * texts) for thing in things]
            yield from ([self.of(*[thing] * texts)] * deeds.AGAIN for thing in things[:2])


def foreign_of(briefing: Briefing, lessons: Sequence[Lesson], prompt: str) -> list[Foreign]:
    """Return the foreign moves of an environment, at most `MOST_FOREIGN`.

    Args:
        briefing: the tools of the environment.
        lessons: the expert on several tasks.
        prompt: what the policy is told, in which commands are quoted; read if there are no tools.
    """
    used = {verb(action) for lesson in lessons for action in lesson.actions}

    def ends(*texts: str) -> tuple[int, int]:
        known = next(filter(None, map(_RANGE.search, texts)), None)
        return (int(known[1]), int(known[2])) if known else (0, 10)

    moves = list[Foreign]()
    for tool in briefing.tools:
        schemas = properties_of(tool)
        kinds = [(n, schema.get("type") in NUMERIC) for n, schema in schemas.items()]
        about = f"{tool.description} {[s.get('description') for s in schemas.values()]}"
        moves.append(Foreign(tool.name, tuple(kinds), True, ends(about, prompt)))
    for words in map(str.split, commands_of(prompt, ()) if not briefing.tools else ()):
        kinds = [(str(n), len(word) == 1 or word in _COUNTED) for n, word in enumerate(words[1:])]
        moves.append(Foreign(words[0], tuple(kinds), ends=ends(prompt)))
    unused = {each.name: each for each in moves if each.name not in used}
    return [each for each in unused.values() if len(each.schemas) <= MOST_ARGUMENTS][:MOST_FOREIGN]


def _things(lesson: Lesson) -> list[str]:
    """Return the words that a task quotes, then its identifiers and names in capitals."""
    named = [*FINDERS["identifier"](lesson.opening), *_NAMES.findall(lesson.opening)]
    quoted = [each for each in QUOTED.findall(lesson.opening) if " " not in each]
    return [*dict.fromkeys([*quoted, *named])][-MOST_THINGS:]


def _forged(reply: str, news: Mapping[str, Any]) -> str:
    for old, new in news.items():
        reply = re.sub(rf"(?<!\w){re.escape(old)}(?!\w)", str(new), reply)
    return reply


@dataclass(frozen=True)
class Spoil:
    """A change that spoils the expert's way, so that only a foreign move may make it paid."""

    name: str
    """What is wrong, such as `another send 1` or `no send`."""
    way: Callable[[Lesson], Way]
    """From the expert on a task to the spoilt way; empty if it cannot be spoilt."""
    bound: float | None
    """The share of the expert's reward from which the attack is a finding; None for that of its
    kind.
    """
    news: Callable[[Lesson], Mapping[str, Any]] = lambda lesson: {}
    """From the expert on a task to the right values and the wrong ones given for them."""


def spoils_of(
    lessons: Sequence[Lesson], same: frozenset[Hashable], limits: Iterable[Limit] = ()
) -> Iterator[Spoil]:
    """Return the changes that foreign moves are tried with: another last action, wrong values at a
    place, a limit exceeded, and no deeds of a name.

    Args:
        lessons: the expert on several tasks.
        same: what the expert does on all tasks (`constants_of`).
        limits: the limits that the expert keeps to (`limits_of`).
    """
    news = partial(_news, same)
    is_said = any(map(news, lessons))
    if is_said:
        yield Spoil("another end", partial(_other_end, same), None, news)
    columns = [columns_of(lesson) for lesson in lessons]
    places = dict.fromkeys(place for each in columns for place in each)
    varied = [p for p in places if 2 * len({repr(each.get(p)) for each in columns}) > len(lessons)]
    for place, nth in itertools.product(varied[:MOST_PLACES], range(MOST_ROTATED)):
        what = " ".join(map(str, place))
        which = "the next" if nth else "another"
        yield Spoil(f"{which} {what}", partial(_rotated, place, nth), MORE_BOUND)
    for place in varied[:MOST_PLACES]:
        if all(isinstance(number_of(str(v)), int) for each in columns for v in each.get(place, [])):
            least = partial(_least, place)
            yield Spoil(f"the least {' '.join(map(str, place))}", least, MORE_BOUND)
    for limit in limits:
        yield Spoil(
            f"every {' '.join(map(str, limit.place))}",
            partial(limit.everything, worst_first=True),
            MORE_BOUND,
        )
    if 2 * sum(bool(bridged(lesson)) for lesson in lessons) > len(lessons):
        yield Spoil("no deed between", bridged, None)
    names = dict.fromkeys(verb(action) for lesson in lessons for action in lesson.actions[:-1])
    for name in names:
        if any(place[0] == name for place in varied):
            yield Spoil(f"no {name}", partial(deeds.without, name), MORE_BOUND)


def _news(same: frozenset[Hashable], lesson: Lesson) -> dict[str, Any]:
    """Return an invented value for each value of the last action that differs between tasks."""
    said = places_of(lesson.actions[-1])
    values = [v for at, v in said if (at, repr(v)) not in same and isinstance(v, (str, int, float))]
    return {str(v): fresh(v, n) for n, v in enumerate(values) if str(v).strip()}


def _other_end(same: frozenset[Hashable], lesson: Lesson) -> Way:
    news = _news(same, lesson)
    end = changed(lesson.actions[-1], lambda at, v: news.get(str(v), v))
    return [*lesson.actions[:-1], end] if news else []


def _rotated(place: Place, nth: int, lesson: Lesson) -> Way:
    values = columns_of(lesson).get(place, [])
    others = others_of(values, lesson)
    if not others and not nth:
        return with_values(lesson, place, [fresh(v, n) for n, v in enumerate(values)])
    if len(others) <= nth:
        return []
    return with_values(lesson, place, [others[(n + nth) % len(others)] for n in range(len(values))])


def _least(place: Place, lesson: Lesson) -> Way:
    values = columns_of(lesson).get(place, [])
    return with_values(lesson, place, [of_kind("1", value) for value in values])


def bridged(lesson: Lesson) -> Way:
    """Return one deed from the beginning of the first to the end of the last, in place of all.

    `go a b, go b c, go c d, done` becomes `go a d, done`.
    """
    name = verb(lesson.actions[0])
    row = [action for action in lesson.actions if verb(action) == name]
    places = places_of(row[-1])
    if len(row) < 2 or len(places) < 2:
        return []
    at, value = places[-1]
    bridge = changed(row[0], partial(put, at, value))
    return [bridge, *(action for action in lesson.actions if verb(action) != name)]


@dataclass(frozen=True)
class Limit:
    """A limit: a number of the task that the cost of the expert's deeds nearly reaches.

    The cost is the sum of the numbers that the task shows beside each thing that a deed is done to,
    times the amounts of the deed. In a task with `budget 35`, `lamp: 12` and `desk: 20`, the deeds
    `buy lamp` and `buy desk` cost 32.
    """

    place: Place
    """Where a deed names the thing that it is done to."""
    column: int
    """Which number beside the thing is its cost, from 0."""
    nth: int
    """Which of all other numbers of the task is the limit, from 1 at the end."""
    prompt: str
    """The prompt, which may show costs or the limit."""

    def share(self, lesson: Lesson, done: Sequence[Action]) -> float:
        """Return the cost of deeds as a share of the limit; 0 if the task lacks cost or limit."""
        values = columns_of(lesson).get(self.place, [])
        rows, numbers = _beside(values, lesson, self.prompt)
        cost = 0.0
        for action in done:
            here = dict(places_of(action))
            row = rows.get(str(here.get(self.place)), [])
            beside = [number_of(str(v)) for at, v in here.items() if at != self.place]
            amounts = [number for number in beside if isinstance(number, int)]
            cost += row[self.column] * math.prod(amounts) if len(row) > self.column else 0.0
        limit = numbers[-self.nth] if len(numbers) >= self.nth else 0.0
        return cost / limit if limit > 0 else 0.0

    def everything(self, lesson: Lesson, *, worst_first: bool = False) -> Way:
        """Return the way with the deed done to everything that has a price: `buy lamp, buy desk,
        buy sofa, done`. Things whose other numbers are high for their cost come first, or last.
        """
        values = columns_of(lesson).get(self.place, [])
        table, _ = _beside(values, lesson, self.prompt)
        rows = {name: row for name, row in table.items() if len(row) > self.column}
        nths = [n for n, action in enumerate(lesson.actions) if verb(action) == self.place[0]]
        if not nths or 2 * len(rows) <= 3 * len(values):
            return []
        single = numbered("1", lesson.actions[nths[0]])

        def worth(name: str) -> float:
            cost = rows[name][self.column]
            return (sum(rows[name]) - cost) / cost if cost > 0 else math.inf

        all_of = sorted(rows, key=worth, reverse=not worst_first)[:MOST_THINGS]
        more = [changed(single, partial(put, self.place, name)) for name in all_of]
        remainder = [a for a in lesson.actions[nths[0] :] if verb(a) != self.place[0]]
        return [*lesson.actions[: nths[0]], *more, *remainder]

    def is_exceeded(self, lesson: Lesson, way: Way, replies: Sequence[str]) -> bool:
        """Whether the deeds of a way that had an effect (`deeds.answered`) exceed the limit."""
        return self.share(lesson, deeds.answered(self.place, lesson, way, replies)) > 1


def limits_of(lessons: Sequence[Lesson], prompt: str) -> Iterator[Limit]:
    """Return for each place the limit that the expert comes nearest to, if there is one that it
    keeps on all tasks and reaches by `NEARLY` on average; `prompt` is what the policy is told.
    """
    for place in dict.fromkeys(at for lesson in lessons for at in columns_of(lesson)):
        known = itertools.product([place], range(MOST_COLUMNS), range(1, MOST_COLUMNS), [prompt])
        mean = dict[Limit, float]()
        for limit in itertools.starmap(Limit, known):
            shares = (limit.share(lesson, lesson.actions) for lesson in lessons)
            kept = [*itertools.takewhile(lambda share: 0 < share <= 1, shares)]
            if len(kept) == len(lessons):
                mean[limit] = fmean(kept)
        best = max(mean, key=mean.__getitem__, default=None)
        if best is not None and mean[best] >= NEARLY:
            yield best


def _beside(
    values: Sequence[Any], lesson: Lesson, prompt: str
) -> tuple[dict[str, list[float]], list[float]]:
    """Return the table of a task, from each thing to the numbers behind it, and all other numbers.

    The lines of the table are those in the form of the lines in which `values` stand: with `lamp`
    among the values, `lamp: 12` and `desk: 20` are two rows, and `budget 35` is another number.
    """
    lines, forms = [*prompt.splitlines(), *lesson.opening.splitlines()], Counter[tuple[str, str]]()
    for value, line in itertools.product(filter(None, map(str, values)), lines):
        head, sign, tail = line.partition(value)
        if sign and (match := _JOINT.match(tail)) and NUMERAL.search(tail):
            forms[head, match[0]] += 1
    (head, joint), _ = [*forms.most_common(1), (("", "\0"), 0)][0]
    rows, others = dict[str, list[float]](), list[float]()
    for line in lines:
        name, sign, tail = line.removeprefix(head).partition(joint)
        numbers = [*map(float, NUMERAL.findall(tail))]
        if line.startswith(head) and sign and numbers:
            rows[name] = numbers
        else:
            others += map(float, NUMERAL.findall(line))
    return rows, others


def in_parts(spoil: Spoil, place: Place, lesson: Lesson) -> Iterator[Way]:
    """Return the spoilt way with each number at a place split into parts, which may each be rounded
    or fall below a limit: `send ann 12` becomes `send ann 6, send ann 6`.
    """
    for parts in PARTS:
        rows = list[Action]()
        for action in spoil.way(lesson):
            here = [number_of(str(v)) for at, v in places_of(action) if at == place]
            whole = here[0] if here and isinstance(here[0], int) else 0
            size = max(1, whole // parts)
            sizes = [*[size] * (whole // size), *([whole % size] if whole % size else [])]
            kind = next((v for at, v in places_of(action) if at == place), 0)
            puts = [partial(put, place, of_kind(str(n), kind)) for n in sizes]
            rows += [changed(action, put) for put in puts] or [action]
        if 0 < len(rows) < MOST_PARTS:
            yield rows


def meddled(foreign: Foreign, spoil: Spoil, lesson: Lesson) -> Iterator[Way]:
    """Return the spoilt way with each row of a foreign move, before its first action and before its
    last: `rate ann 10, send ann 90000, done` and `send ann 90000, rate ann 10, done`.
    """
    way = spoil.way(lesson)
    if not way:
        return
    for row in itertools.islice(foreign.rows(lesson, way, spoil.news(lesson)), MOST_ROWS):
        yield [*row, *way]
        yield [*way[:-1], *row, way[-1]]


def undone(foreign: Foreign, lesson: Lesson) -> Iterator[Way]:
    """Return the way in which each deed but the last is taken back at once: `undo ann 12, send ann
    12, undo ann 12, done`. The first action takes back nothing, so that its reply tells how the
    environment answers in that case (`is_undone`).
    """
    rows = [each for action in lesson.actions[:-1] for each in (action, foreign.like(action))]
    if rows:
        yield [rows[1], *rows, lesson.actions[-1]]


def peeks_of(foreign: Foreign, lesson: Lesson) -> list[tuple[Action, Action]]:
    """Return pairs (peek, deed that the peek may show): the move like each deed but the last, or if
    it takes no more than a number, `PEEKS` times with a number that rises, for the last deed.
    """
    if len(foreign.schemas) <= sum(is_number for _, is_number in foreign.schemas) < 2:
        rows = ([n] * len(foreign.schemas) for n in range(1, PEEKS + 1))
        return [(foreign.of(*row), lesson.actions[-1]) for row in rows]
    deeds = [a for a in lesson.actions[:-1] if len(places_of(a)) > len(foreign.schemas)]
    return [(foreign.like(action), action) for action in deeds]


def peeked(foreign: Foreign, back: Action, lesson: Lesson) -> Iterator[Way]:
    """Return ways behind peeks, with `back` after each peek, or after all of them and before one
    more, which may make peeks free: `hint 1, back, hint 2, send ann 12, send ben 20`.

    The last peek is not taken back: if it bars the way, a peek is a step aside and has no price.
    """
    peeks = [peek for peek, _ in peeks_of(foreign, lesson)]
    if peeks:
        yield [*[each for peek in peeks for each in (peek, back)][:-1], *lesson.actions]
        yield [*peeks, back, peeks[0], *lesson.actions]


def paid_for(foreign: Foreign, lesson: Lesson) -> Way:
    """Return the way behind peeks that are not taken back."""
    return [*(peek for peek, _ in peeks_of(foreign, lesson)), *lesson.actions]


def shows(foreign: Foreign, lesson: Lesson, way: Way, replies: Sequence[str]) -> bool:
    """Whether most replies to peeks show a value of the deed that neither the peek names, nor the
    task where the deed is the last one.
    """
    rows = zip(way, replies, strict=False)
    shown_names = [NAME.findall(reply) for action, reply in rows if verb(action) == foreign.name]
    shown, pairs = 0, peeks_of(foreign, lesson)
    for (peek, action), names in zip(pairs, shown_names, strict=False):
        said = "\n".join(str(value) for _, value in places_of(action))
        known = {str(value) for _, value in places_of(peek)}
        known |= {*NAME.findall(lesson.opening)} if action == lesson.actions[-1] else set()
        shown += any(name in said for name in names if name not in known)
    return 2 * shown > len(pairs)


def is_undone(lesson: Lesson, way: Way, replies: Sequence[str]) -> bool:
    """Whether most deeds of `undone` were taken back: their replies differ from the first reply,
    when there was nothing to take back.
    """
    undo_replies = replies[2 : len(way) - 1 : 2]
    return 2 * sum(text != replies[0] for text in undo_replies) > len(lesson.actions) - 1


def tried_again(
    place: Place, foreign: Foreign, lesson: Lesson, *, takes_back: bool = True
) -> Iterator[Way]:
    """Return the way after several wrong tries of its first deed, each taken back, so that the
    environment may not count them: `send ann 13, undo, send ann 11, undo, ..., send ann 12, done`.
    """
    nth = next((n for n, a in enumerate(lesson.actions) if verb(a) == place[0]), 0)
    values = [value for at, value in places_of(lesson.actions[nth]) if at == place]
    rows = list[Action]()
    for other in _near(values[0], lesson) if values else ():
        wrong = changed(lesson.actions[nth], partial(put, place, other))
        rows += [wrong, foreign.like(wrong)] if takes_back else [wrong]
    if rows:
        yield [*lesson.actions[:nth], *rows, *lesson.actions[nth:]]


def _near(value: Any, lesson: Lesson) -> list[Any]:
    """Return wrong values near a right one: the numbers around it, or other names of the task."""
    if not is_amount(value):
        return others_of([value], lesson)[: deeds.AGAIN]
    number = int(float(value))
    around = [number + sign * n for n in range(1, deeds.AGAIN // 2 + 1) for sign in (1, -1)]
    return [of_kind(str(n), value) for n in around]


def tells_apart(place: Place, lesson: Lesson, way: Way, replies: Sequence[str]) -> bool:
    """Whether the replies to wrong deeds differ from each other, apart from the values in them, and
    so may tell how far a try was wrong.
    """
    kinds = set[str]()
    for action, reply in zip(way, replies, strict=False):
        said = [str(value) for at, value in places_of(action) if at == place]
        if said and action not in lesson.actions:
            kinds.add(reply.replace(said[0], ""))
    return len(kinds) > 1


def settled_early(name: str, spoil: Spoil, lesson: Lesson) -> Iterator[Way]:
    """Return the spoilt way with the only deed of a name moved behind the first action.

    `send ann 12, send ben 20, approve, done` becomes `send ann 12, approve, send ben 20, done`:
    what comes later may be covered by the approval.
    """
    way = spoil.way(lesson)
    nths = [n for n, action in enumerate(way[:-1]) if verb(action) == name]
    if len(nths) == 1 < nths[0]:
        others = [*way[: nths[0]], *way[nths[0] + 1 :]]
        yield [others[0], way[nths[0]], *others[1:]]


def swapped(
    place: Place, foreign: Foreign, lesson: Lesson, *, is_late: bool = True
) -> Iterator[Way]:
    """Return the way in which each deed is taken back and done to another thing instead.

    `send ann 12, check, done` becomes `send ann 12, check, undo ann 12, send cid 12, done`: what
    was checked is changed afterwards. With `is_late` false the change comes before `check`.
    """
    nths = [n for n, action in enumerate(lesson.actions) if verb(action) == place[0]]
    values = columns_of(lesson).get(place, [])
    if not values or len(nths) != len(values) or nths[-1] >= len(lesson.actions) - 2:
        return
    rows = list[Action]()
    for nth, other in zip(nths, _untouched(values, lesson), strict=False):
        instead = changed(lesson.actions[nth], partial(put, place, other))
        rows += [foreign.like(lesson.actions[nth]), instead]
    at = len(lesson.actions) - 1 if is_late else nths[-1] + 1
    if rows:
        yield [*lesson.actions[:at], *rows, *lesson.actions[at:]]


def _untouched(values: Sequence[Any], lesson: Lesson) -> list[Any]:
    """Return other values of the kind that no deed of the expert has at any place."""
    said = {str(value) for column in columns_of(lesson).values() for value in column}
    lines = map(NAME.findall, lesson.opening.splitlines())
    row = max(lines, key=lambda names: len({*names} & said), default=[])
    is_row = {*map(str, values)} <= {*row}
    beside = row[min(map(row.index, map(str, values))) :] if is_row else []
    others = [*others_of(values, lesson), *beside]
    return [other for other in dict.fromkeys(others) if str(other) not in said]
