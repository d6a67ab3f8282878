"""A normal form that proves two formulas equal, exactly and under a cost known beforehand.

A formula becomes a sum of terms with rational coefficients. A term is a product of factors `base^(c * m)`, where `c` is
rational and `m` a symbolic monomial (so `2^{n+1}` is `2 * 2^n`). Bases are primes, variables, constants, opaque
functions of normal forms, and whole sums that could not be expanded (denominators, radicands). The difference of two
formulas is zero if, denominators cleared, no term is left. The converse does not hold: a difference that stays is not
yet proof of anything (`sin^2 x + cos^2 x - 1`).
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

from .nodes import Exact, Node, TooBig

MAX_TERMS = 200
MAX_PRODUCTS = 4000
MAX_BITS = 7000
MAX_POWER = 40
MAX_FACTORIAL = 300

Base = tuple[object, ...]
"""("p", prime), ("s", name), ("c", name), ("f", name, frozen arguments ...), ("r", frozen sum)."""
Factor = tuple[Base, "Monomial"]
Monomial = tuple[tuple[tuple[Base, tuple[object, ...]], Fraction], ...]
"""Sorted ((base, exponent monomial), rational exponent) pairs."""
Sum = dict[Monomial, Fraction]
Frozen = tuple[tuple[Monomial, Fraction], ...]

ONE: Monomial = ()


class Meter:
    """Counts elementary products, so that the work is bounded whatever the formula."""

    def __init__(self, allowance: int = MAX_PRODUCTS) -> None:
        self.left = allowance

    def spend(self, products: int) -> None:
        """Raise TooBig once the allowance is used up."""
        self.left -= products
        if self.left < 0:
            raise TooBig("expanding it takes more products than the limit")


def difference(left: Node, right: Node, allowance: int = MAX_PRODUCTS) -> Sum:
    """The normal form of `left - right` with denominators cleared; empty if they are equal.

    Raises:
        TooBig: beyond the limits of size.
    """
    meter = Meter(allowance)
    first, second = normal(left, meter), normal(right, meter)
    return cleared(plus(first, second, Fraction(-1)), meter)


def proves_equal(left: Node, right: Node) -> bool:
    """Whether the normal forms prove `left = right`."""
    try:
        return not difference(left, right)
    except (TooBig, ZeroDivisionError, OverflowError):
        return False


def normal(node: Node, meter: Meter) -> Sum:
    """The normal form of a scalar formula."""
    match node.op:
        case "num" | "dec":
            return constant(Fraction(node.value))
        case "sym":
            return atom(("s", node.note))
        case "const":
            return atom(("c", node.note))
        case "add":
            return _added([normal(arg, meter) for arg in node.args])
        case "mul":
            product = constant(Fraction(1))
            for arg in node.args:
                product = times(product, normal(arg, meter), meter)
            return product
        case "pow":
            return _power(node.args[0], node.args[1], meter)
        case "func" | "call":
            return _function(node, meter)
        case "percent":
            return scaled(normal(node.args[0], meter), Fraction(1, 100))
        case _:
            raise TooBig(f"a {node.op} has no normal form")


def constant(value: Fraction) -> Sum:
    """A number as a sum."""
    return {ONE: value} if value else {}


def atom(base: Base, exponent: Exact = 1, symbolic: tuple[object, ...] = ()) -> Sum:
    """One factor as a sum."""
    return {(((base, symbolic), exponent),): Fraction(1)}


def scaled(terms: Sum, factor: Fraction) -> Sum:
    """A sum times a number."""
    return (
        {monomial: coefficient * factor for monomial, coefficient in terms.items()}
        if factor
        else {}
    )


def plus(left: Sum, right: Sum, factor: Fraction = Fraction(1)) -> Sum:
    """left + factor * right."""
    total = dict(left)
    for monomial, coefficient in right.items():
        value = total.get(monomial, 0) + coefficient * factor
        if value:
            total[monomial] = Fraction(value)
        else:
            total.pop(monomial, None)
    return total


def _added(sums: list[Sum]) -> Sum:
    total: Sum = {}
    for terms in sums:
        total = plus(total, terms)
    return total


def times(left: Sum, right: Sum, meter: Meter) -> Sum:
    """The product of two sums, expanded."""
    if len(left) == 1 and ONE in left:
        return scaled(right, left[ONE])
    if len(right) == 1 and ONE in right:
        return scaled(left, right[ONE])
    meter.spend(len(left) * len(right) * _weight(left, right))
    total: Sum = {}
    for first, first_coefficient in left.items():
        for second, second_coefficient in right.items():
            monomial, carried = _merged(first, second)
            value = (
                total.get(monomial, Fraction(0)) + first_coefficient * second_coefficient * carried
            )
            _check_size(value)
            total[monomial] = value
    if len(total) > MAX_TERMS:
        raise TooBig(f"more than {MAX_TERMS} terms")
    total = {monomial: value for monomial, value in total.items() if value}
    if any(_can_unfold(item) for monomial in total for item in monomial):
        return _unfolded(total, meter)
    return total


def _weight(left: Sum, right: Sum) -> int:
    """How much one product costs: long numbers and long monomials count more."""
    length = len(next(iter(left), ONE)) + len(next(iter(right), ONE))
    return 1 + length // 4 + (_bits(left) + _bits(right)) // 512


def _bits(terms: Sum) -> int:
    return max(
        (value.numerator.bit_length() + value.denominator.bit_length() for value in terms.values()),
        default=0,
    )


def _check_size(value: Fraction) -> None:
    if value.numerator.bit_length() > MAX_BITS or value.denominator.bit_length() > MAX_BITS:
        raise TooBig(f"numbers of more than {MAX_BITS} bits")


def _merged(first: Monomial, second: Monomial) -> tuple[Monomial, Fraction]:
    """The product of two monomials and the rational number that whole powers of primes give off."""
    if not first:
        return second, Fraction(1)
    if not second:
        return first, Fraction(1)
    exponents = dict(first)
    carried = Fraction(1)
    for key, exponent in second:
        total = exponents.get(key, 0) + exponent
        if key[0][0] == "p" or key[0] == ("c", "i"):
            single, given_off = _single(key, total)
            carried *= given_off
            total = single[0][1] if single else 0
        if total:
            exponents[key] = total
        else:
            exponents.pop(key, None)
    items = exponents.items()
    return tuple(items) if len(items) < 2 else tuple(sorted(items, key=_order)), carried


def _order(item: tuple[object, Fraction]) -> str:
    return repr(item[0])


def _small_power(base: int, exponent: int) -> Fraction:
    if abs(exponent) * base.bit_length() > MAX_BITS:
        raise TooBig(f"numbers of more than {MAX_BITS} bits")
    return Fraction(base) ** exponent


def _unfolded(terms: Sum, meter: Meter) -> Sum:
    """Multiply out sums that a product raised to a whole positive power (sqrt(a+b) times itself)."""
    total: Sum = {}
    for monomial, coefficient in terms.items():
        folded = next((item for item in monomial if _can_unfold(item)), None)
        if folded is None:
            total = (
                plus(total, {monomial: coefficient})
                if monomial in total
                else {**total, monomial: coefficient}
            )
            continue
        key, exponent = folded
        whole = math.floor(exponent)
        rest = _without(monomial, key, exponent - whole)
        opened = _raised(dict(_frozen_of(key[0])), whole, meter)
        total = plus(total, times({rest: coefficient}, opened, meter))
    return total


def _can_unfold(item: tuple[tuple[Base, tuple[object, ...]], Fraction]) -> bool:
    (base, symbolic), exponent = item
    return base[0] == "r" and not symbolic and exponent >= 1


def _without(monomial: Monomial, key: object, left: Fraction) -> Monomial:
    return tuple((k, left if k == key else e) for k, e in monomial if k != key or left)


def _frozen_of(base: Base) -> Frozen:
    return base[1]  # type: ignore[return-value]


def frozen(terms: Sum) -> Frozen:
    """A sum as a hashable value, terms in a fixed order."""
    return tuple(terms.items()) if len(terms) < 2 else tuple(sorted(terms.items(), key=repr))


def _raised(terms: Sum, exponent: int, meter: Meter) -> Sum:
    if exponent > MAX_POWER or len(terms) ** min(exponent, 8) > MAX_PRODUCTS * 4:
        raise TooBig("a power too large to expand")
    product = constant(Fraction(1))
    for _ in range(exponent):
        product = times(product, terms, meter)
    return product


def _power(base: Node, exponent: Node, meter: Meter) -> Sum:
    raised = normal(exponent, meter)
    fixed = raised.pop(ONE, Fraction(0))
    terms = normal(base, meter)
    result = _rational_power(terms, fixed, meter)
    for monomial, coefficient in raised.items():
        result = times(result, _symbolic_power(terms, monomial, coefficient, meter), meter)
    return result


def _symbolic_power(terms: Sum, monomial: Monomial, coefficient: Fraction, meter: Meter) -> Sum:
    if len(terms) != 1:
        return atom(("r", frozen(terms)), coefficient, monomial) if terms else {}
    ((inner, number),) = terms.items()
    result = constant(Fraction(1))
    if number < 0:
        result = atom(("p", -1), coefficient, monomial)
    for prime, multiplicity in _prime_exponents(abs(number)):
        result = times(result, atom(("p", prime), coefficient * multiplicity, monomial), meter)
    for (base, symbolic), power in inner:
        if symbolic:
            raise TooBig("a power tower")
        result = times(result, atom(base, coefficient * power, monomial), meter)
    return result


def _rational_power(terms: Sum, exponent: Fraction, meter: Meter) -> Sum:
    if exponent.denominator == 1:
        exponent = int(exponent)  # hashes many times faster than a Fraction
    if exponent == 0:
        return constant(Fraction(1))
    if exponent == 1:
        return terms
    if not terms:
        if exponent < 0:
            raise ZeroDivisionError("division by zero")
        return {}
    if len(terms) == 1:
        return _power_of_term(*next(iter(terms.items())), exponent, meter)
    whole = exponent.denominator == 1
    if whole and exponent > 0 and len(terms) ** min(int(exponent), 8) <= MAX_PRODUCTS:
        return _raised(terms, int(exponent), meter)
    content, primitive = _primitive(terms, signed=whole)
    outside = _power_of_term(ONE, content, exponent, meter)
    return times(outside, atom(("r", frozen(primitive)), exponent), meter)


def _primitive(terms: Sum, *, signed: bool) -> tuple[Fraction, Sum]:
    """(content, rest): the rest has coprime integer coefficients; with `signed` its first one is positive."""
    bottom = math.lcm(*(value.denominator for value in terms.values()))
    top = math.gcd(*(int(value * bottom) for value in terms.values()))
    content = Fraction(top, bottom)
    if signed and frozen(terms)[0][1] < 0:
        content = -content
    return content, scaled(terms, 1 / content)


def _power_of_term(
    monomial: Monomial, coefficient: Fraction, exponent: Fraction, meter: Meter
) -> Sum:
    whole = exponent.denominator == 1
    if whole:
        _check_power(coefficient, int(exponent))
        result = constant(coefficient ** int(exponent))
    else:
        result = _root_of_number(coefficient, exponent, meter)
    for (base, symbolic), power in monomial:
        if not whole and not _may_combine(base, power):
            return atom(("r", frozen({monomial: coefficient})), exponent)
        raised, carried = _single((base, symbolic), power * exponent)
        result = times(result, {raised: carried}, meter)
    return result


def _single(key: tuple[Base, tuple[object, ...]], exponent: Fraction) -> tuple[Monomial, Fraction]:
    """One power as a monomial, whole powers of primes and of i given off as a number."""
    base, symbolic = key
    if not symbolic and base[0] == "p":
        whole = math.floor(exponent)
        rest = exponent - whole
        return (((key, rest),) if rest else ONE), _small_power(int(str(base[1])), whole)
    if not symbolic and base == ("c", "i") and exponent.denominator == 1:
        rest = exponent % 2
        return (((key, rest),) if rest else ONE), Fraction((1, 1, -1, -1)[int(exponent) % 4])
    return ((key, exponent),), Fraction(1)


def _may_combine(base: Base, power: Fraction) -> bool:
    """(x^2)^(1/2) is |x|, not x: only positive bases and odd powers may be combined under a root."""
    return (
        base[0] == "p"
        or base in {("c", "pi"), ("c", "e")}
        or (base != ("c", "i") and power.numerator % 2 == 1)
    )


def _check_power(value: Fraction, exponent: int) -> None:
    bits = max(value.numerator.bit_length(), value.denominator.bit_length())
    if abs(value) != 1 and bits * abs(exponent) > MAX_BITS:
        raise TooBig(f"a power of more than {MAX_BITS} bits")


def _root_of_number(value: Fraction, exponent: Fraction, meter: Meter) -> Sum:
    result = constant(Fraction(1))
    if value < 0:
        if exponent.denominator == 2:
            result = times(
                atom(("c", "i")), constant(Fraction((-1) ** ((exponent.numerator - 1) // 2))), meter
            )
        elif exponent.denominator % 2 == 1:
            result = constant(Fraction(-1 if exponent.numerator % 2 else 1))
        else:
            raise TooBig("an even root of a negative number")
    for prime, multiplicity in _prime_exponents(abs(value)):
        total = multiplicity * exponent
        whole = math.floor(total)
        result = scaled(result, _small_power(prime, whole))
        if total != whole:
            result = times(result, atom(("p", prime), total - whole), meter)
    return result


def _prime_exponents(value: Fraction) -> tuple[tuple[int, int], ...]:
    return (
        *_factored(value.numerator),
        *((prime, -count) for prime, count in _factored(value.denominator)),
    )


@lru_cache(maxsize=4096)
def _factored(number: int) -> tuple[tuple[int, int], ...]:
    """Prime factors by trial division up to 1000; what is left must be small enough to be surely prime.

    Cached by number: a table of primes, not of answers.
    """
    found: list[tuple[int, int]] = []
    if number.bit_length() > 256:
        raise TooBig("a number too large to factor")
    for prime in _PRIMES:
        if prime * prime > number:
            break
        count = 0
        while number % prime == 0:
            number //= prime
            count += 1
        if count:
            found.append((prime, count))
    if number > 1:
        if number > 1_000_000:
            root = math.isqrt(number)
            if root * root == number:
                found.extend((prime, 2 * count) for prime, count in _factored(root))
                return tuple(found)
        found.append((number, 1))
    return tuple(found)


_PRIMES = tuple(n for n in range(2, 1000) if all(n % d for d in range(2, math.isqrt(n) + 1)))


def cleared(terms: Sum, meter: Meter) -> Sum:
    """The sum times its denominators, until none is left or nothing changes."""
    for _ in range(8):
        worst: dict[object, Fraction] = {}
        for monomial in terms:
            for key, exponent in monomial:
                base, symbolic = key
                if base[0] == "r" and not symbolic and exponent < 0:
                    worst[key] = min(worst.get(key, Fraction(0)), exponent)
        if not worst:
            return terms
        for key, exponent in worst.items():
            terms = times(terms, {((key, Fraction(-exponent)),): Fraction(1)}, meter)  # type: ignore[dict-item]
    return terms


def _function(node: Node, meter: Meter) -> Sum:
    arguments = [normal(arg, meter) for arg in node.args]
    meter.spend(1 + sum(map(len, arguments)))
    exact = _exact_function(node.note, arguments, meter) if node.op == "func" else None
    return _opaque(node.note, arguments) if exact is None else exact


def _opaque(name: str, arguments: list[Sum]) -> Sum:
    """A function that stays closed, its argument's sign taken out where the function is odd or even."""
    if name in {"max", "min", "gcd", "lcm", "series"}:
        return atom(("f", name, *sorted((frozen(argument) for argument in arguments), key=repr)))
    if name in _ODD | _EVEN and len(arguments) == 1 and arguments[0]:
        content, rest = _primitive(arguments[0], signed=True)
        positive = scaled(rest, abs(content))
        sign = Fraction(-1 if content < 0 and name in _ODD else 1)
        return scaled(atom(("f", name, frozen(positive))), sign)
    return atom(("f", name, *(frozen(argument) for argument in arguments)))


_ODD = frozenset({"sin", "tan", "cot", "csc", "arcsin", "arctan", "sinh", "tanh"})
_EVEN = frozenset({"cos", "sec", "cosh", "abs"})
_QUOTIENTS = {"tan": ("sin", "cos"), "cot": ("cos", "sin")}
_RECIPROCALS = {"sec": "cos", "csc": "sin"}


def _exact_function(name: str, arguments: list[Sum], meter: Meter) -> Sum | None:
    if name in _QUOTIENTS:
        top, bottom = (_opaque(part, arguments) for part in _QUOTIENTS[name])
        return times(top, _rational_power(bottom, Fraction(-1), meter), meter)
    if name in _RECIPROCALS:
        return _rational_power(_opaque(_RECIPROCALS[name], arguments), Fraction(-1), meter)
    if name in {"ln", "log"}:
        return _logarithm(name, arguments, meter)
    values = [_whole(argument) for argument in arguments]
    if None in values:
        return _small_binomial(arguments, meter) if name == "binom" else None
    exact = _integer_function(name, [value for value in values if value is not None])
    return None if exact is None else constant(Fraction(exact))


def _whole(terms: Sum) -> Fraction | None:
    if not terms:
        return Fraction(0)
    return terms[ONE] if len(terms) == 1 and ONE in terms else None


def _integer_function(name: str, values: list[Fraction]) -> Exact | None:
    if name == "abs":
        return abs(values[0])
    if name in {"max", "min"}:
        return max(values) if name == "max" else min(values)
    if name in {"floor", "ceil"}:
        return math.floor(values[0]) if name == "floor" else math.ceil(values[0])
    whole = [int(value) for value in values if value.denominator == 1]
    if len(whole) != len(values):
        return None
    if name in {"gcd", "lcm"}:
        return math.gcd(*whole) if name == "gcd" else math.lcm(*whole)
    if name == "factorial" and 0 <= whole[0] <= MAX_FACTORIAL:
        return math.factorial(whole[0])
    if name == "binom" and 0 <= whole[0] <= MAX_FACTORIAL:
        return math.comb(whole[0], whole[1]) if whole[1] >= 0 else 0
    return None


def _small_binomial(arguments: list[Sum], meter: Meter) -> Sum | None:
    upper, lower = arguments[0], _whole(arguments[1])
    if lower is None or lower.denominator != 1 or not 0 <= lower <= 6:
        return None
    product = constant(Fraction(1))
    for step in range(int(lower)):
        product = times(product, plus(upper, constant(Fraction(-step))), meter)
    return scaled(product, Fraction(1, math.factorial(int(lower))))


def _logarithm(name: str, arguments: list[Sum], meter: Meter) -> Sum | None:
    """Logarithms of numbers split over primes; a base divides."""
    top = _natural_log(arguments[0])
    if len(arguments) == 2:
        bottom = _natural_log(arguments[1])
    elif name == "log":
        bottom = _natural_log(constant(Fraction(10)))
    else:
        return top
    return times(top, _rational_power(bottom, Fraction(-1), meter), meter)


def _natural_log(terms: Sum) -> Sum:
    split = _log_of_term(terms)
    return atom(("f", "ln", frozen(terms))) if split is None else split


def _log_of_term(terms: Sum) -> Sum | None:
    """ln of a positive number or a power of one; None if it has to stay closed."""
    if len(terms) != 1:
        return None
    ((monomial, coefficient),) = terms.items()
    if coefficient <= 0 or any(
        symbolic or (base[0] != "p" and base not in _POSITIVE) for (base, symbolic), _ in monomial
    ):
        return None
    total: Sum = {}
    for prime, count in _prime_exponents(coefficient):
        total = plus(total, atom(("f", "ln", prime)), Fraction(count))
    for (base, _), exponent in monomial:
        total = plus(
            total,
            constant(Fraction(1)) if base == ("c", "e") else atom(("f", "ln", base)),
            exponent,
        )
    return total


_POSITIVE = {("c", "e"), ("c", "pi")}
