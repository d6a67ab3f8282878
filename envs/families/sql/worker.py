"""Runs a policy's SQL in a worker process of the pool, which can be killed.

Four fences each stop what the others let through:

* *SQLite's authorizer* lets a statement read tables and call known functions, nothing else: no
  PRAGMA, no ATTACH, no writing, no `load_extension`, nothing random.
* *SQLite's limits* bound strings and blobs (so `zeroblob(1e9)` fails), the depth of expressions,
  the size of the statement, and the memory that it uses.
* *A budget of virtual machine steps*, not of time: a recursive query that never ends stops at the
  same step on every machine, so the verdict is the same.
* *The pool* caps CPU time and memory of the process from outside: a single call of LIKE on long
  texts takes seconds within one step.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing

import msgspec

from .queries import Database, Row, fill

MAX_STEPS = 2_000_000
"""The budget of a query in steps of SQLite's virtual machine."""
STEPS_AT_ONCE = 1_000
"""Steps between two checks of the budget."""
MAX_ROWS = 2_000
MAX_RESULT_CHARS = 1_000_000
MAX_TEXT_BYTES = 200_000
"""The most bytes of a single text or blob."""
MAX_SQL_CHARS = 20_000
MAX_MEMORY_BYTES = 64 << 20

_LIMITS = {
    sqlite3.SQLITE_LIMIT_LENGTH: MAX_TEXT_BYTES,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 4 * MAX_SQL_CHARS,  # in bytes; a character has up to four
    sqlite3.SQLITE_LIMIT_COLUMN: 200,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 200,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 50,
    sqlite3.SQLITE_LIMIT_VDBE_OP: 50_000,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 1_000,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
}
_READING = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE}
_FUNCTIONS = """
avg count group_concat max min sum total
cume_dist dense_rank first_value lag last_value lead nth_value ntile percent_rank rank row_number
abs round sign ceil ceiling floor mod pow power sqrt
char concat concat_ws format glob hex instr length like lower ltrim printf quote replace rtrim
substr substring trim unicode upper
coalesce iif ifnull nullif typeof likely unlikely likelihood
"""
FUNCTIONS = frozenset(_FUNCTIONS.split())
"""The functions a query may call: aggregates, windows, numbers, text and NULLs. None is random or
reads a clock: the same query must always give the same rows.
"""


class QueryRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A query, and the databases on which to run the query."""

    sql: str
    databases: list[Database]


class QueryResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of a query on a single database."""

    columns: list[str] = []
    rows: list[Row] = []
    """At most `MAX_ROWS` rows."""
    more: bool = False
    """Whether there are more rows than `rows` holds."""
    error: str = ""
    """The reason why there is no result; empty for a result."""


class Results(msgspec.Struct, frozen=True, kw_only=True):
    """The result on each database, up to and with the first error."""

    results: list[QueryResult]


def run(request: object) -> object:
    """Run a request in a pool worker: plain data of a `QueryRequest` in, of `Results` out."""
    query = msgspec.convert(request, QueryRequest)
    results: list[QueryResult] = []
    for database in query.databases:
        results.append(run_query(database, query.sql))
        if results[-1].error:
            break
    return msgspec.to_builtins(Results(results=results))


def run_query(database: Database, sql: str) -> QueryResult:
    """Run a query. Call this only in a process that may be killed."""
    if len(sql) > MAX_SQL_CHARS:
        return QueryResult(error=f"the query has {len(sql)} characters; at most {MAX_SQL_CHARS}")
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        fill(connection, database)  # before the fence, which refuses all writing
        fence = _Fence()
        fence.put_around(connection)
        try:
            cursor = connection.execute(sql)
            if cursor.description is None:
                return QueryResult(error="this statement gives no rows; write a SELECT")
            columns = [str(column[0])[:200] for column in cursor.description]
            rows: list[Row] = []
            chars = 0
            for row in cursor:
                if len(rows) == MAX_ROWS:
                    return QueryResult(columns=columns, rows=rows, more=True)
                # Counted row by row, so that a result that is too large is never held whole.
                chars += sum(len(value) if isinstance(value, (str, bytes)) else 8 for value in row)
                if chars > MAX_RESULT_CHARS:
                    return QueryResult(
                        error=f"the rows have more than {MAX_RESULT_CHARS:,} characters"
                    )
                # A `Row` holds no bytes, so a blob is written as SQL writes it.
                rows.append(
                    [f"X'{value.hex()}'" if isinstance(value, bytes) else value for value in row]
                )
            return QueryResult(columns=columns, rows=rows)
        except MemoryError:  # what `sqlite3` raises once `hard_heap_limit` is reached
            return QueryResult(
                error=f"the query takes more than {MAX_MEMORY_BYTES >> 20} MiB of memory"
            )
        except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError) as error:
            # SQLite only says "not authorized" or "interrupted" where the fence stopped a query, so
            # the reason of the fence goes first. Other messages are cut, since they repeat names of
            # any length that the query used.
            return QueryResult(
                error=fence.reason or (" ".join(str(error).split())[:300] or type(error).__name__)
            )


class _Fence:
    """The authorizer and the step budget of a query."""

    def __init__(self) -> None:
        self.reason = ""
        """Why the query was stopped, in words for the policy; empty if it was not."""
        self._calls = 0

    def put_around(self, connection: sqlite3.Connection) -> None:
        """Restrict `connection` to what an untrusted query may do."""
        # The authorizer comes after the pragmas, which it would refuse.
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.execute(f"PRAGMA hard_heap_limit = {MAX_MEMORY_BYTES}")
        connection.execute("PRAGMA trusted_schema = OFF")
        for limit, value in _LIMITS.items():
            connection.setlimit(limit, value)
        connection.set_authorizer(self._authorize)
        connection.set_progress_handler(self._over_budget, STEPS_AT_ONCE)

    def _authorize(
        self,
        action: int,
        first: str | None,
        second: str | None,
        _database: str | None,
        _by: str | None,
    ) -> int:
        if action in _READING:
            return sqlite3.SQLITE_OK
        # For a function the second value is its name.
        if action == sqlite3.SQLITE_FUNCTION and (second or "").lower() in FUNCTIONS:
            return sqlite3.SQLITE_OK
        if not self.reason:
            action_text = (
                f"the function {second}" if action == sqlite3.SQLITE_FUNCTION else "this statement"
            )
            self.reason = (
                f"{action_text} is not allowed; write a SELECT with functions that always give the "
                "same result"
            )
        return sqlite3.SQLITE_DENY

    def _over_budget(self) -> bool:
        self._calls += 1
        is_over = self._calls * STEPS_AT_ONCE > MAX_STEPS
        if is_over:
            self.reason = f"the query takes more than {MAX_STEPS:,} steps"
        return is_over
