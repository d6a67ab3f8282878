"""Brackets, braces, bars, and the lists inside."""

from __future__ import annotations

from . import nodes
from .claims import claim
from .conditions import piecewise
from .literals import based
from .nodes import Node, Unreadable
from .operators import argument, subscript
from .powers import POWER, SUM
from .pratt import Parser
from .vocabulary import CONNECTIVES

_CLOSING = {"(": ")", "[": "]", ")": ")", "]": "]"}


def items_inside(parser: Parser, *, bar_ends: bool = False) -> list[Node]:
    """Read values separated by commas; with `bar_ends` a bar ends the list instead of starting a
    value.
    """
    outer_bar_ends, parser.bar_ends = parser.bar_ends, bar_ends
    items = [parser.inside()]
    while parser.accept("sep"):
        if parser.here.kind == "close":
            break
        items.append(parser.inside())
    parser.bar_ends = outer_bar_ends
    return items


def closing(parser: Parser, opener: str) -> str:
    """Consume the bracket that closes `opener` and return the bracket; half-open intervals mix
    kinds.
    """
    token = parser.here
    if token.kind == "close" and token.value in _CLOSING:
        parser.take()
        return token.value
    if (token.kind, token.value) == ("open", "["):
        parser.take()
        return ")"
    if token.kind == "end":
        return _CLOSING[opener]
    raise Unreadable(f"a bracket is not closed before {token.value or token.kind!r}")


def close(parser: Parser, opener: str) -> None:
    if opener == "{":
        if not parser.accept("close", "}") and not parser.accept("endgroup"):
            parser.expect("close")
    else:
        closing(parser, opener)


def bracket(parser: Parser) -> Node:
    """Read a group, a tuple or an interval; braces, floors and angle brackets are passed on."""
    token = parser.take()
    if token.value == "{":
        return _braces(parser)
    if token.value in {"floor", "ceil"}:
        node = parser.inside(SUM - 1)
        parser.expect("close", token.value)
        return nodes.func(token.value, node)
    if token.value == "⟨":
        # `\langle 1, 2\rangle` is a vector, `\langle x\rangle` a mean.
        items = items_inside(parser)
        if not parser.accept("close", "⟩"):
            parser.expect("close", ">")
        if len(items) > 1:
            return Node("bracket", tuple(items), 0, "()")
        return Node("call", tuple(items), 0, "mean")
    opener = "(" if token.value in "(]" else "["
    if parser.accept("close"):
        return Node("bracket", (), 0, "()")
    french, parser.french = (
        parser.french,
        token.kind == "close" or (parser.french and token.value != "("),
    )
    items = items_inside(parser)
    parser.french = french
    closed = closing(parser, opener)
    if len(items) > 1:
        return Node("bracket", tuple(items), 0, opener + closed)
    if parser.here.kind == "sub" and items[0].op == "num":
        parser.take()
        return based(parser, str(items[0].value))
    if items[0].op == "list" and all(item.op == "rel" for item in items[0].args):
        return items[0]
    if items[0].op == "list":
        return Node("bracket", items[0].args, 0, opener + closed)
    if opener + closed in {"[)", "(]"}:
        raise Unreadable("a half-open bracket around one value")
    return claim(parser, items[0])


def closing_first(parser: Parser) -> Node:
    """Read an interval in French notation: `]0, 1[`."""
    if parser.here.value != "]":
        raise Unreadable(f"{parser.here.value!r} where a value should be")
    return bracket(parser)


def _braces(parser: Parser) -> Node:
    if parser.accept("close", "}"):
        return Node("set")
    items = _elements(parser)
    if _such_that(parser):
        node = Node("such", (items[0], parser.deeper(condition)))
    else:
        node = Node("set", tuple(items))
    parser.expect("close")
    return node


def _elements(parser: Parser) -> list[Node]:
    """Read items in braces, where a bar or a colon ends the list (`{x | x > 0}`)."""
    outer_colon_ends, parser.colon_ends = parser.colon_ends, True
    items = items_inside(parser, bar_ends=True)
    parser.colon_ends = outer_colon_ends
    return items


def _such_that(parser: Parser) -> bool:
    if parser.here.kind != "bar" and not parser.at("sign", ":"):
        return False
    parser.take()
    return True


def condition(parser: Parser) -> Node:
    """Read the condition of a set-builder: relations joined by commas or words."""
    return listed(parser)


def listed(parser: Parser) -> Node:
    """Read items joined by commas and words: a single item, or a list with the joining word.

    Where a stronger mark than a comma separates (`x=1, y=2; x=3, y=4`), the result is a list of
    lists.
    """
    items = [parser.expression()]
    marks: list[str] = []
    while is_separator(parser):
        # Of adjacent separators the last counts: in `2, and 3` the comma belongs to the word.
        signs: list[str] = []
        while is_separator(parser):
            token = parser.take()
            signs.append(CONNECTIVES[token.value] if token.kind == "word" else token.value or ";")
        mark = signs[-1]
        if parser.here.kind in {"end", "endgroup"}:
            break
        marks.append(mark)
        items.append(parser.expression())
    if len(items) == 1:
        return items[0]
    items = _shared(items)
    if (cases := piecewise(items)) is not None:
        return cases
    if items[0].note == "!=" and all(map(_is_value, items[1:])):
        # `x != 0, 1` denies each of the values.
        name = items[0].args[0]
        denials = tuple(Node("rel", (name, item), 0, "!=") for item in items[1:])
        return Node("list", (items[0], *denials), 0, "and")
    if (groups := _grouped(items, marks)) is not None:
        return Node("list", groups, 0, ";")
    words = [mark for mark in marks if mark in {"and", "or"}]
    return Node("list", tuple(items), 0, words[0] if words else ",")


def _shared(items: list[Node]) -> list[Node]:
    r"""Return items with what the last of them says of all: a set in `a, b \in R`, a modulus in
    `n = 1, 5 (mod 6)`.
    """
    last = items[-1]
    member = last.op == "rel" and last.note == "in" and last.args[0].op == "sym"
    for place in range(len(items) - 2, -1, -1):
        if not member or items[place].op != "sym":
            break
        items[place] = Node("rel", (items[place], last.args[1]), 0, "in")
    first = items[0]
    if last.op == "mod" and first.note == "==" and all(map(_is_value, items[1:-1])):
        values = [*items[1:-1], last.args[0]]
        claims = [first, *(Node("rel", (first.args[0], value), 0, "==") for value in values)]
        return [last._replace(args=(claim, last.args[1])) for claim in claims]
    return items


def _is_value(node: Node) -> bool:
    return nodes.is_scalar(node) or node.op == "pm"


def _grouped(items: list[Node], marks: list[str]) -> tuple[Node, ...] | None:
    """Return the lists between semicolons or "or" if every group has the same number of equations,
    else None.
    """
    strong = {";", "or", "and"}.intersection(marks)
    if "," not in marks or not strong:
        return None
    groups: list[list[Node]] = [[items[0]]]
    for mark, item in zip(marks, items[1:], strict=True):
        if mark in strong:
            groups.append([])
        groups[-1].append(item)
    sizes = {len(group) for group in groups}
    if len(sizes) != 1 or sizes == {1}:
        return None
    all_equations = all(item.op == "rel" and item.note == "=" for group in groups for item in group)
    names = {tuple(item.args[:1] for item in group) for group in groups}
    plain = strong == {";"} and all(item.op in {"num", "dec"} for item in items)
    if not (plain or (all_equations and len(names) == 1)):
        return None
    return tuple(Node("list", tuple(group), 0, ",") for group in groups)


def is_separator(parser: Parser) -> bool:
    """Return whether the next token is a comma, the end of a row, or a connecting word."""
    token = parser.here
    return token.kind in {"sep", "row"} or (token.kind == "word" and token.value in CONNECTIVES)


def group(parser: Parser) -> Node:
    """Read plain braces as LaTeX grouping, or, with separators or a bar inside, as a set that lost
    its backslashes.
    """
    parser.take()
    if parser.accept("endgroup"):
        if parser.here.kind in {"end", "sep", "endgroup"}:
            return Node("set")
        return prescripted(parser)
    items = _elements(parser)
    if parser.accept("cmd", "choose"):
        items = [nodes.func("binom", items[0], parser.inside())]
    elif _such_that(parser):
        items = [Node("such", (items[0], parser.deeper(condition)))]
    parser.expect("endgroup")
    return items[0] if len(items) == 1 else Node("set", tuple(items))


_CHOICES = frozenset("CP")


def prescripted(parser: Parser) -> Node:
    """Read marks before a name, as in `{}^{10}C_3`; before anything else the marks become part of
    an unknown operator.
    """
    before = ""
    upper: Node | None = None
    while parser.here.kind == "sub" or parser.at("op", "^"):
        mark = parser.take().value
        start = parser.position
        upper = argument(parser)
        parser.position = start
        before += mark + subscript(parser)
    if upper is None:
        return parser.expression(POWER)
    symbol = parser.here
    if symbol.kind in {"sym", "word"} and symbol.value in _CHOICES and parser.ahead().kind == "sub":
        parser.position += 2
        lower = argument(parser)
        if symbol.value == "C":
            return nodes.func("binom", upper, lower)
        lowered = nodes.add(upper, nodes.neg(lower))
        return nodes.over(nodes.func("factorial", upper), nodes.func("factorial", lowered))
    return Node("call", (parser.expression(POWER),), 0, before)


def absolute(parser: Parser) -> Node:
    """Read `|x|`, or a norm between double bars."""
    bars = parser.take().value
    outer_bar_ends, parser.bar_ends = parser.bar_ends, True
    node = parser.inside(SUM - 1)
    parser.bar_ends = outer_bar_ends
    parser.expect("bar", bars)
    return nodes.func("abs", node) if bars == "|" else Node("call", (node,), 0, "norm")
