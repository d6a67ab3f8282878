"""Sums of terms with rational coefficients: the arithmetic of the normal form.

A term is a product of factors `base^(c * m)`, where `c` is rational and `m` a symbolic monomial,
so that `2^{n+1}` is `2 * 2^n`. Every product is paid for from a `Meter`, where long numbers and
long monomials cost more, so that the work is bounded for any formula.
"""

from __future__ import annotations

import math
from fractions import Fraction

from ..reading.nodes import Exact, TooBig, magnitude
from .primes import check_power, check_size, prime_exponents, small_power

MAX_TERMS = 200
MAX_PRODUCTS = 4000
MAX_POWER = 40

Base = tuple[object, ...]
"""The base of a factor, tagged by kind: ("p", prime), ("s", name), ("c", name), ("f", name, frozen
arguments ...) or ("r", frozen sum).
"""
Factor = tuple[Base, "Monomial"]
Monomial = tuple[tuple[tuple[Base, tuple[object, ...]], Exact], ...]
"""Sorted ((base, exponent monomial), rational exponent) pairs."""
Sum = dict[Monomial, Exact]
Frozen = tuple[tuple[Monomial, Exact], ...]

ONE: Monomial = ()


class Meter:
    """A counter of elementary products, which bounds the work for any formula."""

    def __init__(self, allowance: int = MAX_PRODUCTS) -> None:
        self.left = allowance

    def spend(self, products: int) -> None:
        """Use up `products` of the allowance.

        Raises:
            TooBig: the allowance is used up.
        """
        self.left -= products
        if self.left < 0:
            raise TooBig("expanding the formula takes more products than the limit allows")


def exact(value: Exact) -> Exact:
    """Return an int where the denominator is 1, so that every number has a single form and most are
    cheap ints.
    """
    if type(value) is int or value.denominator != 1:
        return value
    return value.numerator


def constant(value: Exact) -> Sum:
    """Return a number as a sum."""
    return {ONE: exact(value)} if value else {}


def atom(base: Base, exponent: Exact = 1, symbolic: tuple[object, ...] = ()) -> Sum:
    """Return a single factor as a sum."""
    return {(((base, symbolic), exponent),): 1}


def scaled(terms: Sum, factor: Exact) -> Sum:
    """Return a sum multiplied by a number."""
    return (
        {monomial: exact(coefficient * factor) for monomial, coefficient in terms.items()}
        if factor
        else {}
    )


def plus(left: Sum, right: Sum, factor: Exact = 1) -> Sum:
    """Return left + factor * right."""
    total = dict(left)
    for monomial, coefficient in right.items():
        value = total.get(monomial, 0) + coefficient * factor
        if value:
            total[monomial] = exact(value)
        else:
            total.pop(monomial, None)
    return total


def times(left: Sum, right: Sum, meter: Meter) -> Sum:
    """Return the expanded product of two sums.

    Raises:
        TooBig: more than MAX_TERMS terms, a number that is too long, or the meter is used up.
    """
    if len(left) == 1 and ONE in left:
        return scaled(right, left[ONE])
    if len(right) == 1 and ONE in right:
        return scaled(left, right[ONE])
    # Long numbers and long monomials cost more.
    length = len(next(iter(left), ONE)) + len(next(iter(right), ONE))
    weight = 1 + length // 4 + (_bits(left) + _bits(right)) // 512
    meter.spend(len(left) * len(right) * weight)
    total: Sum = {}
    for first, first_coefficient in left.items():
        for second, second_coefficient in right.items():
            monomial, coefficient = _merged(first, second)
            value = total.get(monomial, 0) + first_coefficient * second_coefficient * coefficient
            check_size(value)
            total[monomial] = exact(value)
    if len(total) > MAX_TERMS:
        raise TooBig(f"more than {MAX_TERMS} terms")
    total = {monomial: value for monomial, value in total.items() if value}
    # A product of roots can leave a whole power of a sum, such as sqrt(a+b)^2.
    if any(_can_unfold(item) for monomial in total for item in monomial):
        return _unfolded(total, meter)
    return total


def _bits(terms: Sum) -> int:
    return max(
        (value.numerator.bit_length() + value.denominator.bit_length() for value in terms.values()),
        default=0,
    )


def _merged(first: Monomial, second: Monomial) -> tuple[Monomial, Exact]:
    """Return the product of two monomials, and the rational number that whole powers of primes
    contribute.
    """
    if not first:
        return second, 1
    if not second:
        return first, 1
    exponents = dict(first)
    coefficient: Exact = 1
    for key, exponent in second:
        total = exponents.get(key, 0) + exponent
        if key[0][0] == "p" or key[0] == ("c", "i"):
            single, given_off = _single(key, total)
            coefficient *= given_off
            total = single[0][1] if single else 0
        if total:
            exponents[key] = exact(total)
        else:
            exponents.pop(key, None)
    # Bases of different kinds cannot be compared with each other; their texts can.
    items = exponents.items()
    return tuple(items) if len(items) < 2 else tuple(
        sorted(items, key=lambda item: repr(item[0]))
    ), coefficient


def _unfolded(terms: Sum, meter: Meter) -> Sum:
    """Expand sums that a product has raised to a whole positive power, such as sqrt(a+b)^2."""
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
        integer_part = math.floor(exponent)
        fraction = exponent - integer_part
        others = tuple(
            (k, fraction if k == key else e) for k, e in monomial if k != key or fraction
        )
        inner: Frozen = key[0][1]  # type: ignore[assignment]
        expanded = _raised(dict(inner), integer_part, meter)
        total = plus(total, times({others: coefficient}, expanded, meter))
    return total


def _can_unfold(item: tuple[tuple[Base, tuple[object, ...]], Exact]) -> bool:
    (base, symbolic), exponent = item
    return base[0] == "r" and not symbolic and exponent >= 1


def frozen(terms: Sum) -> Frozen:
    """Return a sum as a hashable value with the terms in a fixed order."""
    return tuple(terms.items()) if len(terms) < 2 else tuple(sorted(terms.items(), key=repr))


def _raised(terms: Sum, exponent: int, meter: Meter) -> Sum:
    if exponent > MAX_POWER or len(terms) ** min(exponent, 8) > MAX_PRODUCTS * 4:
        raise TooBig("a power too large to expand")
    product = constant(1)
    for _ in range(exponent):
        product = times(product, terms, meter)
    return product


def symbolic_power(terms: Sum, monomial: Monomial, coefficient: Exact, meter: Meter) -> Sum:
    """Return a sum raised to `coefficient * monomial`, an exponent with variables.

    Raises:
        TooBig: the base has such an exponent already, or the meter is used up.
    """
    if len(terms) != 1:
        return atom(("r", frozen(terms)), coefficient, monomial) if terms else {}
    ((inner, number),) = terms.items()
    result = constant(1)
    if number < 0:
        result = atom(("p", -1), coefficient, monomial)
    for prime, multiplicity in prime_exponents(magnitude(number)):
        result = times(result, atom(("p", prime), coefficient * multiplicity, monomial), meter)
    for (base, symbolic), power in inner:
        if symbolic:
            raise TooBig("a power tower")
        result = times(result, atom(base, coefficient * power, monomial), meter)
    return result


def rational_power(terms: Sum, exponent: Exact, meter: Meter) -> Sum:
    """Return a sum raised to a number.

    Raises:
        ZeroDivisionError: zero has no negative power.
        TooBig: the power is too large to expand, an even root of a negative number, or the meter is
            used up.
    """
    if exponent.denominator == 1:
        exponent = int(exponent)  # An int hashes many times faster than a Fraction.
    if exponent == 0:
        return constant(1)
    if exponent == 1:
        return terms
    if not terms:
        if exponent < 0:
            raise ZeroDivisionError("division by zero")
        return {}
    if len(terms) == 1:
        return _power_of_term(*next(iter(terms.items())), exponent, meter)
    is_integer = exponent.denominator == 1
    if is_integer and exponent > 0 and len(terms) ** min(int(exponent), 8) <= MAX_PRODUCTS:
        return _raised(terms, int(exponent), meter)
    # With the content taken out, sqrt(2x+2) and sqrt(2) sqrt(x+1) share a base.
    content, primitive = primitive_part(terms, signed=is_integer)
    outside = _power_of_term(ONE, content, exponent, meter)
    return times(outside, atom(("r", frozen(primitive)), exponent), meter)


def primitive_part(terms: Sum, *, signed: bool) -> tuple[Fraction, Sum]:
    """Return (content, rest) of a sum, where the rest has coprime integer coefficients.

    With `signed` the first coefficient of the rest is positive.
    """
    bottom = math.lcm(*(value.denominator for value in terms.values()))
    top = math.gcd(*(int(value * bottom) for value in terms.values()))
    content = Fraction(top, bottom)
    if signed and frozen(terms)[0][1] < 0:
        content = -content
    return content, scaled(terms, 1 / content)


def _power_of_term(monomial: Monomial, coefficient: Exact, exponent: Exact, meter: Meter) -> Sum:
    is_integer = exponent.denominator == 1
    if is_integer:
        check_power(coefficient, int(exponent))
        result = constant(Fraction(coefficient) ** int(exponent))
    else:
        result = constant(1)
        if coefficient < 0 and exponent.denominator == 2:
            sign = constant((-1) ** ((exponent.numerator - 1) // 2))
            result = times(atom(("c", "i")), sign, meter)
        elif coefficient < 0 and exponent.denominator % 2 == 1:
            result = constant(-1 if exponent.numerator % 2 else 1)
        elif coefficient < 0:
            raise TooBig("an even root of a negative number")
        for prime, multiplicity in prime_exponents(magnitude(coefficient)):
            total = multiplicity * exponent
            integer_part = math.floor(total)
            result = scaled(result, small_power(prime, integer_part))
            if total != integer_part:
                result = times(result, atom(("p", prime), total - integer_part), meter)
    for (base, symbolic), power in monomial:
        # A root splits over factors only if these cannot be negative: (x^2)^(1/2) is |x| and not x,
        # so only positive bases and odd powers combine.
        positive = base[0] == "p" or base in {("c", "pi"), ("c", "e")}
        odd = base != ("c", "i") and power.numerator % 2 == 1
        if not (is_integer or positive or odd):
            return atom(("r", frozen({monomial: coefficient})), exponent)
        raised, root_coefficient = _single((base, symbolic), power * exponent)
        result = times(result, {raised: root_coefficient}, meter)
    return result


def _single(key: tuple[Base, tuple[object, ...]], exponent: Exact) -> tuple[Monomial, Exact]:
    """Return a power as a monomial and a number: whole powers of primes and of i become the
    number.
    """
    base, symbolic = key
    if not symbolic and base[0] == "p":
        integer_part = math.floor(exponent)
        remainder = exponent - integer_part
        return (((key, remainder),) if remainder else ONE), small_power(
            int(str(base[1])), integer_part
        )
    if not symbolic and base == ("c", "i") and exponent.denominator == 1:
        remainder = exponent % 2
        return (((key, remainder),) if remainder else ONE), (1, 1, -1, -1)[int(exponent) % 4]
    return ((key, exponent),), 1


def cleared(terms: Sum, meter: Meter, kinds: str) -> Sum:
    """Return the sum times the denominators with the given kinds of base, until no such denominator
    is left.
    """
    for _ in range(8):
        worst: dict[tuple[Base, tuple[object, ...]], Exact] = {}
        for monomial in terms:
            for key, exponent in monomial:
                base, symbolic = key
                if str(base[0]) in kinds and not symbolic and exponent < 0:
                    worst[key] = min(worst.get(key, 0), exponent)
        if not worst:
            return terms
        for key, exponent in worst.items():
            terms = times(terms, {((key, -exponent),): 1}, meter)
    return terms
