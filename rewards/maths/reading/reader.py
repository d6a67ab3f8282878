"""An extracted answer to a `Node`: lists, relations, intervals, words.

`read` never evaluates: it says what was written. What cannot be read as mathematics is words.
"""

from __future__ import annotations

import re
from fractions import Fraction

from . import nodes
from .atoms import AtomParser
from .lexer import Token, tokenize
from .nodes import Node, TooBig, Unreadable
from .notation import as_words, strip_delimiters, to_latex
from .numerals import exact_numeral
from .vocabulary import CONNECTIVES, NUMBER_WORDS, QUALIFIERS, unit_symbol

MAX_CHARACTERS = 4096
MAX_NODE_DEPTH = 40
MAX_SIDES = 24
_CLOCK = re.compile(r"(\d{1,2})(?::(\d\d))?\s*(?:([ap])\.?\s*m\.?)$", re.IGNORECASE)
_BASED = re.compile(
    r"^(?:\\(?:text|mathrm)\s*\{)?(?=[0-9A-Za-z]*\d)([0-9A-Za-z]{1,200})\}?\s*_\s*\{?(\d{2})\}?$"
)
_BASE = re.compile(
    r"(?<=[0-9A-Za-z}])\s*+(?:\\(?:text|mathrm)\s*+\{)?[\s(]*+(?:in\s+)?base[\s-]*+(\w{1,9})[\s)}]*+$"
)
_INTEGER = re.compile(r"[+-]?\d{1,15}$")
_COLONS = frozenset(
    {Token("sign", ":"), Token("sign", ":", True), Token("word", "to"), Token("word", "to", True)}
)
_NAMED = {
    **dict.fromkeys(
        ("all real numbers", "all reals", "real numbers", "reals", "the real numbers", "all real",
         "any real number"),
        nodes.sym("set R"),
    ),
    **dict.fromkeys(("all integers", "integers"), nodes.sym("set Z")),
    **dict.fromkeys(("negative infinity", "minus infinity"), nodes.neg(nodes.INFINITY)),
}  # fmt: skip
_FRACTION = re.compile(r"(-?)\\[dt]?frac\{(\d{1,15})\}\{(\d{1,15})\}$")
_DECIMAL = re.compile(r"\d{1,15}\.\d{1,15}$")
_SPLITTING = frozenset({"if", "otherwise", "whenever", "when"})
"""Words before a condition that leave room for another value elsewhere."""
_OPPOSITE = {"=": "!=", "in": "notin", "<": ">=", ">": "<=", "<=": ">", ">=": "<"}
_BRACKETS_AND_EQUALS = re.compile(r"\\[{}]|[(){}\[\]]|(?<![!<>:=])=(?!=)")
_DENIED = re.compile(r"\b(?:not|or|no|if)\b|\\(?:ne|not|neq|le|ge|leq|geq|lt|gt|pm)\b|[<>]")
_SEPARATORS = frozenset({"sep", "row"})


def read(source: str) -> Node:
    """The meaning of an answer.

    Raises:
        Unreadable: empty, or (TooBig) beyond the limits of size.

    >>> read("x=3").op, read("[0, 1)").note, read("no solution").op
    ('rel', '[)', 'text')
    """
    if len(source) > MAX_CHARACTERS:
        raise TooBig(f"longer than {MAX_CHARACTERS} characters")
    return read_cleaned(clean(source))


def clean(source: str) -> str:
    """The answer in one notation, without math delimiters."""
    return strip_delimiters(to_latex(source))


def read_cleaned(cleaned: str) -> Node:
    """`read` for text that went through `clean` already."""
    if not cleaned:
        raise Unreadable("the answer is empty")
    if _INTEGER.match(cleaned):
        return nodes.num(int(cleaned))
    if fraction := _FRACTION.match(cleaned):
        bottom = int(fraction[3])
        if bottom:
            value = Fraction(int(fraction[1] + fraction[2]), bottom)
            return nodes.num(value.numerator if value.denominator == 1 else value)
    if _DECIMAL.match(cleaned):
        return exact_numeral(cleaned)
    try:
        return read_formula(cleaned)
    except TooBig:
        raise
    except Unreadable:
        return _labelled(cleaned) or read_words(cleaned)


def _labelled(cleaned: str) -> Node | None:
    """`\\lim f(x) = 5`: what cannot be read before an equals sign is the name of the value."""
    depth, letter = 0, next((i for i, c in enumerate(cleaned) if c.isalpha()), len(cleaned))
    for found in _BRACKETS_AND_EQUALS.finditer(cleaned):
        depth += {"(": 1, "{": 1, "[": 1, ")": -1, "}": -1, "]": -1}.get(found[0], 0)
        if found[0] != "=" or depth or found.start() <= letter:
            continue
        label, rest = cleaned[: found.start()], cleaned[found.end() :]
        if _DENIED.search(label):
            return None
        try:
            value = read_formula(rest)
        except Unreadable:
            return None
        chain = value.op == "rel" and set(value.note.split()) <= {"=", "~="}
        sides, note = (value.args, f"= {value.note}") if chain else ((value,), "=")
        name = nodes.text(as_words(label).casefold())
        return Node("rel", (name, *sides), 0, note) if chain or value.op != "rel" else None
    return None


def read_words(cleaned: str) -> Node:
    """A text answer.

    Raises:
        Unreadable: no letters or digits at all.
    """
    words = as_words(cleaned)
    if not any(letter.isalnum() for letter in words):
        raise Unreadable("the answer has neither letters nor digits")
    return _NAMED.get(words.casefold()) or nodes.text(words)


def read_formula(cleaned: str) -> Node:
    """The meaning of a formula.

    Raises:
        Unreadable: it is not one.
    """
    if ("m" in cleaned or "M" in cleaned) and (time := _time_of_day(cleaned)):
        return time
    if "base" in cleaned:
        cleaned = _BASE.sub(r"_{\1}", cleaned)
    if "_" in cleaned and (digits := _BASED.match(cleaned)):
        return Node("based", (), int(digits[2]), digits[1].upper())
    parser = AnswerParser(tokenize(cleaned))
    try:
        node = parser.answer()
    except RecursionError as error:
        raise TooBig("nested too deep") from error
    if parser.here.kind != "end":
        raise Unreadable(f"{parser.here.value or parser.here.kind!r} is left over")
    _check_depth(node)
    return node


def _time_of_day(cleaned: str) -> Node | None:
    """`3:05 pm`."""
    bare = re.sub(r"\\(?:text|mathrm)\{([^{}]*)\}", r"\1", cleaned).replace("{:}", ":")
    clock = _CLOCK.match(bare.replace("\\", " ").strip("} "))
    return clock and nodes.text(f"{int(clock[1])}:{clock[2] or '00'} {clock[3].lower()}m")


def _check_depth(node: Node) -> None:
    """Marks and set operations pile up without recursion in the parser; later steps do recurse."""
    level, depth = [node], 0
    while level:
        level = [arg for part in level for arg in part.args]
        depth += 1
        if depth > MAX_NODE_DEPTH:
            raise TooBig(f"nested deeper than {MAX_NODE_DEPTH}")


class AnswerParser(AtomParser):
    """Adds lists, relations, ratios, conditions and congruences."""

    def answer(self) -> Node:
        """The whole answer: one item, or several joined by commas and words."""
        items = [self.item()]
        joint = ""
        while self._separator():
            word = self._separators()
            joint = joint if joint not in {"", ","} else word
            if self.here.kind in {"end", "endgroup"}:
                break
            items.append(self.item())
        self._stray()
        if len(items) == 1:
            return items[0]
        return Node("list", tuple(items), 0, joint or ",")

    def _stray(self) -> None:
        """Marks after the answer that mean nothing: a full stop, an unopened brace at the very
        end.
        """
        while self.here.kind in {"endgroup", "sign"} and (
            self.here.kind == "endgroup" or self.here.value in '."'
        ):
            self.take()

    def _separator(self) -> bool:
        token = self.here
        return token.kind in _SEPARATORS or (token.kind == "word" and token.value in CONNECTIVES)

    def _separators(self) -> str:
        joint = ","
        while self._separator():
            token = self.take()
            if token.kind == "word":
                joint = CONNECTIVES[token.value]
        return joint

    def item(self) -> Node:
        """A relation chain with its conditions, a ratio, or a plain expression."""
        self._quantifier()
        sides = [self._named_in_words() or self.ratio()]
        signs: list[str] = []
        while self.here.kind == "rel" or self._struck_out():
            signs.append(self.take().value)
            self.accept("rel", "=")
            sides.append(self._right_side())
            if len(sides) > MAX_SIDES:
                raise TooBig(f"a chain of more than {MAX_SIDES} sides")
        node = self.count(Node("rel", tuple(sides), 0, " ".join(signs))) if signs else sides[0]
        node = self._modulus(node)
        if self.here.kind == "word" and self.here.value in QUALIFIERS:
            return self._given(node)
        return node

    def _struck_out(self) -> bool:
        """`\\not=`: the next sign is turned into its opposite."""
        sign = self.ahead()
        if self.here[:2] != ("cmd", "not") or sign.value not in _OPPOSITE:
            return False
        self.take()
        self.tokens[self.position] = sign._replace(value=_OPPOSITE[sign.value])
        return True

    def condition(self) -> Node:
        """What follows the bar in a set-builder: relations joined by commas or words."""
        items = [self.item()]
        joint = ","
        while self._separator():
            joint = self._separators()
            items.append(self.item())
        return items[0] if len(items) == 1 else Node("list", tuple(items), 0, joint)

    def _quantifier(self) -> None:
        if self.here.kind == "cmd" and self.here.value in {"forall", "exists", "therefore"}:
            raise Unreadable("a quantifier")

    def _named_in_words(self) -> Node | None:
        """`Area = 840`: words before an equals sign are a name."""
        end = self.position
        while self.tokens[end].kind == "word":
            end += 1
        if end == self.position or self.tokens[end][:2] != ("rel", "="):
            return None
        words = [self.take().value for _ in range(end - self.position)]
        return nodes.text(" ".join(words).casefold())

    def _right_side(self) -> Node:
        if self.here.kind != "word":
            return self.ratio()
        if self.here.value.lower() in NUMBER_WORDS or len(self.here.value) == 1:
            return self.ratio()
        words: list[str] = []
        while self.here.kind == "word":
            words.append(self.take().value)
        return nodes.text(" ".join(words).casefold())

    def ratio(self) -> Node:
        """Expressions joined by colons."""
        parts = [self.set_expression()]
        while self.colons and self.here in _COLONS:
            self.take()
            parts.append(self.set_expression())
        return parts[0] if len(parts) == 1 else Node("ratio", tuple(parts))

    def _modulus(self, node: Node) -> Node:
        opened = self.here.kind == "open" and self.ahead().kind == "mod"
        if opened:
            self.take()
        if not self.accept("mod"):
            return node
        modulus = self.argument()
        if opened:
            self.expect("close")
        return Node("mod", (node, modulus))

    def _given(self, node: Node) -> Node:
        """`for all x > 0`: the condition, or its words."""
        qualifier = self.take().value
        while self.here.kind == "word" and self.here.value in {
            "all",
            "every",
            "any",
            "each",
            "real",
            "some",
            "that",
            "integer",
            "integers",
        }:
            self.take()
        start = self.position
        try:
            condition = self.item()
        except TooBig:
            raise
        except Unreadable:
            self.position = start
            if qualifier in _SPLITTING or any(token.kind == "num" for token in self.rest()):
                raise Unreadable("it depends on a condition in words") from None
            condition = nodes.text(self._remaining_words())
        return Node("given", (node, condition), 0, qualifier)

    def _remaining_words(self) -> str:
        words = [token.value or token.kind for token in self.rest()]
        self.position = len(self.tokens) - 1
        return " ".join(words)


def unit_like(token: Token) -> bool:
    """Whether a token names a known unit."""
    return token.kind == "word" and unit_symbol(token.value) is not None
