"""Sets of real numbers in a common form: intervals, inequalities, set-builders and unions."""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

from ..proving.canonical import difference
from ..proving.judge import Judge, infinity
from ..proving.probe import Undefined, evaluate
from ..proving.sums import ONE
from ..reading.nodes import INFINITY, Node, TooBig, is_scalar, neg, num, symbols
from .several import MAX_SIGNS, elements, signs

MAX_PIECES = 64
LINE_PRODUCTS = 60
_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "!=": "!=", "=": "="}
_REGIONAL = frozenset({"union", "inter", "minus", "such"})
_ORDER = frozenset({"<", "<=", ">", ">=", "!=", "in"})
# Arbitrary values for letters; no simple relation holds between these numbers.
_GENERIC = (1.3704, 2.6181, 0.7323, 3.1727, 1.8914, 0.4142)


class RegionEnd(NamedTuple):
    """An end of a piece: the numeric place (used for ordering), the exact formula, and whether the
    end point belongs to the set.
    """

    at: float
    node: Node
    closed: bool


class Piece(NamedTuple):
    """An interval; a single point if both ends coincide."""

    low: RegionEnd
    high: RegionEnd


Region = list[Piece]
MINUS_INFINITY = neg(INFINITY)
LOWEST = RegionEnd(float("-inf"), MINUS_INFINITY, False)
HIGHEST = RegionEnd(float("inf"), INFINITY, False)


def is_regional(node: Node) -> bool:
    """Return whether `node` plainly describes a set of reals. A bracket pair alone does not: that
    could be a point.
    """
    if node.op in _REGIONAL:
        return True
    if node.op == "rel":
        return bool(_ORDER & set(node.note.split()))
    if node.op == "bracket":
        return node.note in {"[)", "(]"} or any(infinity(item) for item in node.args)
    if node.op == "list":
        return all(is_regional(item) for item in node.args)
    if node.op == "given":
        return is_regional(node.args[0])
    return node.op == "sym" and node.note == "set R"


def both_regional(gold: Node, answer: Node) -> bool:
    """Return whether two nodes are to be compared as sets of reals: either plainly is such a set,
    and the other may be read as one.
    """
    sides, kinds = (gold, answer), {"bracket", "set", "list"}
    some = any(map(is_regional, sides))
    return some and all(is_regional(side) or side.op in kinds for side in sides)


def to_region(node: Node) -> Region | None:
    """Return the set of reals that `node` describes as sorted, merged pieces, or None for anything
    else.
    """
    match node.op:
        case "union" | "inter" | "minus":
            left, right = to_region(node.args[0]), to_region(node.args[1])
            if left is None or right is None or len(left) + len(right) > MAX_PIECES:
                return None
            if node.op == "union":
                return merged([*left, *right])
            return intersection(left, right if node.op == "inter" else complement(right))
        case "bracket":
            if len(node.args) != 2:
                return None
            low, high = (
                _end(node.args[0], node.note[0] == "["),
                _end(node.args[1], node.note[1] == "]"),
            )
            return None if low is None or high is None else [Piece(low, high)]
        case "set":
            points = [_end(item, True) for item in elements(node)]
            pieces = [Piece(end, end) for end in points if end is not None]
            return merged(pieces) if None not in points else None
        case "such":
            element, condition = node.args
            region = to_region(condition)
            if element.op != "rel" or region is None:
                return region
            within = to_region(element.args[1]) if element.note == "in" else None
            return within and intersection(within, region)
        case "rel" if node.note == "!=" and 0 < signs(node) <= MAX_SIGNS:
            return _region_of_list(Node("list", tuple(elements(node)), 0, "and"))
        case "rel":
            return _relation(node)
        case "list":
            return _region_of_list(node)
        case "sym":
            return [Piece(LOWEST, HIGHEST)] if node.note == "set R" else None
        case "given":
            return to_region(node.args[0])
        case _:
            end = _end(node, True)
            return None if end is None else [Piece(end, end)]


def same_region(gold: Region, answer: Region, judge: Judge) -> bool:
    """Decide whether two sets have the same pieces, with the same ends."""
    if len(gold) != len(answer):
        return judge.decided(
            "set of reals", False, f"{len(answer)} pieces, the gold has {len(gold)}"
        )
    for first, second in zip(gold, answer, strict=True):
        for a, b in ((first.low, second.low), (first.high, second.high)):
            if judge.conventions.brackets and a.closed != b.closed:
                return judge.decided(
                    "set of reals", False, "an end is open on one side and closed on the other"
                )
            if not judge.equal(a.node, b.node):
                return judge.decided("set of reals", False, judge.why_not or "an end differs")
    return judge.decided("set of reals", True)


def _end(node: Node, closed: bool) -> RegionEnd | None:
    sign = infinity(node)
    if sign:
        return HIGHEST if sign > 0 else LOWEST
    if not is_scalar(node):
        return None
    # Letters get generic values, which only order the ends; equality is proven by the judge.
    names = sorted(symbols(node))
    if len(names) > len(_GENERIC):
        return None
    try:
        value, _ = evaluate(node, dict(zip(names, _GENERIC, strict=False)), False)
    except (Undefined, ZeroDivisionError, OverflowError, ValueError):
        return None
    return None if isinstance(value, complex) else RegionEnd(value, node, closed)


def merged(pieces: Region) -> Region:
    """Return the pieces in order, with touching pieces joined."""
    if len(pieces) < 2:
        return pieces
    merged_intervals: Region = []
    for piece in sorted(pieces, key=lambda piece: (piece.low.at, not piece.low.closed)):
        # (2, 1) is empty. With letters in an end the true order is unknown, and the piece stays.
        if piece.low.at > piece.high.at and not symbols(piece.low.node):
            continue
        if merged_intervals:
            last = merged_intervals[-1]
            high, low = last.high, piece.low
            gap, scale = abs(high.at - low.at), max(abs(high.at), abs(low.at))
            meets = gap <= 1e-11 * scale or high.at == low.at  # infinite ends have no gap
            if (high.closed or low.closed) if meets else high.at > low.at:
                merged_intervals.pop()
                end = max(high, piece.high, key=lambda end: (end.at, end.closed))
                piece = Piece(last.low, end)
        merged_intervals.append(piece)
    return merged_intervals


def complement(region: Region) -> Region:
    """Return the real numbers outside `region`."""
    pieces: Region = []
    low = LOWEST
    for piece in merged(region):
        end = piece.low
        if end.at > low.at or (end.at == low.at and low.closed and not end.closed):
            closed = not end.closed and end.at > float("-inf")
            pieces.append(Piece(low, end._replace(closed=closed)))
        low = piece.high._replace(closed=not piece.high.closed)
    if low.at < float("inf"):
        pieces.append(Piece(low, HIGHEST))
    return pieces


_OPPOSITES = {"even": "odd", "odd": "even", "in": "notin", "notin": "in"}


def is_outside(condition: Node, others: list[Node], judge: Judge) -> bool:
    """Return whether a condition plainly holds exactly where none of the others does."""
    opposites = [other._replace(note=_OPPOSITES.get(other.note, "")) for other in others]
    if opposites == [condition]:
        return True
    # A region does not say which variable it is of.
    if not others or symbols(condition) != frozenset().union(*map(symbols, others)):
        return False
    inside, outside = [to_region(other) for other in others], to_region(condition)
    if outside is None or None in inside:
        return False
    pieces = [piece for region in inside for piece in region or ()]
    return len(pieces) <= MAX_PIECES and same_region(complement(pieces), outside, judge)


def intersection(left: Region, right: Region) -> Region:
    """Return the real numbers that belong to both sets."""
    pieces: Region = []
    for first in left:
        for second in right:
            low = max(first.low, second.low, key=lambda end: (end.at, not end.closed))
            high = min(first.high, second.high, key=lambda end: (end.at, end.closed))
            if low.at < high.at or (low.at == high.at and low.closed and high.closed):
                pieces.append(Piece(low, high))
    return merged(pieces)


def _relation(node: Node) -> Region | None:
    signs = node.note.split()
    if signs == ["in"]:
        return to_region(node.args[1]) if is_scalar(node.args[0]) else None
    if (solved := solved_for_one(node)) is not None:
        return solved
    region: Region | None = [Piece(LOWEST, HIGHEST)]
    subject = _subject(node)
    if subject is None or any(sign not in _FLIPPED for sign in signs):
        return None
    for left, sign, right in zip(node.args, signs, node.args[1:], strict=False):
        if right == subject:
            left, sign, right = right, _FLIPPED[sign], left
        if left != subject or region is None:
            return None
        half = _half(sign, right)
        region = None if half is None else intersection(region, half)
    return region


def solved_for_one(node: Node) -> Region | None:
    """Solve an inequality in a single variable that is linear with rational coefficients, such as
    `2x - 3 < 1` or `|x - 1| < 2`; None for any other.
    """
    if len(node.args) != 2:
        return None
    left, right = node.args
    sign = node.note
    named = left.op in {"sym", "call"} and right.op != "func"
    if sign not in _FLIPPED or named or right.op == "sym":
        return None
    if left.op == "func" and left.note == "abs" and sign in {"<", "<=", ">", ">="}:
        if right.op not in {"num", "dec"} or right.value < 0:
            return None
        if (line := _line(left.args[0], num(0))) is None:
            return None
        slope, offset = line
        bounds = sorted((side * Fraction(right.value) - offset) / slope for side in (-1, 1))
        closed = sign in {"<=", ">="}
        inside = sign in {"<", "<="}
        # The complement turns closed ends into open ends, so they are made the other way round.
        low, high = (RegionEnd(float(end), num(end), closed == inside) for end in bounds)
        return [Piece(low, high)] if inside else complement([Piece(low, high)])
    if (line := _line(left, right)) is None:
        return None
    slope, offset = line
    return _half(sign if slope > 0 else _FLIPPED[sign], num(-offset / slope))


def is_unsolved(node: Node) -> bool:
    """Return whether a node is a linear inequality that is not solved yet: `2x > 10`."""
    magnitude = node.op == "rel" and node.args[0].op == "func"
    return node.op == "rel" and not magnitude and solved_for_one(node) is not None


def _line(left: Node, right: Node) -> tuple[Fraction, Fraction] | None:
    """Return (a, b) of left - right = a x + b, or None if the difference is not linear in one
    variable.
    """
    try:
        terms = dict(difference(left, right, LINE_PRODUCTS, clearing=""))
    except (TooBig, ZeroDivisionError, OverflowError):
        return None
    offset = Fraction(terms.pop(ONE, 0))
    if len(terms) != 1:
        return None
    # The only other term has to be a variable, without a symbolic exponent, to the first power.
    ((monomial, slope),) = terms.items()
    linear = len(monomial) == 1 and monomial[0][0][0][0] == "s" and monomial[0][1] == 1
    return (Fraction(slope), offset) if linear and not monomial[0][0][1] else None


def _subject(node: Node) -> Node | None:
    """Return the side that an inequality constrains: the middle of a chain, or the side that is a
    name.
    """
    if len(node.args) == 3:
        return node.args[1]
    if len(node.args) != 2:
        return None
    names = (side for side in node.args if symbols(side) and side.op in {"sym", "call"})
    return next(names, None)


def _half(sign: str, bound: Node) -> Region | None:
    end = _end(bound, sign in {"<=", ">=", "="})
    if end is None:
        return None
    if sign in {"<", "<="}:
        return [Piece(LOWEST, end)]
    if sign in {">", ">="}:
        return [Piece(end, HIGHEST)]
    point = Piece(end._replace(closed=True), end._replace(closed=True))
    return [point] if sign == "=" else complement([point])


def _region_of_list(node: Node) -> Region | None:
    regions = [to_region(item) for item in node.args]
    listed_regions = [region for region in regions if region is not None]
    if len(listed_regions) != len(regions) or sum(map(len, listed_regions)) > MAX_PIECES:
        return None
    # A comma may mean "and" (`x > 1, x < 3`) or "or" (`x < 1, x > 3`). It is read as "and" unless
    # no number meets all conditions.
    if node.note != "or":
        common = listed_regions[0]
        for region in listed_regions[1:]:
            common = intersection(common, region)
        if node.note == "and" or common:
            return common
    return merged([piece for region in listed_regions for piece in region])
