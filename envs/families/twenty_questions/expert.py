"""An expert whose questions leave few enough things for the remaining questions."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from .things import PROPERTIES, Thing


def ask(candidates: Sequence[Thing], questions_left: int) -> str:
    """Return the expert's next question.

    The expert asks about the property that splits the candidates most evenly, unless the larger
    part would be too many for the remaining questions; then about half of the candidates by name,
    which always works where anything does.

    Args:
        candidates: the things that are still possible.
        questions_left: the number of remaining questions, this question included.
    """
    if len(candidates) <= 1 or questions_left <= 1:
        return f"Is it the {candidates[0].name}?"
    larger, values = min(_splits(candidates))
    if larger < len(candidates) and larger <= 2 ** max(questions_left - 2, 0):
        return f"Is it {' or '.join(values)}?"
    half = [thing.name for thing in candidates[: len(candidates) // 2]]
    return f"Is it the {' or the '.join(half)}?"


def _splits(candidates: Sequence[Thing]) -> list[tuple[int, tuple[str, ...]]]:
    """Return, for each choice of values of a property, the size of the larger part."""
    splits: list[tuple[int, tuple[str, ...]]] = []
    for name, values in PROPERTIES.items():
        for count in (1, 2, 3):
            for subset in combinations(values, count):
                true = sum(thing.values[name] in subset for thing in candidates)
                splits.append((max(true, len(candidates) - true), subset))
    return splits
