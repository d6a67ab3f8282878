"""Laws: changes of the expert's actions that make them wrong, each with what has to hold then.

A **law** says that a changed way has to lose the reward. For example, the law `rotated send 1`
turns `send ann 12, send ben 20, done` into `send ann 20, send ben 12, done`; if the environment
still pays, its reward does not look at who gets which amount. No list of flaws and no second judge
is needed, since the change is known to be wrong. `deeds.py` defines the words way, spoilt, look and
peek, `meddling.py` foreign moves and limits, and `forgeries.py` spoils answers.

`laws_of` has the laws of the expert's own deeds, `meddling_laws` those with a foreign move.
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

from . import deeds, meddling
from .answers import Place, deed, verb
from .attackers import Action, AttackKind, Lesson, number_of
from .forgeries import IN_PART, Forgery
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
"""Words for an order that may as well be followed backwards."""
DEMANDED = re.compile(
    r"\b(?:must|always|required|mandatory|before any|only (?:after|once)|never\b.*\bwithout)\b",
    re.IGNORECASE,
)
"""Words by which a sentence demands that something is done."""
_TRIES = r"(?i)\b(?:one|two|three|four|five|six|seven|eight|nine|ten|\d+) "
_TRY = r"attempt|chance|guess|tr(?:y|ies)"
"""With `_TRIES` before it: how often something may be tried, such as `three guesses`."""


@dataclass(frozen=True)
class Law:
    """A change of the expert's actions that has to cost the reward; it is broken if it does not."""

    name: str
    """The change and where it is made, such as `rotated send 1`; reports print it."""
    about: str
    """What an attacker does that breaks the law, for reports."""
    ways: Callable[[Lesson], Iterable[Way]]
    """From the expert on a task to wrong ways; the one that is paid best counts."""
    without: Callable[[Lesson], Way] = lambda lesson: ()
    """The way without the deeds that are changed. The law is tried only on tasks where this way is
    not paid: else the deeds are not needed, and a change of them shows nothing.
    """
    took: Callable[[Lesson, Way, Sequence[str]], bool] = lambda lesson, way, replies: True
    """From the expert, a way and its replies to whether the replies show that the change had an
    effect; a way without an effect does not count.
    """
    bound: float | None = None
    """The share of the expert's reward from which the attack is a finding; None for that of its
    kind.
    """
    is_worst: bool = False
    """Whether the way that is paid worst counts, since a single one may be right by chance."""
    kind: AttackKind = AttackKind.FORGED
    """`FORGED`, or `LEAK` if the ways end with the right answer, which was told on the way."""
    bases: Callable[[Lesson], Iterable[Way]] | None = None
    """From the expert to one simpler way for each of `ways`, in the same order. A way counts only
    if its simpler way is not paid: else what is added is not the reason.
    """

    def on(self, plan: Plan) -> Law | None:
        """Return the law for an expert that answers a plan, each line of which is a deed; None if
        the law depends on replies, which a plan does not get, or spoils answers as a whole.
        """
        if self.took is not Law.took or self.name.startswith("forged"):
            return None

        def ways(lesson: Lesson) -> Iterator[Way]:
            yield from map(plan.fold, self.ways(plan.unfold(lesson)))

        def without(lesson: Lesson) -> Way:
            return plan.fold(self.without(plan.unfold(lesson)))

        return replace(self, name=f"plan: {self.name}", ways=ways, without=without, bases=None)


def laws_of(
    lessons: Sequence[Lesson], prompt: str = "", looks: Sequence[Action] = ()
) -> Iterator[Law]:
    """Return the laws that can be tried on an expert's deeds and answers.

    Args:
        lessons: the expert on several tasks.
        prompt: the system prompt and the answer format.
        looks: calls without arguments that the expert never makes (`looks_of`).
    """
    texts = [f"{prompt}\n{lesson.opening}" for lesson in lessons]
    is_ordered = all(ORDERED.search(text) and not ROUND.search(text) for text in texts)
    same = constants_of(lessons)
    for forgery in Forgery:
        bound = MORE_BOUND if forgery in IN_PART else None
        about = f"the expert's answer, but {forgery}"
        if is_ordered or forgery is not Forgery.REVERSED:
            ways = deeds.telling(partial(forgery.ways, same=same, prompt=prompt), lessons)
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
            yield from _deed_laws(name, is_due=_is_due(name, prompt))
    if is_constant:
        about = (
            "the expert's actions with a worse choice, and one of them repeated to make up for it"
        )
        ways = partial(deeds.again, said_once(lessons))
        yield Law("again", about, ways, bases=partial(ways, times=1), bound=MORE_BOUND)
    for pair in deeds.pairs_of(lessons):
        name, ends = pair[0][0], f"{pair[0][1]} and {pair[1][1]}"
        about = f"the first of the expert's {name} to the last thing, and {name} from it to itself"
        ways = partial(deeds.to_itself, pair)
        yield Law(f"{name} to itself", about, ways, bases=partial(ways, times=0), bound=MORE_BOUND)
        about = f"in place of each {name} one with {ends} exchanged and numbers below zero"
        ways = partial(deeds.backwards, pair)
        yield Law(f"{name} backwards", about, ways, bases=partial(ways, times=0))
    about = "the expert's actions, each quantity in another unit, such as 3 g for 3 kg"
    yield Law("rescaled", about, partial(deeds.rescaled, prompt))
    about = "each answer given once for each label, with this label in place of all others"
    ways = partial(deeds.in_turn, labels_of(lessons))
    yield Law("in turn", about, ways, lambda lesson: lesson.actions[-1:])
    about = "at most the first half of the expert's actions, and the last one"
    yield Law("begun", about, deeds.begun, lambda lesson: lesson.actions[-1:], bound=MORE_BOUND)
    about = "the expert's first answer, and an empty one in place of all others"
    yield Law("hollow", about, deeds.hollowed, lambda lesson: lesson.actions[:1])
    about = "the expert's actions, after wrong ones whose replies told what is right"
    ways, took = partial(deeds.failed_first, same), partial(deeds.is_shown, same)
    yield Law("failed first", about, ways, took=took, kind=AttackKind.LEAK)


def meddling_laws(briefing: Briefing, lessons: Sequence[Lesson], prompt: str) -> Iterator[Law]:
    """Return the laws of ways with a foreign move, and those of limits, parts and early approvals.

    Args:
        briefing: the tools of the environment.
        lessons: the expert on several tasks.
        prompt: the system prompt and the answer format.
    """
    unused = meddling.foreign_of(briefing, lessons, prompt)
    places = dict.fromkeys(at for lesson in lessons for at in columns_of(lesson))
    tried = [at for at in places if re.search(rf"{_TRIES}(?:{re.escape(at[0])}|{_TRY})", prompt)]
    yield from _undoing_laws([each for each in unused if meddling.UNDOES.search(each.name)], tried)
    for foreign, back in itertools.permutations(unused, 2):
        if not back.schemas:
            about = f"the expert's actions after calls of {foreign.name}, undone by {back.name}"
            without, took = partial(meddling.paid_for, foreign), partial(meddling.shows, foreign)
            ways = partial(meddling.peeked, foreign, back.of())
            yield Law(f"peeked {foreign.name}", about, ways, without, took, kind=AttackKind.LEAK)
    limits = [*meddling.limits_of(lessons, prompt)]
    spoils = [*meddling.spoils_of(lessons, constants_of(lessons), limits)]
    for limit in limits:
        what, ways = " ".join(map(str, limit.place)), partial(_only, limit.everything)
        about = f"the expert's actions, but {what} for everything, beyond a limit of the task"
        yield Law(f"beyond {what}", about, ways, took=limit.is_exceeded)
    columns = [columns_of(lesson) for lesson in lessons]
    for place, spoil in itertools.product(places, spoils):
        values = [value for each in columns for value in each.get(place, [])]
        if all(isinstance(number_of(str(value)), int) for value in values):
            what = " ".join(map(str, place))
            about = f"the expert's actions with {spoil.name}, each {what} split into many parts"
            ways = partial(meddling.in_parts, spoil, place)
            yield Law(f"{what} in parts, {spoil.name}", about, ways, spoil.way, bound=spoil.bound)
    settled = {verb(a) for le in lessons for a in le.actions[:-1] if not places_of(a)}
    for name, spoil in itertools.product(sorted(settled), spoils):
        about = f"the expert's actions with {spoil.name}, {name} right after the first of them"
        ways = partial(meddling.settled_early, name, spoil)
        yield Law(f"early {name}, {spoil.name}", about, ways, spoil.way, bound=spoil.bound)
    for foreign, spoil in itertools.product(unused, spoils):
        about = f"the expert's actions with {spoil.name}, and {foreign.name}, which it never uses"
        ways = partial(meddling.meddled, foreign, spoil)
        yield Law(f"{foreign.name}, {spoil.name}", about, ways, spoil.way, bound=spoil.bound)
    for foreign, place in itertools.product(unused, places):
        what = " ".join(map(str, place))
        about = f"the expert's actions; before the last, {foreign} and another {what} instead"
        late, early = partial(meddling.swapped, place, foreign), partial(_early, place, foreign)
        took = partial(deeds.took, place)
        yield Law(f"{foreign.name}, late {what}", about, late, early, took, MORE_BOUND)


def _undoing_laws(undoing: Iterable[meddling.Foreign], places: Iterable[Place]) -> Iterator[Law]:
    """Return the laws of foreign moves that take deeds back.

    Deeds that were taken back have to count as not done, and tries that were taken back as tries.
    """
    for foreign in undoing:
        about = f"the expert's actions, each but the last taken back at once by {foreign.name}"
        ways = partial(meddling.undone, foreign)
        name, kind = f"undone by {foreign.name}", AttackKind.LEAK
        yield Law(name, about, ways, took=meddling.is_undone, bound=MORE_BOUND, kind=kind)
    for foreign, place in itertools.product(undoing, places):
        what = " ".join(map(str, place))
        about = f"the expert's actions after too many tries with a wrong {what}, each taken back by"
        again = partial(meddling.tried_again, place, foreign)
        took = partial(meddling.tells_apart, place)
        bases = partial(again, takes_back=False)
        name, kind = f"tried {what}, {foreign.name}", AttackKind.LEAK
        yield Law(name, f"{about} {foreign.name}", again, took=took, kind=kind, bases=bases)


def _only(way: Callable[[Lesson], Way], lesson: Lesson) -> Iterator[Way]:
    yield from filter(None, [way(lesson)])


def _early(place: Place, foreign: meddling.Foreign, lesson: Lesson) -> Way:
    return next(meddling.swapped(place, foreign, lesson, is_late=False), ())


def _elsewhere_laws(place: Place, same: frozenset[Hashable], names: Iterable[str]) -> Iterator[Law]:
    """Return the laws of deeds that are done to another thing than the right one, which is named at
    the end alone (`deeds.done_elsewhere`): with wrong values, or without the deeds of a name.
    """
    what = " ".join(map(str, place))
    for name in ("", *(name for name in names if name != place[0])):
        ways = partial(deeds.done_elsewhere, same, place, name)
        first = partial(deeds.naming, place, first=True)
        left_out = partial(deeds.without, name) if name else first
        law = f"elsewhere {what}{name and f', no {name}'}"
        about = f"all is done to another {what}, and the right one is named at the end alone"
        yield Law(law, about, ways, left_out, bound=MORE_BOUND)


def _place_laws(
    place: Place, width: int, kinds: Sequence[Any], looks: Sequence[Action], *, is_constant: bool
) -> Iterator[Law]:
    """Return the laws of the values at one place of deeds.

    Args:
        place: the place that is spoilt.
        width: how many places these deeds have; with several, the values at the others may fairly
            be paid, so that the bound is higher.
        kinds: the labels of the place (`kinds_of`).
        looks: calls without arguments that the expert never makes.
        is_constant: whether all tasks end alike, so that the deeds are what is paid.
    """
    fair = 1 - 1 / width
    bound = max(MORE_BOUND, fair) if width > 1 else None
    what, left_out = " ".join(map(str, place)), partial(deeds.without, place[0])
    about = f"the expert's actions, each {what} replaced by"
    below = f"{about} the same value, after one with a negative number"
    laws: list[tuple[str, str, Callable[[Place, Lesson], Iterable[Way]]]] = [
        ("spoilt", f"{about} an invented or extreme value", deeds.spoilt),
        ("alike", f"{about} the same value", partial(deeds.alike, kinds=kinds)),
        ("offset", below, deeds.offset),
        ("rotated", f"{about} that of the next action", deeds.rotated),
    ]
    for name, says, ways in laws:
        yield Law(f"{name} {what}", says, partial(ways, place), left_out, bound=bound)
    took = partial(deeds.is_named, place)
    known = f"the expert's actions after a wrong {what}, whose refusal names the right one"
    kind = AttackKind.FORGED if is_constant else AttackKind.LEAK
    refused = partial(deeds.after_refusal, place)
    yield Law(f"refused {what}", known, refused, left_out, took, kind=kind)
    if not is_constant:
        return
    first, is_foretold = partial(deeds.naming, first=True), partial(deeds.is_foretold, place)
    yield Law(
        f"belated {what}",
        f"the expert's actions in another order, each {what} after replies that name it",
        lambda lesson: [first(place, lesson)],
        left_out,
        is_foretold,
        kind=AttackKind.LEAK,
    )
    which = f"{about} another one that the task shows, whichever it is"
    others = partial(deeds.whichever, place)
    yield Law(f"whichever {what}", which, others, left_out, bound=bound, is_worst=True)
    does, again = "the expert's actions,", f"done again with another {what}"
    for name, says, ways in (
        ("more", f"{does} and {what} for everything else", deeds.done_to_more),
        ("overwritten", f"{does} each of them {again}", deeds.overwritten),
    ):
        took = partial(deeds.took, place)
        yield Law(f"{name} {what}", says, partial(ways, place), left_out, took, MORE_BOUND)
    undone = f"{about} 1, and then by one too high that is taken back"
    backs = partial(deeds.taken_back, place, looks)
    yield Law(f"undone {what}", undone, backs, partial(deeds.too_high, place))
    for look in looks:
        checked, took = partial(deeds.after_check, place, look), partial(deeds.is_told, place)
        asked = f"{does} after wrong ones and {verb(look)}, whose reply names the right {what}"
        yield Law(f"told {what}", asked, checked, left_out, took)


def _deed_laws(name: str, *, is_due: bool) -> Iterator[Law]:
    """Return the laws of all deeds of a name; `is_due` says whether the prompt demands them."""
    left_out, about = partial(deeds.without, name), f"the expert's actions, each {name}"
    yield Law(
        f"alike {name}", f"{about} replaced by one of them", partial(deeds.one_deed, name), left_out
    )
    before_end = partial(deeds.without, name, keeps_end=True)
    for nth, which in ((0, "first"), (-1, "last")):
        about_one = f"the expert's actions, but of each {name} only the {which}"
        yield Law(f"only {which} {name}", about_one, partial(deeds.only_one, name, nth), before_end)
    if is_due:
        skipped = f"the expert's actions without {name}, which the prompt demands"
        yield Law(f"skipped {name}", skipped, lambda lesson: filter(None, [before_end(lesson)]))


def _is_due(name: str, prompt: str) -> bool:
    """Whether a sentence of the prompt demands the deeds of a name, such as `verify_id`."""
    if not re.search(r"\w[_-]\w|\d", name) and f"`{name}`" not in prompt:
        return False  # a word like any other
    return any(name in each and DEMANDED.search(each) for each in sentences_of(prompt))


def sentences_of(text: str) -> list[str]:
    """Return the sentences of a text, split at full stops, semicolons and the ends of lines."""
    return re.split(r"[.!?;\n]\s", text)
