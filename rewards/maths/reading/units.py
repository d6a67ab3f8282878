"""Units after a value: read from tokens, and compared by dimension."""

from __future__ import annotations

import re
from fractions import Fraction

from .lexer import Token
from .nodes import Unreadable
from .vocabulary import (
    ALTERS,
    CONNECTIVES,
    COUNTER,
    DENIALS,
    FOREIGN_CHANGES,
    QUALIFIERS,
    UNIT_LETTERS,
    UNITS,
    unit_symbol,
)

_POWERS = {"square": 2, "sq": 2, "cubic": 3, "cu": 3}
_RAISED = {"squared": 2, "cubed": 3}


def read_unit(tokens: list[Token], position: int) -> tuple[int, str]:
    """Return (position after the unit, unit): a known unit in uniform spelling (`cm^2`, `m/s`),
    else the plain words.

    Raises:
        Unreadable: words that take the value back (`5 is wrong`, `7 at least`).

    >>> from .lexer import tokenize
    >>> read_unit(tokenize("miles per hour"), 0)[1], read_unit(tokenize("red eggs"), 0)[1]
    ('mi/h', 'red eggs')
    """
    compound = compound_unit(tokens, position)
    if tokens[compound[0]].kind == "end" and compound[1]:
        return compound
    unit = _known_unit(tokens, position)
    if unit is not None:
        return unit
    words: list[str] = []
    while tokens[position].kind == "word" and tokens[position].value not in _JOINING:
        words.append(tokens[position].value)
        position += 1
    if denied := DENIALS.intersection(map(str.lower, words)):
        raise Unreadable(f"the word {min(denied)!r} after a value")
    for word in words:
        is_foreign = not word.isascii()
        is_counter = _COUNTER.match(word) and not _ALTERS.search(word) if is_foreign else False
        if is_foreign and (FOREIGN_CHANGES & {word} or (_UNSPACED.match(word) and not is_counter)):
            raise Unreadable(f"{word!r} after a value")
        if len(word) < 3 and word not in _LINKS and not is_foreign:
            raise Unreadable(f"{word!r} after a value is not a unit known here")
    return position, " ".join(words)


_JOINING = QUALIFIERS.union(CONNECTIVES)
_ALTERS, _COUNTER = re.compile(ALTERS), re.compile(COUNTER)
_UNSPACED = re.compile("[\u3005\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7af]")
_LINKS = frozenset({"a", "an", "at", "by", "in", "of", "on", "to", "up"})
"""Short words that may occur in a counted thing (`5 games in a row`); other short words may change
the value.
"""


def compound_unit(tokens: list[Token], position: int) -> tuple[int, str]:
    """Return (position after the unit, unit) of units whose letters may stand beside each other
    with a space (`N m`, `J/(g K)`); an empty unit where there is none.
    """
    return _known_unit(tokens, position, has_letters=True) or (position, "")


def _known_unit(
    tokens: list[Token], position: int, *, has_letters: bool = False
) -> tuple[int, str] | None:
    parts: list[str] = []
    sign = ""
    while True:
        single_unit = _one_unit(tokens, position)
        if single_unit is None:
            return (position, "".join(parts)) if parts and not sign else None
        position, unit = single_unit
        parts.append(sign + unit)
        token = tokens[position]
        after = tokens[min(position + 1, len(tokens) - 1)]
        is_divided = token.kind == "op" and token.value == "/"
        is_letter = has_letters and token.spaced and token.value in UNIT_LETTERS
        if is_divided and after.kind == "open" and after.value == "(":
            divided = _divisor(tokens, position + 2)
            if divided is None:
                return position, "".join(parts)
            position, unit = divided
            parts.append(unit)
            sign = ""
        elif is_divided or (token.kind == "word" and token.value in {"per", "a", "each"}):
            sign, position = "/", position + 1
        elif token.kind == "op" and token.value in "*·×" and after.kind not in {"num", "open"}:
            sign, position = "*", position + 1  # `2 kg · 3 m` multiplies values
        elif (token.kind == "word" or is_letter) and _one_unit(tokens, position) is not None:
            sign = "*"
        else:
            return position, "".join(parts)


def _divisor(tokens: list[Token], position: int) -> tuple[int, str] | None:
    """Return (position after the bracket, units) of `(kg K)` after a slash: every unit inside
    divides.
    """
    parts: list[str] = []
    while tokens[position].kind != "close":
        if tokens[position].kind == "op" and tokens[position].value in "*·×":
            position += 1
        unit = _one_unit(tokens, position)
        if unit is None:
            return None
        position = unit[0]
        parts.append("/" + unit[1])
    return (position + 1, "".join(parts)) if parts else None


def _one_unit(tokens: list[Token], position: int) -> tuple[int, str] | None:
    exponent = 1
    token = tokens[position]
    if token.kind == "word" and token.value in _POWERS:
        exponent, position = _POWERS[token.value], position + 1
        token = tokens[position]
    symbol = unit_symbol(token.value) if token.kind in {"word", "sym"} else None
    if symbol is None:
        return None
    position, raised = _raised(tokens, position + 1)
    exponent *= raised
    return position, symbol if exponent == 1 else f"{symbol}^{exponent}"


def _raised(tokens: list[Token], position: int) -> tuple[int, int]:
    token = tokens[position]
    if token.kind == "word" and token.value in _RAISED:
        return position + 1, _RAISED[token.value]
    if token.kind != "op" or token.value != "^":
        return position, 1
    padded = [*tokens[position + 1 : position + 4], token, token, token]
    braced = padded[0].kind == "group"
    negative = padded[braced].pair == ("op", "-")
    number = padded[braced + negative]
    if number.kind != "num" or number.value not in {"1", "2", "3", "4"}:
        return position, 1
    length = 2 + 2 * braced + negative
    return position + length, -int(number.value) if negative else int(number.value)


UNIT_PART = re.compile(r"([*/]?)([A-Za-z]+(?:-[A-Za-z]+)*)(?:\^(-?\d))?")


def dimension(unit: str) -> tuple[Fraction, tuple[tuple[str, int], ...]] | None:
    """Return (factor to base units, dimensions) of a known unit, or None for plain words.

    >>> dimension("km/h") == dimension("kph"), dimension("C") == dimension("A*s")
    (True, True)
    """
    if unit in UNITS and not any(sign in UNITS[unit][1] for sign in "/^*"):
        factor, base = UNITS[unit]
        return Fraction(str(factor)), ((base, 1),)
    total, powers = Fraction(1), dict[str, int]()
    if UNIT_PART.sub("", unit):
        return None
    for sign, name, raised in UNIT_PART.findall(unit):
        if name not in UNITS:
            return None
        factor, base = UNITS[name]
        exponent = int(raised or 1) * (-1 if sign == "/" else 1)
        total *= Fraction(str(factor)) ** exponent
        for base_sign, dimension_name, base_raised in UNIT_PART.findall(base):
            inner = int(base_raised or 1) * (-1 if base_sign == "/" else 1)
            powers[dimension_name] = powers.get(dimension_name, 0) + inner * exponent
    return total, tuple(sorted((name, power) for name, power in powers.items() if power))
