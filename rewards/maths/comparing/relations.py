"""Comparison of equations, inequalities and definitions with each other."""

from __future__ import annotations

from fractions import Fraction

from ..proving.canonical import NAMES, SUMS, difference
from ..proving.judge import Judge, NeedsPool
from ..proving.sums import Sum
from ..reading.nodes import Node, TooBig, add, is_scalar, neg, walk

FLIPPED = {
    "<": ">", "<=": ">=", ">": "<", ">=": "<=", "subset": "supset", "subseteq": "supseteq",
    "supset": "subset", "supseteq": "subseteq", "in": "ni", "ni": "in", "ll": "gg", "gg": "ll",
    "prec": "succ", "succ": "prec",
    **{sign: sign for sign in ("=", "!=", "~=", "==", "||", "perp", "cong", "sim", "asymp")},
}  # fmt: skip
"""Each sign with the sign that results from reading the relation from right to left."""
_PROPORTIONAL = frozenset({"=", "!=", "<", "<="})
"""Signs that still hold when both sides are multiplied by a positive number."""


def same_relation(gold: Node, answer: Node, judge: Judge) -> bool:
    """Decide whether two equations or inequalities say the same.

    Two equations are equal if the differences of their sides are proportional; for inequalities
    the factor must be positive.
    """
    first, second = _oriented(gold), _oriented(answer)
    if first is None or second is None or first[0] != second[0]:
        return judge.decided("relation", False, "the relations are of different kinds")
    if first[0] not in _PROPORTIONAL:
        pairs = [second[1], second[1][::-1]] if FLIPPED.get(first[0]) == first[0] else [second[1]]
        return any(
            judge.equal(first[1][0], left) and judge.equal(first[1][1], right)
            for left, right in pairs
        )
    if first[0] in {"=", "!="} and gold.args == answer.args[::-1]:
        return judge.decided("relation", True)
    try:
        # Denominators may be multiplied out of an equation only: in an inequality the unknown sign
        # of a denominator decides whether the relation turns round.
        clearing = SUMS + NAMES if first[0] in {"=", "!="} else ""
        ratio = _ratio(
            difference(*first[1], judge.products, clearing=clearing),
            difference(*second[1], judge.products, clearing=clearing),
        )
    except TooBig as error:
        if judge.deep is None:
            raise NeedsPool from error
        ratio = None
    except (ZeroDivisionError, OverflowError):
        ratio = None
    # A negative factor would turn an inequality round, so that it is another one.
    if ratio is not None and (ratio > 0 or first[0] in {"=", "!="}):
        return judge.decided("relation", True)
    if judge.deep is not None:
        same = judge.equal(_minus(first[1]), _minus(second[1]))
        return judge.decided("relation", same, "the equations are not multiples of each other")
    # The normal forms have decided polynomials; only formulas with functions are worth the pool.
    parts = [part for side in (*first[1], *second[1]) for part in walk(side)]
    if len(gold.args) == 2 and any(part.op == "func" for part in parts):
        raise NeedsPool
    return judge.decided("relation", False, "the equations are not multiples of each other")


def _minus(sides: tuple[Node, Node]) -> Node:
    return add(sides[0], neg(sides[1]))


def _oriented(node: Node) -> tuple[str, tuple[Node, Node]] | None:
    """Return (sign, sides) of a relation with > and >= turned round, None where a side is not a
    formula.
    """
    if node.op != "rel" or len(node.args) != 2 or not all(is_scalar(side) for side in node.args):
        return None
    sign, (left, right) = node.note.replace("~=", "="), node.args
    if sign in {">", ">=", "supset", "supseteq", "ni", "gg", "succ"}:
        sign, left, right = FLIPPED[sign], right, left
    return sign, (left, right)


def _ratio(first: Sum, second: Sum) -> float | None:
    """Return the constant ratio between two sums, or None."""
    if not first or not second or first.keys() != second.keys():
        return None
    ratios = {Fraction(first[key]) / second[key] for key in first}
    return float(ratios.pop()) if len(ratios) == 1 else None
