"""LaTeX environments: matrices, cases and aligned rows."""

from __future__ import annotations

from . import nodes
from .conditions import of_a_kind
from .nodes import Node, Unreadable
from .operators import subscript
from .pratt import Parser

_KINDS = {
    **dict.fromkeys(("pmatrix", "bmatrix", "matrix", "smallmatrix", "Bmatrix", "array"), "()"),
    "vmatrix": "||", "Vmatrix": "norm", "cases": "cases", "dcases": "cases", "rcases": "cases",
    **dict.fromkeys(("aligned", "align*", "align", "gathered", "split", "gather*"), "rows"),
}  # fmt: skip
_CONDITION_WORDS = frozenset({"if", "for", "when", "otherwise", "else", "and"})


def environment(parser: Parser) -> Node:
    r"""Read an environment: `\begin{...} ... \end{...}`."""
    name = subscript(parser)
    kind = _KINDS.get(name)
    if kind is None:
        raise Unreadable(f"the environment {name!r}")
    if name == "array" and parser.here.kind == "group":
        subscript(parser)
    rows = _rows(parser)
    cells = tuple(cell for row in rows for cell in row)
    # `cases` without conditions is how a system of equations is written.
    if kind == "cases" and all(len(row) == 1 for row in rows):
        return Node("list", cells, 0, "and")
    if kind == "cases":
        if any(len(row) > 2 for row in rows):
            raise Unreadable("a row of cases with more than a value and its condition")
        return Node("cases", tuple(cell for row in rows for cell in (row[0], row[-1])))
    if kind == "rows":
        return Node("list", cells, 0, ",")
    if len({len(row) for row in rows}) != 1:
        raise Unreadable("matrix rows of different length")
    return Node("matrix", cells, len(rows[0]), kind)


def _rows(parser: Parser) -> list[list[Node]]:
    # In a cell a bar begins an absolute value, even if the environment stands between two bars.
    outer_bar_ends, parser.bar_ends = parser.bar_ends, False
    rows: list[list[Node]] = [[]]
    while parser.here.kind != "end":
        token = parser.here
        if token.kind == "cmd" and token.value == "end":
            parser.take()
            subscript(parser)
            break
        if token.kind == "row":
            rows.append([])
        skipped = {"row", "cell", "sep", "sign"}
        if token.kind in skipped or (token.kind == "cmd" and token.value == "hline"):
            parser.take()
        else:
            rows[-1].append(parser.deeper(_cell))
    parser.bar_ends = outer_bar_ends
    filled = [row for row in rows if row]
    if not filled:
        raise Unreadable("an empty matrix")
    return filled


def _cell(parser: Parser) -> Node:
    """Read a cell without the word before a condition; `otherwise` alone is a cell of words."""
    words = 0
    while parser.here.kind == "word" and parser.here.value in _CONDITION_WORDS:
        parser.take()
        words += 1
    if words and parser.here.kind in {"row", "cmd", "end", "sign"}:
        return nodes.text("otherwise")
    return of_a_kind(parser) or parser.expression()
