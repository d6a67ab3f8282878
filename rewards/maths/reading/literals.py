"""Numerals inside formulas: repeating decimals, mixed fractions, number bases."""

from __future__ import annotations

from fractions import Fraction

from . import nodes
from .nodes import Node, TooBig, Unreadable
from .numerals import MAX_DIGITS, exact_numeral, is_repeating, repeating
from .parser import FRACTIONS, ExpressionParser

_BASE_NAMES = {
    "two": 2,
    "three": 3,
    "four": 4,
    "five": 5,
    "six": 6,
    "seven": 7,
    "eight": 8,
    "nine": 9,
    "ten": 10,
    "twelve": 12,
    "sixteen": 16,
}


class NumeralParser(ExpressionParser):
    """Adds numerals to the expression grammar."""

    def number(self) -> Node:
        """A numeral and what may stick to it: repeating decimals, mixed fractions, a base."""
        written = self.take().value
        if len(written) > MAX_DIGITS:
            raise TooBig(f"a number of more than {MAX_DIGITS} digits")
        if self._repeats(written):
            return self._repeating(written)
        node = exact_numeral(written)
        if node.op == "num" and isinstance(node.value, int):
            node = self._mixed(node)
        if self.here.kind == "sub":
            self.take()
            return self.based(written)
        return node

    def _repeats(self, written: str) -> bool:
        if self.here.kind == "dots":
            return is_repeating(written)
        offset = 1 if self.here.kind == "sign" and self.here.value == "." else 0
        token = self.ahead(offset)
        return (
            token.kind == "cmd"
            and token.value in {"overline", "dot", "bar"}
            and self.ahead(offset + 1).kind in {"group", "num"}
        )

    def _repeating(self, written: str) -> Node:
        if self.accept("dots"):
            return repeating(written, written[-1])
        if self.accept("sign"):
            written += "."
        self.take()
        digits = self.subscript()
        while self.here.kind == "cmd" and self.here.value == "dot":
            self.take()
            digits += self.subscript()
        if "." not in written or not digits.isdigit() or len(digits) > 100:
            raise Unreadable("a bar over something that is not decimals")
        return repeating(written, digits)

    def _mixed(self, whole: Node) -> Node:
        """`2\\frac13` and `2 1/3` are 7/3; anything else after a whole number is a factor."""
        token, start, made = self.here, self.position, self.made
        if token.kind == "cmd" and token.value in FRACTIONS:
            part = self.atom()
        elif (
            token.kind == "num"
            and token.spaced
            and self.ahead().value == "/"
            and self.ahead(2).kind == "num"
        ):
            top, bottom = exact_numeral(token.value), exact_numeral(self.ahead(2).value)
            if top.op != "num" or bottom.op != "num" or not bottom.value:
                return whole
            self.position += 3
            part = nodes.num(Fraction(top.value) / bottom.value)
        else:
            return whole
        if part.op == "num" and 0 < part.value < 1:
            return nodes.num(whole.value + part.value)
        self.position, self.made = start, made
        return whole

    def based(self, digits: str) -> Node:
        """The number with these digits and the base in front."""
        named = self.subscript().strip("() ").lower()
        base = _BASE_NAMES.get(named)
        if base is None:
            if not named.isdigit() or len(named) > 3:
                raise Unreadable(f"a number with the subscript {named!r}")
            base = int(named)
        return Node("based", (), base, digits)
