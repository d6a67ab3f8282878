"""Conditions in words after a value: `for all x > 0`, `if n is even`."""

from __future__ import annotations

from . import nodes
from .nodes import Node, TooBig, Unreadable
from .powers import MOD
from .pratt import Parser
from .vocabulary import QUALIFIERS, words

_SPLITTING = frozenset({"if", "otherwise", "whenever", "when", "unless"})
"""Words before a condition that leave room for another value in the other cases."""
_QUANTIFIERS = words("all every any each real some that integer integers")


def given(parser: Parser, node: Node) -> Node | None:
    """Read a condition after a value: `2x for all x > 0`.

    A condition that cannot be parsed is kept as words, unless that could hide another value.
    """
    if parser.here.value not in QUALIFIERS:
        return None
    qualifier = parser.take().value
    while parser.here.kind == "word" and parser.here.value in _QUANTIFIERS:
        parser.take()
    start = parser.position
    try:
        condition = parser.inside(MOD - 1)
    except TooBig:
        raise
    except Unreadable:
        parser.position = start
        if qualifier in _SPLITTING or any(token.kind == "num" for token in parser.rest()):
            raise Unreadable("it depends on a condition in words") from None
        condition = nodes.text(" ".join(token.value or token.kind for token in parser.rest()))
        parser.position = len(parser.tokens) - 1
    return Node("given", (node, condition), 0, qualifier)
