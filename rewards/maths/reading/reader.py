"""The reader: turns an extracted answer into a `Node`.

`read` parses and never evaluates. A text that cannot be read as mathematics becomes words.
"""

from __future__ import annotations

import re
from fractions import Fraction

from . import nodes
from .brackets import listed
from .grammar import GRAMMAR
from .lexer import tokenize
from .nodes import Node, TooBig, Unreadable
from .notation import as_words, squeeze, strip_delimiters, to_latex
from .numerals import exact_numeral
from .pratt import Parser

MAX_CHARACTERS = 4096
MAX_NODE_DEPTH = 40
_CLOCK = re.compile(r"(\d{1,2})(?::(\d\d))?\s*(?:([ap])\.?\s*m\.?)$", re.IGNORECASE)
# Digits with letters and a base of two digits, `1A_{16}`, which would read as a product.
_BASED = re.compile(
    r"^(?:\\(?:text|mathrm)\s*\{)?(?=[0-9A-Za-z]*\d|[A-F]{2,})([0-9A-Za-z]{1,200})\}?\s*_\s*\{?(\d{2})\}?$"
)
# A base in words: `1011 in base 2`, `1011 (base two)`.
_BASE = re.compile(
    r"(?<=[0-9A-Za-z}])\s*+(?:\\(?:text|mathrm)\s*+\{)?[\s(]*+(?:in\s+)?base[\s-]*+(\w{1,9})[\s)}]*+$"
)
# Integers, fractions and decimals are read without the parser.
_INTEGER = re.compile(r"[+-]?\d{1,15}$")
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
_BRACKETS_AND_EQUALS = re.compile(r"\\[{}]|[(){}\[\]]|(?<![!<>:=])=(?!=)")
# A left side with these words or signs is not a name of the value.
_DENIED = re.compile(r"\b(?:not|or|no|if)\b|\\(?:ne|not|neq|le|ge|leq|geq|lt|gt|pm)\b|[<>]")


_NOTHING = re.compile(r"(?:no|not|none)(?:\s+[a-z]{2,})+", re.IGNORECASE)
"""Matches `no solution`, which the formula grammar would read as the letters n and o with a
unit.
"""


def read(source: str) -> Node:
    """Parse an answer.

    Raises:
        Unreadable: the answer is empty, or (TooBig) beyond the limits of size.

    >>> read("x=3").op, read("[0, 1)").note, read("no solution").op
    ('rel', '[)', 'text')
    """
    if len(source) > MAX_CHARACTERS:
        raise TooBig(f"longer than {MAX_CHARACTERS} characters")
    return read_cleaned(clean(source))


def clean(source: str) -> str:
    """Return the answer in uniform notation, without math delimiters."""
    return strip_delimiters(to_latex(source))


def read_cleaned(cleaned: str) -> Node:
    """Parse a text that has been through `clean` already.

    Raises:
        Unreadable: the text is empty, or (TooBig) beyond the limits of size.
    """
    if not cleaned:
        raise Unreadable("the answer is empty")
    # Plain numbers, which most answers are, skip the parser.
    if _INTEGER.match(cleaned):
        return nodes.num(int(cleaned))
    if fraction := _FRACTION.match(cleaned):
        bottom = int(fraction[3])
        if bottom:
            value = Fraction(int(fraction[1] + fraction[2]), bottom)
            return nodes.num(value.numerator if value.denominator == 1 else value)
    if _DECIMAL.match(cleaned):
        return exact_numeral(cleaned)
    if _NOTHING.fullmatch(cleaned):
        return read_words(cleaned)
    try:
        return read_formula(cleaned)
    except TooBig:
        raise
    except Unreadable:
        return _labelled(cleaned) or read_words(cleaned)


def _labelled(cleaned: str) -> Node | None:
    r"""Read `\lim f(x) = 5`, whose left side cannot be parsed, as a named value; None if that does
    not fit.
    """
    depth, letter = 0, next((i for i, c in enumerate(cleaned) if c.isalpha()), len(cleaned))
    for bracket in _BRACKETS_AND_EQUALS.finditer(cleaned):
        depth += {"(": 1, "{": 1, "[": 1, ")": -1, "}": -1, "]": -1}.get(bracket[0], 0)
        if bracket[0] != "=" or depth or bracket.start() <= letter:
            continue
        label, rest = cleaned[: bracket.start()], cleaned[bracket.end() :]
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
    """Return an answer in words.

    Raises:
        Unreadable: the text has neither letters nor digits.
    """
    words = as_words(cleaned)
    if not any(letter.isalnum() for letter in words):
        raise Unreadable("the answer has neither letters nor digits")
    if _PROSE.fullmatch(words) is None:
        return Node("opaque", (), 0, squeeze(cleaned))
    return _NAMED.get(words.casefold()) or nodes.text(words)


_PROSE = re.compile(r"(?:[\w\s.,;:!?'’()/&%-]|\$)*")
"""Characters of plain language. An answer with others that cannot be parsed is kept as written."""


def read_formula(cleaned: str) -> Node:
    """Parse a formula.

    Raises:
        Unreadable: the text is not a formula.
    """
    if "m" in cleaned or "M" in cleaned:
        # a time of day: `3:05 pm`
        bare = re.sub(r"\\(?:text|mathrm)\{([^{}]*)\}", r"\1", cleaned).replace("{:}", ":")
        if clock := _CLOCK.match(bare.replace("\\", " ").strip("} ")):
            return nodes.text(f"{int(clock[1])}:{clock[2] or '00'} {clock[3].lower()}m")
    if "base" in cleaned:
        cleaned = _BASE.sub(r"_{\1}", cleaned)
    if "_" in cleaned and (digits := _BASED.match(cleaned)):
        return Node("based", (), int(digits[2]), digits[1].upper())
    try:
        return _parsed(cleaned)
    except TooBig:
        raise
    except Unreadable:
        if _SHORT_UNITS.search(cleaned) is None:
            raise
    return _parsed(_SHORT_UNITS.sub(lambda match: " ".join(match[0]), cleaned))


_SHORT_UNITS = re.compile(r"(?<![A-Za-z\\{])[a-z]{2}(?![A-Za-z}])")
"""Two letters such as `mg`, which may be milligrams and, where that makes no sense, the product of
a mass and g.
"""


def _parsed(cleaned: str) -> Node:
    parser = Parser(tokenize(cleaned), GRAMMAR)
    try:
        node = listed(parser)
    except RecursionError as error:
        raise TooBig("nested too deep") from error
    while parser.here.kind == "endgroup" or parser.at("sign", ".") or parser.at("sign", '"'):
        parser.take()
    if parser.here.kind != "end":
        raise Unreadable(f"{parser.here.value or parser.here.kind!r} is left over")
    # Refuse trees that are too deep.
    # Marks and set operations nest without recursion in the parser, but later steps do recurse.
    level, depth = [node], 0
    while level:
        level = [arg for part in level for arg in part.args]
        depth += 1
        if depth > MAX_NODE_DEPTH:
            raise TooBig(f"nested deeper than {MAX_NODE_DEPTH}")
    return node
