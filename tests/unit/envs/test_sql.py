"""ludus/sql-v0: playing it, and SQL that wants out, wants everything, or never ends."""

import asyncio
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from ludus.envs import EnvSession, make_async
from ludus.envs.families.sql import Database, Sql, TooCostly, run_untrusted
from ludus.envs.families.sql.sql_env import read_query
from ludus.envs.families.sql.worker import FUNCTIONS, MAX_ROWS, QueryResult
from ludus.errors import ConfigError, RewardUnavailable
from ludus.messages import Message, ToolCall, assistant
from ludus.rewards.pool import PoolLimits, WorkerPool

NUMBERS = Database(
    schema=["CREATE TABLE t (a INTEGER, b TEXT)"],
    rows={"t": [[number, f"text {number}"] for number in range(50)]},
)
FOREVER = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT"
ONE_LONG_STEP = (
    "SELECT like('%' || printf('%0400d', 2) || '%', printf('%090000d', a.a)) FROM t a, t b, t c"
)

HEAVY = "SELECT printf('%99999d', a.a + b.a * 50 + c.a * 2500) AS x FROM t a, t b, t c"


def session(**arguments: Any) -> EnvSession:
    return make_async("ludus/sql-v0", **arguments)


def call(query: str) -> Message:
    return assistant("", [ToolCall(name="run_sql", arguments={"query": query}, id="call_0")])


def said(observation: Any) -> str:
    return observation if isinstance(observation, str) else observation[0].text


def env_of(made: EnvSession) -> Sql:
    assert isinstance(made.env, Sql)
    return made.env


async def one(sql: str) -> QueryResult:
    (result,) = await run_untrusted(sql, [NUMBERS])
    return result


# --- playing -------------------------------------------------------------------------------------


async def test_the_expert_is_right_on_every_level() -> None:
    for level in (1, 2, 3, 4):
        made = session(min_level=level, max_level=level)
        for index in range(6):
            await made.reset(options={"task": f"test/{index}"})
            _, reward, terminated, _, _ = await made.step(env_of(made).demonstrate())
            assert (reward, terminated) == (0.0, False)
            _, reward, terminated, _, info = await made.step(env_of(made).demonstrate())
            assert (reward, terminated) == (1.0, True)
            assert info["gold"] == info["query"]


async def test_the_example_is_shown_with_its_columns_and_cut() -> None:
    made = session(shown_rows=2)
    await made.reset(seed=0)
    table = next(iter(env_of(made).example.rows))
    seen = said(
        (await made.step(call(f"SELECT id, NULL AS empty FROM {table} ORDER BY id")))[0]
    ).split("\n")
    assert seen[:3] == ["id | empty", "1 | NULL", "2 | NULL"]
    assert "the first 2 are shown" in seen[3]


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("<answer>SELECT 1</answer>", "SELECT 1"),
        ("<answer>\n```sql\nSELECT 1;\n```\n</answer>", "SELECT 1;"),
        ("<answer>```\nSELECT 1```</answer>", "SELECT 1"),
        ("<answer>SELECT 1</answer> or <answer>SELECT 2</answer>", "SELECT 2"),
        ("SELECT 1", None),
        ("<answer>SELECT 1", None),
        ("<answer>``````</answer>", "``````"),
        ("<answer>```SQL\nSELECT 1\n```</answer>", "SELECT 1"),
        ("<answer>```sqlite3\nSELECT 1\n```</answer>", "SELECT 1"),
    ],
)
def test_the_query_is_read_from_the_last_answer(text: str, query: str | None) -> None:
    assert read_query(text) == query


@pytest.mark.parametrize(
    ("answer", "detail"),
    [
        ("SELECT nonsense FROM nowhere", "no such table"),
        ("", "no rows"),
        ("SELEKT", "syntax error"),
        ("SELECT 1; SELECT 2", "one statement"),
        ("CREATE TABLE x (a)", "not allowed"),
        (f"{FOREVER} count(*) FROM c", "steps"),
        (f"{FOREVER} x FROM c", "rows differ"),
    ],
)
async def test_wrong_and_hostile_answers_earn_nothing_and_say_why(answer: str, detail: str) -> None:
    made = session()
    await made.reset(seed=0)
    _, reward, terminated, _, info = await made.step(f"<answer>{answer}</answer>")
    assert (reward, terminated) == (0.0, True)
    assert detail in info["verdict"].detail


async def test_a_query_that_fails_is_told_and_the_episode_goes_on() -> None:
    made = session()
    await made.reset(seed=0)
    for query in ("SELECT nothing_like_it", "x" * 200_000, "PRAGMA database_list", "\x00"):
        observation, reward, terminated, _, info = await made.step(call(query))
        assert said(observation).startswith("run_sql: ")
        assert len(said(observation)) < 500
        assert (reward, terminated, info["tool_errors"]) == (0.0, False, 1)
    assert (await made.step("nothing of the kind"))[:3] == (
        "Give the final query between <answer> and </answer>, or run one with run_sql.", 0.0, False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"min_level": 0}, "got 0, 4"),
        ({"min_level": 3, "max_level": 2}, "got 3, 2"),
        ({"max_level": 5}, "got 1, 5"),
        ({"databases": 0}, "databases must be from 1 to 50, got 0"),
        ({"shown_rows": 0}, "shown_rows"),
        ({"max_turns": 0}, "max_turns"),
    ],
)
def test_settings_that_cannot_be_say_why(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        session(**arguments)


# --- SQL that wants out --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sql",
    [
        "PRAGMA table_info(t)",
        "PRAGMA hard_heap_limit = 0",
        "SELECT * FROM pragma_database_list",
        "ATTACH '/tmp/ludus-sql-attack' AS x",
        "DETACH main",
        "VACUUM",
        "VACUUM INTO '/tmp/ludus-sql-attack'",
        "SELECT load_extension('x')",
        "SELECT writefile('/tmp/ludus-sql-attack', 'x')",
        "SELECT readfile('/etc/passwd')",
        "SELECT edit('x')",
        "SELECT fts3_tokenizer('simple')",
        "SELECT sqlite_compileoption_get(1)",
        "SELECT random()",
        "SELECT randomblob(8)",
        "SELECT date('now')",
        "SELECT CURRENT_TIMESTAMP",
        "INSERT INTO t VALUES (1, 'x')",
        "UPDATE t SET a = 1",
        "DELETE FROM t",
        "REPLACE INTO t VALUES (1, 'x')",
        "DROP TABLE t",
        "ALTER TABLE t RENAME TO s",
        "CREATE TABLE s (a)",
        "CREATE TEMP TABLE s (a)",
        "CREATE TEMP VIEW v AS SELECT 1",
        "CREATE TRIGGER g AFTER INSERT ON t BEGIN SELECT 1; END",
        "CREATE VIRTUAL TABLE v USING fts5(a)",
        "CREATE INDEX i ON t (a)",
        "BEGIN",
        "COMMIT",
        "SAVEPOINT s",
        "ANALYZE",
        "REINDEX",
        "SELECT * FROM json_each('[1]')",
        "SELECT * FROM dbstat",
        "SELECT ?",
        "SELECT :name",
        "",
        "-- nothing",
        "/* open",
        "SELECT 1; DROP TABLE t",
        "SELECT CAST(x'ff' AS TEXT)",
        "SELECT char(55296)",
        "SELECT abs(-9223372036854775808)",
        "SELECT 'x" + "\x00" + "'",
        "SELECT " + "(" * 500 + "1" + ")" * 500,
        "SELECT " + "-" * 30_000 + "1",
        "SELECT " + " UNION SELECT ".join("1" * 60),
        "SELECT " + ",".join(["1"] * 500),
    ],
)  # fmt: skip
async def test_all_but_reading_is_refused(sql: str) -> None:
    result = await one(sql)
    assert result.error
    assert not result.rows
    assert not Path("/tmp/ludus-sql-attack").exists()


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("SELECT zeroblob(1000000000)", "not allowed"),
        ("SELECT hex(printf('%150000d', 1))", "too big"),
        ("SELECT printf('%150000d', 1) || printf('%150000d', 1)", "too big"),
        ("SELECT group_concat(printf('%50000d', a)) FROM t", "too big"),
        (f"{FOREVER} count(*) FROM c", "steps"),
        (f"{FOREVER} x FROM c ORDER BY x", "steps"),
        ("SELECT count(*) FROM t a, t b, t c, t d, t e, t f", "steps"),
        ("SELECT printf('%9999d', a.a) FROM t a, t b, t c", "characters"),
        (f"SELECT * FROM ({HEAVY}) GROUP BY x", "memory"),
    ],
)
async def test_bombs_are_defused_the_same_way_every_time(sql: str, words: str) -> None:
    first = await one(sql)
    assert words in first.error
    assert await one(sql) == first


@pytest.mark.slow
async def test_one_step_that_takes_seconds_is_killed_from_outside() -> None:
    with pytest.raises(TooCostly, match="CPU"):
        await one(ONE_LONG_STEP)
    assert (await one("SELECT 1")).rows == [[1]]  # the next query has a fresh worker


@pytest.mark.slow
async def test_a_costly_answer_is_the_policys_fault() -> None:
    made = session()
    await made.reset(seed=0)
    table = next(iter(env_of(made).example.rows))
    many = f"{table} a, {table} b, {table} c, {table} d"
    costly = ONE_LONG_STEP.replace("t a, t b, t c", many).replace("a.a", "a.id")
    _, reward, terminated, _, info = await made.step(f"<answer>{costly}</answer>")
    assert (reward, terminated) == (0.0, True)
    assert "stopped" in info["verdict"].detail


async def test_text_that_is_no_unicode_is_the_querys_error() -> None:
    assert (await one("SELECT \ud800")).error
    made = session()
    await made.reset(seed=0)
    assert "not text" in said((await made.step(call("SELECT '\ud800'")))[0])
    assert (await made.step("<answer>SELECT '\ud800'</answer>"))[1] == 0.0


async def test_many_rows_are_cut_and_never_right() -> None:
    result = await one("SELECT a.a FROM t a, t b")
    assert (len(result.rows), result.more) == (MAX_ROWS, True)


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("SELECT count(*), sum(a), avg(a), min(b) FROM t", [[50, 1225, 24.5, "text 0"]]),
        ("WITH x AS (SELECT a FROM t WHERE a < 3) SELECT sum(a) FROM x", [[3]]),
        (f"{FOREVER} x FROM c LIMIT 3", [[1], [2], [3]]),
        ("SELECT a, rank() OVER (ORDER BY a DESC) FROM t LIMIT 1", [[49, 1]]),
        ("VALUES (1, 'a'), (2, 'b')", [[1, "a"], [2, "b"]]),
        ("SELECT x'00ff', NULL, 1.5, -1", [["X'00ff'", None, 1.5, -1]]),
        ("SELECT count(*) FROM sqlite_master", [[1]]),
        ("SELECT DISTINCT substr(b, 1, 4) FROM t;", [["text"]]),
        ("select coalesce(nullif(a, 0), 7) from t where a in (0, 1) -- end", [[7], [1]]),
        (
            "SELECT CASE WHEN a > 48 THEN 'big' END FROM t ORDER BY a DESC LIMIT 2",
            [["big"], [None]],
        ),
        ("SELECT EXISTS (SELECT 1 FROM t WHERE b LIKE '%9')", [[1]]),
        ("SELECT 9e999", [[float("inf")]]),
    ],
)
async def test_ordinary_queries_run(sql: str, rows: list[Any]) -> None:
    assert (await one(sql)).rows == rows


def test_nothing_that_may_be_called_knows_the_time_or_draws() -> None:
    assert not FUNCTIONS & {"random", "randomblob", "date", "time", "strftime", "load_extension"}


# --- workers that are lost -----------------------------------------------------------------------


async def test_a_worker_killed_in_the_middle_is_replaced_and_the_query_answered() -> None:
    await one("SELECT 1")
    asked = asyncio.create_task(one(f"{FOREVER} count(*) FROM c"))
    await asyncio.sleep(0.02)
    workers: list[psutil.Process] = []
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # an earlier worker, which ends at this moment
            # a worker's parent is a template, whose parent is the fork server of this process
            template = psutil.Process(child.ppid())
            if psutil.Process(template.ppid()).ppid() == os.getpid():
                workers.append(child)
    max(workers, key=lambda worker: worker.cpu_times().user).send_signal(signal.SIGKILL)
    assert "steps" in (await asked).error


async def test_no_worker_at_all_is_no_reward(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = WorkerPool("ludus.envs.families.sql.worker:run", limits=PoolLimits(workers=1))
    closed.close()
    monkeypatch.setattr("ludus.envs.families.sql.runner._shared._pool", closed)
    made = session()
    await made.reset(seed=0)
    with pytest.raises(RewardUnavailable):
        await made.step("<answer>SELECT 1</answer>")
    await made.reset(seed=0)
    with pytest.raises(RewardUnavailable):
        await made.step(call("SELECT 1"))


async def test_a_late_pool_is_no_reward(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ludus.envs.families.sql.runner.PATIENCE_S", 0.0)
    made = session()
    await made.reset(seed=0)
    with pytest.raises(RewardUnavailable, match="too busy"):
        await made.step(call("SELECT 1"))


async def test_many_sessions_at_once_each_get_their_own_rows() -> None:
    async def played(index: int) -> float:
        made = session()
        await made.reset(options={"task": f"train/{index}"})
        await made.step(env_of(made).demonstrate())
        return (await made.step(env_of(made).demonstrate()))[1]

    assert await asyncio.gather(*map(played, range(32))) == [1.0] * 32
