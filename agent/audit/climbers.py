"""Climbers: attackers that change one thing after the other and let the replies say what to keep.

A game that answers each guess by the number of right letters is solved without any thought:
`Spelling` tries every letter at the first place, keeps the one with the highest number, and goes
on. `Sorting` and `Hindsight` do the same with deeds that can be taken back.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import mode
from typing import Any

from ludus.envs import Briefing
from ludus.envs.checks.subject import Played
from ludus.messages import as_action

from .answers import Place, changed, deed, verb
from .attackers import NUMBER, WORD, Action, AnswerFrame, Lesson, Plays, Scene, number_of, text_of
from .meddling import Foreign
from .places import columns_of, fresh, kinds_of, others_of, places_of, put
from .rules import Rule

LONGEST_CLIMB = 80
"""Most turns of a climber."""
MOST_SIGNS, MOST_PIECES, FEWEST_PIECES = 40, 12, 3
"""Most values that are tried for a piece of an answer, most pieces that are changed, and fewest
pieces of an answer that is a form.
"""
ANY_DIGIT = str.maketrans("123456789", "0" * 9)


def number_in(text: str, nth: int) -> float | None:
    """Return a number of a reply, the first for `nth` 0 and the last for -1; None if there is
    none, or a fraction.

    >>> number_in("2 of 5 are right", 0)
    2.0
    """
    numerals = NUMBER.findall(text)
    value = number_of(numerals[nth]) if numerals else None
    return float(value) if isinstance(value, (int, float)) else None


@dataclass(frozen=True)
class AnswerForm:
    """The pieces of an expert's final answers: arguments of a call, words, or letters of a word."""

    frame: AnswerFrame
    end: Action
    """One of the answers, whose pieces are replaced."""
    rows: Sequence[Sequence[Any]]
    """The pieces of each answer; answers with an unusual number of pieces are left out."""

    @classmethod
    def of(cls, lessons: Sequence[Lesson]) -> AnswerForm:
        """Return the form of the final answers of at least one lesson."""
        frame = AnswerFrame.of(lessons, Briefing())
        pairs = [(lesson.actions[-1], cls._row(frame, lesson.actions[-1])) for lesson in lessons]
        count = mode(len(row) for _, row in pairs)
        kept = [(end, row) for end, row in pairs if len(row) == count]
        return cls(frame, kept[0][0], [row for _, row in kept])

    @staticmethod
    def _row(frame: AnswerFrame, end: Action) -> list[Any]:
        values = [value for _, value in places_of(end)] if as_action(end).tool_calls else []
        is_row = len(values) > 1 and all(isinstance(value, (str, int, float)) for value in values)
        words = values if is_row else WORD.findall(frame.core(end))
        return [*words[0]] if len(words) == 1 and isinstance(words[0], str) else words

    @property
    def is_word(self) -> bool:
        """Whether the pieces are the letters of a word."""
        return all(isinstance(p, str) and len(p) == 1 for row in self.rows for p in row)

    @property
    def columns(self) -> dict[int, list[Any]]:
        """The values to try at each position, by its number: the different pieces that answers have
        there, if they differ; for words, all letters of all answers.
        """
        columns = [[*dict.fromkeys(column)] for column in zip(*self.rows, strict=True)]
        if self.is_word:
            columns = [sorted({*itertools.chain(*columns)})] * len(columns)
        varied = [(n, column) for n, column in enumerate(columns) if len(column) > 1]
        return {n: column[:MOST_SIGNS] for n, column in varied[:MOST_PIECES]}

    def filled(self, pieces: Sequence[Any]) -> Action:
        """Return the final answer with these pieces, one for each position."""
        row = iter(pieces)
        if len(as_action(self.end).tool_calls) and len(places_of(self.end)) > 1:
            return changed(self.end, lambda at, value: next(row, value))
        core = "".join(pieces) if self.is_word else self.frame.core(self.end)
        return self.frame.fill(core if self.is_word else WORD.sub(lambda _: next(row), core))


@dataclass(frozen=True)
class Spelling:
    """Changes one piece of an answer after the other, and keeps the value for which a number of the
    reply is best.
    """

    sign: int
    """1 if a higher number is better, -1 if a lower one is."""
    nth: int
    """Which number of a reply counts: the first (0) or the last (-1)."""

    def plays(self, known: Mapping[str, Lesson]) -> Plays:
        """Return the attacker; the values to try are pieces of answers on other tasks."""

        def play(scene: Scene) -> Iterator[Action]:
            form = AnswerForm.of(scene.lessons)
            said = [*form.rows[0]]
            yield form.filled(said)
            worth = self.worth(scene)
            for n, column in form.columns.items():
                best = {said[n]: worth}
                for value in column:
                    if value not in best:
                        said[n] = value
                        yield form.filled(said)
                        best[value] = self.worth(scene)
                said[n] = max(best, key=best.__getitem__)
                worth = best[said[n]]
            yield form.filled(said)

        return play

    def worth(self, scene: Scene) -> float:
        """Return the number of the newest reply, times `sign`; 0 without a number."""
        return self.sign * (number_in(scene.shown, self.nth) or 0.0)

    def __str__(self) -> str:
        which = "last" if self.nth else "first"
        return f"changes an answer piece by piece, by the {which} number of the replies"


@dataclass(frozen=True)
class Sorting:
    """Does a deed to everything that the task shows, and takes each back for which a number of the
    reply got worse.
    """

    place: Place
    """Where the deed names the thing that it is done to."""
    back: Foreign
    """The move that takes a deed back."""
    sign: int
    """1 if a higher number is better, -1 if a lower one is."""
    nth: int
    """Which number of a reply counts: the first (0) or the last (-1)."""
    keeps: bool = False
    """Whether no deed is taken back, for comparison."""

    def plays(self, known: Mapping[str, Lesson]) -> Plays:
        """Return the attacker; `known` has the expert's episode on each task, by its id."""

        def play(scene: Scene) -> Iterator[Action]:
            lesson = known.get(scene.task)
            shapes = [a for a in lesson.actions if verb(a) == self.place[0]] if lesson else []
            if lesson is None or not shapes:
                return
            values = columns_of(lesson).get(self.place, [])
            others = others_of(values, lesson)
            before = 0.0
            # Where there is little else, who does everything does what the expert does.
            for value in sorted([*values, *others], key=str) if len(others) >= len(values) else ():
                action = changed(shapes[0], partial(put, self.place, value))
                yield action
                after = number_in(scene.shown, self.nth)
                if self.keeps:
                    continue
                if after is not None and self.sign * (after - before) < 0:
                    yield self.back.like(action)
                else:
                    before = before if after is None else after
            yield lesson.actions[-1]

        return play

    def __str__(self) -> str:
        what = " ".join(map(str, self.place))
        return f"{what} for everything, and {self.back.name} if a number of the reply got worse"


@dataclass(frozen=True)
class Hindsight:
    """Does each deed with a wrong value, takes the deed back, and does it with the right value that
    it read off the reply.
    """

    place: Place
    """Where the wrong value stands."""
    back: Foreign | None
    """The move that takes the wrong deed back; None if it is left as it is."""
    wrong: Any
    """The wrong value."""
    compares: bool = False
    """Whether the rule reads which numbers rose most, and not the reply itself (`compared`)."""
    rule: Rule | None = None
    """Reads the right value; None for an episode from which the rule is still to be learned, and
    which uses the expert's value.
    """
    about: str = ""
    """What the rule reads, for reports."""

    def plays(self, known: Mapping[str, Lesson]) -> Plays:
        """Return the attacker; `known` has the expert's episode on each task, by its id."""

        def play(scene: Scene) -> Iterator[Action]:
            lesson = known.get(scene.task)
            for action in lesson.actions if lesson else ():
                if not any(at == self.place for at, _ in places_of(action)):
                    yield action
                    continue
                before = scene.shown
                wrong = changed(action, partial(put, self.place, self.wrong))
                yield wrong
                said = self.read(before, scene.shown)
                if self.back is not None:
                    yield self.back.like(wrong)
                if self.rule is not None:
                    action = changed(action, partial(put, self.place, self.rule(said)))
                yield action

        return play

    def pairs(self, lesson: Lesson, episode: Played) -> Iterator[tuple[str, str, str]]:
        """Return the examples that an episode without a rule gives, one for each wrong deed: the
        text before the deed, what a rule reads of its reply, and the right value.
        """
        at = 0
        for action in lesson.actions:
            here = [value for place, value in places_of(action) if place == self.place]
            if here and at + 1 < len(episode.seen):
                before, after = text_of(episode, at), text_of(episode, at + 1)
                yield before, self.read(before, after), str(here[0])
            at += (2 + (self.back is not None)) if here else 1

    def read(self, before: str, after: str) -> str:
        """Return what a rule reads of the reply `after`, with the text `before` the deed."""
        return compared(before, after) if self.compares else after

    def __str__(self) -> str:
        what = " ".join(map(str, self.place))
        back = f", takes it back by {self.back.name}," if self.back else ""
        return f"does each {what} wrongly{back} and then with {self.about} of the reply"


_AMOUNT = re.compile(r"([A-Za-z_]\w*)\W{1,3}(-?\d+(?:\.\d+)?)")


def compared(before: str, after: str) -> str:
    """Return the names that have a number in both texts; the name whose number rose by the largest
    factor stands first. A name whose number was 0 is left out.

    >>> compared("ann: 10, ben: 10", "ann: 11, ben: 20")
    'ben ann'
    """
    old, rows = dict(_AMOUNT.findall(before)), dict[str, float]()
    for name, number in _AMOUNT.findall(after):
        if name in old and float(old[name]):
            rows[name] = round(float(number) / float(old[name]), 2)
    return " ".join(sorted(rows, key=lambda name: -rows[name]))


Climber = Spelling | Sorting | Hindsight


def is_form(lessons: Sequence[Lesson]) -> bool:
    """Whether the expert ends each task with one answer of several pieces, a form, whose name no
    earlier action has.
    """

    def kind(action: Action) -> str:
        return verb(action).translate(ANY_DIGIT)  # numbers are tries of one kind

    ends = [(kind(lesson.actions[-1]), {*map(kind, lesson.actions[:-1])}) for lesson in lessons]
    return all(end not in before for end, before in ends) and (
        len(AnswerForm.of(lessons).columns) >= FEWEST_PIECES
    )


def climbers_of(lessons: Sequence[Lesson], foreign: Sequence[Foreign]) -> Iterator[Climber]:
    """Return the climbers that fit the expert's episodes on several tasks.

    Args:
        lessons: the expert on several tasks.
        foreign: foreign moves, any of which may take a deed back.
    """
    signs = [*itertools.product((1, -1), (-1, 0))]
    is_short = all(len(lesson.actions) == 1 for lesson in lessons)
    # Where all tasks begin alike, replies are what there is to go by.
    is_told = 2 * len({lesson.opening for lesson in lessons}) > len(lessons)
    if is_told and (is_short or is_form(lessons)):
        yield from itertools.starmap(Spelling, signs)
    if is_short:
        return
    is_constant = len({deed(lesson.actions[-1]) for lesson in lessons}) == 1
    columns = [columns_of(lesson) for lesson in lessons]
    times = [place for each in columns for place in each]
    for place in dict.fromkeys(times):
        values = [value for each in columns for value in each.get(place, [])]
        if 2 * times.count(place) <= len(lessons) or len({*map(repr, values)}) < 2:
            continue
        is_end = all(verb(lesson.actions[-1]) == place[0] for lesson in lessons)
        for undo, (sign, nth) in itertools.product(foreign if is_constant else (), signs):
            yield Sorting(place, undo, sign, nth)
        wrongs = [*kinds_of(place, lessons)[:1], fresh(values[0], 0)]
        wrongs = wrongs if is_end or is_constant else []  # another end would be copied
        for back, wrong in itertools.product((None, *foreign), wrongs):
            yield from (Hindsight(place, back, wrong, compares) for compares in (False, True))
