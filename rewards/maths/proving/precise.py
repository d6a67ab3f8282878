"""Many digits: whether two formulas agree at random points, to a stated error. Runs in pool
workers only.

Both sides are computed with mpmath at 50 digits and again at 100. Equal means: at every point the
difference falls below 10^-35 and then 10^-75 of the larger side. For formulas that are not the
same this happens by chance with probability below 10^-70 per point. Sums of very different sizes
(1 + e^-1000) raise the precision until the smallest term would show; where that takes more than
MAX_DIGITS the question stays open.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from random import Random
from typing import Any, cast

import mpmath
from mpmath.libmp import NoConvergence

from ..reading.nodes import Node, symbols, walk

DIGITS = 50
MAX_DIGITS = 3000
MAX_SUM = 20_000
NEEDED = 4
TRIES = 20

Number = Any  # mpmath has no types: mpf or mpc


class Undefined(ArithmeticError):
    """No value at this point."""


class Beyond(Undefined):
    """A value too large to compute; the message names the limit."""


def agree(left: Node, right: Node) -> bool | None:
    """Whether the formulas are equal; None if it could not be settled."""
    names = sorted(symbols(left) | symbols(right))
    random = Random(20)
    confirmed = 0
    for attempt in range(TRIES if names else 1):
        point = {name: _coordinate(random, attempt) for name in names}
        same = _agree_at(left, right, point)
        if same is False:
            return False
        confirmed += same is True
        if confirmed >= NEEDED:
            return True
    if not names:
        return True if confirmed else None
    return _agree_at_integers(left, right, names)


def limit_met(*nodes: Node) -> str:
    """Which limit of computing with numbers one of the formulas is beyond, or ''.

    >>> from ..reading.reader import read
    >>> limit_met(read("3"), read("9^{9^{9^9}}"))
    'a power beyond 10^1000000'
    """
    for node in nodes:
        try:
            Calculator(dict.fromkeys(symbols(node), Fraction(3))).value(node)
        except Beyond as error:
            return str(error)
        except (ArithmeticError, ValueError, TypeError, NoConvergence):
            continue
    return ""


_SCALES = (Fraction(1, 4), 300, -1, -300, 1)
"""Where points lie: near and far, on both sides, so that max(7, x) shows its other face; the first
are within (0, 1), where inverse functions live."""


def _coordinate(random: Random, attempt: int) -> Fraction:
    scale = _SCALES[attempt % len(_SCALES)]
    return Fraction(random.randrange(300_000, 3_000_000), 1_000_003) * scale


def _agree_at_integers(left: Node, right: Node, names: list[str]) -> bool | None:
    """Formulas that only mean something for whole numbers: (-1)^n, sums up to n."""
    random = Random(21)
    confirmed = 0
    for _ in range(2 * TRIES):
        point = {name: Fraction(random.randrange(2, 12)) for name in names}
        same = _agree_at(left, right, point)
        if same is False:
            return False
        confirmed += same is True
    return True if confirmed >= 2 * NEEDED else None


def _agree_at(left: Node, right: Node, point: dict[str, Fraction]) -> bool | None:
    digits = DIGITS
    for _ in range(4):
        low, spread = _difference(left, right, point, digits)
        if low is None:
            return None
        if spread + 20 > digits:
            digits = int(spread * 1.2) + DIGITS
            if digits > MAX_DIGITS:
                return None
            continue
        high, _ = _difference(left, right, point, 2 * digits)
        if high is None:
            return None
        if low < -0.7 * digits and high < -1.5 * digits:
            return True
        if high > -0.5 * digits:
            return False
        digits *= 2
    return None


def _difference(
    left: Node, right: Node, point: dict[str, Fraction], digits: int
) -> tuple[float | None, float]:
    """(log10 of the relative difference, the widest spread of sizes in any sum); None where
    undefined.
    """
    with mpmath.workdps(digits + 10):
        calculator = Calculator(point)
        try:
            first, second = calculator.value(left), calculator.value(right)
        except (
            Undefined,
            ZeroDivisionError,
            OverflowError,
            ValueError,
            TypeError,
            NoConvergence,
        ):
            return None, 0.0
        gap, size = abs(first - second), max(abs(first), abs(second))
        if size == 0 or gap == 0:
            return -math.inf, calculator.spread
        if not mpmath.isfinite(gap):
            return None, 0.0
        return float(mpmath.log10(gap / size)), calculator.spread


class Calculator:
    """Evaluates nodes at one point with mpmath's current precision."""

    def __init__(self, point: dict[str, Fraction]) -> None:
        self.point = {
            name: mpmath.mpf(value.numerator) / value.denominator for name, value in point.items()
        }
        self.spread = 0.0
        self.work = 0
        self.imaginary = False

    def value(self, node: Node) -> Number:
        """The value of `node`; complex results are allowed only once an `i` was met."""
        self.imaginary = self.imaginary or any(
            part.op == "const" and part.note == "i" for part in walk(node)
        )
        return self._value(node)

    def _value(self, node: Node) -> Number:
        match node.op:
            case "num" | "dec":
                exact = Fraction(node.value)
                return mpmath.mpf(exact.numerator) / exact.denominator
            case "sym":
                if node.note not in self.point:
                    raise Undefined(node.note)
                return self.point[node.note]
            case "const":
                return self._constant(node.note)
            case "add":
                return self._sum([self._value(arg) for arg in node.args])
            case "mul":
                return mpmath.fprod([self._value(arg) for arg in node.args])
            case "pow":
                return self._power(node)
            case "func" if node.note in {"sum", "prod"}:
                return self._series(node)
            case "func":
                return self._function(node.note, [self._value(arg) for arg in node.args])
            case _:
                raise Undefined(node.op)

    def _constant(self, name: str) -> Number:
        if name == "inf":
            raise Undefined(name)
        return {"pi": +mpmath.pi, "e": +mpmath.e, "i": mpmath.mpc(0, 1)}[name]

    def _sum(self, terms: list[Number]) -> Number:
        sizes = [float(mpmath.log10(abs(term))) for term in terms if term]
        if len(sizes) > 1:
            self.spread = max(self.spread, max(sizes) - min(sizes))
        return mpmath.fsum(terms)

    def _power(self, node: Node) -> Number:
        base, exponent = self._value(node.args[0]), self._value(node.args[1])
        if base == 0 and (isinstance(exponent, mpmath.mpc) or exponent <= 0):
            raise Undefined("a power of zero")
        if abs(exponent) > 1e6 or (
            base and abs(exponent) * abs(float(mpmath.log10(abs(base)))) > 1e6
        ):
            raise Beyond("a power beyond 10^1000000")
        if (
            isinstance(base, mpmath.mpc)
            or base >= 0
            or exponent == mpmath.floor(mpmath.re(exponent))
        ):
            return base**exponent
        fraction = node.args[1].value if node.args[1].op == "num" else 0
        if isinstance(fraction, Fraction) and fraction.denominator % 2 and not self.imaginary:
            root = (-base) ** exponent
            return -root if fraction.numerator % 2 else root
        if not self.imaginary:
            raise Undefined("a root of a negative number")
        return mpmath.power(base, exponent)

    def _series(self, node: Node) -> Number:
        body, variable, low, high = node.args
        first, last = self._value(low), self._value(high)
        if first != int(first) or last != int(last):
            raise Undefined("bounds that are not whole")
        self.work += max(0, int(last - first)) + 1
        if self.work > MAX_SUM:
            raise Beyond(f"sums of more than {MAX_SUM} terms, those inside sums counted each time")
        kept = self.point.get(variable.note)
        total = mpmath.mpf(0 if node.note == "sum" else 1)
        for index in range(int(first), int(last) + 1):
            self.point[variable.note] = mpmath.mpf(index)
            term = self._value(body)
            total = total + term if node.note == "sum" else total * term
        self.point.pop(variable.note)
        if kept is not None:
            self.point[variable.note] = kept
        return total

    def _function(self, name: str, arguments: list[Number]) -> Number:
        if name in {"ln", "log"}:
            return self._logarithm(name, arguments)
        if name in {"gcd", "lcm", "max", "min"}:
            return _of_several(name, arguments)
        if name == "binom" and len(arguments) == 2:
            return mpmath.binomial(*arguments)
        function = _FUNCTIONS.get(name)
        if function is None or len(arguments) != 1:
            raise Undefined(name)
        if name == "factorial" and abs(arguments[0]) > 1e6:
            raise Beyond("a factorial beyond a million")
        result = function(arguments[0])
        if isinstance(result, mpmath.mpc) and not self.imaginary:
            raise Undefined(name)
        return result

    def _logarithm(self, name: str, arguments: list[Number]) -> Number:
        if not self.imaginary and (isinstance(arguments[0], mpmath.mpc) or arguments[0] <= 0):
            raise Undefined("a logarithm of something not positive")
        top = mpmath.log(arguments[0])
        if len(arguments) == 2:
            return top / mpmath.log(arguments[1])
        return top / mpmath.log(10) if name == "log" else top


def _of_several(name: str, arguments: list[Number]) -> Number:
    if name in {"max", "min"}:
        return max(arguments) if name == "max" else min(arguments)
    whole = [int(argument) for argument in arguments]
    if any(value != argument for value, argument in zip(whole, arguments, strict=True)):
        raise Undefined(name)
    return mpmath.mpf(math.gcd(*whole) if name == "gcd" else math.lcm(*whole))


_FUNCTIONS = cast(
    "dict[str, Callable[[Number], Number]]",
    {
        "sin": mpmath.sin, "cos": mpmath.cos, "tan": mpmath.tan, "cot": mpmath.cot,
        "sec": mpmath.sec, "csc": mpmath.csc,
        "sinh": mpmath.sinh, "cosh": mpmath.cosh, "tanh": mpmath.tanh, "arcsin": mpmath.asin,
        "arccos": mpmath.acos,
        "arctan": mpmath.atan, "arccot": mpmath.acot, "abs": abs, "floor": mpmath.floor,
        "ceil": mpmath.ceil,
        "factorial": mpmath.factorial, "sign": mpmath.sign, "Re": mpmath.re, "Im": mpmath.im,
        "arg": mpmath.arg,
        "erf": mpmath.erf,
    },
)  # fmt: skip
