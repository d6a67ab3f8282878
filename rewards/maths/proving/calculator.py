"""Numeric values of formulas with mpmath, in the current precision and within a bound on the
work.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, cast

import mpmath

from ..reading.nodes import Node, walk
from .judge import infinity

MAX_SUM = 20_000
MAX_WORK = 40_000
"""How many nodes may be evaluated for one question; nodes at high precision count more. About half
a second.
"""
LARGEST_ANGLE = 1e300
Number = Any  # mpmath has no types: mpf or mpc


class UndefinedValue(ArithmeticError):
    """The formula has no value at this point."""


class Beyond(UndefinedValue):
    """The value is too large to compute; the message names the limit."""


class Work:
    """A counter of evaluated nodes, which bounds the cost of any formula."""

    def __init__(self) -> None:
        self.left = MAX_WORK

    def spend(self, amount: int) -> None:
        """Use up `amount` of the allowance.

        Raises:
            OverBudget: the allowance is used up.
        """
        self.left -= amount
        if self.left < 0:
            raise OverBudget(f"more than {MAX_WORK} steps")


class OverBudget(Exception):
    """The allowance for a question is used up; the message states the allowance."""


ROUGH_DIGITS = 40


class Calculator:
    """Evaluates formulas at a point with mpmath's current precision.

    `spread` afterwards holds the widest range of sizes, in powers of ten, among the terms of any
    sum: a caller compares this with the digits to see whether small terms were lost. `largest` is
    the size of the largest term of any sum: what is much smaller may be left of its rounding.
    """

    def __init__(self, point: dict[str, Fraction], work: Work) -> None:
        self.point = {
            name: mpmath.mpf(value.numerator) / value.denominator for name, value in point.items()
        }
        self.spread = 0.0
        self.largest = -math.inf
        self.terms = 0
        self.work = work
        self.imaginary = False
        self.vanishing = False
        """Set inside an integral, where a power too small to compute may be taken for zero."""

    def value(self, node: Node) -> Number:
        """Return the value of `node`; complex results are allowed only once an `i` has occurred.

        Raises:
            UndefinedValue: the formula has no value at this point.
            OverBudget: the allowance of work is used up.
        """
        self.imaginary = self.imaginary or any(
            part.op == "const" and part.note == "i" for part in walk(node)
        )
        return self._value(node)

    def extended(self, node: Node) -> Number:
        """Return the value of `node`, where plus and minus infinity also count as values."""
        sign = infinity(node)
        return sign * mpmath.inf if sign else self.value(node)

    def _value(self, node: Node) -> Number:
        self.work.spend(1 + mpmath.mp.prec // 400)  # The precision is in bits.
        match node.op:
            case "num" | "dec":
                exact = Fraction(node.value)
                return mpmath.mpf(exact.numerator) / exact.denominator
            case "sym":
                if node.note not in self.point:
                    raise UndefinedValue(node.note)
                return self.point[node.note]
            case "const":
                if node.note == "inf":
                    raise UndefinedValue(node.note)
                return {"pi": +mpmath.pi, "e": +mpmath.e, "i": mpmath.mpc(0, 1)}[node.note]
            case "add":
                terms = [self._value(arg) for arg in node.args]
                sizes = [float(mpmath.log10(abs(term))) for term in terms if term]
                if len(sizes) > 1:
                    self.largest = max(self.largest, *sizes)
                    self.spread = max(self.spread, max(sizes) - min(sizes))
                return mpmath.fsum(terms)
            case "mul":
                return mpmath.fprod([self._value(arg) for arg in node.args])
            case "pow":
                return self._power(node)
            case "func" if node.note in {"sum", "prod"}:
                return self._series(node)
            case "func" if node.note == "int":
                return self._integral(node)
            case "func":
                return self._function(node.note, [self._value(arg) for arg in node.args])
            case _:
                raise UndefinedValue(node.op)

    def _power(self, node: Node) -> Number:
        base, exponent = self._value(node.args[0]), self._value(node.args[1])
        if base == 0 and (isinstance(exponent, mpmath.mpc) or exponent <= 0):
            raise UndefinedValue("a power of zero")
        size = mpmath.re(exponent) * mpmath.log10(abs(base)) if base else 0
        if abs(exponent) > 1e6 or abs(size) > 1e6:
            if self.vanishing and size < -1e6:
                return mpmath.mpf(0)
            raise Beyond("a power beyond 10^1000000")
        is_whole = exponent == mpmath.floor(mpmath.re(exponent))
        if isinstance(base, mpmath.mpc) or base >= 0 or is_whole:
            return base**exponent
        # (-8)^(1/3) is -2 over the reals, and a complex number once `i` occurs in the formula.
        fraction = node.args[1].value if node.args[1].op == "num" else 0
        if isinstance(fraction, Fraction) and fraction.denominator % 2 and not self.imaginary:
            root = (-base) ** exponent
            return -root if fraction.numerator % 2 else root
        if not self.imaginary:
            raise UndefinedValue("a root of a negative number")
        return mpmath.power(base, exponent)

    def _series(self, node: Node) -> Number:
        body, variable, low, high = node.args
        if infinity(high) == 1:
            return self._endless(node)
        first, last = self._value(low), self._value(high)
        if first != int(first) or last != int(last):
            raise UndefinedValue("bounds that are not whole")
        if last - first > MAX_SUM:
            raise Beyond(_LONG_SUM)
        self.terms += max(0, int(last - first)) + 1
        if self.terms > MAX_SUM:
            raise Beyond(_LONG_SUM)
        total = mpmath.mpf(0 if node.note == "sum" else 1)
        for index in range(int(first), int(last) + 1):
            term = self._inside(body, variable, mpmath.mpf(index))
            total = total + term if node.note == "sum" else total * term
        return total

    def _endless(self, node: Node) -> Number:
        """Return an infinite sum or product by extrapolation.

        The extrapolation is repeated with more digits, and both results have to agree to 18
        digits.
        """
        body, variable, low, _ = node.args
        first = self._value(low)
        if first != mpmath.floor(first):
            raise UndefinedValue("bounds that are not whole")
        self.work.spend(1000)
        accumulate = mpmath.nsum if node.note == "sum" else mpmath.nprod
        value = accumulate(self._along(body, variable), [first, mpmath.inf])
        with mpmath.workdps(ROUGH_DIGITS + 10):
            from_first = accumulate(self._along(body, variable), [first, mpmath.inf])
        if abs(value - from_first) > 1e-18 * max(1, abs(value)):
            raise UndefinedValue("a sum without enough digits")
        return value

    def _integral(self, node: Node) -> Number:
        """Return an integral by numeric quadrature with an error estimate of at most 1e-18."""
        body, variable, low, high = node.args
        first, last = self._end(low), self._end(high)
        was_vanishing, self.vanishing = self.vanishing, True
        try:
            return self._quadrature(self._along(body, variable), first, last)
        finally:
            # A limit goes on after `Beyond`, nearer by, and must not take small powers for zero.
            self.vanishing = was_vanishing

    @staticmethod
    def _quadrature(integrand: Callable[[Number], Number], first: Number, last: Number) -> Number:
        """Return the integral of a function from `first` to `last`.

        Several methods and cuts of the interval are tried; poles and kinks elsewhere leave the
        integral undefined.
        """
        for method, pieces in _QUADRATURES:
            finite = mpmath.isfinite(first) and mpmath.isfinite(last)
            if not finite and (method != "tanh-sinh" or pieces > 1):
                continue
            cuts = [first + (last - first) * step / pieces for step in range(1, pieces)]
            degree = 6 if method == "tanh-sinh" else 5
            value, error = mpmath.quad(
                integrand, [first, *cuts, last], error=True, maxdegree=degree, method=method
            )
            if error <= 1e-18 * max(1, abs(value)):
                return value
        raise UndefinedValue("an integral without enough digits")

    def _end(self, node: Node) -> Number:
        sign = infinity(node)
        return sign * mpmath.inf if sign else self._value(node)

    def _along(self, body: Node, variable: Node) -> Callable[[Number], Number]:
        return lambda point: self._inside(body, variable, point)

    def _inside(self, body: Node, variable: Node, point: Number) -> Number:
        """Return the value of `body` with `variable` at a point; the variable may hide another of
        the same name.
        """
        outer_value = self.point.get(variable.note)
        self.point[variable.note] = point
        try:
            return self._value(body)
        finally:
            self.point.pop(variable.note)
            if outer_value is not None:
                self.point[variable.note] = outer_value

    def _function(self, name: str, arguments: list[Number]) -> Number:
        if name in {"ln", "log"}:
            if not self.imaginary and (isinstance(arguments[0], mpmath.mpc) or arguments[0] <= 0):
                raise UndefinedValue("a logarithm of something not positive")
            top = mpmath.log(arguments[0])
            if len(arguments) == 2:
                return top / mpmath.log(arguments[1])
            return top / mpmath.log(10) if name == "log" else top
        if name in {"max", "min"}:
            return max(arguments) if name == "max" else min(arguments)
        if name in {"gcd", "lcm"}:
            if any(abs(argument) > LARGEST_ANGLE for argument in arguments):
                raise Beyond(f"a {name} beyond {LARGEST_ANGLE:g}")
            integers = [int(argument) for argument in arguments]
            if any(value != argument for value, argument in zip(integers, arguments, strict=True)):
                raise UndefinedValue(name)
            return mpmath.mpf(math.gcd(*integers) if name == "gcd" else math.lcm(*integers))
        if name == "binom" and len(arguments) == 2:
            return mpmath.binomial(*arguments)
        function = _FUNCTIONS.get(name)
        if function is None or len(arguments) != 1:
            raise UndefinedValue(name)
        if name == "factorial" and abs(arguments[0]) > 1e6:
            raise Beyond("a factorial beyond a million")
        if name in _ANGLES and abs(arguments[0]) > LARGEST_ANGLE:
            raise Beyond(f"an angle beyond {LARGEST_ANGLE:g}")
        if name == "zeta":
            self.work.spend(2000)
            if abs(arguments[0]) > 1000:
                raise Beyond("zeta beyond 1000")
        result = function(arguments[0])
        if isinstance(result, mpmath.mpc) and not self.imaginary:
            raise UndefinedValue(name)
        return result


_ANGLES = frozenset({"sin", "cos", "tan", "cot", "sec", "csc", "erf"})
_LONG_SUM = f"sums of more than {MAX_SUM} terms, those inside sums counted each time"
_QUADRATURES = (
    ("gauss-legendre", 1), ("tanh-sinh", 1), ("tanh-sinh", 2), ("tanh-sinh", 3), ("tanh-sinh", 4),
)  # fmt: skip
"""Integration methods and the number of pieces that the interval is cut into: kinks usually lie at
simple fractions of the interval.
"""


_FUNCTIONS = cast(
    "dict[str, Callable[[Number], Number]]",
    {
        "sin": mpmath.sin, "cos": mpmath.cos, "tan": mpmath.tan, "cot": mpmath.cot,
        "sec": mpmath.sec, "csc": mpmath.csc,
        "sinh": mpmath.sinh, "cosh": mpmath.cosh, "tanh": mpmath.tanh, "coth": mpmath.coth,
        "sech": mpmath.sech, "csch": mpmath.csch, "arcsinh": mpmath.asinh,
        "arccosh": mpmath.acosh, "arctanh": mpmath.atanh, "arcsin": mpmath.asin,
        "arccos": mpmath.acos,
        "arctan": mpmath.atan, "arccot": mpmath.acot, "abs": abs, "floor": mpmath.floor,
        "ceil": mpmath.ceil,
        "factorial": mpmath.factorial, "sign": mpmath.sign, "Re": mpmath.re, "Im": mpmath.im,
        "arg": mpmath.arg,
        "erf": mpmath.erf, "zeta": mpmath.zeta,
    },
)  # fmt: skip
