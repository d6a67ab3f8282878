"""Conversion of written numbers to exact values."""

from __future__ import annotations

from fractions import Fraction

from .nodes import Node, TooBig
from .vocabulary import FRACTION_WORDS, SCALES, UNITS_OF_NUMBER

MAX_DIGITS = 2000
MAX_EXPONENT = 1000


def exact_numeral(numeral: str) -> Node:
    """Return an integer as `num`, and a decimal as `dec` with the written digits.

    >>> exact_numeral("0.50")
    Node(op='dec', args=(), value=Fraction(1, 2), note='0.50')
    """
    if numeral.isdigit():
        if len(numeral) > MAX_DIGITS:
            raise TooBig(f"a number of more than {MAX_DIGITS} digits")
        return Node("num", (), int(numeral))
    mantissa, _, exponent = numeral.lower().partition("e")
    # Without its leading zeros, so that no length of them hides a large exponent.
    power = exponent.lstrip("+-").lstrip("0")
    if len(mantissa) > MAX_DIGITS or int(power[:8] or 0) > MAX_EXPONENT:
        raise TooBig(f"a number beyond {MAX_DIGITS} digits or ten to the {MAX_EXPONENT}")
    value = Fraction(numeral)
    if exponent:
        return Node("num", (), int(value) if value.denominator == 1 else value)
    return Node("dec", (), value, numeral)


def period(numeral: str) -> str:
    """Return the digits that the decimals before dots plainly repeat, or "".

    Three times are plain, and twice if a block of several digits is all that is written: the
    decimals of e (2.718281828) repeat four digits by chance.

    >>> period("0.333"), period("0.3636"), period("2.718281828")
    ('3', '36', '')
    """
    decimals = numeral.partition(".")[2]
    for size in range(1, min(len(decimals), 60) // 2 + 1):
        block = decimals[-size:]
        times = 2 if size > 1 and len(decimals) == 2 * size else 3
        if decimals.endswith(block * times):
            return block
    return ""


def repeating(numeral: str, digits: str) -> Node:
    """Return the value of `numeral` followed by `digits` repeated forever.

    >>> repeating("0.1", "6").value
    Fraction(1, 6)
    """
    decimals = len(numeral.partition(".")[2])
    period = Fraction(int(digits), (10 ** len(digits) - 1) * 10**decimals)
    return Node("num", (), Fraction(numeral.rstrip(".") or "0") + period)


def from_words(words: list[str]) -> Node | None:
    """Return the number that some words name, or None for other words.

    >>> from_words(["one", "hundred", "twenty", "three"]).value
    123
    """
    if not words:
        return None
    if words[-1] in FRACTION_WORDS:
        return _fraction(words)
    total, current, seen = 0, 0, False
    for word in words:
        if word in UNITS_OF_NUMBER:
            value = UNITS_OF_NUMBER[word]
            if seen and (current % 10 != 0 or (value >= 10 and current % 100 != 0)):
                return None
            current, seen = current + value, True
        elif word in SCALES:
            scale = SCALES[word]
            current, seen = (current or 1) * scale, True
            if scale >= 1000:
                total, current = total + current, 0
        elif word not in {"and", "a"}:
            return None
    return Node("num", (), total + current) if seen else None


def _fraction(words: list[str]) -> Node | None:
    if "and" in words:
        place = words.index("and")
        integer, part = from_words(words[:place]), _fraction(words[place + 1 :])
        fits = integer is not None and part is not None and part.value < 1
        return Node("num", (), integer.value + part.value) if integer and part and fits else None
    bottom = FRACTION_WORDS[words[-1]]
    if words[:-1] in ([], ["a"], ["one"]):
        return Node("num", (), Fraction(1, bottom))
    top = from_words(words[:-1])
    return Node("num", (), Fraction(top.value) / bottom) if top is not None else None


ROMAN = r"(?=[MDCLXVI])M{0,3}(?:C[MD]|D?C{0,3})(?:X[CL]|L?X{0,3})(?:I[XV]|V?I{0,3})(?![A-Za-z])"
"""Matches a Roman numeral."""
_SIGNS = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100, "D": 500, "M": 1000}


def of_roman(numeral: str) -> int:
    """Return the value of a Roman numeral.

    >>> of_roman("XCIV"), of_roman("MMXXIV")
    (94, 2024)
    """
    sizes = [_SIGNS[sign] for sign in numeral]
    return sum(
        -size if size < following else size
        for size, following in zip(sizes, [*sizes[1:], 0], strict=True)
    )
