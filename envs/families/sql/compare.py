"""Compares two query results: as multisets of rows, or in order.

Columns count by position, not by name. Numbers are equal up to rounding, whatever their type; text
is compared as it is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from .databases import Row, Value

TOLERANCE = 1e-9
"""The relative tolerance, and the absolute tolerance around zero. Sums of the same numbers in
another order differ by less.
"""


def same_table(first: Sequence[Row], second: Sequence[Row], *, ordered: bool) -> bool:
    """Return whether two results have equal rows.

    >>> same_table([[1], ["a"]], [["a"], [1.0]], ordered=False)
    True
    """
    if len(first) != len(second):
        return False
    left, right = (
        (first, second) if ordered else (sorted(first, key=_key), sorted(second, key=_key))
    )
    return all(
        len(first_row) == len(second_row) and all(map(_same_value, first_row, second_row))
        for first_row, second_row in zip(left, right, strict=True)
    )


def _same_value(first: Value, second: Value) -> bool:
    if isinstance(first, (int, float)) and isinstance(second, (int, float)):
        if isinstance(first, int) and isinstance(second, int):
            return first == second
        return math.isclose(first, second, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    return type(first) is type(second) and first == second


def _key(row: Row) -> list[tuple[int, float, str]]:
    """Return a sort key that brings equal rows of two results to the same place.

    Numbers are rounded to ten digits for it. Sums of the same numbers in another order differ in
    later digits, which must not decide the order.
    """
    return [_value_key(value) for value in row]


def _value_key(value: Value) -> tuple[int, float, str]:
    match value:
        case None:
            return (0, 0.0, "")
        case int() | float():
            return (1, float(f"{value:.9e}"), "")
        case str():
            return (2, 0.0, value)
