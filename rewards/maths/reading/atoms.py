"""What may begin a value: names, functions, brackets, bars, words."""

from __future__ import annotations

from fractions import Fraction

from . import nodes
from .literals import based
from .nodes import Node, Unreadable
from .numerals import exact_numeral
from .operators import argument, exponent, starts_factor, subscript
from .powers import POWER, PRODUCT, SUM
from .pratt import Parser
from .vocabulary import CONNECTIVES

_FUNCTION_LETTERS = frozenset({"f", "g", "h", "F", "G", "H", "phi", "varphi", "psi"})
_EVENT_LETTERS = frozenset({"P", "Q", "E", "R", "S", "T"})
_LISTING = frozenset({"sep", "setop"})
"""What stands in no product: `d(P, Q)`."""
_SAME_LETTER = {"varepsilon": "epsilon", "vartheta": "theta", "varrho": "rho"}
_INVERSE = {"sin": "arcsin", "cos": "arccos", "tan": "arctan", "cot": "arccot"}
_ANGLE_FUNCTIONS = frozenset({"sin", "cos", "tan", "cot", "sec", "csc"})
_CLOSING = {"(": ")", "[": "]", ")": ")", "]": "]"}


# --- names ---


def constant(parser: Parser) -> Node:
    """`\\pi`, `\\infty`."""
    return nodes.const(parser.take().value)


def name(parser: Parser) -> Node:
    """A variable with its subscripts and primes, or a function of that name applied."""
    token = parser.take()
    letter = _SAME_LETTER.get(token.value, token.value)
    if letter in {"e", "i"} and parser.here.kind not in {"sub", "prime"}:
        return nodes.const(letter)
    while parser.accept("sub"):
        letter += "_" + subscript(parser)
    if letter in {"angle", "triangle"}:
        return _geometric(parser, letter)
    if letter.startswith("C_") and letter[2:].isdigit() and parser.accept("op", "^"):
        return _combinations(parser, int(letter[2:]))
    while parser.accept("prime"):
        letter += "'"
    if _inverse_function(parser, letter):
        letter += "^-1"
    return _application(parser, letter) if parser.at("open", "(") else nodes.sym(letter)


def _combinations(parser: Parser, upper: int) -> Node:
    """`C_5^2`; with a larger number on top it is a constant to a power."""
    lower = argument(parser)
    if lower.op == "num" and isinstance(lower.value, int) and 0 <= lower.value <= upper:
        return nodes.func("binom", nodes.num(upper), lower)
    return nodes.power(nodes.sym(f"C_{upper}"), lower)


def _geometric(parser: Parser, figure: str) -> Node:
    letters = ""
    while parser.here.kind == "sym" and len(parser.here.value) == 1:
        letters += parser.take().value
    return nodes.sym(f"{figure} {letters}".strip())


def _inverse_function(parser: Parser, letter: str) -> bool:
    """Whether `^{-1}(` comes next: `f^{-1}(x)` is no reciprocal."""
    if letter.split("_")[0] not in _FUNCTION_LETTERS or not parser.at("op", "^"):
        return False
    wanted = [("op", "^"), ("op", "-"), ("num", "1"), ("open", "(")]
    braced = [*wanted[:1], ("group", "{"), *wanted[1:3], ("endgroup", "}"), *wanted[3:]]
    for shape in (wanted, braced):
        if [parser.ahead(step)[:2] for step in range(len(shape))] == shape:
            parser.position += len(shape) - 1
            return True
    return False


def _application(parser: Parser, letter: str) -> Node:
    """`f(x)`, `P(A | B)`, `d(P, Q)` and `n(A \\cup B)` are calls; `x(y)` is a product."""
    if letter == "Gamma":
        argument = parser.inside(POWER)
        return nodes.func("factorial", nodes.add(argument, nodes.MINUS_ONE))
    inside, bare = _kinds_inside(parser), letter.split("_")[0].rstrip("'").removesuffix("^-1")
    event = bare in _EVENT_LETTERS and (inside == ["sym"] or "bar" in inside)
    if not (bare in _FUNCTION_LETTERS or event or _LISTING.intersection(inside)):
        return nodes.sym(letter)
    parser.take()
    arguments = _items(parser, bar_ends=event)
    if event and parser.accept("bar"):
        arguments = [*arguments, nodes.sym("|"), *_items(parser)]
    closing(parser, "(")
    if letter == "zeta" and len(arguments) == 1:
        return nodes.func("zeta", *arguments)
    if letter == "C" and len(arguments) == 2:
        return nodes.func("binom", *arguments)
    return Node("call", tuple(arguments), 0, letter)


def _kinds_inside(parser: Parser) -> list[str]:
    """The kinds of the tokens directly inside the bracket in front."""
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
    """A known function with its base, its exponent and its arguments."""
    called = parser.take().value
    base = _log_base(parser) if called in {"log", "lg"} and parser.here.kind == "sub" else None
    exponent_: Node | None = None
    if parser.accept("op", "^"):
        exponent_ = exponent(parser)
    if called in _INVERSE and exponent_ == nodes.MINUS_ONE:
        called, exponent_ = _INVERSE[called], None
    if base is None and parser.here.kind == "sub":
        parser.take()
        return _under(parser, f"{called}_{subscript(parser)}")
    arguments = [_in_radians(each) for each in _arguments(parser, called)]
    node = _applied(called, arguments, base)
    return node if exponent_ is None else nodes.power(node, exponent_)


def _under(parser: Parser, called: str) -> Node:
    """`\\max_{x} f`: a function with something below it is only a name."""
    return Node("call", tuple(_arguments(parser, called)), 0, called)


def _in_radians(angle: Node) -> Node:
    """An angle in degrees inside a function, in radians."""
    if angle.op != "degree":
        return angle
    return nodes.mul(angle.args[0], nodes.const("pi"), nodes.num(Fraction(1, 180)))


def _applied(called: str, arguments: list[Node], base: Node | None) -> Node:
    if called == "cis":
        return nodes.power(nodes.const("e"), nodes.mul(nodes.const("i"), *arguments))
    if called == "exp":
        return nodes.power(nodes.const("e"), nodes.mul(*arguments))
    if base is not None:
        arguments = [*arguments, base]
    return nodes.func("log" if called == "lg" else called, *arguments)


def _log_base(parser: Parser) -> Node:
    parser.take()
    token, after = parser.here, parser.ahead().kind
    split = token.kind == "num" and len(token.value) > 1
    return argument(parser, digit=split and after not in {"num", "sym", "open", "group", "cmd"})


def _arguments(parser: Parser, called: str) -> list[Node]:
    if parser.here.kind == "open" and parser.here.value in "({[":
        opened = parser.take().value
        items = _items(parser)
        _close(parser, opened)
        return items
    if parser.at("op", "-"):
        parser.take()
        return [nodes.neg(parser.deeper(lambda inner: _bare_argument(inner, called)))]
    return [_bare_argument(parser, called)]


def _bare_argument(parser: Parser, called: str) -> Node:
    """`\\sin 2x`: the product that follows, up to an operator or another function."""
    factors = [parser.inside(PRODUCT)]
    while (
        starts_factor(parser, factors[-1])
        and parser.here.kind != "func"
        and not (parser.here.kind == "open" and factors[-1].op != "num")
    ):
        factors.append(parser.inside(PRODUCT))
    node = nodes.mul(*factors)
    angle = called in _ANGLE_FUNCTIONS and nodes.has(node, "const")
    if angle and parser.at("op", "/") and parser.ahead().kind == "num":
        parser.take()
        node = nodes.over(node, exact_numeral(parser.take().value))
    return node


# --- brackets ---


def _items(parser: Parser, *, bar_ends: bool = False) -> list[Node]:
    """What stands between commas; with `bar_ends` a bar does not start a value."""
    kept, parser.bar_ends = parser.bar_ends, bar_ends
    items = [parser.inside()]
    while parser.accept("sep"):
        if parser.here.kind in {"close", "dots"}:
            break
        items.append(parser.inside())
    parser.bar_ends = kept
    return items


def closing(parser: Parser, opened: str) -> str:
    """Consume the bracket that closes `opened`; half-open intervals mix kinds."""
    token = parser.here
    if token.kind == "close" and token.value in _CLOSING:
        parser.take()
        return token.value
    if (token.kind, token.value) == ("open", "["):
        parser.take()
        return ")"
    if token.kind == "end":
        return _CLOSING[opened]
    raise Unreadable(f"a bracket is not closed before {token.value or token.kind!r}")


def _close(parser: Parser, opened: str) -> None:
    if opened == "{":
        if not parser.accept("close", "}") and not parser.accept("endgroup"):
            parser.expect("close")
    else:
        closing(parser, opened)


def bracket(parser: Parser) -> Node:
    """Grouping, a tuple or an interval; braces and floors go their own ways."""
    token = parser.take()
    if token.value == "{":
        return _braces(parser)
    if token.value in {"floor", "ceil"}:
        node = parser.inside(SUM - 1)
        parser.expect("close", token.value)
        return nodes.func(token.value, node)
    opened = "(" if token.value in "(]" else "["
    if parser.accept("close"):
        return Node("bracket", (), 0, "()")
    french, parser.french = (
        parser.french,
        token.kind == "close" or (parser.french and token.value != "("),
    )
    items = _items(parser)
    parser.french = french
    closed = closing(parser, opened)
    if len(items) > 1:
        return Node("bracket", tuple(items), 0, opened + closed)
    if parser.here.kind == "sub" and items[0].op == "num":
        parser.take()
        return based(parser, str(items[0].value))
    if items[0].op == "list":
        return Node("bracket", items[0].args, 0, opened + closed)
    if opened + closed in {"[)", "(]"}:
        raise Unreadable("a half-open bracket around one value")
    return items[0]


def closing_first(parser: Parser) -> Node:
    """`]0, 1[`."""
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
    if parser.here.kind == "dots":
        raise Unreadable("a set with dots")
    parser.expect("close")
    return node


def _elements(parser: Parser) -> list[Node]:
    """Items in braces, where a bar or a colon ends them (`{x | x > 0}`)."""
    kept, parser.colon_ends = parser.colon_ends, True
    items = _items(parser, bar_ends=True)
    parser.colon_ends = kept
    return items


def _such_that(parser: Parser) -> bool:
    if parser.here.kind != "bar" and not parser.at("sign", ":"):
        return False
    parser.take()
    return True


def condition(parser: Parser) -> Node:
    """What follows the bar in a set-builder: relations joined by commas or words."""
    return listed(parser)


def listed(parser: Parser) -> Node:
    """Items joined by commas and words: one item, or a list with the word that joins it."""
    items, joint = [parser.expression()], ""
    while is_separator(parser):
        word = ","
        while is_separator(parser):
            token = parser.take()
            if token.kind == "word":
                word = CONNECTIVES[token.value]
        joint = joint if joint not in {"", ","} else word
        if parser.here.kind in {"end", "endgroup"}:
            break
        items.append(parser.expression())
    return items[0] if len(items) == 1 else Node("list", tuple(items), 0, joint or ",")


def is_separator(parser: Parser) -> bool:
    """Whether a comma, a row's end, or a connecting word is in front."""
    token = parser.here
    return token.kind in {"sep", "row"} or (token.kind == "word" and token.value in CONNECTIVES)


def group(parser: Parser) -> Node:
    """Plain braces: LaTeX grouping; with separators or a bar inside, a set whose backslashes
    were lost.
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
    """`{}^{10}C_3`: marks before a name; before anything else they keep it apart."""
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
        left = nodes.add(upper, nodes.neg(lower))
        return nodes.over(nodes.func("factorial", upper), nodes.func("factorial", left))
    return Node("call", (parser.expression(POWER),), 0, before)


def absolute(parser: Parser) -> Node:
    """`|x|`; double bars are a norm, which is another thing."""
    bars = parser.take().value
    kept, parser.bar_ends = parser.bar_ends, True
    node = parser.inside(SUM - 1)
    parser.bar_ends = kept
    parser.expect("bar", bars)
    return nodes.func("abs", node) if bars == "|" else Node("call", (node,), 0, "norm")


def empty_set(parser: Parser) -> Node:
    """`\\emptyset`."""
    parser.take()
    return Node("set")


def currency(parser: Parser) -> Node:
    """`\\$5`, `\\$-5`."""
    unit = parser.take().value
    negative = parser.accept("op", "-")
    amount = parser.expression(PRODUCT)
    return Node("quantity", (nodes.neg(amount) if negative else amount,), 0, unit)
