"""Units, degrees and counted things after a value."""

from __future__ import annotations

from fractions import Fraction

from . import nodes
from .lexer import Token
from .nodes import EXACT, Node, Unreadable
from .numerals import exact_numeral
from .powers import SUM
from .pratt import Parser
from .units import compound_unit, dimension, read_unit
from .vocabulary import (
    CONNECTIVES,
    DENIALS,
    NUMBER_WORDS,
    QUALIFIERS,
    SCALES,
    UNIT_LETTERS,
    unit_symbol,
)

_TEMPERATURES = {"C": "degC", "celsius": "degC", "F": "degF", "fahrenheit": "degF"}


def with_unit(parser: Parser, node: Node) -> Node | None:
    """Read the word after a value as a unit: `5 cm`, `2 million`, `18 eggs`, `30 degrees`; None for
    connecting words.
    """
    word = parser.here.value
    behind = parser.ahead()
    if word == "such" and behind.kind == "word" and behind.value not in QUALIFIERS | DENIALS:
        parser.take()  # `60 such committees`
        word = parser.here.value
    if word in CONNECTIVES or word in QUALIFIERS or word == "to":
        return None
    if word in {"degree", "degrees", "deg"}:
        parser.take()
        return temperature(parser, Node("degree", (node,)))
    if word in {"percent", "percentage", "pct"}:
        parser.take()
        return Node("percent", (node,))
    if word in SCALES and node == nodes.sym("a"):
        node = nodes.num(1)
    if word in SCALES:
        parser.take()
        scale = nodes.num(SCALES[word])
        if node.op == "quantity" and node.args[0].op in EXACT:  # `\\$2.5 million`
            return node._replace(args=(nodes.num(node.args[0].value * scale.value),))
        exact = node.op in EXACT
        return nodes.num(node.value * scale.value) if exact else nodes.mul(node, scale)
    if word == "i":
        parser.take()
        return nodes.mul(node, nodes.const("i"))
    parser.position, unit = read_unit(parser.tokens, parser.position)
    return _compound(parser, Node("quantity", (node,), 0, unit))


def times(parser: Parser, left: Node) -> Node | None:
    r"""Read a product of quantities: `2 kg · 3 m/s^2`."""
    if left.op != "quantity":
        return None
    parser.take()
    right = parser.expression(SUM)
    squared = right.op == "pow" and right.args[1] == nodes.num(2)
    factors = [left, *([right.args[0]] * 2 if squared else [right])]
    if any(part.op != "quantity" or dimension(part.note) is None for part in factors):
        raise Unreadable("a product with a unit that is not known")
    value = nodes.mul(*(part.args[0] for part in factors))
    return Node("quantity", (value,), 0, "*".join(part.note for part in factors))


def per_unit_ahead(parser: Parser) -> bool:
    """Return whether the next slash divides by a unit: `10^{23}/mol`."""
    unit = parser.ahead()
    is_unit = unit.kind == "word" and unit_symbol(unit.value) is not None
    return parser.here.value == "/" and is_unit


def per_unit(parser: Parser, node: Node) -> Node | None:
    r"""Read a reciprocal unit: `6.02 \cdot 10^{23} /mol`."""
    if not per_unit_ahead(parser):
        return None
    parser.take()
    parser.position, unit = read_unit(parser.tokens, parser.position)
    return Node("quantity", (node,), 0, f"/{unit}")


def counted(parser: Parser, node: Node) -> Node | None:
    """Read a unit in brackets: `24 (ways)`."""
    if not words_in_brackets(parser):
        return None
    parser.take()
    quantity = with_unit(parser, node)
    if quantity is None or parser.here.kind != "close":
        raise Unreadable("words in brackets after a value")
    parser.take()
    return quantity


def words_in_brackets(parser: Parser) -> bool:
    """Return whether the next bracket contains words only, or a unit with its power."""
    word, end = parser.ahead().value, 1
    if not parser.at("open", "(") or parser.ahead().kind != "word":
        return False
    if not parser.here.spaced and unit_symbol(word) is None:
        return False
    while parser.ahead(end).kind == "word":
        end += 1
    if parser.ahead(end).pair == ("op", "^") and parser.ahead(end + 1).kind == "num":
        end += 2
    return parser.ahead(end).kind == "close" and word not in QUALIFIERS | NUMBER_WORDS


def ends_in_unit(parser: Parser, factors: list[Node]) -> bool:
    r"""Return whether numbers, a space and a letter form a quantity: `2 \cdot 10^{-4} J`."""
    if len(factors) < 2 or parser.here.kind not in {"end", "num"}:
        return False
    if not _is_one_term(parser):
        return False
    token, (*values, letter) = parser.tokens[parser.position - 1], factors
    spaced = token.spaced and token.value in UNIT_LETTERS
    return spaced and letter == nodes.sym(token.value) and all(map(_is_number, values))


def with_compound_unit(parser: Parser, factors: list[Node]) -> Node | None:
    """Read several units without markup that end an answer: `0.9 J/(g K)`, `3 N·m`; None for other
    factors.
    """
    here, last = parser.here, parser.position + 1
    if not here.spaced or here.kind != "sym" or here.value not in UNIT_LETTERS:
        return None
    if parser.ahead().kind == "end" or not all(map(_is_number, factors)):
        return None
    if not _is_one_term(parser):
        return None
    end, unit = compound_unit(parser.tokens, parser.position)
    if end == last or parser.tokens[end].kind != "end":
        return None
    parser.position = end
    return Node("quantity", (nodes.mul(*factors),), 0, unit)


def _is_one_term(parser: Parser) -> bool:
    """Return whether a number, or a sign and a number, begins what was read or follows a name
    (`v = 54 m/s`), and nothing is added to it.
    """
    begin = _end_of_name(parser.tokens)
    begin += parser.tokens[begin].pair in {("op", "+"), ("op", "-")}
    read = parser.tokens[begin + 1 : parser.position]
    return parser.tokens[begin].kind == "num" and not any(
        token.pair == ("op", "+") or token.kind == "rel" for token in read
    )


def _end_of_name(tokens: list[Token]) -> int:
    """Return the place behind the equal sign of a name (`v_0 =`, `Time =`); 0 without one."""
    kinds = [token.kind for token in tokens[:LONGEST_NAME]]
    end = kinds.index("rel") if "rel" in kinds else 0
    is_name = kinds[0] == "sym" and kinds[1] in {"rel", "sub", "prime"}
    is_name = is_name or set(kinds[:end]) == {"word"}
    return end + 1 if is_name and "op" not in kinds[:end] and tokens[end].value == "=" else 0


LONGEST_NAME = 12
"""Tokens of a name with its index, and of the equal sign behind it."""


def _is_number(node: Node) -> bool:
    return node.op in EXACT or (node.op == "pow" and all(arg.op in EXACT for arg in node.args))


def lettered(parser: Parser, value: Node, unit: str) -> Node:
    """Return the quantity that `ends_in_unit` found, including a smaller quantity that follows."""
    return _compound(parser, Node("quantity", (value,), 0, unit))


def _compound(parser: Parser, node: Node) -> Node:
    """Add the next quantity of the same dimension and a smaller unit: `1 hour 30 minutes`, `1 hour
    and 30 minutes`.
    """
    has_separator = parser.here.kind in {"word", "sep"} and parser.here.value in {"and", ","}
    if parser.ahead(has_separator).kind != "num" or node.args[0].op not in EXACT:
        return node
    first = dimension(node.note)
    start, outer_made = parser.position, parser.made
    parser.position += has_separator
    second = parser.expression(SUM) if first is not None else node
    scale = dimension(second.note) if second.op == "quantity" else None
    fits = first and scale and scale[1] == first[1] and scale[0] < first[0]
    if first and scale and fits and second.args[0].op in EXACT:
        total = Fraction(node.args[0].value) * first[0] / scale[0] + second.args[0].value
        return second._replace(args=(nodes.num(total),))
    if not has_separator:
        raise Unreadable("two quantities side by side")
    parser.position, parser.made = start, outer_made
    return node


def temperature(parser: Parser, node: Node) -> Node:
    """Read a temperature scale after degrees: `25 degrees C`."""
    if parser.here.kind not in {"sym", "word"} or parser.here.value not in _TEMPERATURES:
        return node
    return Node("quantity", node.args, 0, _TEMPERATURES[parser.take().value])


def gathered(node: Node) -> Node:
    r"""Return sums and products of marked angles as one angle: `60^\circ + 360^\circ k` is one of
    60 + 360 k degrees. A sum that mixes marked and plain terms stays as written.
    """
    if node.op in {"rel", "list", "bracket"}:
        return node._replace(args=tuple(map(gathered, node.args)))
    inner = _in_degrees(node) if node.op in {"add", "mul"} else None
    return node if inner is None else Node("degree", (inner,))


def _in_degrees(node: Node) -> Node | None:
    """Return the number of degrees of an angle, or None for a formula that is no marked angle."""
    if node.op == "degree":
        return node.args[0]
    if node.op == "add":
        terms = [term for part in node.args if (term := _in_degrees(part)) is not None]
        return nodes.add(*terms) if len(terms) == len(node.args) else None
    marked = [part for part in node.args if nodes.has(part, "degree")] if node.op == "mul" else []
    angle = _in_degrees(marked[0]) if len(marked) == 1 else None
    if angle is None:
        return None
    return nodes.mul(*(angle if part is marked[0] else part for part in node.args))


def arc_minutes(parser: Parser, node: Node) -> Node:
    r"""Read minutes and seconds of arc after degrees: `60^\circ 30'`."""
    if parser.here.kind != "num":
        return node
    value, scale = node.args[0], 60
    while parser.here.kind == "num" and scale <= 3600:
        minutes = exact_numeral(parser.take().value)
        parser.accept("op", "^")
        braced = parser.accept("group")
        marked = parser.sees("prime")
        while parser.accept("prime"):
            pass
        if not marked:
            raise Unreadable("a number after degrees that is not marked as minutes")
        if braced:
            parser.expect("endgroup")
        value = nodes.add(value, nodes.num(Fraction(minutes.value) / scale))
        scale *= 60
    return Node("degree", (value,))
