"""Which crosses and dots are products of vectors or sets, and which multiply numbers."""

from __future__ import annotations

from . import nodes
from .nodes import SETS, Node
from .pratt import Parser

_DECORATIONS = ("vec ", "bold ", "hat ", "overrightarrow ", "set ")
"""How the names of vectors and sets begin: `\\vec u` is the name "vec u"."""


def is_directed(parser: Parser, operator: str, left: Node, right: Node) -> bool:
    """Return whether a cross or dot between these nodes is a product of vectors or sets.

    It is one if a side is nabla or both sides are marked as vectors or sets. Between plain names,
    it is one if a cross stands between capitals or if the text uses both operators, as only vector
    algebra does.
    """
    sides = (left, right)
    if nodes.sym("nabla") in sides or all(map(has_direction, sides)):
        return True
    if not all(side.op in {"sym", "call"} for side in sides):
        return False
    capitals = all(side.note.isupper() for side in sides)
    if capitals and operator == "×":
        return True
    # Vector algebra has both signs and no number: `(u \times v) \cdot w`.
    operators = {token.value for token in parser.tokens if token.kind == "op"}
    return {"·", "×"} <= operators and not any(token.kind == "num" for token in parser.tokens)


def has_direction(node: Node) -> bool:
    """Return whether `node` is written as a vector or a set, or combines such values."""
    if node.op == "sym":
        return node.note.startswith(_DECORATIONS)
    if node.op in {"add", "mul"}:
        return any(has_direction(part) for part in node.args)
    return node.op in SETS or (node.op == "call" and node.note == "×")
