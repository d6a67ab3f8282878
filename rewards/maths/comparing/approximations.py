r"""Golds with an approximation: `2\pi \approx 6.28` accepts either the exact or the rounded
side.
"""

from __future__ import annotations

from ..proving.probe import approximate
from ..reading.nodes import Node, is_scalar
from .definitions import is_one_name

_SIGNS = frozenset({"=", "~="})
_CLOSE = 0.02
"""The largest relative distance at which the rounded side still counts as an approximation of the
exact side.
"""


def readings(gold: Node) -> tuple[Node | None, Node | None]:
    r"""Return (exact reading, rounded reading) of a gold.

    The rounded reading is None for a gold without an approximation; the exact reading is None
    for a gold that gives nothing but a name and a rounded value (`x \approx 3.14`).
    """
    if gold.op != "rel" or "~=" not in gold.note.split() or not set(gold.note.split()) <= _SIGNS:
        return gold, None
    # The note has a sign after each argument but the last; the first `~=` ends the exact side.
    place = gold.note.split().index("~=") + 1
    heads, rounded = gold.args[:place], written(gold.args[-1])
    if rounded is None or not is_scalar(heads[-1]):
        return gold, None
    is_named = is_one_name(heads[0])
    if is_named and place == 1:
        return None, _with_name(heads, rounded)
    exact, value = approximate(heads[-1]), float(rounded.value)
    if exact is None or abs(exact - value) > _CLOSE * max(abs(exact), abs(value)):
        return gold, None
    values = heads[1:] if is_named else heads
    name = heads[:1] if is_named else ()
    return _with_name(name, values[-1]), _with_name(name, rounded)


def _with_name(name: tuple[Node, ...], value: Node) -> Node:
    return Node("rel", (*name, value), 0, "=") if name else value


def written(node: Node) -> Node | None:
    """Return a number as a decimal in the written digits, which decide how far an answer may
    round; None for anything else.
    """
    if node.op == "dec":
        return node
    if node.op == "num" and isinstance(node.value, int):
        return Node("dec", (), node.value, str(node.value))
    return None
