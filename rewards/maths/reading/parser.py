"""Tokens to expressions: a recursive-descent parser that accepts what people and models write.

Precedence, loosest first: set operations, sums, products (also by juxtaposition), powers, postfix
marks, atoms. Depth and size are bounded here, so that every later step may recurse.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from fractions import Fraction

from . import nodes
from .cursor import Cursor
from .lexer import Token
from .nodes import Node, Unreadable
from .numerals import exact_numeral
from .units import dimension, read_unit
from .vocabulary import CONNECTIVES, NUMBER_WORDS, QUALIFIERS, SCALES, UNIT_LETTERS

EXACT = frozenset({"num", "dec"})
_SET_OPS = frozenset({"set", "such", "union", "inter", "minus", "bracket"})
_ATOM_KINDS = frozenset(
    {"num", "sym", "func", "const", "open", "group", "cmd", "emptyset", "currency"}
)
_ROW_ENDS = frozenset({"end", "hline", "forall", "Rightarrow", "implies", "quad", "choose", "not"})
FRACTIONS = frozenset({"frac", "dfrac", "tfrac", "cfrac", "sfrac", "nicefrac"})
_CLOSING = {"(": ")", "[": "]", ")": ")", "]": "]"}


class ExpressionParser(Cursor, ABC):
    """Parses one token list. `AnswerParser` adds lists, relations and words."""

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
        if terms[-1].op == "given":
            last = terms.pop()
            terms.append(last.args[0])
            return last._replace(args=(nodes.add(*terms), last.args[1]))
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
            elif self._starts_factor(factors[-1]) and not self._ends_in_unit(factors):
                factors.append(self.power())
                if factors[-1].op == "rel":
                    return Node("given", (nodes.mul(*factors[:-1]), factors[-1]))
            else:
                break
        node = self.count(nodes.mul(*factors))
        if self._ends_in_unit(factors):
            return self._compound(Node("quantity", (factors[0],), 0, factors[1].note))
        if self._words_in_brackets():
            self.take()
            node = self._with_unit(node)
            self.expect("close")
            return node
        return self._with_unit(node) if self.here.kind == "word" else node

    def _words_in_brackets(self) -> bool:
        """`24 (ways)`: what the value counts, in brackets."""
        if self.here != ("open", "(", True) or self.ahead().kind != "word":
            return False
        unit = self.ahead().value
        end = 1
        while self.ahead(end).kind == "word":
            end += 1
        return self.ahead(end).kind == "close" and unit not in QUALIFIERS | NUMBER_WORDS

    def _ends_in_unit(self, factors: list[Node]) -> bool:
        """`1.73 m`: a number, a space and a letter that names a unit are a quantity."""
        if len(factors) != 2 or self.here.kind not in {"end", "num"}:
            return False
        if self.tokens[0].kind != "num":
            return False
        token, (value, letter) = self.tokens[self.position - 1], factors
        spaced = token.spaced and token.value in UNIT_LETTERS
        return spaced and value.op in EXACT and letter == nodes.sym(token.value)

    def _compound(self, node: Node) -> Node:
        """`1 hour 30 minutes`, `1 hour and 30 minutes`: the next quantity of the same dimension
        and a smaller unit is added.
        """
        joined = self.here.kind in {"word", "sep"} and self.here.value in {"and", ","}
        if self.ahead(joined).kind != "num" or node.args[0].op not in EXACT:
            return node
        first = dimension(node.note)
        start, made = self.position, self.made
        self.position += joined
        second = self.term() if first is not None else node
        scale = dimension(second.note) if second.op == "quantity" else None
        fits = first and scale and scale[1] == first[1] and scale[0] < first[0]
        if first and scale and fits and second.args[0].op in EXACT:
            total = Fraction(node.args[0].value) * first[0] / scale[0] + second.args[0].value
            return second._replace(args=(nodes.num(total),))
        if not joined:
            raise Unreadable("two quantities side by side")
        self.position, self.made = start, made
        return node

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
        if token.kind == "open" and self.ahead().kind == "mod":
            return False
        if token.kind == "open" and token.value == "[":
            return not self.french and self.ahead().kind not in {"end", "setop"}
        if token.kind == "bar":
            return self.bars == 0 and token.value == "|"
        if token.kind == "sym" and token.value == "U" and last.op in _SET_OPS:
            return False
        if token.kind == "word" or self._words_in_brackets():
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
            return self._scale(Node("degree", (node,)))
        if self.here.value in {"percent", "percentage", "pct"}:
            self.take()
            return Node("percent", (node,))
        if self.here.value in SCALES and node == nodes.sym("a"):
            node = nodes.num(1)
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
            return self._scale(self._minutes(Node("degree", (base,))))
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

    def _scale(self, node: Node) -> Node:
        """`25 degrees C`: a temperature."""
        scale = {"C": "degC", "celsius": "degC", "F": "degF", "fahrenheit": "degF"}
        if self.here.kind not in {"sym", "word"} or self.here.value not in scale:
            return node
        return Node("quantity", node.args, 0, scale[self.take().value])

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
                name = "factorial"
                if self.here == ("fact", "!", False):
                    self.take()
                    name = "double factorial"
                node = self.count(nodes.func(name, node))
            elif self.accept("percent"):
                node = Node("percent", (node,))
            elif self.accept("degree"):
                node = self._scale(self._minutes(Node("degree", (node,))))
            elif self.here.kind == "group" and self.ahead().kind == "endgroup":
                self.position += 2
            elif self._trailing_currency(node):
                node = Node("quantity", (node,), 0, self.take().value)
            elif self.here.kind == "prime" and node.op == "sym":
                self.take()
                node = nodes.sym(node.note + "'")
            else:
                return node

    def _trailing_currency(self, node: Node) -> bool:
        """`20€`, `75¢`: a sign after the amount, unless it starts the next amount."""
        return self.here.kind == "currency" and node.op in EXACT and self.ahead().kind != "num"

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
