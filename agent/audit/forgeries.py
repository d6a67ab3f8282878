"""What the expert does on a task, spoilt in a way of known effect: whoever is still paid for the
rest shows what the reward does not ask for.

A transformation whose effect is known needs no list of flaws and no second judge.
"""

from __future__ import annotations

import ast
import itertools
import json
import math
import operator
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction
from functools import partial
from typing import Any

from ludus.envs import Briefing
from ludus.messages import as_action

from . import deeds
from .answers import Place, called, deed, verb
from .attackers import ANSWERED, Action, AttackKind, Lesson, number_of
from .deeds import Way
from .meddling import Foreign, foreign_of, in_parts, limits_of, meddled, spoils_of, swapped
from .notation import Plan, object_of
from .programs import TOKEN
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
RANGE = re.compile(r"\b\d+ ?(?:to|-|\u2013) ?(\d+)\b")
"""Numbers that are all there are."""
PRICED = re.compile(r"\b(?:costs?|price|pays? for|charge[sd]?|penalty|loses?|fee)\b", re.IGNORECASE)
"""What says that something has a price."""
DEMANDED = re.compile(
    r"\b(?:must|always|required|mandatory|before any|only (?:after|once)|never\b.*\bwithout)\b",
    re.IGNORECASE,
)
"""Words that demand a deed."""


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
        """Return the law of the lines of plans; None for what replies have to show, for an order
        that may be any, and for what is done to answers as they are.
        """
        if self.took is not Law.took or self.name.startswith(("forged", "backwards")):
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
    same = deeds.constants_of(lessons)
    for forgery in Forgery:
        bound = MORE_BOUND if forgery in IN_PART else None
        about = f"the expert's answer: {forgery}"
        if is_ordered or forgery is not Forgery.REVERSED:
            ways = partial(forgery.ways, same=same, told=told)
            yield Law(f"forged {forgery.name.lower()}", about, ways, bound=bound)
    columns = [deeds.columns_of(lesson) for lesson in lessons]
    is_constant = len({deed(lesson.actions[-1]) for lesson in lessons}) == 1
    names = Counter(n for le in lessons for n in {*map(verb, le.actions)})
    for place, times in Counter(place for each in columns for place in each).items():
        values = {repr(each.get(place)) for each in columns}
        if is_constant and len(values) > 1:
            yield from _elsewhere_laws(place, same, names)
        # What is the same everywhere is not asked for.
        if 2 * times > len(lessons) < 2 * len(values):
            width = max(sum(at[0] == place[0] for at in each) for each in columns)
            kinds = deeds.kinds_of(place, lessons)
            yield from _place_laws(place, width, kinds, looks, is_constant=is_constant)
    for name, times in names.items():
        if 2 * times > len(lessons):
            yield from _deed_laws(name, is_ordered=is_ordered, is_due=_is_due(name, told))
    if is_constant:
        about = "what the expert does with something else, and what it does once again and again"
        ways = partial(deeds.again, deeds.said_once(lessons))
        yield Law("again", about, ways, bases=partial(ways, times=1), bound=MORE_BOUND)
    about = "what the expert does, with the same number for all that the tasks do not share"
    yield Law("one number", about, partial(deeds.one_number, same))
    about = "the first thing that the expert says, and nothing in place of all others"
    yield Law("hollow", about, deeds.hollowed, lambda lesson: lesson.actions[:1])
    about = "what the expert does, after all of it was done wrongly and was answered with the right"
    ways, took = partial(deeds.failed_first, same), partial(deeds.is_shown, same)
    yield Law("failed first", about, ways, took=took, kind=AttackKind.LEAK)
    yield from _unused_laws(looks, peeks, told)


def meddling_laws(briefing: Briefing, lessons: Sequence[Lesson], told: str) -> Iterator[Law]:
    """Return the laws of ways with a move that the expert never uses."""
    limits = [*limits_of(lessons, told)]
    spoils = [*spoils_of(lessons, deeds.constants_of(lessons), limits)]
    for limit in limits:
        what, ways = " ".join(map(str, limit.place)), partial(_only, limit.everything)
        about = f"what the expert does, but {what} everything, beyond a number that it keeps to"
        yield Law(f"beyond {what}", about, ways, took=limit.is_exceeded)
    places = dict.fromkeys(at for lesson in lessons for at in deeds.columns_of(lesson))
    columns = [deeds.columns_of(lesson) for lesson in lessons]
    for place, spoil in itertools.product(places, spoils):
        values = [value for each in columns for value in each.get(place, [])]
        if all(isinstance(number_of(str(value)), int) for value in values):
            what = " ".join(map(str, place))
            about = f"what the expert does with {spoil.name}, each {what} in parts"
            ways = partial(in_parts, spoil, place)
            yield Law(f"{what} in parts, {spoil.name}", about, ways, spoil.way, bound=spoil.bound)
    unused = foreign_of(briefing, lessons, told)
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


def _unused_laws(looks: Sequence[Action], peeks: Sequence[Way], told: str) -> Iterator[Law]:
    """Return the laws of what the expert never uses and shows something."""
    for row in peeks:
        name, ways = verb(row[0]), partial(_behind, row)
        if any(name in sentence and PRICED.search(sentence) for sentence in sentences_of(told)):
            about = f"what the expert does after {name}, which has a price and shows what is asked"
            paid_for, shows = partial(_row, row), deeds.shows_deeds
            yield Law(
                f"free {name}", about, ways, paid_for, shows, MORE_BOUND, kind=AttackKind.LEAK
            )
    for row, back in itertools.product(peeks, looks):
        if verb(row[0]) != verb(back):
            about = f"what the expert does after {verb(row[0])}, which {verb(back)} makes free"
            ways, paid_for = partial(deeds.peeked, row, back), partial(_after, row)
            name = f"peeked {verb(row[0])}"
            yield Law(name, about, ways, paid_for, deeds.shows_answer, kind=AttackKind.LEAK)


def _row(row: Way, lesson: Lesson) -> Way:
    return row


def _behind(row: Way, lesson: Lesson) -> Iterator[Way]:
    yield _after(row, lesson)


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
        ("late", f"{does} before the end all deeds {again}", deeds.changed_late),
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


def _deed_laws(name: str, *, is_ordered: bool, is_due: bool) -> Iterator[Law]:
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
    if is_ordered:
        ways, what = partial(deeds.backwards, name), f"backwards {name}"
        yield Law(what, f"{about} in reverse", ways, left_out, bound=MORE_BOUND)


def _is_due(name: str, told: str) -> bool:
    """Whether a sentence demands a tool or command, by its whole name."""
    if not re.search(r"\w[_-]\w|\d", name) and f"`{name}`" not in told:
        return False  # a word like any other
    return any(name in each and DEMANDED.search(each) for each in sentences_of(told))


def sentences_of(told: str) -> list[str]:
    """Return the sentences and clauses of a text."""
    return re.split(r"[.!?;\n]\s", told)


class Forgery(StrEnum):
    """How the expert's answer is spoilt."""

    INVENTED = "each word and number of the task in it is an invented one"
    ALIKE = "each item of its list is the most frequent of them"
    ROTATED = "each key has the value of the next one"
    FEW = "only the first item of its list, its ends, one more, or the first half are left"
    ZEROED = "each of its numbers is zero, or the greatest of them"
    UNDEFINED = "each of its numbers is none, or it divides by zero"
    LEVEL = "in each item of its list, every number is the first one, or every letter an e"
    SIGNED = "each of its texts means any other, sign by sign, or each value is not applicable"
    CUT = "each of its texts is its first letter, or its last, or backwards"
    REPEATED = "each of its lines is the first one"
    MORE = "its list holds everything else of its kind, too"
    REVERSED = "its list, of which an order is asked, is reversed"
    RENUMBERED = "its only number is another one"
    WEIGHTLESS = "its value, and nothing times its numbers"
    SPREAD = "its numbers all differ, and go beyond those that there are"

    def ways(
        self, lesson: Lesson, same: frozenset[Hashable] = frozenset(), told: str = ""
    ) -> Iterator[Way]:
        """Return the way with each text, list or number list in it spoilt, but those that are the
        same on all tasks.
        """
        several: dict[Forgery, list[Callable[[str], str]]] = {
            self.SIGNED: [
                *(partial(_signed, sign) for sign in (*deeds.WILDCARDS, *deeds.NOTHINGS)),
                *(partial(_masked, sign) for sign in deeds.WILDCARDS if len(sign) == 1),
            ],
            self.ZEROED: [lambda text: self.of(text, lesson.opening), _topped],
            self.MORE: [partial(_with_more, lesson)],
            self.CUT: [partial(_cut, cut) for cut in (_FIRST, _LAST, _TURNED)],
            self.FEW: [*(partial(_few, nth) for nth in range(-1, MOST_KEPT)), _halved],
            self.LEVEL: [partial(_each, spoil) for spoil in (_leveled, _uniform)],
            self.UNDEFINED: [partial(_undefined, sign) for sign in (*deeds.NO_NUMBERS, *"/%")],
            self.SPREAD: [partial(_spread, f"{told}\n{lesson.opening}")],
        }
        spoils = several.get(self, [lambda text: self.of(text, lesson.opening)])
        return itertools.chain(*(_texts(lesson, spoil, same) for spoil in spoils))

    def of(self, answer: str, opening: str) -> str:
        """Return the spoilt answer to a task, or "" where nothing in the answer can be spoilt."""
        if self is self.INVENTED:
            return _invented(answer, opening)
        if self is self.ZEROED:
            return _numbered("0", answer)
        if self is self.RENUMBERED:
            is_beside = (
                len(_NUMERAL.findall(answer)) == 1 < len(TOKEN.findall(answer)) <= MOST_BESIDE
            )
            return _NUMERAL.sub(lambda n: f"{7 * float(n[0]) + 13:g}", answer) if is_beside else ""
        if self is self.WEIGHTLESS:
            return _weightless(answer)
        if self is self.REPEATED:
            lines = answer.strip().splitlines()
            is_list = len({*lines}) == len(lines) >= FEWEST_ITEMS
            return "\n".join(lines[:1] * len(lines)) if is_list else ""
        listing = _Listing.of(answer)
        items = listing.items if listing else ()
        usual = Counter(map(repr, items)).most_common(1)
        if listing is None or len(items) < FEWEST_ITEMS or usual[0][1] == len(items):
            return ""
        if self is self.ALIKE:
            alike = next(item for item in items if repr(item) == usual[0][0])
            return listing.with_items([alike] * len(items))
        if self is self.REVERSED:
            is_row = not listing.keys and len({*map(repr, items)}) == len(items)
            return listing.with_items(items[::-1]) if is_row else ""
        if listing.joint and not {*listing.keys} <= {*TOKEN.findall(opening)}:
            return ""  # lines of a text, whose first words are no keys
        rotated = [*items[1:], items[0]]
        moved = sum(map(operator.ne, items, rotated))
        return listing.with_items(rotated) if listing.keys and 2 * moved > len(items) else ""


IN_PART = (
    Forgery.MORE, Forgery.FEW, Forgery.REVERSED, Forgery.UNDEFINED, Forgery.RENUMBERED,
)  # fmt: skip
"""What leaves a part of an answer right, which may be paid for."""


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
        """Read an answer; None if the answer lists nothing."""
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

    def with_others(self, items: Sequence[Any]) -> str:
        """Return the answer with other items; "" where most stay, which may be paid for."""
        others = sum(map(operator.ne, map(str, self.items), map(str, items)))
        return self.with_items(items) if 2 * others >= len(items) else ""


def _signed(sign: str | None, answer: str) -> str:
    """Return an answer with a sign for each of its texts, or with one of nothing for each of its
    values; keys stay.
    """
    listing = _Listing.of(answer)
    is_data = listing is not None and not listing.joint
    if listing is None or (listing.joint and not listing.keys):
        return "" if answer[:1] in {"{", "["} else sign or ""
    if sign is None and not is_data:
        return ""
    are_all = sign in deeds.NOTHINGS
    signed = [sign if are_all or isinstance(each, str) else each for each in listing.items]
    return listing.with_others(signed)


def _masked(sign: str, answer: str) -> str:
    """Return a text with a sign for each of its signs; "" for a list or an object."""
    listing = _Listing.of(answer)
    is_data = answer[:1] in {"{", "["} or "\n" in answer or (listing and listing.joint != " ")
    return "" if is_data else sign * len(answer)


def _undefined(sign: str, answer: str) -> str:
    """Return an answer that has no value: with a sign for each of its numbers, if it has several
    or nothing else, or with each operation a division, by zero where a number was.
    """
    if sign in deeds.NO_NUMBERS:
        is_number = _NUMERAL.fullmatch(answer.strip()) and float(answer)
        return sign if is_number else _numbered(sign, answer)
    divided = _OPERATION.sub(rf"\1{sign}", answer)
    zeroed = _NUMERAL.sub("0", divided)
    return "" if divided in (answer, zeroed) else zeroed


def _weightless(answer: str) -> str:
    """Return an arithmetic expression as its value, to which its numbers add nothing."""
    numbers = re.findall(r"\d+", answer)
    if len(numbers) < FEWEST_OPERANDS or not _ARITHMETIC.fullmatch(answer.strip()):
        return ""
    try:
        value = _valued(ast.parse(answer.strip(), mode="eval").body)
    except (SyntaxError, ValueError, ArithmeticError, RecursionError, MemoryError):
        return ""
    return f"{value}+0*({'+'.join(numbers)})" if value.denominator == 1 else ""


def _valued(node: ast.expr) -> Fraction:
    """Return the value of a node of an arithmetic expression of whole numbers.

    Raises:
        ValueError: the node is something else.
    """
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return Fraction(node.value)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_valued(node.operand)
    if isinstance(node, ast.BinOp) and type(node.op) in _CALCULATES:
        return _CALCULATES[type(node.op)](_valued(node.left), _valued(node.right))
    raise ValueError("no arithmetic of whole numbers")


_CALCULATES: dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
FEWEST_OPERANDS, MOST_BESIDE = 3, 6
"""Numbers of an expression, and words beside a number that are not paid for themselves."""
_ARITHMETIC = re.compile(r"[\d+*/() -]{5,120}")


def _numbered(sign: str, answer: str) -> str:
    """Return an answer with a sign for each of its numbers; "" where there are few, or where most
    of a text is words, which may be paid for.
    """
    numbers = [text for text in _NUMERAL.findall(answer) if float(text)]
    is_most = answer[:1] in {"{", "["} or 2 * len(numbers) >= len(TOKEN.findall(answer))
    return _NUMERAL.sub(sign, answer) if is_most and len(numbers) >= FEWEST_ITEMS else ""


def _topped(answer: str) -> str:
    """Return an answer with its greatest number for each of them; "" where few are less, or where
    most of a text is words.
    """
    numbers = _NUMERAL.findall(answer)
    most = max(numbers, key=float, default="")
    is_most = answer[:1] in {"{", "["} or 2 * len(numbers) >= len(TOKEN.findall(answer))
    is_few = len(numbers) - numbers.count(most) < max(FEWEST_ITEMS - 1, len(numbers) / 2)
    return "" if is_few or not is_most else _NUMERAL.sub(most, answer)


def _spread(told: str, answer: str) -> str:
    """Return an answer whose whole numbers all differ, in the order that they have; "" where they
    stay within the ranges that are told, or are outside already.
    """
    values = [*map(float, _NUMERAL.findall(answer))]
    most, count = max(map(int, RANGE.findall(told)), default=math.inf), len(values)
    if count < FEWEST_ITEMS or not max(values) <= most < min(values) + count - 1:
        return ""
    ranked = sorted(range(count), key=values.__getitem__)
    row = (str(int(min(values)) + ranked.index(n)) for n in range(count))
    return _NUMERAL.sub(lambda _: next(row), answer)


def _cut(part: slice, answer: str) -> str:
    """Return an answer with a part of each of its texts alone; "" where they are short, so that a
    letter may be the whole answer.
    """
    listing = _Listing.of(answer)
    items = listing.items if listing else [answer.strip()]
    texts = [item for item in items if isinstance(item, str)]
    if not texts or any(len(text) < deeds.FEWEST_LETTERS or "\n" in text for text in texts):
        return ""
    cut = [item[part] if isinstance(item, str) else item for item in items]
    if listing is not None:
        return listing.with_others(cut)
    return cut[0] if cut != items else ""


def _with_more(lesson: Lesson, answer: str) -> str:
    """Return a list with everything else of its kind that the task or a reply shows."""
    listing = _Listing.of(answer)
    if listing is None or listing.keys or not all(isinstance(i, (str, int)) for i in listing.items):
        return ""
    rest = deeds.others_of(listing.items, lesson)
    is_more = len(listing.items) > 1 and 2 * len(rest) >= len(listing.items)
    return listing.with_items([*listing.items, *rest]) if is_more else ""


def _few(nth: int, answer: str) -> str:
    """Return a list of which the first item, its ends, or its ends and the nth item are left; ""
    where that may be a fair part.
    """
    listing = _Listing.of(answer)
    least = FEWEST_ITEMS if nth < 1 else max(THINNED_FROM, nth + 2)
    if listing is None or len(listing.items) < least or (listing.keys and nth >= 0):
        return ""
    if len({*map(repr, listing.items)}) == 1:
        return ""
    first, last, other = listing.items[:1], listing.items[-1:], listing.items[nth : nth + 1]
    return listing.with_items([*first, *(other if nth > 0 else ()), *(last if nth >= 0 else ())])


def _halved(answer: str) -> str:
    """Return an answer with the first half of its items; "" where they may be one name, or a line
    that leads to the answer.
    """
    listing = _Listing.of(answer)
    few = listing.items[: len(listing.items) // 2] if listing else ()
    is_list = listing and (listing.joint not in {" ", "\n"} or len(listing.items) >= FEWEST_ITEMS)
    return listing.with_items(few) if listing and few and is_list else ""


def _each(spoil: Callable[[str], str], answer: str) -> str:
    """Return a list with each of its items spoilt."""
    listing = _Listing.of(answer)
    if listing is None or len(listing.items) < FEWEST_ITEMS or len({*map(repr, listing.items)}) < 2:
        return ""
    return listing.with_others([spoil(str(item)) for item in listing.items])


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
        return str(90_000 + number) if is_number else f"zo{number:03}".translate(deeds.AS_LETTERS)

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


_FIRST, _LAST, _TURNED = slice(0, 1), slice(-1, None), slice(None, None, -1)
JOINTS = ("\n", " -> ", " > ", " \u2192 ", "; ", ", ", ",", " ")
"""What stands between the items of a list."""
FEWEST_ITEMS = 4
"""Items of a list of which the first alone, or one said for all, is no fair part."""
THINNED_FROM, MOST_KEPT = 5, 8
"""Items of a list of which three are no fair part, and places from which the third is taken."""
_NUMERAL = re.compile(r"(?<![\w.-])-?\d+(?:\.\d+)?(?![\w.])")
_OPERATION = re.compile(r"([\w)\]] ?)(?:\*\*|//|[+*/%^]|-(?![^\W\d_]{2}))")
"""What combines two values, behind the first of them or behind both; no hyphen of a word."""
_TIME = re.compile(r"\d[\d:.]*(?<=\d)")
"""A number or a time of day."""
_LETTER = re.compile(r"[^\W\d_]")


def _texts(
    lesson: Lesson, spoil: Callable[[str], str], same: frozenset[Hashable] = frozenset()
) -> Iterator[Way]:
    """Return the way with each of its texts, lists and number lists spoilt, if any is, and the way
    in which only those are that stand within an object; a spoilt text is empty where it cannot be.
    What is the same on all tasks stays.
    """

    def spoilt(value: Any) -> Any:
        if isinstance(value, (list, dict)):
            try:
                return json.loads(spoil(json.dumps(value)) or json.dumps(value))
            except ValueError:  # spoilt so that it is no JSON any more
                return value
        return (isinstance(value, str) and spoil(value)) or value

    def within(text: str) -> str:
        data = object_of(text)
        inner = {k: spoilt(v) if isinstance(v, (list, dict)) else v for k, v in data.items()}
        changed = sum(map(operator.ne, data.values(), inner.values()))
        # Where it is the smaller part, the others may be paid for.
        return json.dumps(inner) if 2 * changed >= len(data) > 0 else text

    def of(spoils: Callable[[str], str], action: Action) -> Action:
        message = as_action(action)
        if not message.tool_calls:
            listing = _Listing.of(message.text)
            is_answer = is_only_text or (listing and listing.joint != " ")
            is_answer = is_answer and deed(action) not in same
            return spoils(message.text) if is_answer else action  # others are commands or talk
        return called(
            message,
            [
                {n: v if ((c.name, n), repr(v)) in same else spoilt(v) for n, v in given.items()}
                for c in message.tool_calls
                for given in [c.arguments]
            ],
        )

    is_only_text = all(as_action(action).tool_calls for action in lesson.actions[:-1])
    ways = [[of(spoils, action) for action in lesson.actions] for spoils in (spoilt, within)]
    for n, way in enumerate(ways):
        pairs = [*zip(lesson.actions, way, strict=True)]
        names = {verb(action) for action, other in pairs if action != other}
        rows = [pair for pair in pairs if verb(pair[0]) in names]
        # Where most deeds of a name stay, these may be paid for.
        if way not in ways[:n] and rows and 2 * sum(a != b for a, b in rows) >= len(rows):
            yield way
