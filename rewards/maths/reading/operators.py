"""Tokens that may follow a value: sums, products, powers, marks, relations, set operations and
logic.

Every function extends the value on the left, or returns None if the rule does not fit. An
operator without a known meaning becomes a call, whose sides stay apart and in order.
"""

from __future__ import annotations

import re
from fractions import Fraction
from itertools import pairwise

from . import nodes
from .measures import (
    arc_minutes,
    ends_in_unit,
    lettered,
    per_unit_ahead,
    temperature,
    words_in_brackets,
)
from .nodes import Exact, Node, Unreadable
from .powers import BINARY, POWER, PRODUCT, SUM
from .pratt import Parser

EXACT = frozenset({"num", "dec"})
SETS = frozenset({"set", "such", "union", "inter", "minus", "bracket"})
STARTS = frozenset({"num", "sym", "func", "const", "open", "group", "emptyset", "currency", "cmd"})
"""Kinds of tokens that can begin a factor."""
STOPS = frozenset(
    {"end", "hline", "forall", "exists", "quad", "choose", "therefore", "because", "not"}
)
"""Commands that are not operators."""
_ARROWED = ("vec ", "bold ", "hat ", "overrightarrow ", "set ")


def call(name: str, *sides: Node) -> Node:
    """Return a node for an operator without a known meaning; only the sides and the order
    count.
    """
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
            if token.value == "-" and len(terms) == 1 and left.op in SETS:
                terms = [Node("minus", (left, term))]
            else:
                terms.append(nodes.neg(term) if token.value == "-" else term)
        else:
            break
    if dots:
        return dotted_sum(terms)
    if terms[-1].op == "given":
        last = terms.pop()
        return last._replace(args=(nodes.add(*terms, last.args[0]), last.args[1]))
    return nodes.add(*terms)


def dotted_sum(terms: list[Node]) -> Node:
    """Return `1 + 2 + ... + n` as a series with ends and step where the step is plain, else as a
    call with all terms.
    """
    place = terms.index(nodes.sym("..."))
    steps = {_step(*pair) for pair in (*pairwise(terms[:place]), *pairwise(terms[place + 1 :]))}
    if len(steps) != 1 or None in steps or place + 1 == len(terms):
        return call("+", *terms)
    return nodes.func(f"series {steps.pop()}", terms[0], terms[-1])


def _step(first: Node, second: Node) -> Exact | None:
    """Return the difference between two numbers, or between the indices of two names; None for
    other terms.
    """
    if first.op == second.op == "num":
        return nodes.magnitude(second.value - first.value)
    (stem, one), (other, two) = (node.note.rpartition("_")[::2] for node in (first, second))
    found = _INDEX.fullmatch(one), _INDEX.fullmatch(two)
    if not stem or stem != other or not found[0] or not found[1] or found[0][1] != found[1][1]:
        return None
    return abs(int(found[0][2] or 0) - int(found[1][2] or 0))


_INDEX = re.compile(r"([A-Za-z]*)([+-]?\d{1,6})?")


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
    """Read factors joined by *, / or by nothing."""
    factors, start = [left], parser.position
    while True:
        token = parser.here
        if token.kind == "op" and token.value in "*·×/" and not per_unit_ahead(parser):
            operator = parser.take().value
            if parser.here.kind == "dots":
                raise Unreadable("a product with dots")
            negative = parser.here.kind == "op" and parser.here.value in "+-"
            factor = _signed(parser, PRODUCT) if negative else parser.expression(PRODUCT)
            last = factors[-1]
            if operator in "·×" and factor.op in EXACT and _has_direction(last):
                while starts_factor(parser, factor):
                    factor = nodes.mul(factor, parser.expression(PRODUCT))
            if operator == "/":
                # A plain fraction becomes one exact number, so that comparing needs no normal form.
                if last.op == factor.op == "num" and factor.value != 0:
                    factors[-1] = nodes.num(Fraction(last.value) / factor.value)
                else:
                    factors.append(nodes.power(factor, nodes.MINUS_ONE))
            elif operator != "*" and _is_directed(parser, operator, last, factor):
                gradient = "nabla" if nodes.sym("nabla") in {last, factor} else ""
                factors[-1] = call(gradient + operator, last, factor)
            else:
                factors.append(factor)
        elif starts_factor(parser, factors[-1]) and not ends_in_unit(parser, factors):
            factors.append(parser.expression(PRODUCT))
            if factors[-1].op == "rel":
                return Node("given", (nodes.mul(*factors[:-1]), factors[-1]))
        else:
            break
    if ends_in_unit(parser, factors):
        return lettered(parser, factors[0], factors[1].note)
    return None if parser.position == start else nodes.mul(*factors)


def _is_directed(parser: Parser, operator: str, left: Node, right: Node) -> bool:
    """Return whether a cross or dot between these nodes is a product of vectors or sets.

    The sign is one if either side has a direction, if a cross stands between capitals, or if the
    text uses both operators.
    """
    nabla = nodes.sym("nabla")
    if nabla in {left, right} or (_has_direction(left) and _has_direction(right)):
        return True
    names = [left, right]
    if not all(side.op in {"sym", "call"} for side in names):
        return False
    capitals = all(side.note.isupper() for side in names)
    return (capitals and operator == "×") or _uses_both(parser)


def _uses_both(parser: Parser) -> bool:
    r"""Return whether letters are joined by both crosses and dots, as in `(u \times v) \cdot w`."""
    kinds = {token.value for token in parser.tokens if token.kind == "op"}
    return {"·", "×"} <= kinds and not any(token.kind == "num" for token in parser.tokens)


def _has_direction(node: Node) -> bool:
    if node.op == "sym":
        return node.note.startswith(_ARROWED)
    if node.op in {"add", "mul"}:
        return any(_has_direction(part) for part in node.args)
    return node.op in SETS or (node.op == "call" and node.note == "×")


def starts_factor(parser: Parser, last: Node) -> bool:
    """Return whether the next token multiplies the factor before."""
    token = parser.here
    match token.kind:
        case "num":
            return last.op not in EXACT
        case "open" if parser.ahead().kind == "mod" or words_in_brackets(parser):
            return False
        case "open" if token.value == "[":
            return not parser.french and parser.ahead().kind not in {"end", "setop"}
        case "bar":
            return not parser.bar_ends and token.value == "|"
        case "sym" if token.value == "U" and last.op in SETS:
            return False
        case "cmd":
            return token.value in parser.grammar.commands
        case _:
            return token.kind in STARTS


# --- powers and marks ---


def raised(parser: Parser, base: Node) -> Node:
    """Read an exponent; a circle or a prime as exponent is a mark instead."""
    parser.take()
    if _circle(parser):
        return temperature(parser, arc_minutes(parser, Node("degree", (base,))))
    if parser.here.kind == "prime" or (
        parser.here.kind == "group" and parser.ahead().kind == "prime"
    ):
        braced = parser.accept("group")
        node = primed(parser, base)
        if braced:
            parser.expect("endgroup")
        return node
    if parser.here.kind == "op" and parser.here.value in "*·×":
        parser.take()
        return call("^*", base)
    made = nodes.power(base, parser.deeper(exponent))
    inverse = made.args[1] == nodes.MINUS_ONE and base.op in {"sym", "mul"}
    return made._replace(note="inverse") if inverse else made


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
    braced = parser.here.kind == "group"
    if parser.ahead(braced).kind not in {"circ", "degree"}:
        return False
    if braced and parser.ahead(2).kind != "endgroup":
        return False
    parser.position += 3 if braced else 1
    return True


def primed(parser: Parser, base: Node) -> Node:
    """Read primes: a part of a name, and after anything else an operator without a known
    meaning.
    """
    marks = ""
    while parser.accept("prime"):
        marks += "'"
    if base.op in EXACT:
        raise Unreadable("a prime after a number")
    return nodes.sym(base.note + marks) if base.op == "sym" else call(marks, base)


def factorial(parser: Parser, base: Node) -> Node:
    """Read a factorial or double factorial: `n!`, `n!!`."""
    parser.take()
    double = parser.here == ("fact", "!", False)
    if double:
        parser.take()
    return nodes.func("double factorial" if double else "factorial", base)


def percent(parser: Parser, base: Node) -> Node:
    """Read a percent sign after a value."""
    parser.take()
    if base.op == "percent":
        raise Unreadable("two percent signs")
    return Node("percent", (base,))


def degrees(parser: Parser, base: Node) -> Node:
    """Read a degree sign with scale or minutes: `60°`, `25°C`, `60°30'`."""
    parser.take()
    return temperature(parser, arc_minutes(parser, Node("degree", (base,))))


def empty_braces(parser: Parser, base: Node) -> Node | None:
    r"""Skip empty braces after a value: `\pi{}`."""
    if parser.ahead().kind != "endgroup":
        return None
    parser.position += 2
    return base


def subscripted(parser: Parser, base: Node) -> Node | None:
    """Read a subscript after something that is not a name; the subscript is kept as a mark."""
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
    r"""Read a braced argument or the next atom.

    With `digit`, a bare number gives only its first digit, as LaTeX does in `\frac12`.
    """
    if parser.accept("group"):
        node = parser.inside()
        parser.expect("endgroup")
        return node
    token = parser.here
    if digit and token.kind == "num" and len(token.value) > 1 and token.value.isdigit():
        parser.tokens[parser.position] = token._replace(value=token.value[1:], spaced=False)
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


# --- sets, relations, logic ---


def composition(parser: Parser, left: Node) -> Node:
    r"""Read `f \circ g`; after a number and with nothing behind, the circle is a degree sign."""
    if left.op in EXACT and parser.ahead().kind not in STARTS:
        return degrees(parser, left)
    parser.take()
    return call("circ", left, parser.expression(PRODUCT))


def unknown_command(parser: Parser, left: Node) -> Node | None:
    """Read an unknown command after a value: an operator if a value follows, else a mark."""
    name = parser.here.value
    if name in parser.grammar.commands or name in STOPS:
        return None
    parser.take()
    following = parser.here.kind in STARTS or parser.here.kind in {"bar", "op"}
    sides = (left, parser.expression(BINARY)) if following else (left,)
    return call(f"\\{name}", *sides)
