"""Interval-like evaluation in doubles: a cheap proof that two formulas differ.

Every value carries a bound on the rounding error, so "different" is only said when the gap is
larger than both bounds together. "Same" is never said here: that needs the normal form, or many
digits (`precise.py`). A point where a formula is undefined over the reals (a root or logarithm
of a negative number) is skipped, so that `sqrt(ab)` and `sqrt(a) sqrt(b)` meet only where both
mean something; with `i` in the formula, values are complex.
"""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable, Sequence

from ..reading.nodes import Node, TreeShape, shape

EPSILON = 2.3e-16
CAUTION = 4
"""How many times a bound is taken where it decides, since the bounds are first-order estimates."""
HUGE = 1e150
# Test points: one generic, one of mixed signs, one of whole numbers, one far out.
_GENERIC = (1.3704, 2.6181, 0.7323, 3.1727, 1.8914, 0.4142, 2.2361, 4.6692)
_MIXED = (-0.8314, 1.7205, -1.4427, 0.5772, -2.5029, 1.2020, -0.9159, 2.6854)
_WHOLE = (3.0, 5.0, 2.0, 7.0, 4.0, 9.0, 6.0, 8.0)
_FAR = (137.21, -58.43, 211.07, -96.31, 74.59, 183.7, -149.2, 67.83)
# Only for formulas that are undefined at all of these, such as `(n - k)!`.
_FALLING = (19.0, 17.0, 13.0, 11.0, 7.0, 5.0, 3.0, 2.0)
POINTS = (_GENERIC, _MIXED, _FAR, _WHOLE)

Value = tuple[complex, float]
"""A value and a bound on the absolute error."""


class Undefined(ArithmeticError):
    """The formula has no (real) value at this point, or a value beyond the range of doubles."""


def differ(left: Node, right: Node, left_shape: TreeShape, right_shape: TreeShape) -> bool:
    """Return whether two formulas, whose shapes are given, surely differ at some point.

    >>> from ..reading.reader import read
    >>> one, other = read("x+1"), read("x-1")
    >>> differ(one, other, shape(one), shape(other)), differ(one, one, shape(one), shape(one))
    (True, False)
    """
    names = sorted(left_shape.names | right_shape.names)
    if len(names) > len(_GENERIC):
        return False
    imaginary = left_shape.imaginary or right_shape.imaginary
    tried = False
    for point in (*POINTS, _FALLING) if names else POINTS[:1]:
        if tried and point is _FALLING:
            break
        values = dict(zip(names, point, strict=False))
        try:
            first, first_error = evaluate(left, values, imaginary)
            second, second_error = evaluate(right, values, imaginary)
        except (Undefined, ZeroDivisionError, OverflowError, ValueError):
            continue
        tried = True
        # The last term covers subnormals.
        if abs(first - second) > CAUTION * (first_error + second_error) + 1e-290:
            return True
    return False


def approximate(node: Node) -> float | None:
    """Return the real value of a formula without variables, or None.

    None also stands for a value whose error bound exceeds 1e-6 of the value.
    """
    try:
        value, error = evaluate(node, {}, shape(node).imaginary)
    except (Undefined, ZeroDivisionError, OverflowError, ValueError):
        return None
    if abs(value.imag) > error or error > 1e-6 * max(1.0, abs(value)):
        return None
    return value.real


def evaluate(node: Node, values: dict[str, float], imaginary: bool) -> Value:
    """Return the value of `node` at a point, with a bound on the error.

    Raises:
        Undefined: no real value there (unless `imaginary`), an unknown function, or out of range.
    """
    value, error = _evaluate(node, values, imaginary)
    if not (abs(value) < HUGE and error < HUGE):
        raise Undefined(node.op)
    return value, error


def _evaluate(node: Node, values: dict[str, float], imaginary: bool) -> Value:
    match node.op:
        case "num" | "dec":
            value = float(node.value)
            return value, abs(value) * EPSILON
        case "sym":
            if node.note not in values:
                raise Undefined(node.note)
            return values[node.note], 0.0
        case "const":
            name = node.note
            match name:
                case "pi":
                    return math.pi, EPSILON * 4
                case "e":
                    return math.e, EPSILON * 4
                case "i":
                    return 1j, 0.0
                case _:
                    raise Undefined(name)
        case "add":
            parts = [_evaluate(arg, values, imaginary) for arg in node.args]
            total = sum(part[0] for part in parts)
            return total, sum(part[1] for part in parts) + EPSILON * sum(
                abs(part[0]) for part in parts
            )
        case "mul":
            product, error = _evaluate(node.args[0], values, imaginary)
            for arg in node.args[1:]:
                factor, factor_error = _evaluate(arg, values, imaginary)
                error = abs(product) * factor_error + abs(factor) * error + error * factor_error
                product *= factor
                error += abs(product) * EPSILON * 2
            return product, error
        case "pow":
            return _power(
                _evaluate(node.args[0], values, imaginary), node.args[1], values, imaginary
            )
        case "func":
            return _function(node.note, [_evaluate(arg, values, imaginary) for arg in node.args])
        case _:
            raise Undefined(node.op)


def _power(base: Value, exponent: Node, values: dict[str, float], imaginary: bool) -> Value:
    value, error = base
    raised, raised_error = _evaluate(exponent, values, imaginary)
    if value == 0 or abs(value) <= error:
        if exponent.op == "num" and exponent.value > 0 and value == 0 and error == 0:
            return 0.0, 0.0
        raise Undefined("a power of something near zero")
    is_integer = (
        not isinstance(raised, complex) and raised == int(raised) if abs(raised) < 1e15 else False
    )
    if isinstance(value, complex) or isinstance(raised, complex):
        result = cmath.exp(raised * cmath.log(value))
    elif value < 0 and not is_integer:
        if (
            not isinstance(exponent.value, int)
            and exponent.op == "num"
            and exponent.value.denominator % 2
            and not imaginary
        ):
            root: float = abs(value) ** raised.real
            result = -root if exponent.value.numerator % 2 else root
        else:
            if not imaginary:
                raise Undefined("a root of a negative number")
            result = cmath.exp(raised * cmath.log(value))
    else:
        result = value**raised
    relative = abs(raised) * error / abs(value) + abs(cmath.log(value)) * raised_error
    return result, abs(result) * (relative * 1.01 + EPSILON * (8 + 2 * abs(raised)))


def _function(name: str, arguments: list[Value]) -> Value:
    value, error = arguments[0]
    if len(arguments) == 1 and name in _SMOOTH:
        if isinstance(value, complex):
            raise Undefined(name)
        function, slope = _SMOOTH[name]
        result = function(value)
        return result, slope(value) * error * 1.1 + EPSILON * (8 * abs(result) + 4)
    if name == "abs":
        return abs(value), error
    if name in {"log", "ln"}:
        return _logarithm(name, arguments)
    reals = [part[0] for part in arguments if isinstance(part[0], (int, float))]
    if len(reals) < len(arguments):
        raise Undefined(name)
    total_error = sum(part[1] for part in arguments)
    if name in {"max", "min"}:
        return (max(reals) if name == "max" else min(reals)), total_error
    if name == "binom" and len(reals) == 2:
        return _binomial(reals[0], reals[1], total_error)
    return _step(name, reals, total_error), 0.0


def _step(name: str, reals: Sequence[float], error: float) -> float:
    """Return the exact value of a step function, whose arguments lie within `error`.

    Raises:
        Undefined: the arguments may lie on different steps, or it is no step function.
    """
    value, reach = reals[0], CAUTION * error
    if name not in {"gcd", "lcm"} and len(reals) > 1:
        raise Undefined(name)
    match name:
        case "sign" if value == error == 0:
            return 0.0
        case "sign" if abs(value) > reach:
            return math.copysign(1.0, value)
        case "floor" | "ceil" if abs(value - round(value)) > reach:
            return float(math.floor(value) if name == "floor" else math.ceil(value))
        case "gcd" | "lcm" if reach < 0.5 and all(
            real == int(real) and abs(real) < 1e15 for real in reals
        ):
            integers = [int(real) for real in reals]
            return float(math.gcd(*integers) if name == "gcd" else math.lcm(*integers))
        case _:
            raise Undefined(name)


def _binomial(upper: float, lower: float, error: float) -> Value:
    if lower < 0 or upper < lower or upper > 1e6:
        raise Undefined("binom")
    logs = [math.lgamma(part + 1) for part in (upper, lower, upper - lower)]
    result = math.exp(logs[0] - logs[1] - logs[2])
    # The three logarithms are large and nearly cancel. Their slope is that of the logarithm at
    # most, and a constant near zero.
    slope = 1 + math.log(upper + 1)
    rounding = EPSILON * (8 * sum(map(abs, logs)) + 8 + 3 * (upper + 1) * slope)
    return result, result * (rounding + error * slope * 1.1)


def _logarithm(name: str, arguments: list[Value]) -> Value:
    value, error = arguments[0]
    if isinstance(value, complex) or value <= error:
        raise Undefined("a logarithm of something not positive")
    top: Value = (math.log(value), error / value * 1.1 + EPSILON * (2 + abs(math.log(value))))
    if len(arguments) == 1 and name == "ln":
        return top
    base, base_error = arguments[1] if len(arguments) == 2 else (10.0, 0.0)
    bottom, bottom_error = _logarithm("ln", [(base, base_error)])
    if abs(bottom) <= bottom_error:
        raise Undefined("a logarithm to base one")
    result = top[0] / bottom
    return result, (top[1] + abs(result) * bottom_error) / abs(bottom) + EPSILON * 4 * abs(result)


def _gamma(value: float) -> float:
    if value < 0 or value > 150:
        raise Undefined("factorial")
    return math.gamma(value + 1)


Real = Callable[[float], float]
_SMOOTH: dict[str, tuple[Real, Real]] = {
    "sin": (math.sin, lambda x: 1.0), "cos": (math.cos, lambda x: 1.0),
    "tan": (math.tan, lambda x: 1 + math.tan(x) ** 2),
    "cot": (lambda x: 1 / math.tan(x), lambda x: 1 + 1 / math.tan(x) ** 2),
    "sec": (lambda x: 1 / math.cos(x), lambda x: 1 / math.cos(x) ** 2),
    "csc": (lambda x: 1 / math.sin(x), lambda x: 1 / math.sin(x) ** 2),
    "arcsin": (math.asin, lambda x: 1 / math.sqrt(max(1 - x * x, 1e-16))),
    "arccos": (math.acos, lambda x: 1 / math.sqrt(max(1 - x * x, 1e-16))),
    "arctan": (math.atan, lambda x: 1.0),
    "arccot": (lambda x: math.pi / 2 - math.atan(x), lambda x: 1.0), "sinh": (math.sinh, math.cosh),
    "cosh": (math.cosh, lambda x: abs(math.sinh(x))), "tanh": (math.tanh, lambda x: 1.0),
    "arcsinh": (math.asinh, lambda x: 1.0), "sech": (lambda x: 1 / math.cosh(x), lambda x: 1.0),
    "factorial": (_gamma, lambda x: _gamma(x) * (2 + math.log(1 + x))),
    "erf": (math.erf, lambda x: 1.2),
}  # fmt: skip
