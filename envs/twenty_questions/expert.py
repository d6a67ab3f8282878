"""Asks so that every answer leaves few enough things for the questions that are left."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from .things import PROPERTIES, Thing


def ask(candidates: Sequence[Thing], left: int) -> str:
    """The next question.

    Args:
        candidates: what it can still be.
        left: questions left, this one included.

    Asks about the property that splits the candidates most evenly, unless the larger part would be
    too many for the questions left; then about half of the candidates by name, which always works
    where anything does.
    """
    if len(candidates) <= 1 or left <= 1:
        return f"Is it the {candidates[0].name}?"
    larger, values = min(_splits(candidates))
    if larger < len(candidates) and larger <= 2 ** max(left - 2, 0):
        return f"Is it {' or '.join(values)}?"
    half = [thing.name for thing in candidates[: len(candidates) // 2]]
    return f"Is it the {' or the '.join(half)}?"


def _splits(candidates: Sequence[Thing]) -> list[tuple[int, tuple[str, ...]]]:
    """For each set of values of one property, the size of the larger part it leaves."""
    found: list[tuple[int, tuple[str, ...]]] = []
    for name, values in PROPERTIES.items():
        for count in (1, 2, 3):
            for chosen in combinations(values, count):
                true = sum(thing.values[name] in chosen for thing in candidates)
                found.append((max(true, len(candidates) - true), chosen))
    return found
