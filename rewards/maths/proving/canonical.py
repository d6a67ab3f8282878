"""A normal form that proves two formulas equal, exactly and at a cost that is bounded beforehand.

A formula becomes a sum of terms with rational coefficients. A term is a product of factors
`base^(c * m)`, where `c` is rational and `m` a symbolic monomial (so `2^{n+1}` is `2 * 2^n`).
Bases are primes, variables, constants, opaque functions of normal forms, and whole sums that
could not be expanded (denominators, radicands). The difference of two formulas is zero if,
denominators cleared, no term is left. The converse does not hold: a difference that stays is not
yet proof of anything (`sin^2 x + cos^2 x - 1`).
"""

from __future__ import annotations

import math
from contextlib import suppress
from fractions import Fraction

from ..reading.nodes import Exact, Node, TooBig, magnitude, symbols, walk
from .primes import prime_exponents
from .sums import (
    MAX_PRODUCTS,
    ONE,
    Meter,
    Sum,
    atom,
    cleared,
    constant,
    frozen,
    plus,
    primitive_part,
    rational_power,
    scaled,
    symbolic_power,
    times,
)

MAX_FACTORIAL = 300
MAX_SHIFT = 6
"""The largest number beside the letter of a factorial that is split off."""
SUMS, NAMES = "r", "s"
"""Kinds of denominators that may be multiplied out: sums as in 1/(x+1), names as in 1/x."""


def difference(
    left: Node, right: Node, allowance: int = MAX_PRODUCTS, *, clearing: str = SUMS
) -> Sum:
    """Return the normal form of `left - right`, which is empty if both are equal.

    Denominators of the kinds in `clearing` are multiplied out: SUMS to prove equality, SUMS +
    NAMES for equations, and none where the sign of a denominator matters (inequalities).

    Raises:
        TooBig: beyond the limits of size.
    """
    meter = Meter(allowance)
    first, second = normal(left, meter), normal(right, meter)
    left_over = cleared(plus(first, second, -1), meter, clearing)
    with suppress(TooBig):
        if any(base[:2] == _SINE for terms in left_over for (base, _), _ in terms):
            return _without_squares(cleared(left_over, meter, "f"), meter) and left_over
    return left_over


_SINE = ("f", "sin")


def _without_squares(terms: Sum, meter: Meter) -> Sum:
    """Return a sum with `1 - cos^2` in the place of every square of a sine."""
    total: Sum = {}
    for monomial, coefficient in terms.items():
        product: Sum = {ONE: coefficient}
        for (base, symbolic), exponent in monomial:
            factor: Sum = {(((base, symbolic), exponent),): 1}
            if base[:2] == _SINE and not symbolic and isinstance(exponent, int) and exponent > 1:
                cosine = atom(("f", "cos", *base[2:]))
                square = plus(constant(1), times(cosine, cosine, meter), -1)
                factor = rational_power(square, exponent // 2, meter)
                factor = times(factor, atom(base), meter) if exponent % 2 else factor
            product = times(product, factor, meter)
        total = plus(total, product)
    return total


_VECTOR_MARKS = ("vec ", "bold ", "hat ", "overr")


def normal(node: Node, meter: Meter) -> Sum:
    """Return the normal form of a scalar formula.

    Raises:
        TooBig: beyond the limits of size, or a node without a normal form.
        ZeroDivisionError: the formula divides by zero.
    """
    match node.op:
        case "num" | "dec":
            return constant(node.value)
        case "sym":
            return atom(("s", node.note))
        case "const":
            return atom(("c", node.note))
        case "add":
            sums = [normal(arg, meter) for arg in node.args]
            total: Sum = {}
            for terms in sums:
                total = plus(total, terms)
            return total
        case "mul":
            product = constant(1)
            for arg in node.args:
                product = times(product, normal(arg, meter), meter)
            return product
        case "pow":
            if any(part.note == "inf" for part in walk(node)):
                raise TooBig("a power of infinity has no value")
            raised = normal(node.args[1], meter)
            # The constant part of the exponent is applied at once: 2^{n+1} is 2 * 2^n.
            fixed = raised.pop(ONE, 0)
            terms = normal(node.args[0], meter)
            result = rational_power(terms, fixed, meter)
            for monomial, coefficient in raised.items():
                result = times(result, symbolic_power(terms, monomial, coefficient, meter), meter)
            return result
        case "func" | "call":
            arguments = [normal(arg, meter) for arg in node.args]
            meter.spend(1 + sum(map(len, arguments)))
            # Between names with an arrow or in bold, a cross is the product of vectors. Between
            # plain names it may be the product of sets, which does not change its sign.
            names = (name for arg in node.args for name in symbols(arg))
            if node.note == "×" and all(name.startswith(_VECTOR_MARKS) for name in names):
                return _crossed(arguments)
            exact = _exact_function(node.note, arguments, meter) if node.op == "func" else None
            return _opaque(node.note, arguments) if exact is None else exact
        case "percent":
            return scaled(normal(node.args[0], meter), Fraction(1, 100))
        case _:
            raise TooBig(f"a {node.op} has no normal form")


def _opaque(name: str, arguments: list[Sum]) -> Sum:
    """Return a function that stays unexpanded, with the sign of the argument taken out where the
    function is odd or even.
    """
    if name in _SYMMETRIC or name.startswith("series"):
        return atom(("f", name, *sorted((frozen(argument) for argument in arguments), key=repr)))
    if name in _ODD | _EVEN and len(arguments) == 1 and arguments[0]:
        content, primitive = primitive_part(arguments[0], signed=True)
        if name == "abs":
            return scaled(atom(("f", name, frozen(primitive))), abs(content))
        positive = scaled(primitive, abs(content))
        sign = -1 if content < 0 and name in _ODD else 1
        return scaled(atom(("f", name, frozen(positive))), sign)
    return atom(("f", name, *(frozen(argument) for argument in arguments)))


def _crossed(arguments: list[Sum]) -> Sum:
    """Return a cross product in a fixed order, a x b = -(b x a), with numeric factors taken out."""
    sign: Exact = 1
    sides: list[Sum] = []
    for argument in arguments:
        if not argument:
            return {}
        content, primitive = primitive_part(argument, signed=True)
        sign *= content
        sides.append(primitive)
    first, second = (frozen(side) for side in sides)
    if first == second:
        return {}
    if repr(first) > repr(second):
        first, second, sign = second, first, -sign
    return scaled(atom(("f", "×", first, second)), sign)


_SYMMETRIC = frozenset({"max", "min", "gcd", "lcm", "land", "lor", "iff", "oplus", "·"})
"""Functions and operators whose arguments may come in any order."""
_ODD = frozenset({"sin", "tan", "cot", "csc", "arcsin", "arctan", "sinh", "tanh"})
_EVEN = frozenset({"cos", "sec", "cosh", "abs"})
_QUOTIENTS = {"tan": ("sin", "cos"), "cot": ("cos", "sin")}
_RECIPROCALS = {"sec": "cos", "csc": "sin"}


def _exact_function(name: str, arguments: list[Sum], meter: Meter) -> Sum | None:
    if name in _QUOTIENTS:
        top, bottom = (_opaque(part, arguments) for part in _QUOTIENTS[name])
        return times(top, rational_power(bottom, -1, meter), meter)
    if name in _RECIPROCALS:
        return rational_power(_opaque(_RECIPROCALS[name], arguments), -1, meter)
    if name in {"ln", "log"}:
        # A logarithm with numbers split into primes, divided by the logarithm of the base.
        top = _natural_log(arguments[0])
        if len(arguments) == 2:
            bottom = _natural_log(arguments[1])
        elif name == "log":
            bottom = _natural_log(constant(10))
        else:
            return top
        return times(top, rational_power(bottom, -1, meter), meter)
    values = [_constant_of(argument) for argument in arguments]
    if None in values:
        symbolic = {"binom": _binomial, "factorial": _shifted_factorial}.get(name)
        return symbolic(arguments, meter) if symbolic else None
    exact = _integer_function(name, [value for value in values if value is not None])
    return None if exact is None else constant(exact)


def _constant_of(terms: Sum) -> Exact | None:
    if not terms:
        return 0
    return terms[ONE] if len(terms) == 1 and ONE in terms else None


def _integer_function(name: str, values: list[Exact]) -> Exact | None:
    if name == "abs":
        return magnitude(values[0])
    if name in {"max", "min"}:
        return max(values) if name == "max" else min(values)
    if name in {"floor", "ceil"}:
        return math.floor(values[0]) if name == "floor" else math.ceil(values[0])
    integers = [int(value) for value in values if value.denominator == 1]
    if len(integers) != len(values):
        return None
    if name in {"gcd", "lcm"}:
        return math.gcd(*integers) if name == "gcd" else math.lcm(*integers)
    if name == "factorial" and 0 <= integers[0] <= MAX_FACTORIAL:
        return math.factorial(integers[0])
    if name == "double factorial" and 0 <= integers[0] <= MAX_FACTORIAL:
        return math.prod(range(integers[0], 0, -2))
    if name == "binom" and 0 <= integers[0] <= MAX_FACTORIAL:
        return math.comb(integers[0], integers[1]) if integers[1] >= 0 else 0
    return None


def _binomial(arguments: list[Sum], meter: Meter) -> Sum | None:
    """Return a product for a small lower number, and `n! / (k! (n - k)!)` for one with letters."""
    upper, lower = arguments[0], _constant_of(arguments[1])
    if lower is None:
        parts = (upper, arguments[1], plus(upper, arguments[1], -1))
        top, first, second = (
            _exact_function("factorial", [part], meter) or _opaque("factorial", [part])
            for part in parts
        )
        return times(top, rational_power(times(first, second, meter), -1, meter), meter)
    if lower.denominator != 1 or not 0 <= lower <= 6:
        return None
    product = constant(1)
    for step in range(int(lower)):
        product = times(product, plus(upper, constant(-step)), meter)
    return scaled(product, Fraction(1, math.factorial(int(lower))))


def _shifted_factorial(arguments: list[Sum], meter: Meter) -> Sum | None:
    """Return `(n + 2)!` as `(n + 2) (n + 1) n!`, and `(n - 1)!` as `n! / n`."""
    shift = arguments[0].get(ONE, 0)
    if shift.denominator != 1 or not 0 < magnitude(shift) <= MAX_SHIFT:
        return None
    base = plus(arguments[0], constant(-shift))
    product = _opaque("factorial", [base])
    for step in range(min(0, int(shift)), max(0, int(shift))):
        factor = plus(base, constant(step + 1))
        factor = factor if shift > 0 else rational_power(factor, -1, meter)
        product = times(product, factor, meter)
    return product


def _natural_log(terms: Sum) -> Sum:
    """Return ln of a sum, expanded where that is a positive number or a power of such a number."""
    unexpanded = atom(("f", "ln", frozen(terms)))
    if len(terms) != 1:
        return unexpanded
    ((monomial, coefficient),) = terms.items()
    if coefficient <= 0 or any(
        symbolic or (base[0] != "p" and base not in _POSITIVE) for (base, symbolic), _ in monomial
    ):
        return unexpanded
    total: Sum = {}
    for prime, count in prime_exponents(coefficient):
        total = plus(total, atom(("f", "ln", prime)), count)
    for (base, _), exponent in monomial:
        log_of_base = constant(1) if base == ("c", "e") else atom(("f", "ln", base))
        total = plus(total, log_of_base, exponent)
    return total


_POSITIVE = {("c", "e"), ("c", "pi")}
