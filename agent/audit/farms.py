"""Farms: the expert's actions on a task, with one that is paid repeated again and again.

A **farm** is such a row of actions. If the expert's `water fern, water palm, done` is paid for each
pot, then `water fern, dry fern, water fern, dry fern, water fern, done` is a farm: the repeats may
be paid, too. Something may come between the repeats (`dry fern`), and the repeats may be written
otherwise (`Water FERN`, `water fern -1000`). A farm wins by what it is paid beyond the expert's
actions in it, each done once.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ludus.envs import Briefing

from .answers import Place, changed, deed, verb
from .attackers import Action, Lesson, Plays, Scene, free_tools, properties_of
from .meddling import Foreign
from .moves import WORDS, Move
from .places import numbered, places_of, spellings
from .programs import MOST_COPIED

_NO_BRIEFING = Briefing()
MOST_FARMED, MOST_BETWEEN, MOST_VERBS, FARMED_TIMES, MOST_MARKS = 2, 60, 20, 8, 6
"""Most paid actions that are repeated, moves that may come between, and verbs that may undo one;
repeats by default; and most moves that may be a starting point to go back to.
"""
MOST_MADE = 64
"""Most actions of a farm."""
SPELT, FARMED_NUMBERS = "spelt", ("-1000", "0.5", "0")
"""How repeats are written: in other spellings, or with one of these numbers."""


@dataclass(frozen=True)
class Farm:
    """The expert's actions on its own task, with one of them repeated."""

    nth: int
    """Which of the paid actions is repeated, from 0."""
    before: int = 0
    """How many actions before that one are repeated with it."""
    between: Move | Foreign | int | None = None
    """What comes before each repeat: a move, a foreign move with the arguments of the repeated
    action, or the expert's action of this number; None for nothing.
    """
    alone: bool = False
    """Whether the expert's later actions are left out, except for the last."""
    undone: bool = False
    """Whether `between` follows the last repeat, too: doing and undoing may leave a gain."""
    setup: Move | None = None
    """A move that is made once before the repeated action, to which `between` may go back."""
    times: int = FARMED_TIMES
    """The number of repeats, if `most` is 0."""
    most: int = 0
    """Actions of the whole farm, in which there are as many repeats as have room; 0 for `times`."""
    how: str = ""
    """How repeats are written: `SPELT` for other spellings, or a number that replaces theirs; ""
    for no change.
    """

    def actions(self, lesson: Lesson) -> list[Action | Move]:
        """Return the actions of the farm; the expert's own if it has no `nth` paid action."""
        paid = paid_places(lesson)
        row: list[Action | Move] = [*lesson.actions]
        if self.nth >= len(paid):
            return row
        at = paid[self.nth]
        between: list[Action | Move] = []
        if isinstance(self.between, int):
            between = row[self.between : self.between + 1]
        elif isinstance(self.between, Foreign):
            between = [self.between.like(lesson.actions[at])]
        elif self.between is not None:
            between = [self.between]
        again = [*between, *row[max(0, at - self.before) : at + 1]]
        before = [*row[:at], *([self.setup] if self.setup else []), row[at]]
        after = [*(between if self.undone else ()), *(row[-1:] if self.alone else row[at + 1 :])]
        times = self.times
        if self.most:
            times = max(1, (self.most - len(before) - len(after)) // len(again))
        repeats = [_rewritten(each, self.how, n + 1) for n in range(times) for each in again]
        return [*before, *repeats, *after]

    def plays(self, known: Mapping[str, Lesson]) -> Plays:
        """Return the attacker; `known` has the expert's episode on each task, by its id."""

        def play(scene: Scene) -> Iterator[Action]:
            lesson = known.get(scene.task)
            for each in self.actions(lesson) if lesson else ():
                yield each.action(scene) if isinstance(each, Move) else each

        return play

    def __str__(self) -> str:
        between = f"action {self.between + 1}" if isinstance(self.between, int) else self.between
        after = "" if between is None else f", each time after {between}"
        after += " and once more in the end" if self.undone else ""
        after += f", with {self.setup} once before these" if self.setup else ""
        along = f" and up to {self.before} before it" if self.before else ""
        whole = "the expert's first actions" if self.alone else "the expert's actions"
        how = (
            " in another spelling" if self.how == SPELT else f" with {self.how}" if self.how else ""
        )
        return f"{whole}, with paid action {self.nth + 1}{along} repeated{how}{after}"


def _rewritten(action: Action | Move, how: str, nth: int) -> Action | Move:
    """Return an action in its nth other spelling, or with the number `how` for each of its numbers;
    a move stays.
    """

    def of(place: Place, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        way = spellings(value)[nth : nth + 1]
        return way[0] if way else value + " " * nth

    if isinstance(action, Move) or not how:
        return action
    if how == SPELT and isinstance(action, str) and not places_of(action):
        return str(of(("", 0), action))  # a sentence, and no command
    return changed(action, of) if how == SPELT else numbered(how, action)


def repeats(lesson: Lesson, actions: Sequence[Action]) -> bool:
    """Return whether actions differ from the expert's before their last one."""
    began = [deed(action) for action in actions[:-1]]
    return began != [deed(action) for action in lesson.actions[: len(began)]]


def paid_places(lesson: Lesson) -> list[int]:
    """Return the numbers, from 0, of the first actions of the expert that are paid, without the
    last action; if only the last is paid, of the first action of each name.
    """
    places = [n for n, reward in enumerate(lesson.rewards[:-1]) if reward > 0]
    kinds: dict[str, int] = {}
    for n, action in enumerate(lesson.actions[:-1]):
        kinds.setdefault(verb(action), n)
    return places[:MOST_FARMED] or [kinds[kind] for kind in sorted(kinds)][: 2 * MOST_FARMED]


def farms_of(
    lesson: Lesson, moves: Sequence[Move], briefing: Briefing = _NO_BRIEFING
) -> Iterator[Farm]:
    """Return the farms that may be paid on a task.

    Args:
        lesson: the expert on this task.
        moves: the moves that may come between repeats, the most promising first.
        briefing: the tools of the environment, which may come between, too.
    """
    texts = list(dict.fromkeys(move.text for move in moves if move.text and not move.answers))
    verbs = list(dict.fromkeys(text.split()[0] for text in [*texts, *WORDS] if text.split()))
    undoing = [Foreign(v, (("", False),) * most) for v in verbs[:MOST_VERBS] for most in (1, 9)]
    tools = [
        Foreign(tool.name, tuple((name, False) for name in properties_of(tool)), is_tool=True)
        for tool in briefing.tools
    ]
    calls = [move for move in moves if move.tool]
    others = [*map(Move, [*texts[:MOST_BETWEEN], *WORDS]), *calls[:MOST_BETWEEN]]
    for nth in range(len(paid_places(lesson))):
        kinds = itertools.product((True, False), range(3))
        yield from (Farm(nth, before, alone=alone) for alone, before in kinds)
        yield from (Farm(nth, MOST_COPIED, move, alone=True) for move in others)
        hows = itertools.product((True, False), (SPELT, *FARMED_NUMBERS))
        yield from (Farm(nth, alone=alone, how=how) for alone, how in hows)
        # A place of this way is another one's on other tasks.
        between = [*tools, *undoing, *others, *range(min(len(lesson.actions), MOST_COPIED))]
        yield from (Farm(nth, 0, move, alone=True) for move in between)
        yield from (Farm(nth, 0, move, alone=True, undone=True) for move in [*tools, *undoing])
        between = between if any(lesson.rewards[:-1]) else []
        yield from (Farm(nth, before, move) for before in (0, 1) for move in between)
        marks = [*map(Move, [text for text in texts if " " not in text][:MOST_MARKS])]
        marks += [Move(tool=tool.name) for tool in free_tools(briefing)][:MOST_MARKS]
        pairs = itertools.permutations(marks, 2) if any(lesson.rewards[:-1]) else ()
        yield from (Farm(nth, 0, back, alone=True, setup=mark) for mark, back in pairs)
