"""Free constants in answers: the C of an antiderivative and the constants of a general solution."""

from __future__ import annotations

from fractions import Fraction
from itertools import permutations

from ..proving.calculus import derivative
from ..proving.judge import Judge
from ..proving.probe import Undefined, evaluate
from ..reading import nodes
from ..reading.nodes import Node, neg, num, rename, symbols, walk

_BARE = frozenset({"C", "c", "K", "k"})
_NUMBERED = frozenset(f"{letter}_{index}" for letter in "CcKk" for index in range(5))
_CONSTANTS = _BARE | _NUMBERED
_OF_INTEGRALS = _NUMBERED | {"C", "K"}
"""Names that mark a constant in a gold as free. The letters c and k are left out, since these may
be coefficients.
"""
_ALSO = frozenset({"A", "B", "D"})
"""Further names that an answer may use for constants which the gold calls C."""
# Lower limits to try where no derivative is known: F(x) - F(limit) cancels the constant.
_POINTS = (nodes.HALF, num(3), num(Fraction(7, 5)), num(-2))
_VARIABLES = "xtuyzsvw"
_GENERIC = (1.3704, 2.6181, 0.7323, 3.1727)


def same_constants(gold: Node, answer: Node) -> Node:
    """Rename the free constants of `answer` as in the gold: `A e^x + B e^{-x}` matches `C_1 e^x +
    C_2 e^{-x}`.

    Constants that multiply the same factors get the same name.
    """
    mine, theirs = sorted(symbols(answer) - symbols(gold)), sorted(symbols(gold) - symbols(answer))
    if not 0 < len(mine) == len(theirs) <= 2 or not set(theirs) <= _CONSTANTS:
        return answer
    if not symbols(gold) & symbols(answer):
        return answer
    if not set(mine) <= _CONSTANTS | _ALSO:
        return answer
    renamings = [
        rename(answer, dict(zip(mine, order, strict=True))) for order in permutations(theirs)
    ]
    wanted = [_beside(gold, name) for name in theirs]
    fitting = (made for made in renamings if [_beside(made, name) for name in theirs] == wanted)
    return next(fitting, renamings[0])


def _beside(node: Node, name: str) -> frozenset[Node]:
    """Return the factors that the constant is multiplied by at the first occurrence."""
    symbol = nodes.sym(name)
    for part in walk(node):
        if part.op == "mul" and symbol in part.args:
            return frozenset(arg for arg in part.args if arg != symbol)
    return frozenset()


def apart_by_a_constant(gold: Node, answer: Node, judge: Judge) -> bool | None:
    """Decide whether two antiderivatives, each with a free constant, differ by a number.

    Returns None if either formula has no free constant, or if the question stays open.
    """
    first, second = _without_constant(gold), _without_constant(answer)
    if first is None or second is None or not symbols(gold) & _OF_INTEGRALS:
        return None
    names = symbols(first) | symbols(second)
    variable = next((name for name in _VARIABLES if name in names), min(names, default=""))
    slopes = [derivative(side, variable) for side in (first, second)]
    if slopes[0] is not None and slopes[1] is not None:
        same = judge.equal(slopes[0], slopes[1])
        return judge.decided("up to a constant", same, "their derivatives differ")
    for point in _POINTS if variable else ():
        start, other = (
            nodes.replaced(side, nodes.sym(variable), point) for side in (first, second)
        )
        if _is_defined(start) and _is_defined(other):
            same = judge.equal(nodes.add(first, neg(start)), nodes.add(second, neg(other)))
            return judge.decided(
                "up to a constant", same, "the antiderivatives differ by more than a constant"
            )
    return None


def is_antiderivative(integral: Node, answer: Node, judge: Judge) -> bool:
    """Decide whether `answer` solves an indefinite integral: differentiated, the answer must give
    the integrand, and a free constant is required.
    """
    body, variable = integral.args
    value = answer.args[-1] if answer.op == "rel" else answer
    plain = _without_constant(value)
    slope = None if plain is None else derivative(plain, variable.note)
    if slope is None:
        return judge.decided(
            "antiderivative", False, "the answer is no antiderivative with a free constant"
        )
    return judge.equal(body, slope)


def _without_constant(node: Node) -> Node | None:
    if node.op != "add":
        return None
    constants = [term for term in node.args if term.op == "sym" and term.note in _CONSTANTS]
    rest = [term for term in node.args if term not in constants]
    if len(constants) != 1 or not rest or constants[0].note in symbols(nodes.add(*rest)):
        return None
    return nodes.add(*rest)


def _is_defined(node: Node) -> bool:
    names = sorted(symbols(node))
    try:
        evaluate(node, dict(zip(names, _GENERIC, strict=False)), False)
    except (Undefined, ZeroDivisionError, OverflowError, ValueError):
        return False
    return True
