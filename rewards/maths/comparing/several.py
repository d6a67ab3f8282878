"""The values that one writing stands for: lists, sets, `x = 1, 2`, every choice of plus-minus."""

from __future__ import annotations

from ..reading.nodes import Node, add, has, neg, walk
from .definitions import is_name

MAX_SIGNS = 3


def elements(node: Node) -> list[Node]:
    """The values of a list, set or plus-minus; others stand alone."""
    named = node.op == "rel" and node.note == "=" and is_name(node.args[0])
    if named and has(node.args[1], "pm", "list", "set"):
        return elements(node.args[1])
    if node.op == "list" and node.note == ";":
        return list(node.args)
    if node.op in {"list", "set"}:
        items = _carry_name(node.args)
        return [v for item in items for v in ([item] if item.op == "set" else elements(item))]
    if has(node, "pm"):
        return _expanded(node)
    return [node]


def _carry_name(items: tuple[Node, ...]) -> tuple[Node, ...]:
    """`x = 1, 2`: the name belongs to all that follow without one."""
    if (
        items
        and items[0].op == "rel"
        and items[0].note == "="
        and is_name(items[0].args[0])
        and not any(item.op == "rel" for item in items[1:])
    ):
        return (items[0].args[-1], *items[1:])
    return items


def _expanded(node: Node) -> list[Node]:
    """Every choice of signs; `-+` goes against the nearest `+-` before it. At most MAX_SIGNS of
    them.
    """
    if not any(part.op == "pm" and part.note == "+-" for part in walk(node)):
        return [_signed(node, [sign]) for sign in (-1, 1)]
    count = sum(part.op == "pm" and part.note == "+-" for part in walk(node))
    choices = [
        [(1 if bits >> place & 1 else -1) for place in range(count)] for bits in range(2**count)
    ]
    return [_signed(node, choice) for choice in choices]


def signs(node: Node) -> int:
    """How many plus-minus signs are in `node`."""
    return sum(part.op == "pm" for part in walk(node))


def _signed(node: Node, choice: list[int]) -> Node:
    remaining = list(choice)
    last = [choice[0]]

    def choose(part: Node) -> Node:
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
