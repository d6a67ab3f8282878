"""LaTeX commands with arguments: fractions, roots, matrices, cases, sums."""

from __future__ import annotations

from fractions import Fraction

from . import nodes
from .literals import NumeralParser
from .nodes import Node, TooBig, Unreadable
from .parser import FRACTIONS

_BINOMIALS = frozenset({"binom", "dbinom", "tbinom"})
_MATRICES = {
    "pmatrix": "()", "bmatrix": "()", "matrix": "()", "smallmatrix": "()", "vmatrix": "||",
    "Bmatrix": "()",
    "array": "()", "cases": "cases", "dcases": "cases", "aligned": "rows", "align*": "rows",
    "align": "rows",
}  # fmt: skip
_NUMBER_SETS = frozenset({"R", "Z", "N", "Q", "C"})


class CommandParser(NumeralParser):
    """Adds commands to the expression grammar."""

    def command(self, name: str) -> Node:
        """The command `name`, which has just been read, with its arguments."""
        if name in FRACTIONS:
            return self._fraction()
        if name in _BINOMIALS:
            return self.count(
                nodes.func("binom", self.argument(digit=True), self.argument(digit=True))
            )
        match name:
            case "sqrt":
                return self._root()
            case "begin":
                return self._environment()
            case "mathbb" | "Bbb":
                return self._number_set()
            case "boxed" | "fbox":
                return self.argument()
            case "overline" | "widehat" | "overarc":
                return nodes.sym(f"line {self.subscript()}")
            case "sum" | "prod":
                return self._series(name)
            case _:
                raise Unreadable(f"the command \\{name}")

    def _fraction(self) -> Node:
        top, bottom = self.argument(digit=True), self.argument(digit=True)
        if top.op == bottom.op == "num" and bottom.value:
            return nodes.num(exact_quotient(top, bottom))
        return self.count(nodes.over(top, bottom))

    def _root(self) -> Node:
        degree: Node = nodes.num(2)
        if self.here == ("open", "[", False):
            self.take()
            degree = self.deeper(self.set_expression)
            self.closing("[")
        radicand = self.argument()
        exponent = (
            nodes.num(exact_quotient(nodes.num(1), degree))
            if degree.op == "num" and degree.value
            else nodes.over(nodes.num(1), degree)
        )
        return self.count(nodes.power(radicand, exponent))

    def _number_set(self) -> Node:
        name = self.subscript()
        if name not in _NUMBER_SETS:
            return nodes.sym(name)
        while self.here.kind == "sub" or (self.here.kind == "op" and self.here.value == "^"):
            mark = self.take().value
            if mark == "^" and self.here.kind == "op":
                name += self.take().value
            else:
                name += mark + self.subscript()
        return nodes.sym(f"set {name}")

    def _series(self, name: str) -> Node:
        bounds: dict[str, Node] = {}
        variable = ""
        while self.here.kind == "sub" or (self.here.kind == "op" and self.here.value == "^"):
            mark = self.take().value
            if mark == "_":
                variable, bounds["low"] = self._lower_bound()
            else:
                bounds["high"] = self.argument()
        if not variable or "high" not in bounds:
            raise Unreadable(f"\\{name} without both bounds")
        index = nodes.sym(variable)
        body = nodes.replaced(self.term(), nodes.const(variable), index)
        return self.count(nodes.func(name, body, index, bounds["low"], bounds["high"]))

    def _lower_bound(self) -> tuple[str, Node]:
        self.expect("group")
        token = self.take()
        if token.kind != "sym" or not self.accept("rel", "="):
            raise Unreadable("a lower bound that is not 'k = start'")
        low = self.deeper(self.set_expression)
        self.expect("endgroup")
        return token.value, low

    def _environment(self) -> Node:
        name = self.subscript()
        kind = _MATRICES.get(name)
        if kind is None:
            raise Unreadable(f"the environment {name!r}")
        if name == "array" and self.here.kind == "group":
            self.subscript()
        rows = self._rows()
        if kind == "cases" and all(len(row) == 1 for row in rows):
            return Node("list", tuple(row[0] for row in rows), 0, "and")
        if kind == "cases":
            return self.count(
                Node("cases", tuple(cell for row in rows for cell in (row[0], row[-1])))
            )
        if kind == "rows":
            return Node("list", tuple(cell for row in rows for cell in row), 0, ",")
        if len({len(row) for row in rows}) != 1:
            raise Unreadable("matrix rows of different length")
        return self.count(
            Node("matrix", tuple(cell for row in rows for cell in row), len(rows[0]), kind)
        )

    def _rows(self) -> list[list[Node]]:
        rows: list[list[Node]] = [[]]
        while True:
            token = self.here
            if token.kind == "end":
                break
            if token.kind == "cmd" and token.value == "end":
                self.take()
                self.subscript()
                break
            if token.kind == "row":
                self.take()
                rows.append([])
            elif (
                token.kind == "cell"
                or (token.kind == "sep" and rows[-1])
                or token.kind in {"sep", "sign"}
                or (token.kind == "cmd" and token.value == "hline")
            ):
                self.take()
            else:
                rows[-1].append(self.deeper(self.cell))
        kept = [row for row in rows if row]
        if not kept:
            raise Unreadable("an empty matrix")
        return kept

    def cell(self) -> Node:
        """One cell of a matrix or of cases."""
        if self.here.kind == "word":
            words: list[str] = []
            while self.here.kind == "word" and self.here.value in {
                "if",
                "for",
                "when",
                "otherwise",
                "else",
                "and",
            }:
                words.append(self.take().value)
            if self.here.kind in {"row", "cmd", "end", "sign"} and words:
                return nodes.text("otherwise")
        return self.item()


def exact_quotient(top: Node, bottom: Node) -> nodes.Exact:
    """The quotient of two numbers."""
    if bottom.value == 0:
        raise TooBig("division by zero")
    quotient = Fraction(top.value) / bottom.value
    return quotient.numerator if quotient.denominator == 1 else quotient
