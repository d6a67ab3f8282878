"""A formula and a function by cases: `|x - 2|`, and `x - 2` for `x >= 2`, else `2 - x`.

Each branch is compared with the formula at several places where its condition holds, and the
branches have to leave no place out where the formula has a value.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from ..proving.judge import Judge
from ..proving.probe import approximate
from ..reading.nodes import Node, is_scalar, num, replaced, sym, symbols
from .naming import branches
from .regions import HIGHEST, LOWEST, Piece, Region, complement, merged, to_region

_STEPS = (Fraction(1, 7), Fraction(5, 3), Fraction(13, 4), Fraction(29, 3), Fraction(211, 2))
"""How far from its end a half line is looked at."""
_SHARES = (Fraction(1, 9), Fraction(2, 7), Fraction(5, 11), Fraction(7, 10), Fraction(16, 17))
_NUMBERS = {"odd": (1, 3, 7, 19, 43), "even": (2, 4, 10, 26, 64)}
MAX_BRANCHES = 6


def same_by_cases(formula: Node, cases: Node, judge: Judge) -> bool | None:
    """Decide whether a formula of one letter is a function by cases; None where the conditions
    are not understood.
    """
    names = symbols(formula)
    if not is_scalar(formula) or len(names) != 1 or len(cases.args) > 2 * MAX_BRANCHES:
        return None
    letter = sym(names.pop())
    if (places := _places(formula, cases, letter)) is None:
        return None
    return all(
        judge.equal(replaced(formula, letter, place), replaced(value, letter, place))
        for value, place in places
    )


def _places(formula: Node, cases: Node, letter: Node) -> list[tuple[Node, Node]] | None:
    """Return (value, place) pairs for all branches, or None."""
    pairs = [(branch.args[0], branch.args[1]) for branch in branches(cases)]
    conditions = [condition for _, condition in pairs]
    if not all(is_scalar(value) and symbols(value) <= {letter.note} for value, _ in pairs):
        return None
    kinds = [condition.note if condition.args == (letter,) else "" for condition in conditions]
    if sorted(kinds) == ["even", "odd"]:
        numbers = [(value, _NUMBERS[kind]) for (value, _), kind in zip(pairs, kinds, strict=True)]
        return [(value, num(number)) for value, some in numbers for number in some]
    regions = [to_region(c) if symbols(c) == {letter.note} else None for c in conditions]
    stated = [piece for region in regions for piece in region or ()]
    if conditions[-1].note == "otherwise":
        regions[-1] = complement(merged(stated))
    if None in regions or not stated:
        return None
    missing = complement(merged([piece for region in regions for piece in region or ()]))
    for piece in missing:
        value = approximate(replaced(formula, letter, piece.low.node))
        if piece.low.at != piece.high.at or value is not None:
            return None
    return [
        (value, place)
        for (value, _), region in zip(pairs, regions, strict=True)
        for place in _inside(region or [])
    ]


def _inside(region: Region) -> Iterator[Node]:
    """Yield places of a region: its ends, and some between."""
    for piece in region:
        yield from (end.node for end in (piece.low, piece.high) if end.closed)
        yield from map(num, _between(piece))


def _between(piece: Piece) -> list[Fraction]:
    ends = (piece.low, piece.high)
    low, high = (None if end in (LOWEST, HIGHEST) else Fraction(end.at) for end in ends)
    if low is not None and high is not None:
        return [(low + share * (high - low)).limit_denominator(10**6) for share in _SHARES]
    start = low if low is not None else high or Fraction(0)
    turn = -1 if low is None and high is not None else 1
    places = [(start + turn * step).limit_denominator(10**6) for step in _STEPS]
    return places + ([-place for place in places] if low is None and high is None else [])
