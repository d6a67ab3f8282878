"""Numbers in the normal form: prime factors, and limits on the size of numbers."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

from ..reading.nodes import Exact, TooBig

MAX_BITS = 7000


def check_size(value: Exact) -> None:
    if value.numerator.bit_length() > MAX_BITS or value.denominator.bit_length() > MAX_BITS:
        raise TooBig(f"numbers of more than {MAX_BITS} bits")


def small_power(base: int, exponent: int) -> Fraction:
    if abs(exponent) * base.bit_length() > MAX_BITS:
        raise TooBig(f"numbers of more than {MAX_BITS} bits")
    return Fraction(base) ** exponent


def check_power(value: Exact, exponent: int) -> None:
    bits = max(value.numerator.bit_length(), value.denominator.bit_length())
    if abs(value) != 1 and bits * abs(exponent) > MAX_BITS:
        raise TooBig(f"a power of more than {MAX_BITS} bits")


def prime_exponents(value: Exact) -> tuple[tuple[int, int], ...]:
    return (
        *_factored(value.numerator),
        *((prime, -count) for prime, count in _factored(value.denominator)),
    )


@lru_cache(maxsize=4096)
def _factored(number: int) -> tuple[tuple[int, int], ...]:
    """Return prime factors by trial division up to 1000; the remainder must be small enough to be
    surely prime.

    The cache is keyed by number: a table of primes, not of answers.
    """
    prime_powers: list[tuple[int, int]] = []
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
            prime_powers.append((prime, count))
    if number > 1:
        if number > 1_000_000:
            root = math.isqrt(number)
            if root * root == number:
                prime_powers.extend((prime, 2 * count) for prime, count in _factored(root))
                return tuple(prime_powers)
        prime_powers.append((number, 1))
    return tuple(prime_powers)


_PRIMES = tuple(n for n in range(2, 1000) if all(n % d for d in range(2, math.isqrt(n) + 1)))
