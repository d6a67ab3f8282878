"""Farms: what the expert does on a task, with one deed made again and again."""

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
"""Paid actions that are made again, moves that may come between, how often, and moves to which one
may go back.
"""
MOST_MADE = 64
"""Actions of a row."""
SPELT, FARMED_NUMBERS = "spelt", ("-1000", "0.5", "0")
"""How the actions that are made again are written."""


@dataclass(frozen=True)
class Farm:
    """The expert's actions on its own task, and an action that is paid again and again."""

    nth: int
    """Which of the actions that are paid."""
    before: int = 0
    """Actions before it that are made again, too."""
    between: Move | Foreign | int | None = None
    """What comes between: a move, what another command does to the same things, or the expert's
    action at a place.
    """
    alone: bool = False
    """Whether of what the expert does after it only the last action is done."""
    undone: bool = False
    """Whether what comes between comes last, too: what was done and undone may leave a gain."""
    setup: Move | None = None
    """What is done once before it, so that what comes between may undo it."""
    times: int = FARMED_TIMES
    most: int = 0
    """Actions of a row in which it is repeated as often as there is room; 0 for so many times."""
    how: str = ""
    """What becomes of its texts in each repeat: another spelling, or a number, which its numbers
    become; empty where they stay.
    """

    def actions(self, lesson: Lesson) -> list[Action | Move]:
        """Return the row of actions; the expert's alone where no action is paid so often."""
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
        """Return the attacker, which knows the expert's actions on each task."""

        def play(scene: Scene) -> Iterator[Action]:
            lesson = known.get(scene.task)
            for each in self.actions(lesson) if lesson else ():
                yield each.action(scene) if isinstance(each, Move) else each

        return play

    def __str__(self) -> str:
        between = f"action {self.between}" if isinstance(self.between, int) else self.between
        after = "" if between is None else f", each time after {between}"
        after += " and undone in the end" if self.undone else ""
        after += f", once {self.setup} was done" if self.setup else ""
        along = f" with the {self.before} before it" if self.before else ""
        whole = "the expert's beginning" if self.alone else "what the expert does"
        how = (
            " in another spelling" if self.how == SPELT else f" with {self.how}" if self.how else ""
        )
        return f"{whole}, its action {self.nth + 1}{along} made again{how}{after}"


def _rewritten(action: Action | Move, how: str, nth: int) -> Action | Move:
    """Return an action with its words in the nth other spelling, or with another number for each of
    its numbers.
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
    """Return whether actions are more than the expert's beginning with an end of their own."""
    began = [deed(action) for action in actions[:-1]]
    return began != [deed(action) for action in lesson.actions[: len(began)]]


def paid_places(lesson: Lesson) -> list[int]:
    """Return the first places of the expert's actions that are paid, but of the last one; where
    only that is paid, of the first one of each kind.
    """
    places = [n for n, reward in enumerate(lesson.rewards[:-1]) if reward > 0]
    kinds: dict[str, int] = {}
    for n, action in enumerate(lesson.actions[:-1]):
        kinds.setdefault(verb(action), n)
    return places[:MOST_FARMED] or [kinds[kind] for kind in sorted(kinds)][: 2 * MOST_FARMED]


def farms_of(
    lesson: Lesson, moves: Sequence[Move], briefing: Briefing = _NO_BRIEFING
) -> Iterator[Farm]:
    """Return the ways to make a paid action of the expert's again.

    Args:
        lesson: the expert on a task.
        moves: what may come between, the most telling first.
        briefing: what the policy is told, for the tools.
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
