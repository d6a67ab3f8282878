"""LaTeX commands that begin a value: fractions, roots, binomials, number sets and big operators."""

from __future__ import annotations

from fractions import Fraction

from msgspec.structs import replace

from . import nodes
from .lexer import Token
from .nodes import Node, TooBig, Unreadable
from .operators import STARTS, argument, call, subscript
from .powers import POWER, PRODUCT, SUM
from .pratt import Parser, Prefix

FRACTIONS = frozenset({"frac", "dfrac", "tfrac", "cfrac", "sfrac", "nicefrac"})
INTEGRALS = frozenset({"int", "iint", "iiint", "oint"})
_NUMBER_SETS = frozenset({"R", "Z", "N", "Q", "C", "K"})


def command(parser: Parser) -> Node:
    """Read the next command with all arguments; an unknown command is kept as a name."""
    name = parser.take().value
    handler = parser.grammar.commands.get(name)
    if handler is not None:
        return parser.count(handler(parser))
    if name in {"end", "therefore", "because", "not", "choose"}:
        raise Unreadable(f"the command \\{name}")
    arguments: list[Node] = []
    while parser.here.kind == "group":
        arguments.append(argument(parser))
    if not arguments and parser.here.kind in STARTS:
        arguments.append(parser.inside(POWER))
    return call(f"\\{name}", *arguments) if arguments else nodes.sym(f"\\{name}")


def fraction(parser: Parser) -> Node:
    r"""Read a fraction: `\frac{a}{b}`, `\frac12`, or a derivative `\frac{d}{dx}`."""
    if (derivative := _derivative(parser)) is not None:
        return derivative
    top, bottom = argument(parser, digit=True), argument(parser, digit=True)
    if top.op == bottom.op == "num" and bottom.value:
        return nodes.num(exact_quotient(top, bottom))
    return parser.count(nodes.over(top, bottom))


def _derivative(parser: Parser) -> Node | None:
    r"""Read `\frac{dy}{dx}` or `\frac{d}{dx} y`, in which the letters d do not cancel; None for
    other fractions.
    """
    letter = parser.ahead(1)
    if parser.here.kind != "group" or letter.kind != "sym" or letter.value not in {"d", "partial"}:
        return None
    bottom = _after_group(parser.tokens, parser.position)
    below = parser.tokens[bottom : bottom + 3]
    kinds = [token.kind for token in below]
    if kinds != ["group", "sym", "sym"] or below[1].value != letter.value:
        return None
    parser.position += 2  # the opening brace and the letter d
    order = subscript(parser) if parser.accept("op", "^") else "1"
    body = None if parser.sees("endgroup") else parser.inside()
    parser.expect("endgroup")
    # The denominator is `{dx}` with these tokens: brace, d, variable, and a brace if that is all.
    variable = parser.ahead(2)
    plain = parser.ahead(3).kind == "endgroup"
    under = subscript(parser)
    if body is None:
        body = parser.inside(PRODUCT) if parser.here.kind in STARTS else nodes.sym("")
    if body.op == "sym" and order in {"1", "2", "3"} and under in {"dx", f"dx^{order}"}:
        return nodes.sym(body.note + "'" * int(order))
    is_derivative = nodes.sym(variable.value) in nodes.walk(body) or letter.value == "d"
    if order == "1" and plain and is_derivative:
        return nodes.func("derivative", body, nodes.sym(variable.value))
    return call(f"{letter.value} {order} {under}", body)


def _after_group(tokens: list[Token], position: int) -> int:
    """Return the position after the braces that open at `position`."""
    level = 0
    for place in range(position, len(tokens)):
        level += {"group": 1, "endgroup": -1}.get(tokens[place].kind, 0)
        if level == 0:
            return place + 1
    return len(tokens) - 1


def binomial(parser: Parser) -> Node:
    r"""Read a binomial coefficient: `\binom{n}{k}`."""
    return nodes.func("binom", argument(parser, digit=True), argument(parser, digit=True))


def root(parser: Parser) -> Node:
    r"""Read a square or n-th root: `\sqrt[n]{x}`."""
    degree: Node = nodes.num(2)
    if parser.at("open", "["):
        parser.take()
        degree = parser.inside()
        if not parser.accept("close", "]"):
            raise Unreadable("the degree of a root is not closed")
    radicand, unit = argument(parser), nodes.num(1)
    if degree.op == "num" and degree.value:
        return nodes.power(radicand, nodes.num(exact_quotient(unit, degree)))
    return nodes.power(radicand, nodes.over(unit, degree))


def number_set(parser: Parser) -> Node:
    r"""Read a number set: `\mathbb{R}^+_0`."""
    name = subscript(parser)
    if name not in _NUMBER_SETS:
        return nodes.sym(f"blackboard {name}")
    while parser.here.kind == "sub" or parser.at("op", "^"):
        mark = parser.take().value
        if mark == "^" and parser.here.kind == "op":
            name += parser.take().value
        else:
            name += mark + subscript(parser)
    return nodes.sym(f"set {name}")


def boxed(parser: Parser) -> Node:
    """Read a box inside an answer, which is only a frame around the content."""
    return argument(parser)


def line(parser: Parser) -> Node:
    r"""Read `\overline{AB}` or `\overline{z}`: the bar belongs to the name."""
    return nodes.sym(f"line {subscript(parser)}")


# --- big operators ---


def series(name: str) -> Prefix:
    r"""Return a reader of `\sum` or `\prod` with both bounds."""

    def read(parser: Parser) -> Node:
        variable, bounds = "", dict[str, Node]()
        while parser.here.kind == "sub" or parser.at("op", "^"):
            if parser.take().value == "_":
                parser.expect("group")
                token = parser.take()
                if token.kind != "sym" or not parser.accept("rel", "="):
                    raise Unreadable("a lower bound that is not 'k = start'")
                low = parser.inside()
                parser.expect("endgroup")
                variable, bounds["low"] = token.value, low
            else:
                bounds["high"] = argument(parser)
        if not variable or "high" not in bounds:
            raise Unreadable(f"\\{name} without both bounds")
        body = parser.inside(SUM)
        return bound(name, body, variable, bounds["low"], bounds["high"])

    return read


def bound(name: str, body: Node, variable: str, *limits: Node) -> Node:
    """Return a big operator whose variable is renamed to an internal name, so that the choice of
    letter does not matter.
    """
    names = [part.note for part in nodes.walk(body) if part.op == "sym"]
    depth = max((int(name[6:]) for name in names if name.startswith("bound ")), default=0)
    index = nodes.sym(f"bound {depth + 1}")
    for old in (nodes.const(variable), nodes.sym(variable)):
        body = nodes.replaced(body, old, index)
    return nodes.func(name, body, index, *limits)


def integral(parser: Parser) -> Node:
    r"""Read `\int_a^b f dx`; an integral without bounds becomes a call, which only
    `is_antiderivative` compares.
    """
    low: Node | None = None
    high: Node | None = None
    parser.accept("cmd", "limits")
    while parser.here.kind == "sub" or parser.at("op", "^"):
        if parser.take().value == "_":
            low = argument(parser)
        else:
            high = argument(parser)
    variable = _differential(parser)
    body = nodes.num(1) if parser.here.kind == "differential" else parser.inside(SUM - 1)
    parser.expect("differential")
    if low is None and high is None:
        return call("integral", body, nodes.sym(variable))
    if low is None or high is None:
        return call("integral over", body, nodes.sym(variable), low or high or nodes.num(0))
    return bound("int", body, variable, low, high)


def _differential(parser: Parser) -> str:
    r"""Find the `dx` of the next integral, put an end mark in the place and return the variable.

    In the numerator of a fraction a 1 is left in place of the `dx`: `\int \frac{dx}{x}`.
    """
    tokens, open_integrals, level = parser.tokens, 1, 0
    for place in range(parser.position, len(tokens) - 1):
        token, after = tokens[place], tokens[place + 1]
        level += {"group": 1, "open": 1, "endgroup": -1, "close": -1}.get(token.kind, 0)
        if level < 0:
            break
        if token.kind == "cmd" and token.value in INTEGRALS:
            open_integrals += 1
        if (token.kind, token.value) != ("sym", "d") or after.kind not in {"sym", "const"}:
            continue
        # Inner integrals use up their own `dx` first.
        open_integrals -= 1
        if open_integrals:
            continue
        mark = replace(token, kind="differential", value="")
        if level == 0:
            tokens[place : place + 2] = [mark]
            return after.value
        alone = tokens[place - 1].kind == "group" and tokens[place + 2].kind == "endgroup"
        unit = [replace(mark, kind="num", value="1")] if alone else []
        tokens[place : place + 2] = unit
        end = place
        while tokens[end].kind != "end" and level > 0:
            level += {"group": 1, "open": 1, "endgroup": -1, "close": -1}.get(tokens[end].kind, 0)
            end += 1
        end = _after_group(tokens, end) if tokens[end].kind == "group" else end
        tokens.insert(end, mark)
        return after.value
    raise Unreadable("an integral without its differential")


def limit(parser: Parser) -> Node:
    r"""Read `\lim_{x \to a^+} f`. The limit covers the whole following sum, which has the same
    value.
    """
    if not parser.accept("sub") or not parser.accept("group"):
        raise Unreadable("a limit that does not say where")
    variable = parser.take()
    if variable.kind != "sym" or not parser.accept("rel", "->"):
        raise Unreadable("a limit that is not 'x to a'")
    side = _side(parser)
    target = parser.inside()
    parser.expect("endgroup")
    return bound(f"lim{side}", parser.inside(SUM - 1), variable.value, target)


def _side(parser: Parser) -> str:
    """Remove and return the sign of a one-sided limit, such as `0^+`, before the end of the
    braces.
    """
    # `end` becomes the closing brace of the limit. The closing brace of `0^{+}` is passed over: its
    # own opening brace stands two tokens before.
    tokens, end = parser.tokens, parser.position
    while tokens[end].kind not in {"end", "endgroup"} or tokens[end - 2].kind == "group":
        end += 1
        if end >= len(tokens) - 1:
            return ""
    sign, start = tokens[end - 1], end - 2
    if sign.kind == "endgroup":  # `^{+}` has four tokens, and `^+` two.
        sign, start = tokens[end - 2], end - 4
    if sign.kind != "op" or sign.value not in "+-" or tokens[start].pair != ("op", "^"):
        return ""
    del tokens[start:end]
    return sign.value


def exact_quotient(top: Node, bottom: Node) -> nodes.Exact:
    """Return the exact quotient of two numbers.

    Raises:
        TooBig: a division by zero.
    """
    if bottom.value == 0:
        raise TooBig("division by zero")
    quotient = Fraction(top.value) / bottom.value
    return quotient.numerator if quotient.denominator == 1 else quotient
