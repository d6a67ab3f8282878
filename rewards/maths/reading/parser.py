"""Tokens to expressions: a recursive-descent parser that accepts what people and models write.

Precedence, loosest first: set operations, sums, products (also by juxtaposition), powers, postfix
marks, atoms. Depth and size are bounded here, so that every later step may recurse.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from fractions import Fraction

from . import nodes
from .lexer import Token
from .nodes import Node, TooBig, Unreadable
from .numerals import exact_numeral
from .units import dimension, read_unit
from .vocabulary import CONNECTIVES, QUALIFIERS, SCALES

MAX_DEPTH = 40
EXACT = frozenset({"num", "dec"})
MAX_NODES = 500
_SET_OPS = frozenset({"set", "such", "union", "inter", "minus", "bracket"})
_ATOM_KINDS = frozenset(
    {"num", "sym", "func", "const", "open", "group", "cmd", "emptyset", "currency"}
)
_ROW_ENDS = frozenset({"end", "hline", "forall", "Rightarrow", "implies", "quad", "choose"})
FRACTIONS = frozenset({"frac", "dfrac", "tfrac", "cfrac", "sfrac", "nicefrac"})
_CLOSING = {"(": ")", "[": "]", ")": ")", "]": "]"}


class ExpressionParser(ABC):
    """Parses one token list. `AnswerParser` adds lists, relations and words."""

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.position = 0
        self.depth = 0
        self.made = 0
        self.bars = 0
        self.french = False
        self.colons = True

    # --- cursor ---

    @property
    def here(self) -> Token:
        """The token in front."""
        return self.tokens[self.position]

    def ahead(self, offset: int = 1) -> Token:
        """A token further on (the last one when past the end)."""
        return self.tokens[min(self.position + offset, len(self.tokens) - 1)]

    def take(self) -> Token:
        """Consume the token in front."""
        token = self.tokens[self.position]
        if token.kind != "end":
            self.position += 1
        return token

    def accept(self, kind: str, value: str | None = None) -> bool:
        """Consume the token in front if it is this one."""
        token = self.tokens[self.position]
        if token.kind != kind or (value is not None and token.value != value):
            return False
        self.position += 1
        return True

    def expect(self, kind: str) -> None:
        """Consume a token that must be there; a missing one at the very end is forgiven (a
        cut-off answer).
        """
        if not self.accept(kind) and self.here.kind != "end":
            raise Unreadable(f"expected {kind} before {self.here.value or self.here.kind!r}")

    def deeper(self, parse: Callable[[], Node]) -> Node:
        """Run `parse` one level down."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise TooBig(f"nested deeper than {MAX_DEPTH}")
        node = parse()
        self.depth -= 1
        return node

    def count(self, node: Node) -> Node:
        """Count a made node against the limit."""
        self.made += 1
        if self.made > MAX_NODES:
            raise TooBig(f"more than {MAX_NODES} terms and factors")
        return node

    # --- sets and sums ---

    def item(self) -> Node:
        """What may stand between separators inside brackets."""
        return self.set_expression()

    def set_expression(self) -> Node:
        """Sums joined by set operations."""
        node = self.sum()
        while self.here.kind == "setop" or self._plain_union(node):
            name = self.take().value
            node = Node("union" if name == "U" else name, (node, self.sum()))
        return node

    def _plain_union(self, left: Node) -> bool:
        return (
            left.op in _SET_OPS
            and self.here.kind == "sym"
            and self.here.value == "U"
            and self.ahead().kind == "open"
        )

    def sum(self) -> Node:
        """Terms joined by + and -, with plus-minus and dots."""
        terms: list[Node] = []
        dots = False
        if self.here.kind not in {"op", "pm"}:
            terms.append(self.term())
        while True:
            if self.here.kind == "op" and self.here.value in "+-":
                sign = self.take().value
                if self.accept("dots"):
                    dots = True
                    continue
                term = self.term()
                if sign == "-" and terms and terms[-1].op in _SET_OPS and len(terms) == 1:
                    terms = [Node("minus", (terms[0], term))]
                else:
                    terms.append(nodes.neg(term) if sign == "-" else term)
            elif self.here.kind == "pm":
                note = self.take().value
                term = self.term()
                terms = [Node("pm", (*((nodes.add(*terms),) if terms else ()), term), 0, note)]
            else:
                break
        if not terms:
            raise Unreadable(f"a term is missing before {self.here.value or 'the end'!r}")
        if dots:
            return nodes.func("series", terms[0], terms[-1])
        return self.count(nodes.add(*terms))

    # --- products ---

    def term(self) -> Node:
        """Factors joined by *, / or nothing, then a unit."""
        if self.here.kind == "op" and self.here.value in "+-":
            return self._signed(self.term)
        factors = [self.power()]
        while True:
            token = self.here
            if token.kind == "op" and token.value in "*/":
                self._explicit_factor(factors)
            elif self._starts_factor(factors[-1]):
                factors.append(self.power())
                if factors[-1].op == "rel":
                    return Node("given", (nodes.mul(*factors[:-1]), factors[-1]))
            else:
                break
        node = self.count(nodes.mul(*factors))
        return self._with_unit(node) if self.here.kind == "word" else node

    def _compound(self, node: Node) -> Node:
        """`1 hour 30 minutes`: the next quantity of the same dimension is added."""
        first = (
            dimension(node.note) if self.here.kind == "num" and node.args[0].op in EXACT else None
        )
        if first is None:
            return node
        second = self.term()
        scale = (
            dimension(second.note)
            if second.op == "quantity" and second.args[0].op in EXACT
            else None
        )
        if scale is None or scale[1] != first[1]:
            raise Unreadable("two quantities side by side")
        total = Fraction(node.args[0].value) * first[0] / scale[0] + second.args[0].value
        return second._replace(args=(nodes.num(total),))

    def _signed(self, parse: Callable[[], Node]) -> Node:
        sign = self.take().value
        node = self.deeper(parse)
        return nodes.neg(node) if sign == "-" else node

    def _explicit_factor(self, factors: list[Node]) -> None:
        operator = self.take().value
        if operator == "*" and self.accept("dots"):
            raise Unreadable("a product with dots")
        negative = self.here.kind == "op" and self.here.value in "+-"
        factor = self._signed(self.power) if negative else self.power()
        if operator == "/":
            last = factors[-1]
            if last.op == factor.op == "num" and factor.value != 0:
                factors[-1] = nodes.num(Fraction(last.value) / factor.value)
            else:
                factors.append(nodes.power(factor, nodes.MINUS_ONE))
        else:
            factors.append(factor)

    def _starts_factor(self, last: Node) -> bool:
        token = self.here
        if token.kind == "num":
            return last.op not in {"num", "dec"}
        if token.kind == "open" and token.value == "[" and self.french:
            return False
        if token.kind == "bar":
            return self.bars == 0 and token.value == "|"
        if token.kind == "sym" and token.value == "U" and last.op in _SET_OPS:
            return False
        if token.kind == "word":
            return False
        return token.kind in _ATOM_KINDS and token.value not in _ROW_ENDS

    def _with_unit(self, node: Node) -> Node:
        if (
            self.here.value in CONNECTIVES
            or self.here.value in QUALIFIERS
            or self.here.value == "to"
        ):
            return node
        if self.here.value in {"degree", "degrees", "deg"}:
            self.take()
            return Node("degree", (node,))
        if self.here.value in {"percent", "percentage", "pct"}:
            self.take()
            return Node("percent", (node,))
        if self.here.value in SCALES and node.op in EXACT:
            return self.term_after(nodes.num(node.value * SCALES[self.take().value]))
        if self.here.value == "i":
            self.take()
            return nodes.mul(node, nodes.const("i"))
        end, unit = read_unit(self.tokens, self.position)
        self.position = end
        return self._compound(Node("quantity", (node,), 0, unit))

    def term_after(self, node: Node) -> Node:
        """What may follow a value that has just been completed: its unit."""
        return self._with_unit(node) if self.here.kind == "word" else node

    # --- powers and postfix marks ---

    def power(self) -> Node:
        """An atom with its exponents, factorials, percent and degree signs."""
        node = self.postfix(self.deeper(self.atom))
        while self.here.kind == "op" and self.here.value == "^":
            self.take()
            node = self._exponent(node)
            node = self.postfix(node)
        return node

    def _exponent(self, base: Node) -> Node:
        if self._accept_circle():
            return self._minutes(Node("degree", (base,)))
        if self.here.kind == "prime" or (
            self.here.kind == "group" and self.ahead().kind == "prime"
        ):
            return self._grouped_prime(base)
        if self.here.kind == "op" and self.here.value == "*":
            raise Unreadable("a star as exponent")
        exponent = self.deeper(self._raised)
        if base.op == "const" and base.note == "e":
            return Node("pow", (base, exponent))
        return self.count(nodes.power(base, exponent))

    def _raised(self) -> Node:
        if self.here.kind == "op" and self.here.value in "+-":
            return self._signed(self._raised)
        node = self.argument()
        if self.here.kind == "op" and self.here.value == "^":
            self.take()
            return nodes.power(node, self.deeper(self._raised))
        return node

    def _accept_circle(self) -> bool:
        if self.accept("circ"):
            return True
        if (
            self.here.kind == "group"
            and self.ahead().kind in {"circ", "degree"}
            and self.ahead(2).kind == "endgroup"
        ):
            self.position += 3
            return True
        return False

    def _minutes(self, node: Node) -> Node:
        """`60^\\circ 30'`: minutes and seconds of arc after degrees."""
        if self.here.kind != "num":
            return node
        value, scale = node.args[0], 60
        while self.here.kind == "num" and scale <= 3600:
            minutes = exact_numeral(self.take().value)
            self.accept("op", "^")
            braced = self.accept("group")
            while self.accept("prime"):
                pass
            if braced:
                self.expect("endgroup")
            value = nodes.add(value, nodes.num(Fraction(minutes.value) / scale))
            scale *= 60
        return Node("degree", (value,))

    def _grouped_prime(self, base: Node) -> Node:
        braced = self.accept("group")
        marks = 0
        while self.accept("prime"):
            marks += 1
        if braced:
            self.expect("endgroup")
        if base.op != "sym":
            raise Unreadable("a prime after something that is not a name")
        return nodes.sym(base.note + "'" * marks)

    def postfix(self, node: Node) -> Node:
        """Marks after an atom: ! % degree prime and number bases."""
        while True:
            if self.accept("fact"):
                node = self.count(nodes.func("factorial", node))
            elif self.accept("percent"):
                node = Node("percent", (node,))
            elif self.accept("degree"):
                node = self._minutes(Node("degree", (node,)))
            elif self.here.kind == "prime" and node.op == "sym":
                self.take()
                node = nodes.sym(node.note + "'")
            else:
                return node

    # --- arguments ---

    def argument(self, *, digit: bool = False) -> Node:
        """A braced argument or the next atom; with `digit` a bare number gives up only its first
        digit (`\\frac12`).
        """
        if self.accept("group"):
            node = self.deeper(self.set_expression)
            self.expect("endgroup")
            return node
        token = self.here
        if digit and token.kind == "num" and len(token.value) > 1 and token.value.isdigit():
            self.tokens[self.position] = Token("num", token.value[1:], False)
            return nodes.num(int(token.value[0]))
        return self.deeper(self.atom)

    def subscript(self) -> str:
        """The text of a subscript, flattened: it is a name, not arithmetic."""
        if not self.accept("group"):
            token = self.take()
            return token.value or token.kind
        parts: list[str] = []
        level = 1
        while self.here.kind != "end":
            token = self.take()
            level += {"group": 1, "endgroup": -1}.get(token.kind, 0)
            if level == 0:
                break
            if token.kind not in {"group", "endgroup"}:
                parts.append(token.value or token.kind)
        return "".join(parts)

    @abstractmethod
    def atom(self) -> Node:
        """The smallest whole thing; see `atoms.py`."""

    @abstractmethod
    def number(self) -> Node:
        """A numeral in front and what sticks to it; see `literals.py`."""

    def closing(self, opened: str) -> str:
        """Consume the bracket that closes `opened`; half-open intervals mix kinds."""
        token = self.here
        if token.kind == "close" and token.value in _CLOSING:
            self.take()
            return token.value
        if (token.kind, token.value) == ("open", "["):
            self.take()
            return ")"
        if token.kind == "end":
            return _CLOSING[opened]
        raise Unreadable(f"a bracket is not closed before {token.value or token.kind!r}")
