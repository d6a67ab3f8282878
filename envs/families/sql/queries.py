"""Draws databases, and questions about them with the right query and mistaken ones.

A database has a theme: two kinds of things, such as customers and products, and a table of links
from one to the other, such as orders.

The databases are small, with ties, empty values and rows without any link, so that a query that
happens to be right on one database is wrong on another.

A mistake is a query that somebody who misread the question would write: the databases a task is
judged on are chosen so that each mistake gives wrong rows.
"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass

import msgspec


@dataclass(frozen=True, slots=True)
class TableKind:
    """A table of things with a unique label, a category and a number."""

    table: str
    one: str
    """The singular noun, for questions."""
    many: str
    label: str
    """The column with the unique name of a thing."""
    category: str
    values: tuple[str, ...]
    number: str
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Theme:
    """A theme: two kinds of things and the links from left to right."""

    left: TableKind
    right: TableKind
    links: str
    """The name of the table of links."""
    link: str
    """The singular noun for a link, for questions."""
    verb: str
    """What a left thing has done to a right thing: `ordered`."""
    number: str
    """The column with the number of a link."""
    low: int
    high: int

    @property
    def left_id(self) -> str:
        """The column in which a link refers to the left thing."""
        return f"{self.left.one.replace(' ', '_')}_id"

    @property
    def right_id(self) -> str:
        """The column in which a link refers to the right thing."""
        return f"{self.right.one.replace(' ', '_')}_id"


_TOWNS = ("Avel", "Bryn", "Corl", "Dunmar", "Esk", "Falden")

THEMES: tuple[Theme, ...] = (
    Theme(
        TableKind("customers", "customer", "customers", "name", "town", _TOWNS, "age", 18, 80),
        TableKind("products", "product", "products", "title", "category",
             ("garden", "kitchen", "office", "sport", "toys"), "price", 5, 60),
        "orders", "order", "ordered", "quantity", 1, 9,
    ),
    Theme(
        TableKind("students", "student", "students", "name", "house",
             ("Ash", "Birch", "Cedar", "Elm", "Oak"), "height", 150, 195),
        TableKind("courses", "course", "courses", "title", "faculty",
             ("arts", "law", "medicine", "music", "physics"), "credits", 2, 12),
        "enrolments", "enrolment", "enrolled in", "score", 0, 20,
    ),
    Theme(
        TableKind("members", "member", "members", "name", "town", _TOWNS, "visits", 0, 30),
        TableKind("books", "book", "books", "title", "genre",
             ("crime", "essays", "history", "poetry", "travel"), "pages", 80, 400),
        "loans", "loan", "borrowed", "days", 1, 28,
    ),
    Theme(
        TableKind("pilots", "pilot", "pilots", "name", "base", _TOWNS, "experience", 0, 25),
        TableKind("aircraft", "aircraft", "aircraft", "tail", "maker",
             ("Arrow", "Comet", "Finch", "Heron", "Swift"), "seats", 2, 40),
        "flights", "flight", "flown", "hours", 1, 12,
    ),
    Theme(
        TableKind("doctors", "doctor", "doctors", "name", "ward",
             ("east", "north", "south", "west", "annex"), "salary", 40, 90),
        TableKind("patients", "patient", "patients", "name", "town", _TOWNS, "age", 1, 95),
        "visits", "visit", "visited", "minutes", 5, 60,
    ),
    Theme(
        TableKind("restorers", "restorer", "restorers", "name", "studio",
             ("attic", "cellar", "gallery", "loft"), "rate", 20, 60),
        TableKind("paintings", "painting", "paintings", "title", "style",
             ("abstract", "baroque", "cubist", "naive", "realist"), "width", 20, 200),
        "restorations", "restoration", "restored", "cost", 100, 500,
    ),
    Theme(
        TableKind("growers", "grower", "growers", "name", "valley",
             ("amber", "green", "long", "stone", "wide"), "fields", 1, 20),
        TableKind("crops", "crop", "crops", "title", "season",
             ("autumn", "spring", "summer", "winter"), "weeks", 4, 40),
        "harvests", "harvest", "harvested", "tonnes", 1, 30,
    ),
    Theme(
        TableKind("players", "player", "players", "name", "country",
             ("Andra", "Belor", "Cerin", "Dovar", "Estia"), "rating", 50, 99),
        TableKind("clubs", "club", "clubs", "title", "league",
             ("first", "second", "third", "youth"), "founded", 1880, 1960),
        "contracts", "contract", "signed for", "seasons", 1, 6,
    ),
)  # fmt: skip

LABELS = (
    *("Ada", "Bo", "Cai", "Dov", "Eli", "Fay", "Gus", "Hal", "Ines", "Jun", "Kit", "Lea", "Mo"),
    *("Nia", "Ove", "Pia", "Quin", "Rae", "Sol", "Tam", "Uma", "Vik", "Wyn", "Xen", "Yara", "Zoe"),
)
"""Names of things, of either kind; the wording of a question never uses them."""


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


def draw_database(theme: Theme, rng: random.Random, near: Sequence[int] = ()) -> Database:
    """Draw a database: 3 to 12 rows of each kind, up to 30 links, and sometimes none.

    Args:
        theme: the tables.
        rng: draws the rows.
        near: numbers that many rows shall have, where their column may hold them.
    """
    left, right = _draw_rows(theme.left, rng, near), _draw_rows(theme.right, rng, near)
    links = rng.choice((0, rng.randint(1, 8), rng.randint(8, 30), rng.randint(8, 30)))
    limits = [theme.low, theme.high, rng.randint(theme.low, theme.high)]
    limits += [number for number in near if theme.low <= number <= theme.high]
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


def _draw_rows(kind: TableKind, rng: random.Random, near: Sequence[int]) -> list[Row]:
    count = rng.randint(3, 12)
    labels = rng.sample(LABELS, count)
    # Few values make ties; drawing them anew for each database makes averages differ.
    values = rng.sample(kind.values, rng.randint(2, len(kind.values)))
    numbers = [rng.randint(kind.low, kind.high) for _ in range(max(2, count * 2 // 3))]
    numbers += [number for number in near if kind.low <= number <= kind.high]
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


@dataclass(frozen=True, slots=True)
class SqlQuestion:
    """A question, the right query, and mistakes."""

    text: str
    sql: str
    mistakes: tuple[str, ...]
    ordered: bool = False
    """Whether the order of rows is part of the answer."""


Maker = Callable[[Theme, random.Random], SqlQuestion]
MAX_LEVEL = 4


def draw_question(theme: Theme, rng: random.Random, level: int) -> SqlQuestion:
    """Draw a question of a level: 1 is a single table, 2 groups and orders, 3 joins, 4 nests."""
    return rng.choice(MAKERS[level])(theme, rng)


def _either(theme: Theme, rng: random.Random) -> TableKind:
    return rng.choice((theme.left, theme.right))


def _articled(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


# --- level 1: one table ---


def _filter(theme: Theme, rng: random.Random) -> SqlQuestion:
    kind = _either(theme, rng)
    third = (kind.high - kind.low) // 3
    limit = rng.randint(kind.low + third, kind.high - third)
    sign, words, wrong = rng.choice(
        ((">", "more than", ">="), ("<", "less than", "<="), (">=", "at least", ">"))
    )
    select = f"SELECT {kind.label} FROM {kind.table}"
    return SqlQuestion(
        f"Give the {kind.label} of every {kind.one} whose {kind.number} is {words} {limit}.",
        f"{select} WHERE {kind.number} {sign} {limit}",
        (select, f"{select} WHERE {kind.number} {wrong} {limit}",
         f"{select} WHERE NOT {kind.number} {sign} {limit}"),
    )  # fmt: skip


def _count(theme: Theme, rng: random.Random) -> SqlQuestion:
    kind = _either(theme, rng)
    value = rng.choice(kind.values)
    from_where = f"FROM {kind.table} WHERE {kind.category} = '{value}'"
    return SqlQuestion(
        f"How many {kind.many} have the {kind.category} '{value}'?",
        f"SELECT COUNT(*) {from_where}",
        (f"SELECT COUNT(*) FROM {kind.table}", f"SELECT COUNT({kind.number}) {from_where}"),
    )


def _average(theme: Theme, rng: random.Random) -> SqlQuestion:
    kind = _either(theme, rng)
    value, number = rng.choice(kind.values), kind.number
    from_where = f"FROM {kind.table} WHERE {kind.category} = '{value}'"
    return SqlQuestion(
        f"What is the average {number} of the {kind.many} with the {kind.category} '{value}', "
        "leaving out those that have none?",
        f"SELECT AVG({number}) {from_where}",
        (f"SELECT AVG({number}) FROM {kind.table}", f"SELECT SUM({number}) / COUNT(*) {from_where}",
         f"SELECT AVG(COALESCE({number}, 0)) {from_where}"),
    )  # fmt: skip


# --- level 2: groups and orders ---


def _group(theme: Theme, rng: random.Random) -> SqlQuestion:
    kind = _either(theme, rng)
    tail = f"FROM {kind.table} GROUP BY {kind.category}"
    return SqlQuestion(
        f"For each {kind.category} that occurs among {kind.many}: the {kind.category}, how many "
        f"{kind.many} have it, and the largest {kind.number} among them.",
        f"SELECT {kind.category}, COUNT(*), MAX({kind.number}) {tail}",
        (f"SELECT {kind.category}, COUNT({kind.number}), MAX({kind.number}) {tail}",
         f"SELECT {kind.category}, COUNT(*), MIN({kind.number}) {tail}"),
    )  # fmt: skip


def _having(theme: Theme, rng: random.Random) -> SqlQuestion:
    kind, min_count = _either(theme, rng), rng.randint(2, 3)
    tail = f"SELECT {kind.category} FROM {kind.table} GROUP BY {kind.category} HAVING"
    return SqlQuestion(
        f"Which values of {kind.category} have at least {min_count} {kind.many} whose "
        f"{kind.number} is known?",
        f"{tail} COUNT({kind.number}) >= {min_count}",
        (f"{tail} COUNT(*) >= {min_count}", f"{tail} COUNT({kind.number}) > {min_count}",
         f"{tail} COUNT(DISTINCT {kind.number}) >= {min_count}"),
    )  # fmt: skip


def _top(theme: Theme, rng: random.Random) -> SqlQuestion:
    kind, count = _either(theme, rng), rng.randint(2, 4)
    ordered_labels = (
        f"SELECT {kind.label} FROM {kind.table} WHERE {kind.number} IS NOT NULL ORDER BY"
    )
    return SqlQuestion(
        f"The {count} {kind.many} with the largest {kind.number}: give the {kind.label}, the "
        f"largest first, ties in alphabetical order of {kind.label}; leave out those without "
        f"{_articled(kind.number)}.",
        f"{ordered_labels} {kind.number} DESC, {kind.label} LIMIT {count}",
        (f"{ordered_labels} {kind.number}, {kind.label} LIMIT {count}",
         f"{ordered_labels} {kind.number} DESC, {kind.label} DESC LIMIT {count}",
         f"{ordered_labels} {kind.number} DESC, {kind.label} LIMIT {count + 1}"),
        ordered=True,
    )  # fmt: skip


# --- level 3: joins ---


def _linked(theme: Theme, rng: random.Random) -> SqlQuestion:
    left, right = theme.left, theme.right
    value, min_value = rng.choice(right.values), _threshold(theme, rng)
    of = f"r.{right.category} = '{value}'"
    is_enough = f"k.{theme.number} >= {min_value}"
    head = (
        f"FROM {left.table} l JOIN {theme.links} k ON l.id = k.{theme.left_id} "
        f"JOIN {right.table} r ON r.id = k.{theme.right_id} WHERE"
    )
    return SqlQuestion(
        f"Give the {left.label} of every {left.one} who has {theme.verb} {_articled(right.one)} "
        f"with the {right.category} '{value}' in {_articled(theme.link)} with a {theme.number} of "
        f"at least {min_value}, each once.",
        f"SELECT DISTINCT l.{left.label} {head} {of} AND {is_enough}",
        (f"SELECT l.{left.label} {head} {of} AND {is_enough}",
         f"SELECT DISTINCT l.{left.label} {head} {of}",
         f"SELECT DISTINCT l.{left.label} {head} {is_enough}",
         f"SELECT DISTINCT l.{left.label} {head} {of} OR {is_enough}"),
    )  # fmt: skip


def _totals(theme: Theme, rng: random.Random) -> SqlQuestion:
    right, min_total = theme.right, 2 * _threshold(theme, rng)
    head = f"SELECT r.{right.category}, SUM(k.{theme.number}) FROM {theme.links} k JOIN"
    joined_tables = f"{head} {right.table} r ON r.id = k.{theme.right_id}"
    tail = f"GROUP BY r.{right.category}"
    return SqlQuestion(
        f"For each {right.category} of {right.many} whose {theme.links} have a total "
        f"{theme.number} of at least {min_total}: the {right.category} and that total.",
        f"{joined_tables} {tail} HAVING SUM(k.{theme.number}) >= {min_total}",
        (f"{joined_tables} {tail}", f"{joined_tables} {tail} HAVING COUNT(*) >= {min_total}",
         f"{joined_tables} WHERE k.{theme.number} >= {min_total} {tail}"),
    )  # fmt: skip


def _counts(theme: Theme, rng: random.Random) -> SqlQuestion:
    left, min_value = theme.left, _threshold(theme, rng)
    head = f"SELECT l.{left.label}, COUNT({{}}) FROM {left.table} l {{}}JOIN {theme.links} k"
    join_on, is_enough, tail = (
        f"ON l.id = k.{theme.left_id}",
        f"k.{theme.number} >= {min_value}",
        "GROUP BY l.id",
    )
    all_rows = head.format("k.id", "LEFT ")
    return SqlQuestion(
        f"For every {left.one}, even where there are none: the {left.label} and the number of "
        f"{theme.links} with a {theme.number} of at least {min_value}.",
        f"{all_rows} {join_on} AND {is_enough} {tail}",
        (f"{all_rows} {join_on} WHERE {is_enough} {tail}", f"{all_rows} {join_on} {tail}",
         f"{head.format('*', 'LEFT ')} {join_on} AND {is_enough} {tail}",
         f"{head.format('k.id', '')} {join_on} AND {is_enough} {tail}"),
    )  # fmt: skip


def _threshold(theme: Theme, rng: random.Random) -> int:
    return rng.randint(theme.low + 1, (theme.low + theme.high) // 2 + 1)


# --- level 4: nested ---


def _never(theme: Theme, rng: random.Random) -> SqlQuestion:
    left, right = theme.left, theme.right
    value = rng.choice(right.values)
    joined_links = (
        f"SELECT k.{theme.left_id} FROM {theme.links} k JOIN {right.table} r "
        f"ON r.id = k.{theme.right_id}"
    )
    head = f"SELECT {left.label} FROM {left.table} WHERE id"
    return SqlQuestion(
        f"Give the {left.label} of every {left.one} who has never {theme.verb} "
        f"{_articled(right.one)} with the {right.category} '{value}'.",
        f"{head} NOT IN ({joined_links} WHERE r.{right.category} = '{value}')",
        (f"{head} IN ({joined_links} WHERE r.{right.category} <> '{value}')",
         f"{head} NOT IN (SELECT {theme.left_id} FROM {theme.links})",
         f"{head} IN ({joined_links} WHERE r.{right.category} = '{value}')"),
    )  # fmt: skip


def _above(theme: Theme, rng: random.Random) -> SqlQuestion:
    kind = _either(theme, rng)
    head = f"SELECT a.{kind.label} FROM {kind.table} a WHERE a.{kind.number}"
    average = f"SELECT AVG(b.{kind.number}) FROM {kind.table} b"
    same_category = f"WHERE b.{kind.category} = a.{kind.category}"
    return SqlQuestion(
        f"Give the {kind.label} of every {kind.one} whose {kind.number} is above the average "
        f"{kind.number} of the {kind.many} with the same {kind.category}.",
        f"{head} > ({average} {same_category})",
        (
            f"{head} > ({average})",
            f"{head} >= ({average} {same_category})",
            f"{head} < ({average} {same_category})",
        ),
    )


def _ask_several(theme: Theme, rng: random.Random) -> SqlQuestion:
    left, right, min_links = theme.left, theme.right, rng.randint(2, 3)
    grouped = (
        f"SELECT l.{left.label} FROM {left.table} l JOIN {theme.links} k "
        f"ON l.id = k.{theme.left_id} GROUP BY l.id HAVING COUNT"
    )
    different = f"(DISTINCT k.{theme.right_id})"
    return SqlQuestion(
        f"Give the {left.label} of every {left.one} who has {theme.verb} at least {min_links} "
        f"different {right.many}.",
        f"{grouped}{different} >= {min_links}",
        (f"{grouped}(*) >= {min_links}", f"{grouped}{different} > {min_links}",
         f"{grouped}{different} >= {min_links - 1}"),
    )  # fmt: skip


MAKERS: dict[int, tuple[Maker, ...]] = {
    1: (_filter, _count, _average),
    2: (_group, _having, _top),
    3: (_linked, _totals, _counts),
    4: (_never, _above, _ask_several),
}
"""The kinds of questions of each level."""
