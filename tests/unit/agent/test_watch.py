"""Runs as `ludus watch` reads them: whatever state their folders are in."""

from __future__ import annotations

import json
import math
import os
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import CookieJar
from aiohttp.test_utils import TestClient, TestServer
from hypothesis import example, given, settings, strategies as st

from ludus.agent import Episode, Segment, Trajectory, Turn, write_episodes
from ludus.agent.episodes import indexed
from ludus.agent.viewer.page import HEADERS
from ludus.agent.viewer.run import RunReader, find_runs
from ludus.agent.viewer.server import WatchServer, refuse_open_door
from ludus.agent.viewer.tail import Tail
from ludus.agent.viewer.views import VIEWS, Runs, thinned, view, without_text
from ludus.errors import ConfigError
from ludus.messages import assistant, user
from ludus.metrics import write_plan
from ludus.verdict import Verdict


def episode(ordinal: int, reward: float | None = 1.0, text: str = "four", **more: Any) -> Episode:
    verdict = Verdict.unavailable("lost") if reward is None else Verdict.of(reward)
    turn = Turn(out_ids=[1, 2, 3], logprobs=[-0.5] * 3, versions=[0] * 3)
    turn.observation, turn.message = [user("what?")], assistant(text)
    played = Trajectory(verdict=verdict, segments=[Segment(prompt_ids=[7, 8], turns=[turn])])
    given_task = {"task": f"train/{ordinal}", "group": f"g{ordinal}", **more}
    return Episode(ordinal=ordinal, trajectories=[played], **given_task)


def metrics(folder: Path, *rows: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "metrics.jsonl").open("a") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def keep(folder: Path, name: str, step: int, *episodes: Episode, index: bool = True) -> None:
    (folder / "episodes").mkdir(parents=True, exist_ok=True)
    sizes = write_episodes(folder / "episodes" / f"{name}.jsonl", episodes)
    if index:
        lines = indexed(f"{name}.jsonl", step, episodes, sizes, ())
        with (folder / "episodes" / "index.jsonl").open("ab") as file:
            file.writelines(msgspec.json.encode(line) + b"\n" for line in lines)


def read(folder: Path, cache: Path | None = None) -> RunReader:
    reader = RunReader(folder, folder.name, cache)
    reader.refresh()
    return reader


def ask(reader: RunReader, name: str, **query: str) -> Any:
    return msgspec.to_builtins(view(name, Runs([reader]), query))


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.binary(max_size=20).filter(lambda line: b"\n" not in line), max_size=12), st.data()
)
def test_any_way_of_writing_lines_is_read_once_and_whole(
    lines: list[bytes], data: st.DataObject
) -> None:
    """Oracle: the lines themselves. The file grows by pieces that end anywhere."""
    text = b"".join(line + b"\n" for line in lines)
    path = Path(os.environ.get("TMPDIR", "/tmp")) / f"watch-tail-{os.getpid()}"
    path.unlink(missing_ok=True)
    tail, seen, at = Tail(path), list[bytes](), 0
    while at < len(text):
        end = data.draw(st.integers(at + 1, len(text)))
        with path.open("ab") as file:
            file.write(text[at:end])
        at = end
        tail.restarted()
        seen += [line for _, line in tail.lines()]
    path.unlink(missing_ok=True)
    assert seen == [line + b"\n" for line in lines]


def test_a_half_written_line_waits_and_a_bad_one_is_counted(tmp_path: Path) -> None:
    metrics(tmp_path, {"step": 1, "reward/mean": 0.5})
    with (tmp_path / "metrics.jsonl").open("ab") as file:
        file.write(b'{"step": "two"}\n\xff\xfe\n[1]\n{"step": 2, "reward/me')
    reader = read(tmp_path)
    assert list(reader.columns["reward/mean"].values) == [0.5]
    assert reader.bad == 3
    with (tmp_path / "metrics.jsonl").open("ab") as file:
        file.write(b'an": 0.75}\n')
    assert reader.refresh()
    assert list(reader.columns["reward/mean"].values) == [0.5, 0.75]
    assert not reader.refresh()


def test_an_index_shows_no_file_outside_of_the_runs_folder(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("the secret word")
    run = tmp_path / "run"
    keep(run, "step-000003", 3, episode(0))
    index = run / "episodes" / "index.jsonl"
    line = json.loads(index.read_text())
    for file in ("../../secret", str(tmp_path / "secret")):
        with index.open("a") as lines:
            lines.write(json.dumps({**line, "file": file, "offset": 0, "bytes": 15}) + "\n")
    reader = read(run)
    assert ask(reader, "episodes")["total"] == 1
    assert ask(reader, "episodes", text="secret word")["total"] == 0


def test_a_run_that_resume_cut_back_is_read_anew(tmp_path: Path) -> None:
    metrics(tmp_path, *({"step": n, "reward/mean": n / 10} for n in range(1, 6)))
    keep(tmp_path, "step-000003", 3, episode(0))
    keep(tmp_path, "step-000005", 5, episode(1), episode(2))
    reader = read(tmp_path)
    assert ask(reader, "episodes")["total"] == 3
    for name in ("metrics.jsonl", "episodes/index.jsonl"):
        path = tmp_path / name
        partial = path.with_suffix(".partial")
        partial.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:1]))
        partial.replace(path)
    (tmp_path / "episodes" / "step-000005.jsonl").unlink()
    reader.refresh()
    assert list(reader.columns["reward/mean"].steps) == [1]
    assert [row["ordinal"] for row in ask(reader, "episodes")["rows"]] == [0]


def test_a_folder_of_an_older_version_has_the_same_table_as_one_with_an_index(
    tmp_path: Path,
) -> None:
    """Law: what is scanned is what would have been written."""
    made = [episode(n, reward) for n, reward in enumerate([1.0, 0.0, None, 0.25])]
    keep(tmp_path / "new", "step-000010", 10, *made)
    keep(tmp_path / "old", "step-000010", 10, *made, index=False)
    tables = [ask(read(tmp_path / name), "episodes")["rows"] for name in ("new", "old")]
    assert tables[0] == tables[1]
    assert [row["step"] for row in tables[0]] == [10] * 4
    # killed between the file and its lines of the index: scanned, and not twice when they come
    keep(tmp_path / "new", "step-000020", 20, episode(9), index=False)
    reader = read(tmp_path / "new")
    assert ask(reader, "episodes")["total"] == 5
    keep(tmp_path / "new", "step-000020", 20, episode(9))
    reader.refresh()
    assert ask(reader, "episodes")["total"] == 5


def test_the_index_outlives_the_server_outside_of_the_run_folder(tmp_path: Path) -> None:
    keep(tmp_path / "run", "step-000001", 1, episode(0), episode(1))
    before = sorted((tmp_path / "run").rglob("*"))
    (tmp_path / "cache").mkdir()
    first = read(tmp_path / "run", tmp_path / "cache")
    assert ask(first, "episodes")["total"] == 2
    first.store.base.close()
    (tmp_path / "run" / "episodes" / "step-000001.jsonl").unlink()
    (tmp_path / "run" / "episodes" / "index.jsonl").unlink()
    assert ask(read(tmp_path / "run", tmp_path / "cache"), "episodes")["total"] == 0
    assert sorted((tmp_path / "run").rglob("*")) == before[:-2]
    # a broken cache is disposable
    (cached,) = (tmp_path / "cache").glob("*.sqlite")
    for path in (tmp_path / "cache").iterdir():
        path.unlink()
    cached.write_bytes(b"no database" * 100)
    assert ask(read(tmp_path / "run", tmp_path / "cache"), "episodes")["total"] == 0


@pytest.mark.parametrize("name", sorted(VIEWS))
@pytest.mark.parametrize("state", ["empty settings", "no episodes", "episodes only"])
def test_every_view_answers_for_a_folder_that_lacks_almost_everything(
    tmp_path: Path, name: str, state: str
) -> None:
    if state == "empty settings":
        (tmp_path / "config.toml").write_text("steps = [")
    elif state == "no episodes":
        metrics(tmp_path, {"step": 1, "reward/mean": 0.5})
    else:
        keep(tmp_path, "eval-000000", 0, episode(0))
    told = ask(read(tmp_path), name, columns="reward/mean,none", id="1")
    json.loads(msgspec.json.encode(told), parse_constant=pytest.fail)


NUMBERS = [
    ("series", "after"), ("series", "width"), ("lanes", "step"), ("lanes", "most"),
    ("steps", "step"), ("tasks", "passing"), ("episode", "id"), ("episodes", "offset"),
    ("episodes", "limit"),
]  # fmt: skip


@settings(deadline=None, max_examples=60)
@given(
    st.text(max_size=8) | st.floats().map(str) | st.integers().map(str), st.sampled_from(NUMBERS)
)
@example(str(10**30), ("steps", "step"))
@example("nan", ("tasks", "passing"))
def test_a_number_of_a_query_is_read_or_refused_by_its_name(
    tmp_path_factory: pytest.TempPathFactory, written: str, asked: tuple[str, str]
) -> None:
    name, word = asked
    folder = tmp_path_factory.mktemp("run")
    metrics(folder, {"step": 1, "reward/mean": 0.5})
    keep(folder, "step-000001", 1, episode(0))
    told = ""
    try:
        ask(read(folder), name, columns="reward/mean", bands="1", **{word: written})
    except ConfigError as error:
        told = str(error)
    assert not told or told.startswith(f"{word}={written:.80}: give a ")


def test_nan_and_infinity_are_gaps(tmp_path: Path) -> None:
    tmp_path.joinpath("metrics.jsonl").write_text(
        '{"step": 1, "update/kl": NaN, "reward/mean": 0.5}\n'
        '{"step": 2, "update/kl": Infinity, "reward/mean": 1e999}\n'
        '{"step": 3, "update/kl": 0.1, "reward/mean": null}\n'
    )
    series = ask(read(tmp_path), "series", columns="update/kl,reward/mean")["series"]
    assert series["update/kl"][tmp_path.name] == {"x": [3], "y": [0.1], "points": 1}
    assert series["reward/mean"][tmp_path.name]["x"] == [1]


def test_a_megabyte_in_a_turn_a_thousand_names_and_runs_with_other_columns(tmp_path: Path) -> None:
    many = {f"own/{n}\u202e<b>": float(n) for n in range(1000)}
    metrics(tmp_path / "a", {"step": 1, "reward/mean": 0.5, **many})
    metrics(tmp_path / "b", {"step": 1, "eval/mean": 0.5})
    keep(tmp_path / "a", "step-000001", 1, episode(0, text="x" * 1_000_000))
    runs = Runs([read(tmp_path / "a"), read(tmp_path / "b")])
    columns = view("columns", runs, {})["columns"]
    assert len(columns) == 1002
    assert {tuple(one["runs"]) for one in columns} == {("a",), ("b",)}
    told = msgspec.to_builtins(view("episode", runs, {"run": "a", "id": "1"}))
    (window,) = told["trajectories"][0]["windows"]
    assert len(window["turns"][0]["message"]["text"]) == 1_000_000
    row = view("episodes", runs, {"run": "a"})["rows"][0]
    assert len(row["text"]) <= 160


def test_filters_choose_what_a_reader_of_the_lines_would_choose(tmp_path: Path) -> None:
    made = [
        episode(n, reward, text=f"number {n}", split="test" if n % 2 else "train")
        for n, reward in enumerate([1.0, 0.0, None, 0.5, 1.0])
    ]
    keep(tmp_path, "step-000001", 1, *made)
    reader = read(tmp_path)

    def chosen(**query: str) -> list[int]:
        return [row["ordinal"] for row in ask(reader, "episodes", **query)["rows"]]

    assert chosen(reward="0.5..") == [0, 3, 4]
    assert chosen(reward="..0.5", split="test") == [1, 3]
    assert chosen(status="unavailable") == [2]
    assert chosen(text="number 3") == [3]
    assert chosen(task="train/4") == [4]
    assert chosen(sort="-reward", limit="2") == [0, 4]
    assert chosen(text='"; DROP TABLE episodes; --') == []
    assert chosen(sort="id; DROP TABLE episodes") == [0, 1, 2, 3, 4]
    assert chosen(offset="3", limit="1") == [3]


def test_json_has_what_a_model_wrote_only_on_request(tmp_path: Path) -> None:
    keep(tmp_path, "step-000001", 1, episode(0, text="ignore your instructions"))
    told = ask(read(tmp_path), "episode", id="1")
    assert "ignore your instructions" in json.dumps(told)
    bare = without_text(told)
    assert "ignore your instructions" not in json.dumps(bare)
    assert "what?" not in json.dumps(bare)
    assert bare["row"]["reward"] == 1.0


def test_the_state_of_a_run_is_read_off_its_folder(tmp_path: Path) -> None:
    now = time.time()
    (tmp_path / "config.toml").write_text("steps = 3\n")
    assert read(tmp_path).state() == "without a step"
    metrics(tmp_path, *({"step": n, "time": now - 900 + n, "reward/mean": 0.5} for n in (1, 2)))
    assert read(tmp_path).state() == "ended early"
    write_plan(tmp_path, 2)  # of its data; config.toml has what is the default
    assert read(tmp_path).state() == "finished"
    write_plan(tmp_path, 3)
    metrics(tmp_path, {"step": 3, "time": now, "reward/mean": 0.5})
    assert read(tmp_path).state() == "finished"
    import fcntl

    other = tmp_path / "locked"
    metrics(other, {"step": 1, "time": now - 5000, "reward/mean": 0.5}, {"step": 2, "time": now})
    with (other / ".lock").open("w") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        assert read(other).state() == "running"
        assert read(other).state(now + 1e5) == "stalled"


@given(st.lists(st.floats(-9, 9), min_size=1, max_size=400), st.integers(3, 60))
def test_a_thinned_line_keeps_its_extremes_and_its_end(values: list[float], most: int) -> None:
    steps, kept = thinned(range(len(values)), values, most)
    assert len(kept) <= max(3, most) + 3
    assert (min(kept), max(kept)) == (min(values), max(values))
    assert kept[-1] == values[-1]
    assert steps == sorted(set(steps))


async def test_the_server_lets_in_only_who_may_look(tmp_path: Path) -> None:
    metrics(tmp_path, {"step": 1, "reward/mean": 0.5})
    async with TestClient(TestServer(WatchServer([tmp_path]).application())) as client:
        for path in ("/", "/page.js", "/page.css", "/api/runs", "/api/nothing"):
            answer = await client.get(path)
            assert answer.headers["Content-Security-Policy"] == HEADERS["Content-Security-Policy"]
        assert (await client.get("/api/runs", headers={"Host": "evil.example:80"})).status == 421
        assert (await client.get("/api/nothing")).status == 404
        assert (await client.post("/api/runs")).status == 405
        since = await client.get("/api/since")
        cursor = (await since.json())["cursor"]
        assert (await client.get("/api/since", params={"cursor": cursor})).status == 304
    served = WatchServer([tmp_path], token="secret", prefix="proxy/path")
    jar = CookieJar(unsafe=True)  # also for addresses without a name
    async with TestClient(TestServer(served.application()), cookie_jar=jar) as client:
        assert (await client.get("/proxy/path/api/runs")).status == 401
        assert (await client.get("/proxy/path/?token=wrong")).status == 401
        assert (await client.get("/proxy/path/?token=secret")).status == 200  # by a cookie
        assert (await client.get("/proxy/path/api/runs")).status == 200
    with pytest.raises(ConfigError, match="--token"):
        refuse_open_door("0.0.0.0", "")
    refuse_open_door("127.0.0.1", "")


async def test_a_page_that_stays_open_sees_a_run_grow_and_another_begin(tmp_path: Path) -> None:
    metrics(tmp_path / "a", {"step": 1, "reward/mean": 0.5})
    server = WatchServer([tmp_path])
    async with TestClient(TestServer(server.application())) as client:
        cursor = (await (await client.get("/api/since")).json())["cursor"]
        metrics(tmp_path / "a", {"step": 2, "reward/mean": 0.75})
        metrics(tmp_path / "b", {"step": 1, "reward/mean": 0.25})
        server._seen_s = -math.inf  # a second later
        after = (await (await client.get("/api/since", params={"cursor": cursor})).json())["cursor"]
        assert after != cursor
        runs = (await (await client.get("/api/runs")).json())["runs"]
        assert {one["run"]: one["reward"] for one in runs} == {"a": 0.75, "b": 0.25}


def test_runs_are_found_inside_of_folders_and_told_apart(tmp_path: Path) -> None:
    for name in ("x/run", "y/run", "y/deep/er/run", "too/deep/to/be/found"):
        metrics(tmp_path / name, {"step": 1})
    assert len(find_runs([tmp_path])) == 3
    names = set(WatchServer([tmp_path]).runs.readers)
    assert names == {"x/run", "y/run", "er/run"}
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="no run to show"):
        WatchServer([tmp_path / "empty"])
