"""Compares two query results: as multisets of rows, or in order.

Columns count by position, not by name. Numbers are equal up to rounding, whatever their type; text
is compared as it is.

After "Semantic Evaluation for Text-to-SQL with Distilled Test Suites" (Zhong, Yu and Klein, arXiv
2010.02840): a wrong query is often right by accident on one database, but hardly ever on several
chosen ones.
"""

from __future__ import annotations

import math
import random
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from .queries import Database, Row, SqlQuestion, Theme, Value, draw_database, opened

TOLERANCE = 1e-9
"""The relative tolerance, and the absolute tolerance around zero. Sums of the same numbers in
another order differ by less.
"""
MAX_COMPARISONS = 1_000_000
"""How many pairs of rows are compared to match two unordered results, about half a second. Results
need few more pairs than rows unless many numbers differ by about the tolerance.
"""


def same_table(first: Sequence[Row], second: Sequence[Row], *, ordered: bool) -> bool:
    """Return whether two results have equal rows.

    Unordered results are equal if their rows can be paired off, each with an equal row. Results
    that need more than `MAX_COMPARISONS` count as different.

    >>> same_table([[1], ["a"]], [["a"], [1.0]], ordered=False)
    True
    """
    if len(first) != len(second):
        return False
    if ordered:
        return all(map(_same_row, first, second))
    # Equal rows fall into the same group, so that only rows of a group are paired.
    steps = _steps([*first, *second])
    groups: defaultdict[object, tuple[list[Row], list[Row]]] = defaultdict(lambda: ([], []))
    for side, rows in enumerate((first, second)):
        for row in rows:
            key = tuple(steps[v] if isinstance(v, (int, float)) else v for v in row)
            groups[key][side].append(row)
    if any(len(left) != len(right) for left, right in groups.values()):
        return False
    allowance = MAX_COMPARISONS
    for left, right in groups.values():
        pairing = _Pairing(left, right, allowance)
        if not pairing.complete():
            return False
        allowance = pairing.allowance
    return True


def _same_row(first: Row, second: Row) -> bool:
    return len(first) == len(second) and all(map(_same_value, first, second))


def _same_value(first: Value, second: Value) -> bool:
    if isinstance(first, (int, float)) and isinstance(second, (int, float)):
        if isinstance(first, int) and isinstance(second, int):
            return first == second
        return _close(first, second)
    return type(first) is type(second) and first == second


def _close(first: float, second: float) -> bool:
    return math.isclose(first, second, rel_tol=TOLERANCE, abs_tol=TOLERANCE)


def _steps(rows: Sequence[Row]) -> dict[float, int]:
    """Number the numbers of all rows by size, with a new number behind each gap that is wider than
    the tolerance.

    Equal numbers lie on the same step. Numbers on the same step may differ: a chain of small gaps
    can be longer than the tolerance.
    """
    numbers = sorted({v for row in rows for v in row if isinstance(v, (int, float))})
    steps: dict[float, int] = {}
    step = 0
    for place, number in enumerate(numbers):
        if place and not _close(numbers[place - 1], number):
            step += 1
        steps[number] = step
    return steps


class _Pairing:
    """Pairs each row of `left` with an equal row of `right`, within an allowance of comparisons."""

    def __init__(self, left: list[Row], right: list[Row], allowance: int) -> None:
        # In order of size most rows already stand opposite an equal row.
        self.left, self.right = sorted(left, key=_numbers), sorted(right, key=_numbers)
        self.allowance = allowance
        self.partner = [
            place if self._same(place, place) else None for place in range(len(self.right))
        ]
        """For each row of `right`, the place of its partner in `left`."""

    def complete(self) -> bool:
        """Pair the rows without a partner; return whether every row has a partner."""
        free = [place for place, partner in enumerate(self.partner) if partner is None]
        return all(map(self._place, free))

    def _place(self, start: int) -> bool:
        """Find a partner for a row of `left`; rows already paired may change partners.

        Where this finds none, no complete pairing exists (a theorem of Berge).
        """
        reached_from: dict[int, int] = {}  # a row of `right`: the row of `left` that equals it
        gives_up: dict[int, int] = {}  # a row of `left`: the partner that it would give up
        queue = [start]
        for place in queue:
            for other in range(len(self.right)):
                if other in reached_from or not self._same(place, other):
                    continue
                reached_from[other] = place
                partner = self.partner[other]
                if partner is not None:
                    gives_up[partner] = other
                    queue.append(partner)
                    continue
                while True:
                    taker = reached_from[other]
                    self.partner[other] = taker
                    if taker == start:
                        return True
                    other = gives_up[taker]
        return False

    def _same(self, place: int, other: int) -> bool:
        self.allowance -= 1
        return self.allowance >= 0 and _same_row(self.left[place], self.right[other])


def _numbers(row: Row) -> list[float]:
    return [value for value in row if isinstance(value, (int, float))]


MAX_CANDIDATES = 400
"""The most databases that are drawn in the search for one that exposes a mistake. A query that none
exposes does not count as a mistake.
"""
_NOTHING = "SELECT NULL WHERE 0"
_NUMBER = re.compile(r"\b\d+\b")


@dataclass(frozen=True, slots=True)
class Suite:
    """Databases, with the rows that the right query gives on each."""

    question: SqlQuestion
    databases: tuple[Database, ...]
    expected: tuple[list[Row], ...]
    survivors: tuple[str, ...]
    """Mistakes that none of the drawn databases has exposed."""

    def passes(self, results: list[list[Row]]) -> bool:
        """Return whether a query's results are right on all databases."""
        return len(results) == len(self.expected) and all(
            same_table(table, expected_table, ordered=self.question.ordered)
            for table, expected_table in zip(results, self.expected, strict=True)
        )


def near_misses(sql: str) -> list[str]:
    """Return a query with each of its numbers one smaller, and one larger.

    >>> near_misses("SELECT a FROM b WHERE c >= 3")
    ['SELECT a FROM b WHERE c >= 2', 'SELECT a FROM b WHERE c >= 4']
    """
    return [
        f"{sql[: number.start()]}{int(number[0]) + off}{sql[number.end() :]}"
        for number in _NUMBER.finditer(sql)
        for off in (-1, 1)
    ]


def build_suite(
    theme: Theme, question: SqlQuestion, rng: random.Random, *, size: int, shown: Database
) -> Suite:
    """Choose `size` databases, or more where exposing the mistakes takes more.

    Args:
        theme: the theme of the databases.
        question: the question to be judged.
        rng: draws candidates.
        size: the fewest databases.
        shown: the database that the policy may query; an answer that only copies rows from there
            has to fail.
    """
    constant = _run(shown, question.sql)[0] or []
    alive = [*question.mistakes, *near_misses(question.sql), _NOTHING]
    near = [
        limit
        for number in map(int, _NUMBER.findall(question.sql))
        for near_number in (number - 1, number, number + 1)
        for limit in (near_number, near_number // 2)  # two halves make a total
    ]
    must_vary = True
    databases: list[tuple[Database, list[Row]]] = []
    spare: list[tuple[Database, list[Row]]] = []
    for _ in range(MAX_CANDIDATES):
        if not alive and not must_vary and len(databases) + len(spare) >= size:
            break
        database = draw_database(theme, rng, near)
        expected, *results = _run(database, question.sql, *alive)
        assert expected is not None  # a query of ours runs
        killed = [
            mistake
            for mistake, rows in zip(alive, results, strict=True)
            if rows is None or not same_table(rows, expected, ordered=question.ordered)
        ]
        varies = must_vary and not same_table(constant, expected, ordered=False)
        alive = [mistake for mistake in alive if mistake not in killed]
        must_vary = must_vary and not varies
        (databases if killed or varies else spare).append((database, expected))
    kept_databases = [*databases, *spare[: max(0, size - len(databases))]]
    return Suite(
        question,
        tuple(kept_database for kept_database, _ in kept_databases),
        tuple(rows for _, rows in kept_databases),
        tuple(alive),
    )


def _run(database: Database, *queries: str) -> list[list[Row] | None]:
    with opened(database) as connection:
        return [[list(row) for row in connection.execute(sql)] for sql in queries]
