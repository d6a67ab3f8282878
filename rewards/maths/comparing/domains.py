r"""Exclusions that say nothing: `\frac{3x+1}{x-2}, x \ne 2` leaves out a point where the formula is
not defined anyway.
"""

from __future__ import annotations

from ..proving.canonical import normal
from ..proving.sums import Meter
from ..reading.nodes import Node, TooBig, replaced, walk


def without_exclusions(gold: Node, answer: Node) -> Node:
    """Return an answer without the points that it excludes, if its formula is undefined at each of
    them and the gold excludes none; else the answer as it is.
    """
    if answer.op not in {"list", "given"} or any(map(_is_exclusion, walk(gold))):
        return answer
    said = [part for arg in answer.args for part in (arg.args if arg.op == "list" else (arg,))]
    excluded = [part for part in said if _is_exclusion(part)]
    values = [part for part in said if not _is_exclusion(part)]
    if not excluded or len(values) != 1:
        return answer
    value = values[0].args[-1] if values[0].op == "rel" and values[0].note == "=" else values[0]
    return values[0] if all(_is_undefined(value, *point.args) for point in excluded) else answer


def _is_exclusion(node: Node) -> bool:
    return node.op == "rel" and node.note == "!=" and node.args[0].op == "sym"


def _is_undefined(value: Node, letter: Node, place: Node) -> bool:
    """Return whether a denominator of a formula vanishes where a letter has a value."""
    for part in walk(value):
        if part.op != "pow" or part.args[1].op != "num" or part.args[1].value >= 0:
            continue
        try:
            if not normal(replaced(part.args[0], letter, place), Meter()):
                return True
        except (TooBig, ZeroDivisionError, OverflowError):
            continue
    return False
