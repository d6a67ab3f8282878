"""The rules for arithmetic: sums, products, powers and the signs after a value (n!, 5%, f').

Relations, set operations and logic are in `claims`, units in `measures`; `grammar` says which token
selects which rule. A rule with a second argument extends the value to the left of its token, or
returns None if it does not fit. A rule with the parser alone reads a value. Each raises
`Unreadable` for a notation that it does not know.

An operator without a known meaning becomes a `call`. Two such nodes are equal only if their sides
are equal in the same order: no law, such as a*b = b*a, is assumed.
"""

from __future__ import annotations

import re
from fractions import Fraction
from itertools import pairwise

from msgspec.structs import replace

from . import nodes
from .directions import has_direction, is_directed
from .measures import (
    arc_minutes,
    ends_in_unit,
    lettered,
    per_unit_ahead,
    temperature,
    with_compound_unit,
    words_in_brackets,
)
from .nodes import EXACT, SETS, Exact, Node, Unreadable
from .powers import BINARY, POWER, PRODUCT, SUM
from .pratt import Parser

STARTS = frozenset({"num", "sym", "func", "const", "open", "group", "emptyset", "currency", "cmd"})
"""Kinds of tokens that can begin a factor."""
STOPS = frozenset(
    {"end", "hline", "forall", "exists", "nexists", "quad", "choose", "therefore", "because", "not"}
)
"""Commands that end a value. All other unknown commands are taken for operators."""


def call(name: str, *sides: Node) -> Node:
    """Return a node for an operator without a known meaning, applied to `sides` in this order."""
    return Node("call", sides, 0, name)


# --- sums ---


def sum_of(parser: Parser, left: Node) -> Node:
    """Read terms joined by + and -, including plus-minus signs and dots."""
    terms, dots = [left], False
    while True:
        token = parser.here
        if token.kind == "pm":
            parser.take()
            terms = [Node("pm", (nodes.add(*terms), parser.expression(SUM)), 0, token.value)]
        elif token.kind == "op" and token.value in "+-":
            parser.take()
            if parser.accept("dots"):
                dots = True
                terms.append(nodes.sym("..."))
                continue
            term = parser.expression(SUM)
            of_sets = left.op in SETS or left.note.startswith("set ")
            if token.value == "-" and len(terms) == 1 and of_sets:
                # After a set, the minus sign means the set difference.
                terms = [Node("minus", (left, term))]
            else:
                terms.append(nodes.neg(term) if token.value == "-" else term)
        else:
            break
    if dots:
        return dotted_sum(terms)
    return nodes.add(*terms)


def dotted_sum(terms: list[Node]) -> Node:
    """Return `1 + 2 + ... + n` as a series with its ends and its step.

    If the written terms do not all have the same step between them, or nothing follows the dots,
    the sum becomes a call with all terms as written.
    """
    place = terms.index(nodes.sym("..."))
    steps = {_step(*pair) for pair in (*pairwise(terms[:place]), *pairwise(terms[place + 1 :]))}
    if len(steps) != 1 or None in steps or place + 1 == len(terms):
        return call("+", *terms)
    return nodes.func(f"series {steps.pop()}", terms[0], terms[-1])


def _step(first: Node, second: Node) -> Exact | None:
    """Return the distance between two numbers, or between the indices of two names (`a_1`,
    `a_{n-1}`, `a_n`); None for other terms.
    """
    if first.op == second.op == "num":
        return nodes.magnitude(second.value - first.value)
    (stem, first_index), (second_stem, second_index) = (
        node.note.rpartition("_")[::2] for node in (first, second)
    )
    left, right = _INDEX.fullmatch(first_index), _INDEX.fullmatch(second_index)
    if not stem or not left or not right or (stem, left[1]) != (second_stem, right[1]):
        return None
    return abs(int(left[2] or 0) - int(right[2] or 0))


_INDEX = re.compile(r"([A-Za-z]*)([+-]?\d{1,6})?")
"""The letters and the number of an index: `n` and -1 in `n-1`."""


def signed(parser: Parser) -> Node:
    """Read a value with a leading sign, which covers the whole following product."""
    return _signed(parser, SUM)


def _signed(parser: Parser, floor: int) -> Node:
    sign = parser.take().value
    node = parser.inside(floor)
    return nodes.neg(node) if sign == "-" else node


def plus_minus(parser: Parser) -> Node:
    r"""Read a leading plus-minus sign: `\pm x`."""
    sign = parser.take().value
    return Node("pm", (parser.expression(SUM),), 0, sign)


# --- products ---


def product_of(parser: Parser, left: Node) -> Node | None:
    """Read factors joined by a sign of multiplication or division, or simply side by side.

    Returns None if nothing after `left` belongs to the product. Bracketed relations after a product
    are a condition: `2x^2 (x > 0)`.
    """
    factors, start = [left], parser.position
    while True:
        token = parser.here
        if (quantity := with_compound_unit(parser, factors)) is not None:
            return quantity
        if token.kind == "op" and token.value in "*·×/" and not per_unit_ahead(parser):
            _read_signed_factor(parser, factors)
        elif starts_factor(parser, factors[-1]) and not ends_in_unit(parser, factors):
            factors.append(parser.expression(PRODUCT))
            if factors[-1].op == "rel":
                return Node("given", (nodes.mul(*factors[:-1]), factors[-1]))
        else:
            break
    if ends_in_unit(parser, factors):
        return lettered(parser, nodes.mul(*factors[:-1]), factors[-1].note)
    return None if parser.position == start else nodes.mul(*factors)


def _read_signed_factor(parser: Parser, factors: list[Node]) -> None:
    """Read a sign of multiplication or division and the factor behind the sign into `factors`."""
    operator = parser.take().value
    if parser.here.kind == "dots":
        raise Unreadable("a product with dots")
    negative = parser.here.kind == "op" and parser.here.value in "+-"
    factor = _signed(parser, PRODUCT) if negative else parser.expression(PRODUCT)
    last = factors[-1]
    # After a vector, a number is the beginning of the right side: u · 2v is u · (2v).
    if operator in "·×" and factor.op in EXACT and has_direction(last):
        while starts_factor(parser, factor):
            factor = nodes.mul(factor, parser.expression(PRODUCT))
    if operator == "/" and last.op == factor.op == "num" and factor.value != 0:
        # A plain fraction becomes one exact number, so that comparing needs no normal form.
        factors[-1] = nodes.num(Fraction(last.value) / factor.value)
    elif operator == "/":
        factors.append(nodes.power(_run_of_letters(parser, factor), nodes.MINUS_ONE))
    elif operator != "*" and is_directed(parser, operator, last, factor):
        # Matching may swap the sides of a dot product, but not those of a divergence.
        prefix = "nabla" if nodes.sym("nabla") in {last, factor} else ""
        factors[-1] = call(prefix + operator, last, factor)
    else:
        factors.append(factor)


def _run_of_letters(parser: Parser, factor: Node) -> Node:
    """Return a letter behind a slash with the letters that touch it: `t/RC` is t over RC."""
    letters = [factor]
    while letters[-1].op == "sym" and parser.here.kind == "sym" and not parser.here.spaced:
        letters.append(parser.expression(PRODUCT))
    return nodes.mul(*letters)


def starts_factor(parser: Parser, last: Node) -> bool:
    """Return whether the next token begins a factor that stands directly after `last`: `2x`."""
    token = parser.here
    match token.kind:
        case "num":
            # `(-6) 5` is a product, and `(1) 5` may be the label of a part.
            bracketed = parser.ahead(-1).kind == "close"
            return last.op not in EXACT or (bracketed and last.value < 0)
        case "open" if parser.ahead().kind == "mod" or words_in_brackets(parser):
            return False
        case "open" if token.value == "[":
            return not parser.french and parser.ahead().kind not in {"end", "setop"}
        case "bar":
            return not parser.bar_ends and token.value == "|"
        case "sym" if token.value == "U" and last.op in SETS:
            return False
        case "cmd":
            return token.value in parser.grammar.commands and token.value not in STOPS
        case _:
            return token.kind in STARTS


# --- powers and other signs after a value ---


def raised(parser: Parser, base: Node) -> Node:
    """Read `^` and what follows: an exponent, or a raised degree sign, prime or star."""
    parser.take()
    if _circle(parser):
        return temperature(parser, arc_minutes(parser, Node("degree", (base,))))
    kinds = parser.here.kind, parser.ahead().kind
    if kinds[0] == "prime" or kinds == ("group", "prime"):
        braced = parser.accept("group")
        node = primed(parser, base)
        if braced:
            parser.expect("endgroup")
        return node
    if parser.here.kind == "op" and parser.here.value in "*·×":
        parser.take()
        return call("^*", base)
    power = nodes.power(base, parser.deeper(exponent))
    # The note tells `A^{-1}` from `1/A`: an inverse suggests matrices, whose order counts.
    inverse = power.args[1] == nodes.MINUS_ONE and base.op in {"sym", "mul"}
    return power._replace(note="inverse") if inverse else power


def exponent(parser: Parser) -> Node:
    """Read the expression after ^; towers group to the right."""
    if parser.here.kind == "op" and parser.here.value in "+-":
        sign = parser.take().value
        node = parser.deeper(exponent)
        return nodes.neg(node) if sign == "-" else node
    node = argument(parser)
    if parser.accept("op", "^"):
        return nodes.power(node, parser.deeper(exponent))
    return node


def _circle(parser: Parser) -> bool:
    r"""Consume a raised circle, `\circ` or `{\circ}`; returns whether there was one."""
    braced = parser.here.kind == "group"
    if parser.ahead(braced).kind not in {"circ", "degree"}:
        return False
    if braced and parser.ahead(2).kind != "endgroup":
        return False
    parser.position += 3 if braced else 1
    return True


def primed(parser: Parser, base: Node) -> Node:
    """Read primes. After a name they are part of the name (`x'`); after anything else they become a
    call.

    Raises:
        Unreadable: a prime follows a number.
    """
    marks = ""
    while parser.accept("prime"):
        marks += "'"
    if base.op in EXACT:
        raise Unreadable("a prime after a number")
    return nodes.sym(base.note + marks) if base.op == "sym" else call(marks, base)


def factorial(parser: Parser, base: Node) -> Node:
    """Read a factorial or double factorial: `n!`, `n!!`. With a space, `n! !` is two factorials."""
    parser.take()
    double = parser.at("fact", "!") and not parser.here.spaced
    if double:
        parser.take()
    return nodes.func("double factorial" if double else "factorial", base)


def percent(parser: Parser, base: Node) -> Node:
    """Read a percent sign after a value: `5%`.

    Raises:
        Unreadable: a second percent sign follows.
    """
    parser.take()
    if base.op == "percent":
        raise Unreadable("two percent signs")
    return Node("percent", (base,))


def degrees(parser: Parser, base: Node) -> Node:
    """Read a degree sign, perhaps with a scale or minutes after it: `60°`, `25°C`, `60°30'`."""
    parser.take()
    return temperature(parser, arc_minutes(parser, Node("degree", (base,))))


def empty_braces(parser: Parser, base: Node) -> Node | None:
    r"""Skip empty braces after a value: `\pi{}`."""
    if parser.ahead().kind != "endgroup":
        return None
    parser.position += 2
    return base


def subscripted(parser: Parser, base: Node) -> Node | None:
    """Read a subscript after a value that is not a name, as a call with the subscript's text."""
    parser.take()
    return call(f"_{subscript(parser)}", base)


def currency_after(parser: Parser, base: Node) -> Node | None:
    """Read a currency sign after an amount, `20€` or `75¢`, unless the sign starts the next
    amount.
    """
    if base.op not in EXACT or parser.ahead().kind == "num":
        return None
    return Node("quantity", (base,), 0, parser.take().value)


# --- arguments ---


def argument(parser: Parser, *, digit: bool = False) -> Node:
    r"""Read an argument in braces, or else the next value with its powers.

    With `digit`, only the first digit of a number without braces is read, as LaTeX does in
    `\frac12`.
    """
    if parser.accept("group"):
        node = parser.inside()
        parser.expect("endgroup")
        return node
    token = parser.here
    if digit and token.kind == "num" and len(token.value) > 1 and token.value.isdigit():
        parser.tokens[parser.position] = replace(token, value=token.value[1:], spaced=False)
        return nodes.num(int(token.value[0]))
    return parser.inside(POWER)


def subscript(parser: Parser) -> str:
    """Read a subscript as flat text, since a subscript is part of a name and not arithmetic."""
    if not parser.accept("group"):
        token = parser.take()
        return token.value or token.kind
    parts: list[str] = []
    level = 1
    while parser.here.kind != "end":
        token = parser.take()
        level += {"group": 1, "endgroup": -1}.get(token.kind, 0)
        if level == 0:
            break
        if token.kind not in {"group", "endgroup"}:
            parts.append(token.value or token.kind)
    return "".join(parts)


# --- operators between any values ---


def composition(parser: Parser, left: Node) -> Node:
    r"""Read `f \circ g`; after a number and with no value behind, the circle is a degree sign."""
    if left.op in EXACT and parser.ahead().kind not in STARTS:
        return degrees(parser, left)
    parser.take()
    return call("circ", left, parser.expression(PRODUCT))


def unknown_command(parser: Parser, left: Node) -> Node | None:
    """Read an unknown command after a value, as a call with one side, or two if a value follows."""
    name = parser.here.value
    if name in parser.grammar.commands or name in STOPS:
        return None
    parser.take()
    following = parser.here.kind in STARTS or parser.here.kind in {"bar", "op"}
    sides = (left, parser.expression(BINARY)) if following else (left,)
    return call(f"\\{name}", *sides)
