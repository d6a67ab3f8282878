"""Equality by sympy, the last resort.

Expressions of sympy are built node by node and never from text, because sympy evaluates text as
Python. All of this runs in pool workers only, since nothing but the worker's limits on time and
memory stops sympy.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import sympy

from ..reading.nodes import Node, magnitude, walk
from ..reading.vocabulary import pairs

MAX_NODES = 80
"""The most nodes in both formulas together, since sympy's run time grows steeply with the size."""
LARGEST = 1000
"""The largest number passed to sympy. Larger ones make integrals and limits slow, and formulas
without these were already compared with many digits (`precise`).
"""
LARGEST_EXPONENT = 1000
"""The largest exponent in a power of numbers, which sympy computes exactly."""
Expression = Any  # strict type checkers do not accept sympy's annotations


class Unsupported(ValueError):
    """A node has no counterpart in sympy, or should not be computed there."""


def simplifies_to_zero(left: Node, right: Node) -> bool | None:
    """Return whether sympy finds that two formulas are equal.

    The answer is True if the difference simplifies to zero and False if it simplifies to another
    number. None means that the question stays open: sympy reaches neither result, or a formula is
    too large or unsupported.
    """
    parts = [part for node in (left, right) for part in walk(node)]
    if len(parts) > MAX_NODES or any(magnitude(part.value) > LARGEST for part in parts):
        return None
    try:
        first, second = build(left), build(right)
        if first.is_infinite or second.is_infinite:
            return bool(first == second)
        difference = sympy.simplify((first - second).doit())
    except MemoryError:  # the pool reports that the worker met its memory limit
        raise
    except Exception:  # sympy raises errors of any type where it gives up
        return None
    if difference == 0:
        return True
    # `is_zero` is None where sympy cannot tell.
    return False if difference.is_number and difference.is_zero is False else None


def build(node: Node) -> Expression:
    """Return a sympy expression for a scalar formula.

    Raises:
        Unsupported: a node has no counterpart in sympy, or its value would take too long.
    """
    match node.op:
        case "num" | "dec":
            exact = Fraction(node.value)
            return sympy.Rational(exact.numerator, exact.denominator)
        case "sym":
            return sympy.Symbol(node.note, real=True)
        case "const":
            return _CONSTANTS[node.note]
        case "add":
            return sympy.Add(*map(build, node.args))
        case "mul":
            return sympy.Mul(*map(build, node.args))
        case "pow":
            base, exponent = map(build, node.args)
            small = exponent.is_Rational and abs(exponent) <= LARGEST_EXPONENT
            if base.is_number and exponent.is_number and not small:
                # A tower such as 9^(9^9): sympy would start computing the number.
                raise Unsupported("a large power")
            return sympy.Pow(base, exponent)
        case "func" if node.note in {"sum", "prod"}:
            body, variable, low, high = map(build, node.args)
            if low.is_number and high.is_number:
                raise Unsupported("a sum over a fixed range: it was tried with numbers already")
            series = sympy.Sum if node.note == "sum" else sympy.Product
            return series(body, (variable, low, high))
        case "func" if node.note == "int":
            body, variable, low, high = map(build, node.args)
            return sympy.integrate(body, (variable, low, high))
        case "func" if node.note.startswith("lim"):
            # The note is "lim", "lim+" or "lim-"; the sign is the side from which to approach.
            body, variable, target = map(build, node.args)
            return sympy.limit(body, variable, target, node.note.removeprefix("lim") or "+-")
        case "func":
            arguments = [build(arg) for arg in node.args]
            if node.note in {"log", "ln"}:
                if len(arguments) == 2:
                    return sympy.log(arguments[0]) / sympy.log(arguments[1])
                return sympy.log(arguments[0]) / (sympy.log(10) if node.note == "log" else 1)
            function = _FUNCTIONS.get(node.note)
            if function is None:
                raise Unsupported(node.note)
            return function(*arguments)
        case _:
            raise Unsupported(node.op)


_CONSTANTS = {"pi": sympy.pi, "e": sympy.E, "i": sympy.I, "inf": sympy.oo}
_NAMES = (
    "sin=sin cos=cos tan=tan cot=cot sec=sec csc=csc arcsin=asin arccos=acos arctan=atan "
    "arccot=acot sinh=sinh cosh=cosh tanh=tanh coth=coth sech=sech csch=csch arcsinh=asinh "
    "arccosh=acosh arctanh=atanh abs=Abs binom=binomial max=Max min=Min"
)
_FUNCTIONS: dict[str, Callable[..., Expression]] = {
    name: getattr(sympy, theirs) for name, theirs in pairs(_NAMES).items()
}
