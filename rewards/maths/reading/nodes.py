"""The parsed form of an answer: a small tree of immutable nodes.

One node type for all kinds keeps the walkers short. `op` is the kind of node, `args` are the
children, `value` is an exact number, and `note` is a name or the written form (the digits of a
decimal, a unit, the shape of a bracket).

    op         args              value / note
    num        -                 value: exact int or Fraction
    dec        -                 value: exact; note: the digits as written, so that rounding can
        be judged
    sym        -                 note: name
    const      -                 note: pi, e, i, inf
    add mul    terms, factors
    pow        base, exponent
    func       arguments         note: name (sin, log, sqrt is a pow, ...)
    call       arguments         note: name of a function (f, g) or of an operator of which
        nothing is known
    pm         (left,) right     note: "+-" or "-+"
    bracket    items             note: "()", "[]", "(]", "[)"
    set list   items             list note: "," "and" "or"
    such       element, condition
    union inter minus            set algebra
    rel        sides             note: the signs, space separated
    mod        expression, modulus
    given      expression, condition         note: the word between them
    percent degree               args[0]
    quantity   value             note: unit
    based      -                 note: digits; value: base
    ratio      items
    matrix     cells             value: columns; note: "()" or "||"
    cases      value, condition, value, condition ...
    text       -                 note: words, lower case
    opaque     -                 note: text that could not be read, as written
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import NamedTuple

Exact = int | Fraction


class Node(NamedTuple):
    """A node of a parsed answer; the fields are described at the top of this module."""

    op: str
    args: tuple[Node, ...] = ()
    value: Exact = 0
    note: str = ""


class Unreadable(ValueError):
    """The text is not a formula that the reader knows; a comparison as text remains possible."""


class TooBig(Unreadable):
    """Reading or computing would exceed a limit on the cost; the message names the limit."""


def magnitude(value: Exact) -> Exact:
    """Return the absolute value, as an int for an int."""
    return -value if value < 0 else value


def num(value: Exact) -> Node:
    """Return a node for an exact number."""
    return Node("num", (), value)


def sym(name: str) -> Node:
    """Return a node for a variable."""
    return Node("sym", (), 0, name)


def const(name: str) -> Node:
    """Return a node for a named constant."""
    return Node("const", (), 0, name)


def func(name: str, *args: Node) -> Node:
    """Return a node for a known function applied to arguments."""
    return Node("func", args, 0, name)


def text(words: str) -> Node:
    """Return a node for an answer in words."""
    return Node("text", (), 0, words)


def neg(node: Node) -> Node:
    """Return the negative of a node, folded into numbers and into what a unit or percent sign
    encloses.
    """
    if node.op == "num":
        return num(-node.value)
    if node.op == "dec":
        return Node("dec", (), -node.value, node.note)
    if node.op in {"quantity", "percent", "degree"}:
        return node._replace(args=(neg(node.args[0]),))
    return Node("mul", (MINUS_ONE, node))


def add(*terms: Node) -> Node:
    """Return a sum; a single term is returned as such."""
    return terms[0] if len(terms) == 1 else Node("add", terms)


def mul(*factors: Node) -> Node:
    """Return a product; a single factor is returned as such."""
    return factors[0] if len(factors) == 1 else Node("mul", factors)


def power(base: Node, exponent: Node) -> Node:
    """Return a node for a power."""
    return Node("pow", (base, exponent))


def over(top: Node, bottom: Node) -> Node:
    """Return a quotient, as the product with a reciprocal."""
    return Node("mul", (top, Node("pow", (bottom, MINUS_ONE))))


def walk(node: Node) -> Iterator[Node]:
    """Yield `node` and every node below, without recursion."""
    stack = [node]
    while stack:
        current = stack.pop()
        yield current
        stack.extend(current.args)


class TreeShape(NamedTuple):
    """A summary of a tree, gathered in a single pass."""

    ops: set[str]
    names: set[str]
    size: int
    imaginary: bool
    opaque: bool
    """Whether the tree contains calls of unknown functions, or sums written with dots."""


def shape(node: Node) -> TreeShape:
    """Return the kinds of nodes, the free variables and the size of a tree."""
    ops: set[str] = set()
    names: set[str] = set()
    size = 0
    imaginary = opaque = False
    stack = [node]
    while stack:
        op, args, _, note = stack.pop()
        size += 1
        ops.add(op)
        if args:
            stack.extend(args)
            opaque = opaque or op == "call" or note.startswith("series")
        elif op == "sym" and not note.startswith("bound "):
            names.add(note)
        elif op == "const":
            imaginary = imaginary or note == "i"
    return TreeShape(ops, names, size, imaginary, opaque)


def symbols(node: Node) -> set[str]:
    """Return the names of the free variables in `node`."""
    names: set[str] = set()
    stack = [node] if node.args or node.op == "sym" else []
    while stack:
        op, args, _, note = stack.pop()
        if args:
            stack.extend(args)
        elif op == "sym" and not note.startswith("bound "):
            names.add(note)
    return names


def has(node: Node, *ops: str) -> bool:
    """Return whether `node` or any node below has any of these ops."""
    if not node.args:
        return node.op in ops
    stack = [node]
    while stack:
        op, args, _, _ = stack.pop()
        if op in ops:
            return True
        if args:
            stack.extend(args)
    return False


def rename(node: Node, names: dict[str, str]) -> Node:
    """Return `node` with variables renamed."""
    if node.op == "sym":
        return sym(names[node.note]) if node.note in names else node
    if not node.args:
        return node
    return node._replace(args=tuple(rename(arg, names) for arg in node.args))


def replaced(node: Node, old: Node, new: Node) -> Node:
    """Return `node` with every occurrence of `old` replaced by `new`."""
    if node == old:
        return new
    return node._replace(args=tuple(replaced(arg, old, new) for arg in node.args))


MINUS_ONE = num(-1)
HALF = num(Fraction(1, 2))
INFINITY = const("inf")
"""Plus infinity; minus infinity is its negation."""

EXACT = frozenset({"num", "dec"})
"""Kinds of nodes that are a single exact number."""
SETS = frozenset({"set", "such", "union", "inter", "minus", "bracket"})
"""Kinds of nodes that are sets, or, as an interval in brackets, may be one."""
SCALAR_OPS = frozenset({"num", "dec", "sym", "const", "add", "mul", "pow", "func", "call"})


def is_scalar(node: Node) -> bool:
    """Return whether `node` is a single number or formula (not a set, a relation, words ...)."""
    return node.op in SCALAR_OPS and all(map(is_scalar, node.args))
