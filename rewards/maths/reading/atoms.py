"""Tokens that may begin a value: names, functions, brackets, bars and words."""

from __future__ import annotations

from fractions import Fraction

from . import nodes
from .brackets import close, closing, items_inside
from .nodes import Node
from .numerals import exact_numeral
from .operators import argument, exponent, starts_factor, subscript
from .powers import POWER, PRODUCT
from .pratt import Parser

_FUNCTION_LETTERS = frozenset({"f", "g", "h", "F", "G", "H", "phi", "varphi", "psi"})
_EVENT_LETTERS = frozenset({"P", "Q", "E", "R", "S", "T"})
_LISTING = frozenset({"sep", "setop"})
"""Kinds of tokens that occur in no product, so that `d(P, Q)` must be a call."""
_SAME_LETTER = {"varepsilon": "epsilon", "vartheta": "theta", "varrho": "rho"}
_INVERSE = {"sin": "arcsin", "cos": "arccos", "tan": "arctan", "cot": "arccot",
            "sinh": "arcsinh", "cosh": "arccosh", "tanh": "arctanh"}  # fmt: skip
_ANGLE_FUNCTIONS = frozenset({"sin", "cos", "tan", "cot", "sec", "csc"})
_ANGLES = frozenset({"theta", "alpha", "beta", "gamma", "phi", "varphi", "psi"})
"""Letters that form a complete angle; a factor after such a letter lies outside the function."""


def constant(parser: Parser) -> Node:
    r"""Read a constant: `\pi`, `\infty`."""
    return nodes.const(parser.take().value)


def name(parser: Parser) -> Node:
    """Read a variable with subscripts and primes, or the application of a function with that
    name.
    """
    token = parser.take()
    letter = _SAME_LETTER.get(token.value, token.value)
    # `e_1` and `i'` are variables; a bare `e` or `i` is the constant.
    if letter in {"e", "i"} and parser.here.kind not in {"sub", "prime"}:
        return nodes.const(letter)
    while parser.accept("sub"):
        letter += "_" + subscript(parser)
    if letter in {"angle", "triangle"}:
        letters = ""
        while parser.here.kind == "sym" and len(parser.here.value) == 1:
            letters += parser.take().value
        return nodes.sym(f"{letter} {letters}".strip())
    if letter in {"Delta", "nabla"} and parser.here.kind == "sym" and len(parser.here.value) == 1:
        return nodes.sym(f"{letter} {name(parser).note}")
    if letter.startswith("C_") and letter[2:].isdigit() and parser.accept("op", "^"):
        # Read `C_5^2` as a binomial coefficient; with a larger number on top, as a constant to a
        # power.
        upper = int(letter[2:])
        lower = argument(parser)
        if lower.op == "num" and isinstance(lower.value, int) and 0 <= lower.value <= upper:
            return nodes.func("binom", nodes.num(upper), lower)
        return nodes.power(nodes.sym(f"C_{upper}"), lower)
    while parser.accept("prime"):
        letter += "'"
    if _inverse_function(parser, letter):
        letter += "^-1"
    return _application(parser, letter) if parser.at("open", "(") else nodes.sym(letter)


def _inverse_function(parser: Parser, letter: str) -> bool:
    """Return whether `^{-1}(` comes next, and consume the exponent: `f^{-1}(x)` is not a
    reciprocal.
    """
    if letter.split("_")[0] not in _FUNCTION_LETTERS or not parser.at("op", "^"):
        return False
    for shape in ("^-1(", "^{-1}("):
        if [parser.ahead(step).value for step in range(len(shape))] == list(shape):
            parser.position += len(shape) - 1  # The bracket is left for the caller.
            return True
    return False


def _application(parser: Parser, letter: str) -> Node:
    r"""Read a name before a bracket: `f(x)`, `P(A | B)`, `d(P, Q)` and `n(A \cup B)` are calls,
    `x(y)` is a product.
    """
    if letter == "Gamma":  # Gamma(x) = (x - 1)!
        argument = parser.inside(POWER)
        return nodes.func("factorial", nodes.add(argument, nodes.MINUS_ONE))
    if letter == "zeta":
        return nodes.func("zeta", parser.inside(POWER))
    inside, bare = _kinds_inside(parser), letter.split("_")[0].rstrip("'").removesuffix("^-1")
    event = bare in _EVENT_LETTERS and (inside == ["sym"] or "bar" in inside)
    if not (bare in _FUNCTION_LETTERS or event or _LISTING.intersection(inside)):
        return nodes.sym(letter)
    parser.take()
    arguments = items_inside(parser, bar_ends=event)
    if event and parser.accept("bar"):
        arguments = [*arguments, nodes.sym("|"), *items_inside(parser)]
    closing(parser, "(")
    if letter == "C" and len(arguments) == 2:
        return nodes.func("binom", *arguments)
    return Node("call", tuple(arguments), 0, letter)


def _kinds_inside(parser: Parser) -> list[str]:
    """Return the kinds of the tokens directly inside the next bracket, or an empty list if that is
    never closed.
    """
    kinds: list[str] = []
    depth = 0
    for place in range(parser.position, len(parser.tokens)):
        token = parser.tokens[place]
        depth += {"open": 1, "group": 1, "close": -1, "endgroup": -1}.get(token.kind, 0)
        if depth == 0:
            return kinds
        if depth == 1 and token.kind != "open":
            kinds.append(token.kind)
    return []


# --- functions ---


def function(parser: Parser) -> Node:
    """Read a known function with base, exponent and arguments."""
    function_name = parser.take().value
    if function_name in {"gcd", "lcm"} and parser.at("rel", "="):
        return nodes.text(function_name)  # `gcd = 6`
    base: Node | None = None
    if function_name in {"log", "lg"} and parser.accept("sub"):
        # `\log_28` is the logarithm of 8 to the base 2, unless an argument follows.
        token, after = parser.here, parser.ahead().kind
        split = token.kind == "num" and len(token.value) > 1
        base = argument(parser, digit=split and after not in {"num", "sym", "open", "group", "cmd"})
    exponent_: Node | None = None
    if parser.accept("op", "^"):
        exponent_ = exponent(parser)
    # `\sin^{-1} x` is the inverse function, but `\sin^2 x` is the square of the value.
    if function_name in _INVERSE and exponent_ == nodes.MINUS_ONE:
        function_name, exponent_ = _INVERSE[function_name], None
    degree = nodes.mul(nodes.const("pi"), nodes.num(Fraction(1, 180)))
    arguments = [
        nodes.mul(angle.args[0], degree) if angle.op == "degree" else angle
        for angle in _arguments(parser, function_name)
    ]
    if function_name in {"cis", "exp"}:
        factors = [nodes.const("i"), *arguments] if function_name == "cis" else arguments
        node = nodes.power(nodes.const("e"), nodes.mul(*factors))
    else:
        arguments += [] if base is None else [base]
        node = nodes.func("log" if function_name == "lg" else function_name, *arguments)
    return node if exponent_ is None else nodes.power(node, exponent_)


def _arguments(parser: Parser, function_name: str) -> list[Node]:
    # `\ln{\left(3\right)}^{2}`, as sympy prints the square of ln(3): the braces add nothing.
    start, outer_made = parser.position, parser.made
    if parser.accept("group") and parser.at("open", "("):
        items = _arguments(parser, function_name)
        if parser.accept("endgroup"):
            return items
    parser.position, parser.made = start, outer_made
    if parser.here.kind == "open" and parser.here.value in "({[":
        bracket = parser.take().value
        items = items_inside(parser)
        close(parser, bracket)
        return items
    if parser.at("op", "-"):
        parser.take()
        return [nodes.neg(parser.deeper(lambda inner: _bare_argument(inner, function_name)))]
    return [_bare_argument(parser, function_name)]


def _bare_argument(parser: Parser, function_name: str) -> Node:
    r"""Read the argument of `\sin 2x`: the following product, up to an operator or another
    function.
    """
    factors = [parser.inside(PRODUCT)]
    while (
        starts_factor(parser, factors[-1])
        and parser.here.kind != "func"
        and not (parser.here.kind == "open" and factors[-1].op != "num")
        and not (parser.here.kind == "sym" and factors[-1].note in _ANGLES)
    ):
        factors.append(parser.inside(PRODUCT))
    node = nodes.mul(*factors)
    # The divisor in `\sin \pi/6` belongs to the angle, which only a constant such as pi shows.
    angle = function_name in _ANGLE_FUNCTIONS and nodes.has(node, "const")
    if angle and parser.at("op", "/") and parser.ahead().kind == "num":
        parser.take()
        node = nodes.over(node, exact_numeral(parser.take().value))
    return node


# --- brackets ---


def empty_set(parser: Parser) -> Node:
    r"""Read the empty set: `\emptyset`."""
    parser.take()
    return Node("set")


def currency(parser: Parser) -> Node:
    r"""Read an amount of money: `\$5`, `\$-5`."""
    unit = parser.take().value
    negative = parser.accept("op", "-")
    amount = parser.expression(PRODUCT)
    return Node("quantity", (nodes.neg(amount) if negative else amount,), 0, unit)
