"""The smallest whole things of a formula: names, functions, brackets, fractions, matrices."""

from __future__ import annotations

from fractions import Fraction

from . import nodes
from .commands import CommandParser
from .lexer import Token
from .nodes import Node, Unreadable
from .numerals import exact_numeral, from_words
from .vocabulary import FRACTION_WORDS, NUMBER_WORDS

_FUNCTION_LETTERS = frozenset({"f", "g", "h", "F", "G", "H", "phi", "varphi", "psi"})
_EVENT_LETTERS = frozenset({"P", "Q", "E", "R", "S", "T"})
_LISTING = frozenset({"sep", "setop"})
"""What stands in no product: `d(P, Q)`."""
_INVERSE = {"sin": "arcsin", "cos": "arccos", "tan": "arctan", "cot": "arccot"}
_ANGLE_FUNCTIONS = frozenset({"sin", "cos", "tan", "cot", "sec", "csc"})


class AtomParser(CommandParser):
    """Adds the atoms to the expression grammar."""

    def atom(self) -> Node:
        """The smallest whole thing in front."""
        token = self.here
        match token.kind:
            case "num":
                return self.number()
            case "sym":
                return self._name()
            case "const":
                self.take()
                return self._constant(token)
            case "func":
                return self._function(self.take().value)
            case "cmd":
                return self.command(self.take().value)
            case "open":
                return self._bracket()
            case "group":
                return self._group()
            case "bar":
                return self._absolute()
            case "word":
                return self._word()
            case "emptyset":
                self.take()
                return Node("set")
            case "currency":
                self.take()
                negative = self.here.kind == "op" and self.here.value == "-"
                amount = self._signed(self.power) if negative else self.power()
                return Node("quantity", (amount,), 0, token.value)
            case "close" if token.value == "]":
                return self._bracket()
            case "sign" if token.value == "." and self.ahead().value.isdigit():
                self.take()
                return exact_numeral("." + self.take().value)
            case _:
                raise Unreadable(f"{token.value or token.kind!r} where a value should be")

    # --- names ---

    def _constant(self, token: Token) -> Node:
        return nodes.const(token.value)

    def _name(self) -> Node:
        token = self.take()
        name = {"varepsilon": "epsilon", "vartheta": "theta", "varrho": "rho"}.get(
            token.value, token.value
        )
        if name in {"e", "i"} and self.here.kind != "sub":
            return nodes.const(name)
        while self.here.kind == "sub":
            self.take()
            name += "_" + self.subscript()
        if name in {"angle", "triangle"}:
            return self._geometric(name)
        if name.startswith("C_") and name[2:].isdigit() and self.accept("op", "^"):
            return self._combinations(int(name[2:]))
        while self.accept("prime"):
            name += "'"
        if self.here == ("open", "(", False) or (
            self.here.kind == "open" and self.here.value == "("
        ):
            return self._application(name)
        return nodes.sym(name)

    def _combinations(self, upper: int) -> Node:
        """`C_5^2`; with a larger number on top it is a constant to a power."""
        lower = self.argument()
        if lower.op == "num" and isinstance(lower.value, int) and 0 <= lower.value <= upper:
            return self.count(nodes.func("binom", nodes.num(upper), lower))
        return nodes.power(nodes.sym(f"C_{upper}"), lower)

    def _geometric(self, name: str) -> Node:
        letters = ""
        while self.here.kind == "sym" and len(self.here.value) == 1:
            letters += self.take().value
        return nodes.sym(f"{name} {letters}".strip())

    def _application(self, name: str) -> Node:
        """`f(x)`, `P(A)`, `d(P, Q)` and `n(A \\cup B)` are calls; `x(y)` is a product."""
        if name == "Gamma":
            argument = self.deeper(self.atom)
            return self.count(nodes.func("factorial", nodes.add(argument, nodes.MINUS_ONE)))
        inside = self._kinds_inside()
        one_name = inside == ["sym"] and name.split("_")[0].rstrip("'") in _EVENT_LETTERS
        function = name.split("_")[0].rstrip("'") in _FUNCTION_LETTERS
        if not (function or one_name or _LISTING.intersection(inside)):
            return nodes.sym(name)
        self.take()
        arguments = self._items()
        self.closing("(")
        if name == "C" and len(arguments) == 2:
            return self.count(nodes.func("binom", *arguments))
        return self.count(Node("call", tuple(arguments), 0, name))

    def _kinds_inside(self) -> list[str]:
        """The kinds of the tokens directly inside the bracket in front."""
        kinds: list[str] = []
        depth = 0
        for place in range(self.position, len(self.tokens)):
            token = self.tokens[place]
            depth += {"open": 1, "group": 1, "close": -1, "endgroup": -1}.get(token.kind, 0)
            if depth == 0:
                return kinds
            if depth == 1 and token.kind != "open":
                kinds.append(token.kind)
        return []

    def _word(self) -> Node:
        words: list[str] = []
        while self.here.kind == "word" and (
            self.here.value.lower() in NUMBER_WORDS or (words and self._hyphen_or_and())
        ):
            words.append(self.take().value.lower())
            if self.here == ("op", "-", False) and self.ahead().kind == "word":
                self.take()
            if self.here.value == "a" and self.ahead().value in FRACTION_WORDS:
                self.take()
        node = from_words(words)
        if node is not None:
            return node
        if not words and len(self.here.value) == 1:
            return nodes.sym(self.take().value)
        if not words and self.here.value in {"infinity", "infinite"}:
            self.take()
            return nodes.INFINITY
        raise Unreadable(f"the word {self.here.value!r}")

    def _hyphen_or_and(self) -> bool:
        """`one hundred and five`, `two and a half`."""
        if self.here.value != "and":
            return False
        half = self.ahead().value == "a" and self.ahead(2).value in FRACTION_WORDS
        return half or (self.ahead().kind == "word" and self.ahead().value in NUMBER_WORDS)

    # --- functions ---

    def _function(self, name: str) -> Node:
        base = self._log_base() if name in {"log", "lg"} and self.here.kind == "sub" else None
        exponent: Node | None = None
        if self.here.kind == "op" and self.here.value == "^":
            self.take()
            exponent = self._raised()
        if name in _INVERSE and exponent == nodes.MINUS_ONE:
            name, exponent = _INVERSE[name], None
        arguments = self._degrees(self._arguments(name))
        node = self._applied(name, arguments, base)
        return node if exponent is None else nodes.power(node, exponent)

    def _degrees(self, arguments: list[Node]) -> list[Node]:
        """Angles in degrees inside a function, in radians."""
        return [
            nodes.mul(arg.args[0], nodes.const("pi"), nodes.num(Fraction(1, 180)))
            if arg.op == "degree"
            else arg
            for arg in arguments
        ]

    def _applied(self, name: str, arguments: list[Node], base: Node | None) -> Node:
        if name == "cis":
            angle = nodes.mul(nodes.const("i"), *arguments)
            return nodes.power(nodes.const("e"), angle)
        if name == "exp":
            return nodes.power(nodes.const("e"), nodes.mul(*arguments))
        if base is not None:
            arguments = [*arguments, base]
        return self.count(nodes.func("log" if name == "lg" else name, *arguments))

    def _log_base(self) -> Node:
        self.take()
        token = self.here
        if (
            token.kind == "num"
            and len(token.value) > 1
            and self.ahead().kind not in {"num", "sym", "open", "group", "cmd"}
        ):
            return self.argument(digit=True)
        return self.argument()

    def _arguments(self, name: str) -> list[Node]:
        if self.here.kind == "open" and self.here.value in "({[":
            opened = self.take().value
            items = self._items()
            self._close(opened)
            return items
        if self.here.kind == "op" and self.here.value == "-":
            return [self._signed(lambda: self._bare_argument(name))]
        return [self._bare_argument(name)]

    def _bare_argument(self, name: str) -> Node:
        """`\\sin 2x`: the product that follows, up to an operator or another function."""
        factors = [self.power()]
        while (
            self._starts_factor(factors[-1])
            and self.here.kind != "func"
            and not self._outside(factors)
        ):
            factors.append(self.power())
        node = nodes.mul(*factors)
        slash = self.here.kind == "op" and self.here.value == "/"
        if (
            slash
            and name in _ANGLE_FUNCTIONS
            and self.ahead().kind == "num"
            and nodes.has(node, "const")
        ):
            self.take()
            node = nodes.over(node, self.number())
        return node

    def _outside(self, factors: list[Node]) -> bool:
        return self.here.kind == "open" and factors[-1].op != "num"

    # --- brackets ---

    def _items(self, bars: int = 0) -> list[Node]:
        """What stands between commas; with `bars` 1, a bar does not start a value."""
        bars, self.bars = self.bars, bars
        items = [self.deeper(self.item)]
        while self.accept("sep"):
            if self.here.kind in {"close", "dots"}:
                break
            items.append(self.deeper(self.item))
        self.bars = bars
        return items

    def _close(self, opened: str) -> None:
        if opened == "{":
            if not self.accept("close", "}") and not self.accept("endgroup"):
                self.expect("close")
        else:
            self.closing(opened)

    def _bracket(self) -> Node:
        token = self.take()
        if token.value == "{":
            return self._braces()
        if token.value in {"floor", "ceil"}:
            node = self.deeper(self.set_expression)
            self.expect("close")
            return nodes.func(token.value, node)
        opened = "(" if token.value in "(]" else "["
        if self.here.kind == "close":
            self.take()
            return Node("bracket", (), 0, "()")
        french, self.french = (
            self.french,
            token.kind == "close" or (self.french and token.value != "("),
        )
        items = self._items()
        self.french = french
        closed = self.closing(opened)
        if len(items) > 1:
            return self.count(Node("bracket", tuple(items), 0, opened + closed))
        if self.here.kind == "sub" and items[0].op in {"num", "mul", "sym"}:
            return self._based_group(items[0])
        return (
            items[0]
            if items[0].op != "list"
            else Node("bracket", items[0].args, 0, opened + closed)
        )

    def _based_group(self, inside: Node) -> Node:
        if inside.op != "num":
            return inside
        self.take()
        return self.based(str(inside.value))

    def _braces(self) -> Node:
        if self.accept("close", "}"):
            return Node("set")
        items = self._elements()
        if self._such_that():
            node = Node("such", (items[0], self.deeper(self.condition)))
        else:
            node = Node("set", tuple(items))
        if self.here.kind == "dots":
            raise Unreadable("a set with dots")
        self.expect("close")
        return self.count(node)

    def _elements(self) -> list[Node]:
        """Items in braces, where a bar or a colon ends them (`{x | x > 0}`)."""
        kept, self.colons = self.colons, False
        items = self._items(bars=1)
        self.colons = kept
        return items

    def _such_that(self) -> bool:
        if self.here.kind != "bar" and self.here[:2] != ("sign", ":"):
            return False
        self.take()
        return True

    def condition(self) -> Node:
        """What follows the bar in a set-builder."""
        return self.item()

    def _group(self) -> Node:
        """Plain braces: LaTeX grouping; with separators or a bar inside, a set whose backslashes
        were lost.
        """
        self.take()
        if self.accept("endgroup"):
            if self.here.kind in {"end", "sep", "endgroup"}:
                return Node("set")
            return self.atom()
        items = self._elements()
        if self.accept("cmd", "choose"):
            items = [nodes.func("binom", items[0], self.deeper(self.set_expression))]
        elif self._such_that():
            items = [Node("such", (items[0], self.deeper(self.condition)))]
        self.expect("endgroup")
        return items[0] if len(items) == 1 else self.count(Node("set", tuple(items)))

    def _absolute(self) -> Node:
        self.take()
        bars, self.bars = self.bars, 1
        node = self.deeper(self.set_expression)
        self.bars = bars
        self.expect("bar")
        return self.count(nodes.func("abs", node))
