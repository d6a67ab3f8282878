"""Numerals inside formulas: repeating decimals, mixed fractions, number bases and number words."""

from __future__ import annotations

from fractions import Fraction

from . import nodes
from .commands import FRACTIONS, fraction
from .nodes import Node, TooBig, Unreadable
from .numerals import MAX_DIGITS, exact_numeral, from_words, period, repeating
from .operators import subscript
from .pratt import Parser
from .vocabulary import FRACTION_WORDS, NUMBER_WORDS

_BASE_NAMES = {
    "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9,
    "ten": 10, "twelve": 12, "sixteen": 16,
}  # fmt: skip


def number(parser: Parser) -> Node:
    """Read a numeral with any attached marks: repeating decimals, mixed fractions, a base."""
    numeral = parser.take().value
    if len(numeral) > MAX_DIGITS:
        raise TooBig(f"a number of more than {MAX_DIGITS} digits")
    behind = parser.here.kind
    if behind in _REPEATING and _repeats(parser, numeral):
        return _repeating(parser, numeral)
    node = exact_numeral(numeral)
    if behind in _MIXED and node.op == "num" and isinstance(node.value, int):
        node = _mixed(parser, node)
    if parser.here.kind != "sub":
        return node
    parser.take()
    return based(parser, numeral)


_REPEATING = frozenset({"dots", "sign", "cmd"})
_MIXED = frozenset({"cmd", "num"})
"""Kinds of tokens behind a numeral that may belong to it."""


def point_first(parser: Parser) -> Node:
    """Read `.5` whose point was a separate token."""
    parser.take()
    if parser.here.kind != "num" or not parser.here.value.isdigit():
        raise Unreadable("a point where a value should be")
    return exact_numeral("." + parser.take().value)


def based(parser: Parser, digits: str) -> Node:
    """Read the base that follows and return the number with these digits in that base."""
    base_name = subscript(parser).strip("() ").lower()
    base = _BASE_NAMES.get(base_name)
    if base is None:
        if not base_name.isdigit() or len(base_name) > 3:
            raise Unreadable(f"a number with the subscript {base_name!r}")
        base = int(base_name)
    return Node("based", (), base, digits)


def in_words(parser: Parser) -> Node:
    """Read number words, a name before an equals sign, a single letter, or `infinity`."""
    end = parser.position
    while parser.tokens[end].kind == "word":
        end += 1
    words: list[str] = []
    if parser.tokens[end].pair == ("rel", "="):
        # Words before an equals sign are a name: `Area = 840`.
        words = [parser.take().value for _ in range(end - parser.position)]
        return nodes.text(" ".join(words).casefold())
    while parser.here.kind == "word" and (
        parser.here.value.lower() in NUMBER_WORDS or (words and _continues_number(parser))
    ):
        words.append(parser.take().value.lower())
        if parser.at("op", "-") and not parser.here.spaced and parser.ahead().kind == "word":
            parser.take()
        if parser.here.value == "a" and parser.ahead().value in FRACTION_WORDS:
            parser.take()
    node = from_words(words)
    if node is not None:
        return node
    if not words and len(parser.here.value) == 1:
        return nodes.sym(parser.take().value)
    if not words and parser.here.value in {"infinity", "infinite"}:
        parser.take()
        return nodes.INFINITY
    raise Unreadable(f"the word {parser.here.value!r}")


def _continues_number(parser: Parser) -> bool:
    """Return whether "and" continues a number: `one hundred and five`, `two and a half`."""
    if parser.here.value != "and":
        return False
    half = parser.ahead().value == "a" and parser.ahead(2).value in FRACTION_WORDS
    return half or (parser.ahead().kind == "word" and parser.ahead().value in NUMBER_WORDS)


def _repeats(parser: Parser, numeral: str) -> bool:
    if parser.here.kind == "dots":
        return period(numeral) != ""
    offset = 1 if parser.at("sign", ".") else 0
    token, behind = parser.ahead(offset), parser.ahead(offset + 1)
    is_mark = token.kind == "cmd" and token.value in {"overline", "dot", "bar"}
    return is_mark and behind.kind in {"group", "num"}


def _repeating(parser: Parser, numeral: str) -> Node:
    if parser.accept("dots"):
        return repeating(numeral, period(numeral))
    if parser.accept("sign"):
        numeral += "."
    parser.take()
    digits = subscript(parser)
    while parser.at("cmd", "dot"):
        parser.take()
        digits += subscript(parser)
    if "." not in numeral or not digits.isdigit() or len(digits) > 100:
        raise Unreadable("a bar over something that is not decimals")
    return repeating(numeral, digits)


def _mixed(parser: Parser, integer: Node) -> Node:
    r"""Read a mixed fraction: `2\frac13` and `2 1/3` are 7/3. Any other factor after a whole number
    is left for the product.
    """
    token, start, outer_made = parser.here, parser.position, parser.made
    if token.kind == "cmd" and token.value in FRACTIONS:
        parser.take()
        part = parser.deeper(fraction)
    elif token.kind == "num" and token.spaced and (
        parser.ahead().value == "/" and parser.ahead(2).kind == "num"
    ):  # fmt: skip
        top, bottom = exact_numeral(token.value), exact_numeral(parser.ahead(2).value)
        if top.op != "num" or bottom.op != "num" or not bottom.value:
            return integer
        parser.position += 3
        part = nodes.num(Fraction(top.value) / bottom.value)
    else:
        return integer
    if part.op == "num" and 0 < part.value < 1:
        return nodes.num(integer.value + part.value)
    parser.position, parser.made = start, outer_made
    return integer
