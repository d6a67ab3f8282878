"""Draws random databases of a theme.

The databases are small, with ties, empty values and rows without any link, so that a query that
happens to be right on one database is wrong on another.
"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Generator
from contextlib import closing, contextmanager

import msgspec

from .themes import LABELS, TableKind, Theme

Value = None | int | float | str
Row = list[Value]
NO_NUMBER = 0.12
"""The probability that the number of a row is NULL."""


class Database(msgspec.Struct, frozen=True, kw_only=True):
    """A database's tables as plain data."""

    schema: list[str]
    """A CREATE TABLE statement per table."""
    rows: dict[str, list[Row]]
    """The rows of each table, by table name, with every column in order."""


def schema_of(theme: Theme) -> list[str]:
    """Return the CREATE TABLE statements of a theme."""
    return [
        *(
            f"CREATE TABLE {kind.table} (\n  id INTEGER PRIMARY KEY,\n  {kind.label} TEXT NOT NULL "
            f"UNIQUE,\n  {kind.category} TEXT NOT NULL,\n  {kind.number} INTEGER\n)"
            for kind in (theme.left, theme.right)
        ),
        f"CREATE TABLE {theme.links} (\n  id INTEGER PRIMARY KEY,\n"
        f"  {theme.left_id} INTEGER NOT NULL REFERENCES {theme.left.table}(id),\n"
        f"  {theme.right_id} INTEGER NOT NULL REFERENCES {theme.right.table}(id),\n"
        f"  {theme.number} INTEGER NOT NULL\n)",
    ]


def draw_database(theme: Theme, rng: random.Random) -> Database:
    """Draw a database: 3 to 12 rows of each kind, up to 30 links, and sometimes none."""
    left, right = _draw_rows(theme.left, rng), _draw_rows(theme.right, rng)
    links = rng.choice((0, rng.randint(1, 8), rng.randint(8, 30), rng.randint(8, 30)))
    limits = [theme.low, theme.high, rng.randint(theme.low, theme.high)]
    rows = {
        theme.left.table: left,
        theme.right.table: right,
        theme.links: [
            [number + 1, rng.choice(left)[0], rng.choice(right)[0],
             rng.choice(limits) if rng.random() < 0.4 else rng.randint(theme.low, theme.high)]
            for number in range(links)
        ],
    }  # fmt: skip
    return Database(schema=schema_of(theme), rows=rows)


def _draw_rows(kind: TableKind, rng: random.Random) -> list[Row]:
    count = rng.randint(3, 12)
    labels = rng.sample(LABELS, count)
    # Few values make ties; drawing them anew for each database makes averages differ.
    values = rng.sample(kind.values, rng.randint(2, len(kind.values)))
    numbers = [rng.randint(kind.low, kind.high) for _ in range(max(2, count * 2 // 3))]
    return [
        [
            index + 1,
            label,
            rng.choice(values),
            None if rng.random() < NO_NUMBER else rng.choice(numbers),
        ]
        for index, label in enumerate(labels)
    ]


def fill(connection: sqlite3.Connection, database: Database) -> None:
    """Create the tables of `database` on `connection` and insert the rows."""
    for statement in database.schema:
        connection.execute(statement)
    for table, rows in database.rows.items():
        if rows:
            places = ",".join("?" * len(rows[0]))
            connection.executemany(f"INSERT INTO {table} VALUES ({places})", rows)


@contextmanager
def opened(database: Database) -> Generator[sqlite3.Connection]:
    """Open `database` in memory, for queries of ours."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        fill(connection, database)
        yield connection


def run_trusted(database: Database, sql: str) -> list[Row]:
    """Run a query of ours, and never a query that a policy wrote."""
    with opened(database) as connection:
        return [list(row) for row in connection.execute(sql).fetchall()]
