"""Matrices and vectors: sums and products are worked out cell by cell, and `2i - j` becomes a
column.
"""

from __future__ import annotations

from itertools import islice

from ..reading import nodes
from ..reading.nodes import Node, is_scalar
from ..reading.units import dimension
from .products import factors

MAX_CELLS = 64
MAX_TREE = 2000
"""The most nodes in a product of matrices with variables, since every product multiplies the size
of the cells.
"""
_VECTORS = frozenset({"matrix", "bracket"})
_AXES = {"i": 0, "j": 1, "k": 2, "x": 0, "y": 1, "z": 2}


def worked_out(node: Node) -> Node:
    """Return `2 A + B C` as a single matrix whose cells are formulas; an expression that does not
    fit is returned unchanged.
    """
    if node.op == "pow" and node.args[0].op in {"bracket", "matrix"}:
        matrix, exponent = node.args
        if exponent.op != "sym" or exponent.note not in {"T", "t", "top"}:
            return node
        if matrix.op == "bracket":
            return matrix if matrix.note == "()" else node
        rows, columns = _shape(matrix)
        cells = tuple(matrix.args[r * columns + c] for c in range(columns) for r in range(rows))
        return matrix._replace(args=cells, value=rows)
    if node.op not in {"add", "mul"} or not any(
        arg.op in {*_VECTORS, "add", "mul"} for arg in node.args
    ):
        return node
    parts = [worked_out(arg) for arg in node.args]
    if not any(map(_is_vector, parts)) or any(len(p.args) > MAX_CELLS for p in parts):
        return node
    total = parts[0]
    for part in parts[1:]:
        combined: Node | None = None
        if node.op == "mul":
            combined = _product(total, part)
        elif _is_vector(total) and total.op == part.op and _shape(total) == _shape(part):
            pairs = zip(total.args, part.args, strict=True)
            combined = total._replace(args=tuple(nodes.add(a, b) for a, b in pairs))
        if combined is None:
            return node
        total = combined
    return total


def _product(left: Node, right: Node) -> Node | None:
    if not (_is_vector(left) or _is_vector(right)):
        return nodes.mul(left, right)
    if left.op == right.op == "matrix":
        (rows, inner), (height, columns) = _shape(left), _shape(right)
        if inner != height or rows * inner * columns > MAX_CELLS:
            return None
        cells = tuple(
            _dot([(left.args[r * inner + k], right.args[k * columns + c]) for k in range(inner)])
            for r in range(rows)
            for c in range(columns)
        )
        product = Node("matrix", cells, columns, left.note)
        return product if sum(1 for _ in islice(nodes.walk(product), MAX_TREE)) < MAX_TREE else None
    matrix, factor = (left, right) if _is_vector(left) else (right, left)
    if not is_scalar(factor):
        return None
    return matrix._replace(args=tuple(nodes.mul(factor, cell) for cell in matrix.args))


def _is_vector(node: Node) -> bool:
    return node.op == "matrix" or (node.op == "bracket" and node.note == "()")


def _shape(matrix: Node) -> tuple[int, int]:
    columns = int(matrix.value) or 1
    return len(matrix.args) // columns, columns


def _dot(pairs: list[tuple[Node, Node]]) -> Node:
    """Return a row times a column. Numbers are multiplied at once, so that long products stay
    small.
    """
    if all(cell.op == "num" for pair in pairs for cell in pair):
        return nodes.num(sum(entry.value * other_entry.value for entry, other_entry in pairs))
    return nodes.add(*(nodes.mul(entry, other_entry) for entry, other_entry in pairs))


def in_components(vector: Node, other: Node) -> Node:
    """Return `2i - j` as (2, -1) if `other` is a matrix or bracket of two or three entries, else
    unchanged.
    """
    size = len(other.args)
    if not is_scalar(vector) or other.op not in {"matrix", "bracket"} or size not in {2, 3}:
        return vector
    cells: list[Node] = [nodes.num(0)] * size
    for term in vector.args if vector.op == "add" else (vector,):
        parts = list(factors(term)) if term.op == "mul" else [term]
        axes = [axis for part in parts if (axis := _axis(part)) is not None]
        coefficients = [part for part in parts if _axis(part) is None]
        if len(axes) != 1 or axes[0] >= size:
            return vector
        cells[axes[0]] = nodes.add(cells[axes[0]], nodes.mul(*(coefficients or [nodes.num(1)])))
    return Node("bracket", tuple(cells), 0, "()")


def without_unit(vector: Node, other: Node) -> tuple[Node, Node]:
    r"""Return two vectors without their units, of which one may have none: `2\hat i + 3\hat j` m/s,
    whose unit is read with its last term, and (2, 3). Vectors of two dimensions stay as they are.
    """
    (first, unit), (second, other_unit) = _apart(vector), _apart(other)
    scales = dimension(unit), dimension(other_unit)
    if (unit == other_unit == "") or (unit and other_unit and (scales[0] != scales[1])):
        return vector, other
    return first, second


def _apart(vector: Node) -> tuple[Node, str]:
    """Return (vector, unit), with "" for a node that is no vector with a unit."""
    if vector.op == "quantity" and vector.args[0].op in {"bracket", "matrix", "add"}:
        inner = vector.args[0]
        return (inner, vector.note) if inner.op != "add" or _of_axes(inner) else (vector, "")
    if vector.op == "add" and vector.args[-1].op == "quantity":
        last = vector.args[-1]
        whole = vector._replace(args=(*vector.args[:-1], last.args[0]))
        return (whole, last.note) if _of_axes(whole) else (vector, "")
    return vector, ""


def _of_axes(vector: Node) -> bool:
    """Return whether every term of a sum has a unit vector as a factor."""
    return all(
        any(_axis(part) is not None for part in (factors(term) if term.op == "mul" else (term,)))
        for term in vector.args
    )


def same_bold(names: set[str], answer: Node) -> Node:
    """Rename the bold letters of `answer` as the gold writes them: with an arrow, with a hat, or
    plain.
    """
    renamed: dict[str, str] = {}
    for name in nodes.symbols(answer) - names:
        letter = name.removeprefix("bold ")
        spellings = (f"bold {letter}", f"vec {letter}", f"hat {letter}", letter)
        if name.startswith("bold "):
            renamed[name] = next((spelling for spelling in spellings if spelling in names), name)
        elif f"bold {name.removeprefix('vec ').removeprefix('hat ')}" in names:
            renamed[name] = f"bold {name.removeprefix('vec ').removeprefix('hat ')}"
    return nodes.rename(answer, renamed)


def _axis(node: Node) -> int | None:
    """Return the axis (0, 1 or 2) of a unit vector such as `i`, a bold j or a k with a hat; None
    otherwise.
    """
    if node.op not in {"sym", "const"}:
        return None
    decoration, _, letter = node.note.rpartition(" ")
    is_axis = letter in _AXES and (decoration in {"hat", "vec"} or letter in {"i", "j", "k"})
    return _AXES[letter] if is_axis else None
