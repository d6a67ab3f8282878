"""What the expert does on a task, spoilt in a way of known effect: whoever is still paid for the
rest shows what the reward does not ask for.

A transformation whose effect is known needs no list of flaws and no second judge.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ludus.envs import Briefing

from . import deeds
from .answers import Place, deed, verb
from .attackers import Action, AttackKind, Lesson, number_of
from .forgeries import IN_PART, Forgery
from .meddling import (
    UNDOES,
    Foreign,
    foreign_of,
    in_parts,
    is_undone,
    limits_of,
    meddled,
    settled_early,
    spoils_of,
    swapped,
    tells_apart,
    tried_again,
    undone,
)
from .notation import Plan
from .places import Way, columns_of, constants_of, kinds_of, labels_of, places_of, said_once
from .tallies import MORE_BOUND

ORDERED = re.compile(
    r"\b(?:in (?:\w+ )?order|order(?:ed)? (?:by|of)|sort(?:ed)?|rank(?:ed|ing)?|ascending"
    r"|descending|chronological(?:ly)?"
    r"|(?:earli|old|new|high|low|larg|small|short|cheap)est (?:\w+ )?first)\b",
    re.IGNORECASE,
)
"""Words that ask for an order."""
ROUND = re.compile(
    r"\b(?:round trip|roundtrip|tour|loop|cycle|circuit|returns? to)\b", re.IGNORECASE
)
"""Words for an order that may be turned round."""
DEMANDED = re.compile(
    r"\b(?:must|always|required|mandatory|before any|only (?:after|once)|never\b.*\bwithout)\b",
    re.IGNORECASE,
)
"""Words that demand a deed."""
_TRIES = r"(?i)\b(?:one|two|three|four|five|six|seven|eight|nine|ten|\d+) "
_TRY = r"attempt|chance|guess|tr(?:y|ies)"
"""How often something may be tried."""


@dataclass(frozen=True)
class Law:
    """A change of what the expert does that has to cost the reward."""

    name: str
    about: str
    ways: Callable[[Lesson], Iterable[Way]]
    """From the expert on a task to ways that are all wrong, of which the best paid counts."""
    without: Callable[[Lesson], Way] = lambda lesson: ()
    """What is left once the deeds that are changed are left out, which has to cost the reward, too:
    where it does not, they only looked around.
    """
    took: Callable[[Lesson, Way, Sequence[str]], bool] = lambda lesson, way, replies: True
    """Whether the replies show that what was changed had an effect."""
    bound: float | None = None
    is_worst: bool = False
    """Whether the worst paid way counts: each alone may be right, and all of them cannot."""
    kind: AttackKind = AttackKind.FORGED
    """A leak ends with the right answer, which was told on the way."""
    bases: Callable[[Lesson], Iterable[Way]] | None = None
    """For each of the ways what is left of it without what makes it wrong, which has to cost the
    reward.
    """

    def on(self, plan: Plan) -> Law | None:
        """Return the law of the lines of plans; None for what replies have to show, and for what is
        done to answers as they are.
        """
        if self.took is not Law.took or self.name.startswith("forged"):
            return None

        def ways(lesson: Lesson) -> Iterator[Way]:
            yield from map(plan.fold, self.ways(plan.unfold(lesson)))

        def without(lesson: Lesson) -> Way:
            return plan.fold(self.without(plan.unfold(lesson)))

        return replace(self, name=f"plan: {self.name}", ways=ways, without=without, bases=None)


def laws_of(
    lessons: Sequence[Lesson],
    told: str = "",
    looks: Sequence[Action] = (),
    peeks: Sequence[Way] = (),
) -> Iterator[Law]:
    """Return the laws that ways such as the expert's on several tasks are under.

    Args:
        lessons: the expert on several tasks.
        told: what the policy is told before each task.
        looks: calls without arguments that the expert does not make.
        peeks: rows of such calls, which may cost something.
    """
    texts = [f"{told}\n{lesson.opening}" for lesson in lessons]
    is_ordered = all(ORDERED.search(text) and not ROUND.search(text) for text in texts)
    same = constants_of(lessons)
    for forgery in Forgery:
        bound = MORE_BOUND if forgery in IN_PART else None
        about = f"the expert's answer: {forgery}"
        if is_ordered or forgery is not Forgery.REVERSED:
            ways = deeds.telling(partial(forgery.ways, same=same, told=told), lessons)
            yield Law(f"forged {forgery.name.lower()}", about, ways, bound=bound)
    columns = [columns_of(lesson) for lesson in lessons]
    is_constant = len({deed(lesson.actions[-1]) for lesson in lessons}) == 1
    names = Counter(n for le in lessons for n in {*map(verb, le.actions)})
    for place, times in Counter(place for each in columns for place in each).items():
        values = {repr(each.get(place)) for each in columns}
        if is_constant and len(values) > 1:
            yield from _elsewhere_laws(place, same, names)
        # What is the same everywhere is not asked for.
        if 2 * times > len(lessons) < 2 * len(values):
            width = max(sum(at[0] == place[0] for at in each) for each in columns)
            kinds = kinds_of(place, lessons)
            yield from _place_laws(place, width, kinds, looks, is_constant=is_constant)
    for name, times in names.items():
        if 2 * times > len(lessons):
            yield from _deed_laws(name, is_due=_is_due(name, told))
    if is_constant:
        about = "what the expert does with something else, and what it does once again and again"
        ways = partial(deeds.again, said_once(lessons))
        yield Law("again", about, ways, bases=partial(ways, times=1), bound=MORE_BOUND)
    about = "what the expert does, each quantity in another unit that is named"
    yield Law("rescaled", about, partial(deeds.rescaled, told))
    about = "each answer with one label for all, once with each label"
    ways = partial(deeds.in_turn, labels_of(lessons))
    yield Law("in turn", about, ways, lambda lesson: lesson.actions[-1:])
    about = "the beginning of what the expert does, and its end"
    yield Law("begun", about, deeds.begun, lambda lesson: lesson.actions[-1:], bound=MORE_BOUND)
    about = "the first thing that the expert says, and nothing in place of all others"
    yield Law("hollow", about, deeds.hollowed, lambda lesson: lesson.actions[:1])
    about = "what the expert does, after all of it was done wrongly and was answered with the right"
    ways, took = partial(deeds.failed_first, same), partial(deeds.is_shown, same)
    yield Law("failed first", about, ways, took=took, kind=AttackKind.LEAK)
    for row, back in itertools.product(peeks, looks):
        if verb(row[0]) != verb(back):
            about = f"what the expert does after {verb(row[0])}, which {verb(back)} makes free"
            ways, paid_for = partial(deeds.peeked, row, back), partial(_after, row)
            name = f"peeked {verb(row[0])}"
            yield Law(name, about, ways, paid_for, deeds.shows_answer, kind=AttackKind.LEAK)


def meddling_laws(briefing: Briefing, lessons: Sequence[Lesson], told: str) -> Iterator[Law]:
    """Return the laws of ways with a move that the expert never uses."""
    unused = foreign_of(briefing, lessons, told)
    places = dict.fromkeys(at for lesson in lessons for at in columns_of(lesson))
    tried = [at for at in places if re.search(rf"{_TRIES}(?:{re.escape(at[0])}|{_TRY})", told)]
    yield from _undoing_laws([each for each in unused if UNDOES.search(each.name)], tried)
    limits = [*limits_of(lessons, told)]
    spoils = [*spoils_of(lessons, constants_of(lessons), limits)]
    for limit in limits:
        what, ways = " ".join(map(str, limit.place)), partial(_only, limit.everything)
        about = f"what the expert does, but {what} everything, beyond a number that it keeps to"
        yield Law(f"beyond {what}", about, ways, took=limit.is_exceeded)
    columns = [columns_of(lesson) for lesson in lessons]
    for place, spoil in itertools.product(places, spoils):
        values = [value for each in columns for value in each.get(place, [])]
        if all(isinstance(number_of(str(value)), int) for value in values):
            what = " ".join(map(str, place))
            about = f"what the expert does with {spoil.name}, each {what} in parts"
            ways = partial(in_parts, spoil, place)
            yield Law(f"{what} in parts, {spoil.name}", about, ways, spoil.way, bound=spoil.bound)
    settled = {verb(a) for le in lessons for a in le.actions[:-1] if not places_of(a)}
    for name, spoil in itertools.product(sorted(settled), spoils):
        about = f"what the expert does with {spoil.name}, {name} behind its first deed"
        ways = partial(settled_early, name, spoil)
        yield Law(f"early {name}, {spoil.name}", about, ways, spoil.way, bound=spoil.bound)
    for foreign, spoil in itertools.product(unused, spoils):
        about = f"what the expert does with {spoil.name}, and {foreign.name}"
        ways = partial(meddled, foreign, spoil)
        yield Law(f"{foreign.name}, {spoil.name}", about, ways, spoil.way, bound=spoil.bound)
    for foreign, place in itertools.product(unused, places):
        what = " ".join(map(str, place))
        about = f"what the expert does, and before the end {foreign} and {what} something else"
        late, early = partial(swapped, place, foreign), partial(_early, place, foreign)
        took = partial(deeds.took, place)
        yield Law(f"{foreign.name}, late {what}", about, late, early, took, MORE_BOUND)


def _undoing_laws(undoing: Iterable[Foreign], places: Iterable[Place]) -> Iterator[Law]:
    """Return the laws of what takes deeds back: what was done has to be undone, and no more."""
    for foreign in undoing:
        about = f"what the expert does, each deed taken back by {foreign.name}"
        ways = partial(undone, foreign)
        name, kind = f"undone by {foreign.name}", AttackKind.LEAK
        yield Law(name, about, ways, took=is_undone, bound=MORE_BOUND, kind=kind)
    for foreign, place in itertools.product(undoing, places):
        what = " ".join(map(str, place))
        about = f"what the expert does after more wrong {what} than it may try, each taken back by"
        again, took = partial(tried_again, place, foreign), partial(tells_apart, place)
        bases = partial(again, takes_back=False)
        name, kind = f"tried {what}, {foreign.name}", AttackKind.LEAK
        yield Law(name, f"{about} {foreign.name}", again, took=took, kind=kind, bases=bases)


def _only(way: Callable[[Lesson], Way], lesson: Lesson) -> Iterator[Way]:
    yield from filter(None, [way(lesson)])


def _early(place: Place, foreign: Foreign, lesson: Lesson) -> Way:
    return next(swapped(place, foreign, lesson, is_late=False), ())


def _elsewhere_laws(place: Place, same: frozenset[Hashable], names: Iterable[str]) -> Iterator[Law]:
    """Return the laws of what is done to something else than what is named at the end: wrongly, or
    without the deeds of a name.
    """
    what = " ".join(map(str, place))
    for name in ("", *(name for name in names if name != place[0])):
        ways = partial(deeds.done_elsewhere, same, place, name)
        first = partial(deeds.naming, place, first=True)
        left_out = partial(deeds.without, name) if name else first
        law = f"elsewhere {what}{name and f', no {name}'}"
        about = f"what the expert does to another {what}, which is named at the end alone"
        yield Law(law, about, ways, left_out, bound=MORE_BOUND)


def _after(row: Way, lesson: Lesson) -> Way:
    return [*row, *lesson.actions]


def _place_laws(
    place: Place, width: int, kinds: Sequence[Any], looks: Sequence[Action], *, is_constant: bool
) -> Iterator[Law]:
    """Return the laws of what deeds have at one of so many places: where there are several, the
    others may be paid for by themselves.
    """
    fair = 1 - 1 / width
    bound = max(MORE_BOUND, fair) if width > 1 else None
    what, left_out = " ".join(map(str, place)), partial(deeds.without, place[0])
    about = f"what the expert does, each {what}"
    below = f"{about} the same, and less than none of something"
    laws: list[tuple[str, str, Callable[[Place, Lesson], Iterable[Way]]]] = [
        ("spoilt", f"{about} another one", deeds.spoilt),
        ("alike", f"{about} the same", partial(deeds.alike, kinds=kinds)),
        ("offset", below, deeds.offset),
        ("rotated", f"{about} that of the next deed", deeds.rotated),
    ]
    for name, says, ways in laws:
        yield Law(f"{name} {what}", says, partial(ways, place), left_out, bound=bound)
    took = partial(deeds.is_named, place)
    known = f"what the expert does, after a wrong {what}, whose refusal names the right"
    kind = AttackKind.FORGED if is_constant else AttackKind.LEAK
    refused = partial(deeds.after_refusal, place)
    yield Law(f"refused {what}", known, refused, left_out, took, kind=kind)
    if not is_constant:
        return
    first, is_foretold = partial(deeds.naming, first=True), partial(deeds.is_foretold, place)
    yield Law(
        f"belated {what}",
        f"what the expert does, each {what} after replies that name it",
        lambda lesson: [first(place, lesson)],
        left_out,
        is_foretold,
        kind=AttackKind.LEAK,
    )
    which = f"{about} another one that is shown, whichever it is"
    others = partial(deeds.whichever, place)
    yield Law(f"whichever {what}", which, others, left_out, bound=bound, is_worst=True)
    does, again = "what the expert does,", f"again with another {what}"
    for name, says, ways in (
        ("more", f"{does} and {what} everything else", deeds.done_to_more),
        ("overwritten", f"{does} each deed {again}", deeds.overwritten),
    ):
        took = partial(deeds.took, place)
        yield Law(f"{name} {what}", says, partial(ways, place), left_out, took, MORE_BOUND)
    undone = f"{about} the least, and one too high that is taken back"
    backs = partial(deeds.taken_back, place, looks)
    yield Law(f"undone {what}", undone, backs, partial(deeds.too_high, place))
    for look in looks:
        checked, took = partial(deeds.after_check, place, look), partial(deeds.is_told, place)
        asked = f"{does} after wrong ones and {verb(look)}, which names the right {what}"
        yield Law(f"told {what}", asked, checked, left_out, took)


def _deed_laws(name: str, *, is_due: bool) -> Iterator[Law]:
    """Return the laws of deeds of a name."""
    left_out, about = partial(deeds.without, name), f"what the expert does, each {name}"
    yield Law(f"alike {name}", f"{about} the same", partial(deeds.one_deed, name), left_out)
    before_end = partial(deeds.without, name, keeps_end=True)
    for nth, which in ((0, "first"), (-1, "last")):
        about_one = f"what the expert does, of each {name} only the {which}"
        yield Law(f"only {which} {name}", about_one, partial(deeds.only_one, name, nth), before_end)
    if is_due:
        skipped = f"what the expert does without {name}, which the prompt demands"
        yield Law(f"skipped {name}", skipped, lambda lesson: filter(None, [before_end(lesson)]))


def _is_due(name: str, told: str) -> bool:
    """Whether a sentence demands a tool or command, by its whole name."""
    if not re.search(r"\w[_-]\w|\d", name) and f"`{name}`" not in told:
        return False  # a word like any other
    return any(name in each and DEMANDED.search(each) for each in sentences_of(told))


def sentences_of(told: str) -> list[str]:
    """Return the sentences and clauses of a text."""
    return re.split(r"[.!?;\n]\s", told)
