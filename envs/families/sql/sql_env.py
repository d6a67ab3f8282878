"""`ludus/sql-v0`: the policy writes the query that answers a question, whatever the rows are.

    user       CREATE TABLE customers (...) ... How many customers have the town 'Esk'?
    assistant  run_sql(query="SELECT * FROM customers LIMIT 3")
    tool       id | name | town | age ...
    assistant  <answer>SELECT COUNT(*) FROM customers WHERE town = 'Esk'</answer>      reward 1

The tool reads one database. The answer is judged on several others, chosen to expose queries that
nearly answer the question (execution match on a distilled test suite). What the policy writes
runs in worker processes that can be killed.
"""

from __future__ import annotations

import random
import re
from typing import Any

import msgspec

from ludus.errors import ConfigError, ToolError
from ludus.messages import Message, ToolCall, assistant
from ludus.verdict import Verdict

from ...protocol import Briefing, Info, TextEnv
from ...tasks import SPLITS, GeneratedTasks, Task, TaskSet, digest_of
from ...tools import tool
from ..arithmetic import split_of
from .compare import Suite, build_suite
from .queries import (
    MAX_LEVEL,
    THEMES,
    Database,
    SqlQuestion,
    Theme,
    Value,
    draw_database,
    draw_question,
    schema_of,
)
from .runner import TooCostly, run_untrusted
from .worker import QueryResult

MAX_DRAWS = 2_000
MAX_VALUE_CHARS = 100
_FENCED = re.compile(r"```(?:sqlite3?|sql)?(.+)```", re.DOTALL | re.IGNORECASE)
NO_ANSWER = "Give the final query between <answer> and </answer>, or run one with run_sql."

Stepped = tuple[str, float | Verdict, bool, bool, Info]


class SqlTasks(GeneratedTasks):
    """A task set with a question and databases per seed; the difficulty is the level."""

    def __init__(self, split: str, levels: tuple[int, int]) -> None:
        super().__init__(split)
        self._levels = levels

    def at(self, index: int) -> Task:
        """Return the task at `index`, with the difficulty and a digest of the question."""
        task = super().at(index)
        level = random.Random(f"level/{task.seed}").randint(*self._levels)
        theme, question = draw_for_split(random.Random(f"sql/{task.seed}"), level, task.split)
        return Task(
            id=task.id,
            split=task.split,
            seed=task.seed,
            difficulty=float(level),
            problem=digest_of(*schema_of(theme), question.text),
        )


class Sql(TextEnv):
    """An environment of questions to answer by SQL, judged by execution on random databases.

    Args:
        min_level: the lowest level: 1 is a single table, 2 groups and orders, 3 joins, 4 nests
            queries.
        max_level: the highest level.
        databases: the fewest databases an answer is judged on.
        shown_rows: how many rows of a result the tool shows.
        max_turns: after how many turns the episode is truncated.

    Raises:
        ConfigError: a setting is out of range.
    """

    system_prompt = (
        "Write one SQLite query that answers the question on any database with this schema. "
        "run_sql runs a query on an example; the answer is judged on other databases. The "
        "columns of the result come in the order in which the question names them."
    )
    answer_format = "Give the final query between <answer> and </answer>."

    def __init__(
        self,
        *,
        min_level: int = 1,
        max_level: int = MAX_LEVEL,
        databases: int = 5,
        shown_rows: int = 20,
        max_turns: int = 8,
    ) -> None:
        if not 1 <= min_level <= max_level <= MAX_LEVEL:
            raise ConfigError(
                f"need 1 <= min_level <= max_level <= {MAX_LEVEL}, got {min_level}, {max_level}"
            )
        for name, value, limit in (
            ("databases", databases, 50), ("shown_rows", shown_rows, 200),
            ("max_turns", max_turns, 1000),
        ):  # fmt: skip
            if not 1 <= value <= limit:
                raise ConfigError(f"{name} must be from 1 to {limit}, got {value}")
        self.levels = (min_level, max_level)
        self.databases = databases
        self.shown_rows = shown_rows
        self.turns = max_turns
        self.example = Database(schema=[], rows={})
        self.suite = Suite(SqlQuestion("", "", ()), (), (), ())
        self._looked = 0

    def briefing(self) -> Briefing:
        """Return the briefing, with this environment's number of turns."""
        return msgspec.structs.replace(super().briefing(), max_turns=self.turns)

    def tasks(self, split: str) -> TaskSet:
        """Return an endless task set; no question is in two splits."""
        return SqlTasks(split, self.levels)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, Info]:
        """Show the schema and the question."""
        level = int(SqlTasks(self.task.split, self.levels).find(self.task.id).difficulty or 1)
        rng = random.Random(f"sql/{self.task.seed}")
        theme, question = draw_for_split(rng, level, self.task.split)
        self.example = draw_database(theme, rng)
        self.suite = build_suite(theme, question, rng, size=self.databases, shown=self.example)
        self._looked = 0
        schema = ";\n".join(schema_of(theme))
        return f"{schema};\n\n{question.text}", {}

    @tool
    async def run_sql(self, query: str) -> str:
        """Run a query on the example database.

        Args:
            query: one SELECT statement of SQLite
        """
        (result,) = await run_untrusted(query, [self.example])
        if result.error:
            raise ToolError(result.error)
        return as_table(result, self.shown_rows)

    async def step(self, action: str | Message) -> Stepped:
        """Judge the final query, which ends the episode; without a query, say what to do."""
        text = action if isinstance(action, str) else action.text
        query = read_query(text)
        if query is None:
            return NO_ANSWER, 0.0, False, False, {}
        return "", await self._judge(query), True, False, {"query": query[:2000]}

    async def _judge(self, query: str) -> Verdict:
        try:
            results = await run_untrusted(query, self.suite.databases)
        except TooCostly as error:
            return Verdict.of(0.0, str(error))
        if results[-1].error:
            return Verdict.of(0.0, f"the query fails: {results[-1].error}")
        rows = [result.rows for result in results if not result.more]
        right = self.suite.passes(rows)
        return Verdict.of(float(right), "right" if right else "the rows differ")

    def gold(self) -> str:
        """Return the query that is right."""
        return self.suite.question.sql

    def demonstrate(self) -> str | Message:
        """Try the right query, then answer with that query."""
        self._looked += 1
        if self._looked == 1:
            call = ToolCall(name="run_sql", arguments={"query": self.suite.question.sql})
            return assistant("", [call])
        return f"<answer>{self.suite.question.sql}</answer>"


def draw_for_split(rng: random.Random, level: int, split: str) -> tuple[Theme, SqlQuestion]:
    """Return the first drawn question of `split`; a digest of the text decides the split."""
    assert split in SPLITS
    for _ in range(MAX_DRAWS):
        theme = rng.choice(THEMES)
        question = draw_question(theme, rng, level)
        if split_of(question.text) == split:
            return theme, question
    raise ConfigError(f"no question of level {level} belongs to split {split!r}")


def read_query(text: str) -> str | None:
    r"""Return the content of the last closed `<answer>`, without a code fence, or None.

    >>> read_query("<answer>```sql\nSELECT 1;\n```</answer>")
    'SELECT 1;'
    """
    before, closing, _ = text.rpartition("</answer>")
    _, opening, answer = before.rpartition("<answer>")
    if not (opening and closing):
        return None
    fenced = _FENCED.fullmatch(answer.strip())
    return fenced[1].strip() if fenced else answer.strip()


def as_table(result: QueryResult, max_rows: int) -> str:
    """Format a result as text: a line of columns, then a line per row, up to `max_rows` rows."""
    lines = [" | ".join(result.columns)]
    lines += [" | ".join(map(_cell_text, row)) for row in result.rows[:max_rows]]
    count = f"{len(result.rows)} rows" if not result.more else f"more than {len(result.rows)} rows"
    left_out = f", the first {max_rows} are shown" if len(result.rows) > max_rows else ""
    return "\n".join([*lines, f"({count}{left_out})"])


def _cell_text(value: Value) -> str:
    text = "NULL" if value is None else str(value)
    return text if len(text) <= MAX_VALUE_CHARS else f"{text[:MAX_VALUE_CHARS]}..."
