"""Notations that stand for several values: lists, sets, `x = 1, 2`, and plus-minus signs."""

from __future__ import annotations

from itertools import product

from ..reading.nodes import Node, add, has, neg, walk
from .definitions import is_name

MAX_SIGNS = 3


def is_plural(node: Node) -> bool:
    """Return whether `node` stands for several values: a list, a set, or any plus-minus sign."""
    return node.op in {"set", "list", "such"} or has(node, "pm")


def operands(node: Node) -> list[Node]:
    """Return the operands of a symmetric operator, flattened: `(a cup b) cup c` gives a, b, c."""
    kind = (node.op, node.note)
    parts = [operands(arg) if (arg.op, arg.note) == kind else [arg] for arg in node.args]
    return [part for node_parts in parts for part in node_parts]


def elements(node: Node) -> list[Node]:
    """Return the values of a list, a set or a plus-minus expression; any other node is its only
    value.
    """
    is_assignment = node.op == "rel" and node.note == "=" and is_name(node.args[0])
    if is_assignment and has(node.args[1], "pm", "list", "set"):
        return elements(node.args[1])
    if node.op == "list" and node.note == ";":
        return list(node.args)
    if node.op in {"list", "set"}:
        items = node.args
        names_first = bool(items) and items[0].op == "rel" and items[0].note == "="
        alone = not any(item.op == "rel" for item in items[1:])
        if names_first and alone and is_name(items[0].args[0]):
            # The name in `x = 1, 2` belongs to every value that follows without a name.
            items = (items[0].args[-1], *items[1:])
        return [v for item in items for v in ([item] if item.op == "set" else elements(item))]
    if node.op == "rel" and node.note == "in" and node.args[1].op == "set":
        return elements(node.args[1])  # `r \in \{-4, 4\}`
    if has(node, "pm"):
        # A node for every choice of signs; `-+` takes the opposite sign of the nearest `+-` before.
        # Callers check `signs(node) <= MAX_SIGNS` first, since n signs make 2^n nodes.
        if not any(part.op == "pm" and part.note == "+-" for part in walk(node)):
            return [_signed(node, [sign]) for sign in (-1, 1)]
        count = sum(part.op == "pm" and part.note == "+-" for part in walk(node))
        return [_signed(node, [*choice[::-1]]) for choice in product((-1, 1), repeat=count)]
    return [node]


def signs(node: Node) -> int:
    """Return how many plus-minus signs `node` contains."""
    return sum(part.op == "pm" for part in walk(node))


def _signed(node: Node, choice: list[int]) -> Node:
    """Return a formula with a sign (1 or -1) from `choice` for each `+-`, in reading order."""
    remaining = list(choice)
    last = [choice[0]]

    def choose(part: Node) -> Node:
        # The left operand comes first, so that `last` is the sign of the nearest `+-` before.
        args = tuple(choose(arg) for arg in part.args[:-1])
        if part.op != "pm":
            return part._replace(args=(*args, choose(part.args[-1]))) if part.args else part
        if part.note == "+-":
            sign = last[0] = remaining.pop(0)
        else:
            sign = -last[0]
        right = choose(part.args[-1])
        return add(*args, right if sign > 0 else neg(right))

    return choose(node)
