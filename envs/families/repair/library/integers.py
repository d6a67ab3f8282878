"""Functions that work on whole numbers."""

from __future__ import annotations


def digit_sum(number: int) -> int:
    """The sum of the decimal digits, whatever the sign.

    >>> digit_sum(-305)
    8
    """
    left = abs(number)
    total = 0
    while left > 0:
        total += left % 10
        left //= 10
    return total


def greatest_divisor(one: int, other: int) -> int:
    """The greatest number that divides both; of 0 and n it is n.

    >>> greatest_divisor(12, -18)
    6
    """
    one, other = abs(one), abs(other)
    while other != 0:
        one, other = other, one % other
    return one


def prime_factors(number: int) -> list[int]:
    """The prime factors in ascending order, each as often as it divides; none for 1. Raises
    ValueError below 1.

    >>> prime_factors(60)
    [2, 2, 3, 5]
    """
    if number < 1:
        raise ValueError("number must be at least 1")
    factors: list[int] = []
    divisor = 2
    while divisor * divisor <= number:
        while number % divisor == 0:
            factors.append(divisor)
            number //= divisor
        divisor += 1
    if number > 1:
        factors.append(number)
    return factors


def to_base(number: int, base: int) -> str:
    """A number from 0 on, written in a base from 2 to 10.

    >>> to_base(11, 2)
    '1011'
    """
    if number == 0:
        return "0"
    written = ""
    while number > 0:
        written = str(number % base) + written
        number //= base
    return written


def to_roman(number: int) -> str:
    """A number from 1 to 3999 in Roman numerals.

    >>> to_roman(1994)
    'MCMXCIV'
    """
    values = [1000, 900, 500, 400, 100, 90, 50, 40, 10, 9, 5, 4, 1]
    signs = ["M", "CM", "D", "CD", "C", "XC", "L", "XL", "X", "IX", "V", "IV", "I"]
    written = ""
    for value, sign in zip(values, signs, strict=True):
        while number >= value:
            written += sign
            number -= value
    return written


def is_leap_year(year: int) -> bool:
    """Whether a year has a 29 February: every fourth, but of the full centuries only every
    fourth.

    >>> is_leap_year(2024), is_leap_year(1900), is_leap_year(2000)
    (True, False, True)
    """
    if year % 100 == 0:
        return year % 400 == 0
    return year % 4 == 0


def fewest_coins(amount: int, coins: list[int]) -> int:
    """The fewest coins that make up an amount, each kind as often as needed; -1 if they cannot.

    >>> fewest_coins(6, [1, 3, 4])
    2
    >>> fewest_coins(3, [2])
    -1
    """
    best = [0] + [-1] * amount
    for total in range(1, amount + 1):
        for coin in coins:
            rest = total - coin
            if rest >= 0 and best[rest] >= 0 and (best[total] < 0 or best[rest] + 1 < best[total]):
                best[total] = best[rest] + 1
    return best[amount]


def clock_time(minutes: int) -> str:
    """Minutes after midnight as hh:mm of a 24-hour clock, that of the next days for more than a
    day.

    >>> clock_time(65)
    '01:05'
    >>> clock_time(1500)
    '01:00'
    """
    hours = minutes // 60 % 24
    return f"{hours:02d}:{minutes % 60:02d}"


def is_prime(number: int) -> bool:
    """Whether a number is prime.

    >>> [n for n in range(12) if is_prime(n)]
    [2, 3, 5, 7, 11]
    """
    if number < 2:
        return False
    divisor = 2
    while divisor * divisor <= number:
        if number % divisor == 0:
            return False
        divisor += 1
    return True


def binomial(n: int, k: int) -> int:
    """How many ways there are to choose k of n things; 0 where k is below 0 or above n.

    >>> binomial(5, 2)
    10
    """
    if k < 0 or k > n:
        return 0
    ways = 1
    for step in range(1, k + 1):
        ways = ways * (n - k + step) // step
    return ways


def collatz_steps(number: int) -> int:
    """How often n becomes n / 2 if it is even, else 3n + 1, until it is 1; for numbers from 1 on.

    >>> collatz_steps(6)
    8
    """
    steps = 0
    while number != 1:
        number = number // 2 if number % 2 == 0 else 3 * number + 1
        steps += 1
    return steps


def rounded_to(number: int, step: int) -> int:
    """The multiple of a step above 0 that is nearest to a number from 0 on; halfway, the larger.

    >>> rounded_to(12, 5), rounded_to(13, 5), rounded_to(5, 10)
    (10, 15, 10)
    """
    rest = number % step
    if 2 * rest >= step:
        return number - rest + step
    return number - rest
