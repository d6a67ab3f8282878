"""Chooses the databases that a query is judged on: few that expose each mistake, and random others.

After "Semantic Evaluation for Text-to-SQL with Distilled Test Suites" (Zhong, Yu and Klein, arXiv
2010.02840): a wrong query is often right by accident on one database, but hardly ever on several
chosen ones.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from .compare import same_table
from .databases import Database, Row, draw_database, opened
from .queries import SqlQuestion
from .themes import Theme

MAX_CANDIDATES = 150
"""The most databases that are drawn in the search for one that exposes a mistake. A query that none
exposes does not count as a mistake.
"""
_NOTHING = "SELECT NULL WHERE 0"


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
    alive = [*question.mistakes, _NOTHING]
    must_vary = True
    databases: list[tuple[Database, list[Row]]] = []
    spare: list[tuple[Database, list[Row]]] = []
    for _ in range(MAX_CANDIDATES):
        if not alive and not must_vary and len(databases) + len(spare) >= size:
            break
        database = draw_database(theme, rng)
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
