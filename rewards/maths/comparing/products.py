"""Marks products in which the order of the factors counts, because they are matrices or other
letters that do not commute.

A letter is a number unless the text suggests otherwise: an inverse or a transpose next to
another capital, bold capitals, or two capitals in both orders (`MN - NM`).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from ..reading import nodes
from ..reading.nodes import Node, mul, num, walk

_TRANSPOSES = frozenset({"T", "t", "top", "dagger", "\\dagger", "H", "\\intercal"})
PRODUCT = "product"
"""The name of the call that stands for a product in order."""


def in_order(gold: Node, answer: Node, names: set[str]) -> tuple[Node, Node]:
    """Return both formulas with non-commuting products turned into calls, whose arguments keep
    their order.
    """
    capitals = {name for name in names if _is_capital(name)}
    if len(capitals) < 2 or not (_do_not_commute(gold) or _do_not_commute(answer)):
        return gold, answer
    return _ordered(gold, capitals), _ordered(answer, capitals)


def _is_capital(name: str) -> bool:
    letter = name.removeprefix("bold ").partition("_")[0]
    return len(letter) == 1 and letter.isupper()


def _do_not_commute(node: Node) -> bool:
    """Return whether a formula suggests that its letters are no numbers."""
    pairs = set[tuple[str, str]]()
    for part in walk(node):
        if part.op == "pow" and (part.note == "inverse" or _is_transpose(part)):
            return True
        if part.op == "mul":
            letters = [factor.note for factor in factors(part) if factor.op == "sym"]
            letters = [letter for letter in letters if _is_capital(letter)]
            # Two neighbours in both orders (`MN - NM`) would cancel if they commuted.
            pairs |= set(pairwise(letters))
    return any(first != second and (second, first) in pairs for first, second in pairs)


def _is_transpose(node: Node) -> bool:
    base, exponent = node.args
    may_be_matrix = base.op == "mul" or (base.op == "sym" and _is_capital(base.note))
    return may_be_matrix and exponent.op == "sym" and exponent.note in _TRANSPOSES


def factors(node: Node) -> Iterator[Node]:
    """Yield the factors of a product, with nested products flattened."""
    for factor in node.args:
        if factor.op == "mul":
            yield from factors(factor)
        else:
            yield factor


def _ordered(node: Node, capitals: set[str]) -> Node:
    """Return a formula in which the factors with a capital form a call, in each product.

    The proofs reorder factors but not the arguments of a call. Factors without a capital commute,
    and stand before the call.
    """
    if not node.args:
        return node
    # An inverse or a transpose reverses the order of the factors: (AB)^-1 is B^-1 A^-1.
    reverses = node.op == "pow" and (_is_transpose(node) or node.args[1] == num(-1))
    if reverses and node.args[0].op == "mul":
        powers = [node._replace(args=(factor, node.args[1])) for factor in factors(node.args[0])]
        return _ordered(mul(*reversed(powers)), capitals)
    if node.op != "mul":
        return node._replace(args=tuple(_ordered(arg, capitals) for arg in node.args))
    commuting: list[Node] = []
    in_sequence: list[Node] = []
    for factor in factors(node):
        if nodes.symbols(factor) & capitals:
            in_sequence.append(_ordered(factor, capitals))
        else:
            commuting.append(factor)
    if len(in_sequence) > 1:
        in_sequence = [Node("call", tuple(in_sequence), 0, PRODUCT)]
    return mul(*commuting, *in_sequence)
