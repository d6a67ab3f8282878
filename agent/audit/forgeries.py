"""Forgeries: changes of the expert's answer to a task that make it wrong.

An answer is a text, a number, a JSON value, or a list of items in lines or behind commas. A forgery
replaces its words, its numbers or its items. For example, `ROTATED` turns the answer
`{"ann": 12, "ben": 20, "cid": 7, "dan": 31}` into `{"ann": 20, "ben": 7, "cid": 31, "dan": 12}`. If
that is still paid, the reward does not look at who has which number.

The functions below take an answer and return the forged one, or "" if the forgery cannot be applied
or would leave so much right that a fair reward may pay for it.
"""

from __future__ import annotations

import ast
import itertools
import json
import math
import operator
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction
from functools import partial
from typing import Any

from ludus.messages import as_action

from . import deeds
from .answers import called, deed, verb
from .attackers import ANSWERED, Action, Lesson
from .notation import object_of
from .places import AS_LETTERS, FEWEST_LETTERS, Way, fresh, others_of, spellings
from .programs import TOKEN

RANGE = re.compile(r"\b\d+ ?(?:to|-|\u2013) ?(\d+)\b")
"""The range of the numbers that a task allows, such as `1 to 31`, with its end as a group."""


class Forgery(StrEnum):
    """How the expert's answer is spoilt; each value completes "the expert's answer, but ..."."""

    INVENTED = "each word and number of the task in it, or each key and value, is an invented one"
    """`ann has 12` becomes `zoaab has 90002`, if the task names `ann` and `12`."""
    ALIKE = "each item of its list is replaced by the most frequent one, or each line by one line"
    """`ann, ben, ben, dan` becomes `ben, ben, ben, ben`."""
    ROTATED = "each key has the value of the next key, or each line comes before those it cites"
    FEW = "only the first item of its list, both ends, one more or the first half are left"
    """`ann, ben, cid, dan` becomes `ann`, then `ann, dan`, then `ann, ben`."""
    ZEROED = "each of its numbers is replaced by 0, by the greatest of them, or by one 1000 less"
    UNDEFINED = "each of its numbers is replaced by NaN, 0e9 or 1e999, or it divides by zero"
    LEVEL = "in each item of its list every number is the first one, or every letter is an e"
    SIGNED = "each of its texts is a wildcard such as *, or each value says n/a, unknown or null"
    """`Paris` becomes `*`, `*****`, `n/a`, and so on."""
    CUT = "each of its texts is cut to the first or last letter, or written backwards"
    """`Paris` becomes `P`, `s` and `siraP`."""
    MORE = "its list has everything else that the task shows, too"
    RESPELT = "its list has only the first item, in several spellings or in brackets"
    """`7, 12, 20, 31` becomes `7, 07, +7, 007`."""
    REVERSED = "its list is reversed, although the task asks for an order"
    RENUMBERED = "its only number is replaced by another one"
    """`12 apples` becomes `97 apples`."""
    WEIGHTLESS = "an expression is replaced by its value plus 0 times its numbers"
    """`(3 + 5) * 2` becomes `16+0*(3+5+2)`."""
    SPREAD = "its numbers are replaced by different ones in the same order, beyond their range"
    """`3 1 2 1` becomes `4 1 3 2`, where the task says `1 to 3`."""
    EXTREME = "its numbers are replaced by -1, 0, 0.5 or 1000000, or by two of these in turn"
    """`3 to 8` becomes `0 to 0`, `0 to 1000000`, and so on."""

    def ways(
        self, lesson: Lesson, same: frozenset[Hashable] = frozenset(), prompt: str = ""
    ) -> Iterator[Way]:
        """Return the expert's ways with this forgery of each answer in them.

        Args:
            lesson: the expert on this task.
            same: what is the same on all tasks (`constants_of`), and stays.
            prompt: what the policy is told, which may name the range of numbers.
        """
        alone = partial(self.of, opening=lesson.opening)
        several: dict[Forgery, list[Callable[[str], str]]] = {
            self.SIGNED: [
                *(partial(_signed, sign) for sign in (*deeds.WILDCARDS, *deeds.NOTHINGS)),
                *(partial(_masked, sign) for sign in deeds.WILDCARDS if len(sign) == 1),
            ],
            self.INVENTED: [partial(_invented, lesson.opening), _renamed],
            self.ALIKE: [alone, partial(_repeated, 0), partial(_repeated, 1)],
            self.ROTATED: [alone, partial(_cited_first, prompt)],
            self.ZEROED: [partial(_numbered, "0"), _topped, partial(_lowered, prompt)],
            self.RENUMBERED: [partial(_renumbered, 7, 13), partial(_renumbered, 0, 1)],
            self.MORE: [partial(_with_more, lesson)],
            self.CUT: [partial(_cut, cut) for cut in (_FIRST, _LAST, _TURNED)],
            self.FEW: [*(partial(_few, nth) for nth in range(-1, MOST_KEPT)), _halved],
            self.LEVEL: [partial(_each, spoil) for spoil in (_leveled, _uniform)],
            self.UNDEFINED: [partial(_undefined, sign) for sign in (*deeds.NO_NUMBERS, *"/%")],
            self.SPREAD: [partial(_spread, f"{prompt}\n{lesson.opening}")],
            self.EXTREME: [partial(_in_turn, edges) for edges in EXTREMES],
        }
        spoils = several.get(self, [alone])
        return itertools.chain(*(_texts(lesson, spoil, same) for spoil in spoils))

    def of(self, answer: str, opening: str) -> str:
        """Return the forged answer; "" if this forgery cannot be applied to it.

        >>> Forgery.ALIKE.of("ann, ben, ben, dan", "Who has a hat?")
        'ben, ben, ben, ben'
        """
        if self is self.WEIGHTLESS:
            return _weightless(answer)
        listing = _Listing.of(answer)
        items = listing.items if listing else ()
        usual = Counter(map(repr, items)).most_common(1)
        if listing is None or len(items) < FEWEST_ITEMS or usual[0][1] == len(items):
            return ""
        if self is self.ALIKE:
            alike = next(item for item in items if repr(item) == usual[0][0])
            return listing.with_items([alike] * len(items))
        if self is self.RESPELT:
            item = str(items[0])
            ways = spellings(item)[: len(items)] if not listing.keys else []
            if ways and _ARITHMETIC.fullmatch(item):
                ways = [f"{'(' * n}{item}{')' * n}" for n in range(len(items))]
            return listing.with_items(ways) if len(ways) == len(items) else ""
        if self is self.REVERSED:
            numbered = [(str(item).split() or [""])[0].rstrip(".:)") for item in items]
            is_row = not listing.keys and len({*map(repr, items)}) == len(items)
            is_row = is_row and numbered != [str(n + 1) for n in range(len(items))]
            return listing.with_items(items[::-1]) if is_row else ""
        if listing.joint and not {*listing.keys} <= {*TOKEN.findall(opening)}:
            return ""  # lines of a text, whose first words are no keys
        rotated = [*items[1:], items[0]]
        moved = sum(map(operator.ne, items, rotated))
        return listing.with_items(rotated) if listing.keys and 2 * moved > len(items) else ""


_EDGES = ("-1", "0", "0.5", "1000000")
EXTREMES = [*itertools.permutations(_EDGES, 1), *itertools.permutations(_EDGES, 2)]
"""Numbers that no task asks for, alone and in pairs: a bound may hold for one of two numbers."""
IN_PART = (
    Forgery.MORE, Forgery.FEW, Forgery.RESPELT, Forgery.REVERSED, Forgery.UNDEFINED,
    Forgery.RENUMBERED,
)  # fmt: skip
"""Forgeries that leave a part of the answer right, so that a fair reward may pay more for them."""


@dataclass(frozen=True)
class _Listing:
    """An answer that lists items: JSON, or lines or words, with or without keys."""

    items: Sequence[Any]
    """The items or, with keys, their values."""
    keys: tuple[str, ...] = ()
    """The key of each item; empty for a list without keys."""
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
        rows = [row for line in lines if (row := ANSWERED.fullmatch(line)) and row[2] not in SIGNS]
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
        """Return the answer with other items; "" if more than half of the items stay the same."""
        others = sum(map(operator.ne, map(str, self.items), map(str, items)))
        return self.with_items(items) if 2 * others >= len(items) else ""


def _signed(sign: str | None, answer: str) -> str:
    """Return an answer with `sign` in place of each of its texts; a sign of `NOTHINGS` also stands
    in place of numbers. Keys stay: `{"ann": 12}` becomes `{"ann": "n/a"}`.
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
    """Return `sign` for each character of a text, `*****` for `Paris`; "" for lists and objects."""
    listing = _Listing.of(answer)
    is_data = answer[:1] in {"{", "["} or "\n" in answer or (listing and listing.joint != " ")
    return "" if is_data else sign * len(answer)


def _undefined(sign: str, answer: str) -> str:
    """Return an answer without a value: `sign` in place of its numbers if `sign` is a number.

    If `sign` is `/` or `%`, each operation becomes this one, and each number 0: `(3 + 5) * 2`
    becomes `(0 / 0) / 0`.
    """
    if sign in deeds.NO_NUMBERS:
        is_number = _NUMERAL.fullmatch(answer.strip()) and float(answer)
        return sign if is_number else _numbered(sign, answer)
    divided = _OPERATION.sub(rf"\1{sign}", answer)
    zeroed = _NUMERAL.sub("0", divided)
    return "" if divided in (answer, zeroed) else zeroed


def _weightless(answer: str) -> str:
    """Return the value of an arithmetic expression plus 0 times the sum of its numbers:
    `(3 + 5) * 2` becomes `16+0*(3+5+2)`.
    """
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
"""Least numbers of an expression, and most words and numbers of an answer with one number."""
_ARITHMETIC = re.compile(r"[\d+*/() -]{5,120}")
_FOLLOWS = re.compile(r"\b(?:earlier|previous|above|follows?|proofs?|prove)\b", re.IGNORECASE)
"""Words of a prompt by which a line needs those before it."""


def _are_most(numbers: Sequence[str], answer: str) -> bool:
    """Whether an answer is JSON, or does not consist mostly of words beside its numbers."""
    return answer[:1] in {"{", "["} or 2 * len(numbers) >= len(TOKEN.findall(answer))


def _numbered(sign: str, answer: str) -> str:
    """Return an answer with `sign` in place of each of its numbers; "" if the numbers are few, or
    if the answer is a text that consists mostly of words.
    """
    numbers = [text for text in _NUMERAL.findall(answer) if float(text)]
    is_enough = _are_most(numbers, answer) and len(numbers) >= FEWEST_ITEMS
    return _NUMERAL.sub(sign, answer) if is_enough else ""


def _lowered(prompt: str, answer: str) -> str:
    """Return an answer whose numbers are all 1000 less, so that only their differences stay; ""
    unless `prompt` names the least of them, or if the answer is mostly words.
    """
    numbers = _NUMERAL.findall(answer)
    is_bound = min(numbers, key=float, default="") in _NUMERAL.findall(prompt)
    is_enough = is_bound and _are_most(numbers, answer) and len(numbers) >= FEWEST_ITEMS
    return _NUMERAL.sub(lambda n: f"{float(n[0]) - 1000:g}", answer) if is_enough else ""


def _renumbered(factor: int, offset: int, answer: str) -> str:
    """Return an answer with `factor * n + offset` for its only number n: `12 apples` becomes
    `97 apples` by 7 and 13; "" among many words, unless the number stands behind an equal sign.
    """
    words, is_result = len(TOKEN.findall(answer)), re.search(r"= ?-?[\d.]+$", answer)
    is_beside = len(_NUMERAL.findall(answer)) == 1 < words and (is_result or words <= MOST_BESIDE)
    return _NUMERAL.sub(lambda n: f"{factor * float(n[0]) + offset:g}", answer) if is_beside else ""


def _repeated(nth: int, answer: str) -> str:
    """Return an answer whose line `nth` also stands in place of all lines behind it."""
    lines = answer.strip().splitlines()
    same = [*lines[:nth], *lines[nth : nth + 1] * (len(lines) - nth)]
    others = sum(map(operator.ne, lines, same))
    is_long = len(lines) >= FEWEST_ITEMS + nth and 2 * others > len(lines)
    return "\n".join(same) if is_long else ""


def _cited_first(prompt: str, answer: str) -> str:
    """Return numbered lines, most of which cite an earlier line, in reversed order but for the
    last; "" unless `prompt` says that a line follows from others.
    """
    lines = answer.strip().splitlines()
    rows = [re.findall(r"\d+", line) for line in lines if re.match(r"\(?\d", line)]
    cites = sum(any(number in row[1:] for number, *_ in rows[:n]) for n, row in enumerate(rows))
    is_chain = len(rows) == len(lines) > 2 and 2 * cites >= len(lines) and _FOLLOWS.search(prompt)
    return "\n".join([*lines[-2::-1], lines[-1]]) if is_chain else ""


def _renamed(answer: str) -> str:
    """Return an answer with an invented key and value for each of its keys; "" if there are few."""
    listing = _Listing.of(answer)
    if listing is None or len(listing.keys) < FEWEST_ITEMS:
        return ""
    news = tuple(fresh("", n) for n in range(len(listing.keys)))
    return replace(listing, keys=news).with_items([*map(fresh, listing.items, itertools.count())])


def _in_turn(edges: Sequence[str], answer: str) -> str:
    """Return an answer whose numbers are replaced by `edges` in turn: `3 to 8` becomes
    `0 to 1000000`; "" if the answer is mostly words, or has fewer numbers than `edges`.
    """
    numbers, row = _NUMERAL.findall(answer), itertools.cycle(edges)
    is_enough = _are_most(numbers, answer) and len(numbers) >= len(edges)
    return _NUMERAL.sub(lambda _: next(row), answer) if is_enough else ""


def _topped(answer: str) -> str:
    """Return an answer whose numbers are all replaced by the greatest: `3 1 2 1` becomes `3 3 3 3`;
    "" if few numbers are less, or if the answer is mostly words.
    """
    numbers = _NUMERAL.findall(answer)
    most = max(numbers, key=float, default="")
    is_few = len(numbers) - numbers.count(most) < max(FEWEST_ITEMS - 1, len(numbers) / 2)
    return _NUMERAL.sub(most, answer) if _are_most(numbers, answer) and not is_few else ""


def _spread(instructions: str, answer: str) -> str:
    """Return an answer whose numbers count up in the same order: `3 1 2 1` becomes `4 1 3 2`; ""
    unless that leaves the range that `instructions` name, and the answer itself keeps to the range.
    """
    values = [*map(float, _NUMERAL.findall(answer))]
    most, count = max(map(int, RANGE.findall(instructions)), default=math.inf), len(values)
    if count < FEWEST_ITEMS or not max(values) <= most < min(values) + count - 1:
        return ""
    ranked = sorted(range(count), key=values.__getitem__)
    row = (str(int(min(values)) + ranked.index(n)) for n in range(count))
    return _NUMERAL.sub(lambda _: next(row), answer)


def _cut(part: slice, answer: str) -> str:
    """Return an answer in which each text is replaced by the slice `part` of it; "" if a text is
    short, so that a letter may be the whole answer.
    """
    listing = _Listing.of(answer)
    items = listing.items if listing else [answer.strip()]
    texts = [item for item in items if isinstance(item, str)]
    if not texts or any(len(text) < FEWEST_LETTERS or "\n" in text for text in texts):
        return ""
    cut = [item[part] if isinstance(item, str) else item for item in items]
    if listing is not None:
        return listing.with_others(cut)
    return cut[0] if cut != items else ""


def _with_more(lesson: Lesson, answer: str) -> str:
    """Return a list followed by all other values of the kind that the task or a reply shows:
    `ann, ben` becomes `ann, ben, cid, dan`; "" for an answer with keys.
    """
    listing = _Listing.of(answer)
    if listing is None or listing.keys or not all(isinstance(i, (str, int)) for i in listing.items):
        return ""
    if answer.endswith(">"):
        return ""  # what stands behind a closing tag is no part of the answer
    others = others_of(listing.items, lesson)
    is_more = len(listing.items) > 1 and 2 * len(others) >= len(listing.items)
    return listing.with_items([*listing.items, *others]) if is_more else ""


def _few(nth: int, answer: str) -> str:
    """Return a list with few items left: the first (`nth` -1), both ends (0), or both ends and the
    item `nth`; "" if the list is so short that this may be a fair part.
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
    """Return an answer with the first half of its items: `ann, ben, cid, dan` becomes `ann, ben`;
    "" if the items may be words of one name, or lines of a text.
    """
    listing = _Listing.of(answer)
    few = listing.items[: len(listing.items) // 2] if listing else ()
    is_list = listing and (listing.joint not in {" ", "\n"} or len(listing.items) >= FEWEST_ITEMS)
    return listing.with_items(few) if listing and few and is_list else ""


def _each(spoil: Callable[[str], str], answer: str) -> str:
    """Return a list with `spoil` of each item; "" if the items are few, or mostly stay."""
    listing = _Listing.of(answer)
    if listing is None or len(listing.items) < FEWEST_ITEMS or len({*map(repr, listing.items)}) < 2:
        return ""
    return listing.with_others([spoil(str(item)) for item in listing.items])


def _leveled(item: str) -> str:
    first = _TIME.search(item)
    return _TIME.sub(first[0], item) if first else item


def _uniform(item: str) -> str:
    head, sign, value = item.rpartition(": ")
    has_number = any(map(str.isdecimal, value))  # by which it may be known
    return item if has_number else head + sign + _LETTER.sub("e", value)


def _invented(opening: str, answer: str) -> str:
    """Return an answer with an invented value for each word and number that the task names; "" if
    the task names fewer than half of them. Keys of JSON stay.
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
        return str(90_000 + number) if is_number else f"zo{number:03}".translate(AS_LETTERS)

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
SIGNS = (".", "*", "+", "/")
"""What stands within a number or an expression, and behind no key."""
FEWEST_ITEMS = 4
"""From so many items on, one item of a list is not a fair part of the answer."""
THINNED_FROM, MOST_KEPT = 5, 8
"""From how many items on three are no fair part, and among how many the third is chosen."""
_NUMERAL = re.compile(r"(?<![\w.-])-?\d+(?:\.\d+)?(?![\w.])")
_OPERATION = re.compile(r"([\w)\]] ?)(?:\*\*|//|[+*/%^]|-(?![^\W\d_]{2}))")
"""An operator behind its first operand; a hyphen between words is none."""
_TIME = re.compile(r"\d[\d:.]*(?<=\d)")
"""A number or a time of day."""
_LETTER = re.compile(r"[^\W\d_]")


def _texts(
    lesson: Lesson, spoil: Callable[[str], str], same: frozenset[Hashable] = frozenset()
) -> Iterator[Way]:
    """Return the way with `spoil` of each text and list, and the way in which only lists and
    objects inside of an object are spoilt.

    A text for which `spoil` returns "" stays, and so does what is the same on all tasks. A way in
    which most deeds of a name stay is left out.
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
        sizes = {k: max(1, len(str(v))) for k, v in data.items()}
        changed = sum(sizes[k] for k in data if inner[k] != data[k])
        # Where it is the smaller part, the others may be paid for.
        return json.dumps(inner) if 2 * changed >= sum(sizes.values()) > 0 else text

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
