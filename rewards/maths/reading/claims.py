"""Tokens that turn values into a claim: set operations, relations and logic."""

from __future__ import annotations

from . import nodes
from .nodes import SETS, Node, TooBig, Unreadable
from .operators import argument, call
from .powers import ARROW, BINARY, LAND, LOR, POWER, RATIO, RELATION, SET
from .pratt import Parser, Prefix
from .spellings import OPPOSITE
from .vocabulary import NUMBER_WORDS

MAX_SIDES = 24
QUANTIFIERS = frozenset({"exists", "forall", "nexists"})
_SUCH_THAT = frozenset({"such", "that", "so", "s", "t", "st", "it", "holds", "we", "have"})
_CLAIMS = frozenset({"rel", "num", "dec", "given"})


def set_operation(parser: Parser, left: Node) -> Node:
    """Read a union, intersection or difference, from left to right."""
    name = parser.take().value
    return Node("union" if name == "U" else name, (left, parser.expression(SET)))


def plain_union(parser: Parser, left: Node) -> Node | None:
    """Read a union written with the letter U: `[0,1] U [2,3]`."""
    if left.op not in SETS or parser.here.value != "U" or parser.ahead().kind != "open":
        return None
    return set_operation(parser, left)


def ratio(parser: Parser, left: Node) -> Node | None:
    """Read expressions joined by colons or by "to"."""
    parts = [left]
    while not parser.colon_ends and (parser.at("sign", ":") or parser.at("word", "to")):
        parser.take()
        parts.append(parser.expression(RATIO))
    return None if len(parts) == 1 else Node("ratio", tuple(parts))


def relation(parser: Parser, left: Node) -> Node | None:
    """Read a chain of relations."""
    sides = [left]
    signs: list[str] = []
    while (sign := _relation_sign(parser)) is not None:
        signs.append(sign)
        words = right_side_in_words(parser)
        sides.append(parser.expression(RELATION) if words is None else words)
        if len(sides) > MAX_SIDES:
            raise TooBig(f"a chain of more than {MAX_SIDES} sides")
    if signs == ["->"] and all(side.op in {"sym", "call"} for side in sides):
        return call("Rightarrow", *sides)
    return Node("rel", tuple(sides), 0, " ".join(signs)) if signs else None


def _relation_sign(parser: Parser) -> str | None:
    struck = parser.at("cmd", "not") and parser.ahead().kind == "rel"
    if parser.here.kind != "rel" and not struck:
        return None
    if struck:
        parser.take()
    sign = parser.take().value
    if parser.at("rel", "=") and not parser.here.spaced:
        parser.take()
        sign += "=" if sign in "<>" else ""
    return OPPOSITE.get(sign, f"not-{sign}") if struck else sign


def right_side_in_words(parser: Parser) -> Node | None:
    r"""Read words on the right side of an equation: `\text{shape} = \text{a circle}`."""
    word = parser.here
    if word.kind != "word" or word.value.lower() in NUMBER_WORDS or len(word.value) == 1:
        return None
    words: list[str] = []
    while parser.here.kind == "word":
        words.append(parser.take().value)
    return nodes.text(" ".join(words).casefold())


def logic(parser: Parser, left: Node) -> Node:
    r"""Read `x<1 \lor x>2`, which joins claims as the words do; between other values the sign stays
    an operator.
    """
    name = parser.take().value
    right = parser.expression(LAND if name == "land" else LOR)
    joint = {"land": "and", "lor": "or"}[name]
    if left.op in _CLAIMS and right.op in _CLAIMS:
        return Node("list", (left, right), 0, joint)
    if left.op == "list" and left.note == joint and right.op in _CLAIMS:
        return left._replace(args=(*left.args, right))
    return call(name, left, right)


def negation(parser: Parser) -> Node:
    r"""Read a negation: `\neg p`."""
    return call(parser.take().value, parser.expression(LAND))


def omission(parser: Parser) -> Node:
    r"""Read dots in the place of a value: `1, 4, 9, \ldots`."""
    parser.take()
    return nodes.sym("ldots")


def tilde(parser: Parser) -> Node:
    r"""Read `\sim p` as a negation, where no value stands on the left."""
    if parser.here.value != "sim":
        raise Unreadable(f"{parser.here.value!r} where a value should be")
    parser.take()
    return call("neg", parser.expression(LAND))


def arrow(parser: Parser, left: Node) -> Node | None:
    r"""Read an implication: `p \Rightarrow q`."""
    return call(parser.take().value, left, parser.expression(ARROW))


def binary(parser: Parser, left: Node) -> Node:
    r"""Read an operator without a known meaning: `a \oplus b`."""
    return call(parser.take().value, left, parser.expression(BINARY))


def modulus(parser: Parser, left: Node) -> Node | None:
    r"""Read a modulus after a value: `3 \pmod 7`, `3 (mod 7)`."""
    has_bracket = parser.here.kind == "open"
    if has_bracket and parser.ahead().kind != "mod":
        return None
    note = parser.ahead(has_bracket).value if has_bracket else parser.here.value
    parser.position += 1 + has_bracket
    divisor = argument(parser)
    if has_bracket:
        parser.expect("close")
    return Node("mod", (left, divisor), 0, note)


# --- quantifiers ---


def quantifier(name: str) -> Prefix:
    r"""Return a reader of `\exists x \in A: claim`, with any mark before the claim. In brackets,
    the claim comes after these: `(\exists x)(claim)`.
    """

    def read(parser: Parser) -> Node:
        outer_ends = parser.colon_ends, parser.bar_ends
        parser.colon_ends = parser.bar_ends = True
        variables = _variables(parser)
        sign = _relation_sign(parser)
        if sign is not None:
            variables = Node("rel", (variables, _range(parser)), 0, sign)
        parser.colon_ends, parser.bar_ends = outer_ends
        return claim(parser, call(name, variables))

    return read


def claim(parser: Parser, node: Node) -> Node:
    r"""Return a quantifier with the claim that follows, in which the choice of a letter does not
    matter; any other node, and a quantifier at the end, as it is.
    """
    if node.op != "call" or node.note not in QUANTIFIERS or len(node.args) > 1:
        return node
    marks = {"sep", "bar"}
    while parser.here.kind in marks or parser.at("sign", ":") or _such_that(parser):
        marks.discard(parser.take().kind)
    if parser.here.kind in {"end", "close", "endgroup"}:
        return node
    claim, (variables,) = parser.deeper(Parser.expression), node.args
    subject = variables.args[0] if variables.op == "rel" else variables
    depth = sum(part.op == "call" and part.note in QUANTIFIERS for part in nodes.walk(claim))
    names = [part.note for part in (subject.args if subject.op == "list" else (subject,))]
    bound = {letter: f"any {depth} {place}" for place, letter in enumerate(names)}
    return call(node.note, nodes.rename(variables, bound), nodes.rename(claim, bound))


def _such_that(parser: Parser) -> bool:
    return parser.here.kind == "word" and parser.here.value.lower() in _SUCH_THAT


def _variables(parser: Parser) -> Node:
    """Read the letters that a quantifier binds: `x`, or `x, y` before the sign of a set."""
    letters = [parser.expression(POWER)]
    while parser.sees("sep") and parser.ahead().kind == "sym" and (
        parser.ahead(2).kind == "sep" or parser.ahead(2).pair == ("rel", "in")
    ):  # fmt: skip
        parser.take()
        letters.append(parser.expression(POWER))
    if any(letter.op != "sym" for letter in letters):
        raise Unreadable("a quantifier without a variable")
    return letters[0] if len(letters) == 1 else Node("list", tuple(letters), 0, ",")


def _range(parser: Parser) -> Node:
    """Read the set or the bound of a quantified variable, which a claim in brackets may follow."""
    if parser.here.kind == "sym" and parser.here.value in {"R", "Z", "N", "Q", "C"}:
        return nodes.sym(f"set {parser.take().value}")
    alone = parser.here.kind == "num" or parser.at("cmd", "mathbb")
    limit = parser.expression(POWER if alone else RELATION)
    return set_operation(parser, limit) if parser.sees("setop") else limit
