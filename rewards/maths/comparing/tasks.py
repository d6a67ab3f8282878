"""Tasks as golds: integrals, limits, derivatives, determinants and sums of numbers.

A gold that is a task is worked out, and its value becomes the gold. An answer that still
contains a task, where the gold has a value, only repeats the question and is not equal.
"""

from __future__ import annotations

from fractions import Fraction

from ..proving.calculus import derivative
from ..proving.canonical import normal
from ..proving.sums import ONE, Meter
from ..reading import nodes
from ..reading.nodes import Node, TooBig, is_scalar, symbols, walk

MAX_EXPANDED = 4
"""The largest determinant with variables that is expanded, in rows; four rows give 24 products."""
MAX_ROWS = 8
_ALWAYS = ("int", "lim")
_OF_NUMBERS = frozenset({"sum", "prod", "gcd", "lcm"})


def unevaluated(node: Node) -> bool:
    r"""Return whether anything in `node` still has to be worked out.

    >>> from ..reading.reader import read
    >>> unevaluated(read(r"\gcd(4,6)")), unevaluated(read(r"\frac{dy}{dx}"))
    (True, False)
    """
    stack = [node]
    while stack:
        part = stack.pop()
        if part.op in _TASKS and _is_task(part):
            return True
        if part.args:
            stack.extend(part.args)
    return False


_TASKS = frozenset({"matrix", "call", "func"})
"""Kinds of nodes that may be a task."""


def _is_task(node: Node) -> bool:
    if node.op == "matrix":
        return node.note == "||"
    if node.op == "call":
        return node.note == "integral"
    if node.op != "func":
        return False
    if node.note == "derivative":
        return node.args[1] in walk(node.args[0]) and not nodes.has(node, "call")
    if node.note in _OF_NUMBERS:
        return not symbols(node)
    return node.note == "det" or node.note.startswith(_ALWAYS)


def is_open(node: Node) -> bool:
    """Return whether a task in `node` has no value by itself: unknown functions occur in the task,
    or the bounds contain variables.
    """
    return any(
        _is_task(part)
        and (
            any(inner.op == "call" and inner.note != "integral" for inner in walk(part))
            or (part.note == "int" and bool(symbols(part)))
        )
        for part in walk(node)
    )


def worked(node: Node) -> Node:
    """Return `node` with determinants, derivatives and remainders worked out.

    Integrals and limits are left for numeric evaluation with many digits.
    """
    return _worked(node) if unevaluated(node) or nodes.has(node, "mod") else node


def _worked(node: Node) -> Node:
    remainder = _remainder(node)
    if remainder is not None:
        return remainder
    if not node.args:
        return node
    node = node._replace(args=tuple(_worked(arg) for arg in node.args))
    if node.op == "func" and node.note == "derivative" and _is_task(node):
        result = derivative(node.args[0], node.args[1].note)
        return node if result is None else result
    if node.op == "func" and node.note == "det" and node.args[0].op == "matrix":
        return determinant(node.args[0])
    if node.op == "matrix" and node.note == "||":
        return determinant(node)
    return node


def _remainder(node: Node) -> Node | None:
    if node.op != "mod" or node.note != "bmod":
        return None
    number, modulus = (_integer_of(side) for side in node.args)
    return None if number is None or not modulus else nodes.num(number % modulus)


def _integer_of(node: Node) -> int | None:
    """Return the whole number that a formula without variables equals, or None if the normal form
    cannot tell.
    """
    if not is_scalar(node) or symbols(node):
        return None
    try:
        terms = normal(node, Meter())
    except (TooBig, ZeroDivisionError, OverflowError):
        return None
    value = terms.get(ONE, 0) if set(terms) <= {ONE} else None
    return int(value) if value is not None and value.denominator == 1 else None


def determinant(matrix: Node) -> Node:
    """Return the determinant of a square matrix of formulas, or `matrix` unchanged where the size
    exceeds the limits.
    """
    size = int(matrix.value)
    cells = matrix.args
    if size * size != len(cells) or not all(is_scalar(cell) for cell in cells):
        return matrix
    rows = [list(cells[row * size : row * size + size]) for row in range(size)]
    if size <= MAX_ROWS and all(cell.op in {"num", "dec"} for cell in cells):
        value = _eliminated([[Fraction(cell.value) for cell in row] for row in rows])
        return nodes.num(value.numerator if value.denominator == 1 else value)
    return matrix if size > MAX_EXPANDED else _expanded(rows)


def _eliminated(rows: list[list[Fraction]]) -> Fraction:
    value = Fraction(1)
    for place in range(len(rows)):
        pivot = next((r for r in range(place, len(rows)) if rows[r][place]), None)
        if pivot is None:
            return Fraction(0)
        if pivot != place:
            rows[place], rows[pivot] = rows[pivot], rows[place]
            value = -value
        value *= rows[place][place]
        for lower in rows[place + 1 :]:
            factor = lower[place] / rows[place][place]
            for column in range(place, len(rows)):
                lower[column] -= factor * rows[place][column]
    return value


def _expanded(rows: list[list[Node]]) -> Node:
    if len(rows) == 1:
        return rows[0][0]
    terms: list[Node] = []
    for column, factor in enumerate(rows[0]):
        minor = _expanded([row[:column] + row[column + 1 :] for row in rows[1:]])
        term = nodes.mul(factor, minor)
        terms.append(nodes.neg(term) if column % 2 else term)
    return nodes.add(*terms)
