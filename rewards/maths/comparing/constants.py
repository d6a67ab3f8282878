"""Free constants in answers: the C of an antiderivative and the constants of a general solution.

An answer may call these constants otherwise than the gold, or add a number to them, and is right
all the same.
"""

from __future__ import annotations

from itertools import permutations

from ..proving.calculus import derivative
from ..proving.judge import Judge
from ..reading import nodes
from ..reading.nodes import Node, rename, symbols, walk

_BARE = frozenset({"C", "c", "K", "k"})
_NUMBERED = frozenset(f"{letter}_{index}" for letter in "CcKk" for index in range(5))
_CONSTANTS = _BARE | _NUMBERED
_OF_INTEGRALS = _NUMBERED | {"C", "K"}
"""Names that mark a constant in a gold as free. The letters c and k are left out, since these may
be coefficients.
"""
_ONLY_IN_ANSWERS = frozenset({"A", "B", "D"})
"""Further names that an answer may use for constants which the gold calls C."""
_VARIABLES = "xtuyzsvw"
"""Usual names of the variable of an antiderivative, the most usual first."""


def same_constants(gold: Node, answer: Node) -> Node:
    """Return `answer` with its free constants renamed as in the gold: `A e^x + B e^{-x}` becomes
    `C_1 e^x + C_2 e^{-x}`.

    Constants that multiply the same factors get the same name; where none do, the order of the
    alphabet decides. The answer is returned unchanged unless the names that differ are one or two
    constants on each side, and a name is common to both sides, so that an answer `A` is not taken
    for a gold `C`.
    """
    in_answer, in_gold = symbols(answer), symbols(gold)
    old, new = sorted(in_answer - in_gold), sorted(in_gold - in_answer)
    if not 0 < len(old) == len(new) <= 2 or not in_gold & in_answer:
        return answer
    # A gold with C_1 and C_2 is a general solution, which names its constants as it likes.
    general = len(new) > 1 and set(new) <= _NUMBERED and not _NEVER_FREE & set(old)
    known = set(new) <= _CONSTANTS and set(old) <= _CONSTANTS | _ONLY_IN_ANSWERS
    if not (known or general):
        return answer
    return _renamed(gold, answer, old, new)


def same_free(gold: Node, answer: Node, free: frozenset[str]) -> Node:
    """Return `answer` with the letters that stand for the free constants of the gold renamed as
    in the gold: `m x + c` becomes `a x + b`. No other letter of the gold is a constant.
    """
    if not free:
        return answer
    new, in_answer = sorted(symbols(gold) & free), symbols(answer)
    old = sorted(in_answer - (symbols(gold) - free))
    if not new or len(old) != len(new) or len(new) > 3 or _NEVER_FREE & set(old):
        return answer
    return _renamed(gold, answer, old, new)


_NEVER_FREE = frozenset("xyztuvwnfg")
"""Letters that no answer uses for a free constant."""


def _renamed(gold: Node, answer: Node, old: list[str], new: list[str]) -> Node:
    renamings = [rename(answer, dict(zip(old, order, strict=True))) for order in permutations(new)]
    # A gold may have a factor of all outside its bracket: `(C_1 + C_2 x)e^{2x}`.
    wanted = [_cofactors(gold, name) for name in new]
    given = [[_cofactors(renamed, name) for name in new] for renamed in renamings]
    fitting = (
        renamed
        for is_fit in (frozenset.__eq__, frozenset.__le__)
        for renamed, cofactors in zip(renamings, given, strict=True)
        if all(map(is_fit, wanted, cofactors))
    )
    return next(fitting, renamings[0])


def _cofactors(node: Node, name: str) -> frozenset[Node]:
    """Return the factors that the constant is multiplied by where it first occurs in a product."""
    symbol = nodes.sym(name)
    for part in walk(node):
        if part.op == "mul" and symbol in part.args:
            return frozenset(arg._replace(note="") if arg.op == "pow" else arg
                             for arg in part.args if arg != symbol)  # fmt: skip
    return frozenset()


def apart_by_a_constant(gold: Node, answer: Node, judge: Judge) -> bool | None:
    """Decide whether two antiderivatives, each with a free constant, differ by a number only.

    Returns None if either formula has no free constant or no known derivative.

    Raises:
        NeedsPool: the cheap proofs of the judge leave the question open.
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
    return None


def is_antiderivative(integral: Node, answer: Node, judge: Judge) -> bool:
    """Decide whether `answer` solves an indefinite integral: its derivative must equal the
    integrand, and it must have a free constant.

    Args:
        integral: a node whose arguments are the integrand and the variable.
        answer: the antiderivative, or a relation whose last side is one: `F(x) = x^2 + C`.
        judge: decides the equality, and records the rule.

    Raises:
        NeedsPool: the cheap proofs of the judge leave the question open.
    """
    integrand, variable = integral.args
    value = answer.args[-1] if answer.op == "rel" else answer
    plain = _without_constant(value)
    slope = None if plain is None else derivative(plain, variable.note)
    if slope is None:
        return judge.decided(
            "antiderivative", False, "the answer is not an antiderivative with a free constant"
        )
    return judge.equal(integrand, slope)


def _without_constant(node: Node) -> Node | None:
    """Return the other terms of a sum that has exactly one free constant as a term; None for other
    formulas, and where the constant occurs in the other terms too.
    """
    if node.op != "add":
        return None
    constants = [term for term in node.args if term.op == "sym" and term.note in _CONSTANTS]
    others = [term for term in node.args if term not in constants]
    if len(constants) != 1 or not others or constants[0].note in symbols(nodes.add(*others)):
        return None
    return nodes.add(*others)
