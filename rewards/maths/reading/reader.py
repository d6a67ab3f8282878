"""The reader: turns an extracted answer into a `Node`.

`read` parses and never evaluates. A text that cannot be read as mathematics becomes words.
"""

from __future__ import annotations

import re
from contextlib import suppress
from fractions import Fraction

from . import nodes
from .brackets import listed
from .conditions import with_constant
from .dates import date
from .grammar import GRAMMAR
from .lexer import tokenize
from .measures import gathered
from .nodes import Node, TooBig, Unreadable
from .notation import as_words, squeeze, strip_delimiters, to_latex
from .numerals import exact_numeral
from .pratt import Parser
from .vocabulary import ALL_REALS

MAX_CHARACTERS = 4096
MAX_NODE_DEPTH = 40
MAX_DATE = 40
# A time of day, `3:05 pm`.
_CLOCK = re.compile(r"(?i)(\d{1,2})(?::(\d\d))?\s*(?:([ap])\.?\s*m\.?)$")
# A time of day in German, `11.15 Uhr`.
_UHR = re.compile(r"(\d{1,2})(?:[:.](\d\d))?(?:\s|\\[ ,])*(?:\\text\{\s*)?Uhr(?:\s(\d\d))?[\s}.]*$")
# Digits with letters and a base of two digits: the parser would read `1A_{16}` as a product.
_DIGITS_WITH_BASE = re.compile(
    r"^(?:\\(?:text|mathrm)\s*\{)?(?=[0-9A-Za-z]*\d|[A-F]{2,}|[a-f]{2,}\}?\s*_\s*\{?16)([0-9A-Za-z]{1,200})\}?\s*_\s*\{?(\d{2})\}?$"
)
# A quotient of units: `72 \frac{\text{km}}{\text{h}}`.
_UNIT_QUOTIENT = re.compile(
    r"\\[dt]?frac\{\\(?:text|mathrm)\{([A-Za-z]+)\}\}\{\\(?:text|mathrm)\{([A-Za-z]+(?:\^\d)?)\}\}"
)
# A base in words: `1011 in base 2`, `1011 (base two)`.
_BASE_IN_WORDS = re.compile(
    r"(?<=[0-9A-Za-z}])\s*+(?:\\(?:text|mathrm)\s*+\{)?[\s(]*+(?:in\s+)?base[\s-]*+(\w{1,9})[\s)}]*+$"
)
# Integers, fractions and decimals, which most answers are, are read without the parser.
_INTEGER = re.compile(r"[+-]?\d{1,15}$")
_FRACTION = re.compile(r"(-?)\\[dt]?frac\{(\d{1,15})\}\{(\d{1,15})\}$")
_DECIMAL = re.compile(r"\d{1,15}\.\d{1,15}$")
# A set of a letter in brackets: `15k + 8 \\quad (k \\in \\mathbb{Z})`.
_MEMBER = re.compile(
    r"(?<=[\w}])(?:\s|\\[ ,;:!]|\\q?quad|~)*\(\s*([a-zA-Z]\s*\\in\s*"
    r"\\mathbb\s*\{?\s*[A-Z]\s*\}?)\s*\)$"
)
# Words for a value that has a symbol.
_NAMED_VALUES = {
    **dict.fromkeys(("all integers", "integers"), nodes.sym("set Z")),
    **dict.fromkeys(("negative infinity", "minus infinity"), nodes.neg(nodes.INFINITY)),
}  # fmt: skip
_BRACKETS_AND_EQUALS = re.compile(r"\\[{}]|[(){}\[\]]|(?<![!<>:=])=(?!=)")
# A left side with these words or signs makes a claim and is not a name of the value.
_NO_LABEL = re.compile(
    r"\b(?:not|or|no|if|except|than)\b|\\(?:ne|not|neq|le|ge|leq|geq|lt|gt|pm)\b|[<>]"
)
# `no solution`, which the formula grammar would read as the letters n and o with a unit.
_DATED = re.compile(r"(?:the )?(?:\d{1,4}[-. ]?[^\W\d_]|[^\W\d_]{3,10}\.? \d|\d{4}-\d\d-)")
"""How a date may begin, so that other answers are not searched for one."""
_NO_ANSWER = re.compile(r"(?i)(?:no|not|none)(?:\s+[a-z]{2,})+")
# Plain language. An answer with other characters that cannot be parsed is kept as written.
_PROSE = re.compile(r"(?:[\w\s.,;:!?'’()/&%-]|\$)*")
# Two letters such as `mg`: milligrams or, where that cannot be parsed, the product of m and g.
_SHORT_UNITS = re.compile(r"(?<![A-Za-z\\{])(?!i[fs]\b)[a-z]{2}(?![A-Za-z}])")


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
    if _INTEGER.match(cleaned):
        return nodes.num(int(cleaned))
    if (fraction := _FRACTION.match(cleaned)) and int(fraction[3]):
        value = Fraction(int(fraction[1] + fraction[2]), int(fraction[3]))
        return nodes.num(value.numerator if value.denominator == 1 else value)
    if _DECIMAL.match(cleaned):
        return exact_numeral(cleaned)
    if cleaned.endswith(")") and "\\in" in cleaned:
        cleaned = _MEMBER.sub(r", \1", cleaned)
    cleaned = with_constant(cleaned)
    if ("al" in cleaned or "every" in cleaned) and (numbers := _NUMBERS.match(cleaned)):
        with suppress(Unreadable):
            return read_formula(_in_notation(*numbers.group("set", "but", "rest")))
    dated = _DATED.match(cleaned) and len(cleaned) < MAX_DATE and date(as_words(cleaned))
    if dated or _NO_ANSWER.fullmatch(cleaned):
        return read_words(cleaned)
    try:
        return read_formula(cleaned)
    except TooBig:
        raise
    except Unreadable:
        return _read_labelled(cleaned) or read_words(cleaned)


def _in_notation(numbers: str, relation: str, operand: str) -> str:
    r"""Return numbers in words, such as `all reals except 1 and 2`, in the notation of sets.

    >>> _in_notation("real", "except", "x = 1 and x = 2"), _in_notation("real", "less than", "5")
    ('\\mathbb{R} \\setminus \\{1 , 2\\}', '(-\\infty, 5)')
    """
    operand = re.sub(r"\\text\s*\{([^{}]*)\}", r" \1 ", operand).strip(" .")
    if operand.count("}") > operand.count("{"):  # of the `\text{` around the whole
        operand = operand.rpartition("}")[0]
    if relation.lower() in _BOUNDED and numbers != "integer":
        return _BOUNDED[relation.lower()].format(operand)
    if r"\in" in operand:  # a family of values with its parameter
        return re.sub(r"^\s*x\s*=", "", operand).join((r"x \neq ", ""))
    values = re.sub(r"\b(?:and|or)\b", ",", re.sub(r"\b[a-z]\s*=\s*", "", operand))
    values = re.sub(r",\s*,", ",", values).strip().removeprefix("\\{").removesuffix("\\}")
    return rf"\mathbb{{{'Z' if numbers == 'integer' else 'R'}}} \setminus \{{{values}\}}"


_BOUNDED = {
    words: ends
    for ends, some in (
        (r"({}, \infty)", "greater than/larger than/bigger than/more than/above"),
        (r"(-\infty, {})", "less than/smaller than/below"),
        (r"[{}, \infty)", "greater than or equal to/at least/no less than/not less than"),
        (r"(-\infty, {}]", "less than or equal to/at most/no more than/not more than"),
    )
    for words in some.split("/")
}
_BOUND_WORDS = "|".join(
    words + "(?! or)" * words.endswith("than") for words in sorted(_BOUNDED, key=len, reverse=True)
)
_NUMBERS = re.compile(
    r"(?is)(?:\\text\s*\{)?\s*(?:(?:the set of )?all|any|every|each) (?P<set>real|integer"
    r"|numbers?|values?|[a-z](?= ))s?(?: "
    r"numbers?| values?)?[\s}]{0,4}(?:(?:of )?[\s$]{0,4}[a-z]\b)?[\s,]{0,4}(?:\\text\s*\{"
    rf"\s*)?(?P<but>except|other than|excluding|{_BOUND_WORDS})(?: for)?[\s}}]{{1,4}}(?P<rest>.+)"
)
"""Numbers that words describe."""


def _read_labelled(cleaned: str) -> Node | None:
    r"""Read `\lim f(x) = 5`, whose left side cannot be parsed, as a named value.

    Returns None if no label stands before the first equals sign outside all brackets, or no formula
    after that sign.
    """
    first_letter = next((i for i, c in enumerate(cleaned) if c.isalpha()), len(cleaned))
    depth = 0
    for sign in _BRACKETS_AND_EQUALS.finditer(cleaned):
        depth += {"(": 1, "{": 1, "[": 1, ")": -1, "}": -1, "]": -1}.get(sign[0], 0)
        if sign[0] != "=" or depth or sign.start() <= first_letter:
            continue
        label, formula = cleaned[: sign.start()], cleaned[sign.end() :]
        if _NO_LABEL.search(label):
            return None
        try:
            value = read_formula(formula)
        except Unreadable:
            return None
        name = nodes.text(as_words(label).casefold())
        if value.op != "rel":
            return Node("rel", (name, value), 0, "=")
        # A chain, `\lim f(x) = 10/2 = 5`, goes on after the label; an inequality is no value.
        is_chain = set(value.note.split()) <= {"=", "~="}
        return Node("rel", (name, *value.args), 0, f"= {value.note}") if is_chain else None
    return None


def read_words(cleaned: str) -> Node:
    """Return an answer in words.

    Raises:
        Unreadable: the text has neither letters nor digits.
    """
    words = as_words(cleaned)
    if not any(character.isalnum() for character in words):
        raise Unreadable("the answer has neither letters nor digits")
    if _PROSE.fullmatch(words) is None:
        return Node("opaque", (), 0, squeeze(cleaned))
    if ALL_REALS.fullmatch(words):
        return nodes.sym("set R")
    return _NAMED_VALUES.get(words.casefold()) or nodes.text(words)


def read_formula(cleaned: str) -> Node:
    """Parse a formula.

    Raises:
        Unreadable: the text is not a formula.
    """
    if "Uhr" in cleaned and (clock := _UHR.match(cleaned)):
        return nodes.text(f"{int(clock[1])}:{clock[2] or clock[3] or '00'} h")
    # Looking for a letter or a word first spares most answers the searches, which cost more.
    if "m" in cleaned or "M" in cleaned:
        bare = re.sub(r"\\(?:text|mathrm)\{([^{}]*)\}", r"\1", cleaned).replace("{:}", ":")
        if clock := _CLOCK.match(bare.replace("\\", " ").strip("} ")):
            return nodes.text(f"{int(clock[1])}:{clock[2] or '00'} {clock[3].lower()}m")
    if "frac" in cleaned and "{\\" in cleaned:
        cleaned = _UNIT_QUOTIENT.sub(r"\\text{ \1/\2}", cleaned)
    if "base" in cleaned:
        cleaned = _BASE_IN_WORDS.sub(r"_{\1}", cleaned)
    if "_" in cleaned and (digits := _DIGITS_WITH_BASE.match(cleaned)):
        return Node("based", (), int(digits[2]), digits[1].upper())
    try:
        return _parse(cleaned)
    except TooBig:
        raise
    except Unreadable:
        if _SHORT_UNITS.search(cleaned) is None:
            raise
    return _parse(_SHORT_UNITS.sub(lambda match: " ".join(match[0]), cleaned))


def _parse(cleaned: str) -> Node:
    """Parse a whole formula; a full stop and quotes after it are dropped."""
    parser = Parser(tokenize(cleaned), GRAMMAR)
    try:
        node = listed(parser)
    except RecursionError as error:
        raise TooBig("nested too deep") from error
    while parser.sees("endgroup") or parser.at("sign", ".") or parser.at("sign", '"'):
        parser.take()
    if parser.here.kind != "end":
        raise Unreadable(f"{parser.here.value or parser.here.kind!r} is left over")
    # Marks and set operations nest without recursion in the parser, so that a tree may be deeper
    # than the steps after this one, which recurse, can follow.
    level, depth = [node], 0
    while level:
        level = [arg for part in level for arg in part.args]
        depth += 1
        if depth > MAX_NODE_DEPTH:
            raise TooBig(f"nested deeper than {MAX_NODE_DEPTH}")
    return gathered(node) if nodes.has(node, "degree") else node
