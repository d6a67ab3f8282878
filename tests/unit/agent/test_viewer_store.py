"""The index of a run's episodes takes what a run folder from elsewhere may hold."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ludus.agent import Episode, write_episodes
from ludus.agent.episodes import INDEX, indexed
from ludus.agent.viewer.run import RunReader
from ludus.agent.viewer.store import Store, cache_folder
from ludus.agent.viewer.views import Runs, view

STEP = "step-000001.jsonl"
HUGE = 99_999_999_999_999_999_999


def run_of(folder: Path, *tasks: str) -> Path:
    """Write a run with an episode of each task, of the group `TASK#0`."""
    episodes = [Episode(task=task, group=f"{task}#0", trajectories=[]) for task in tasks]
    path = folder / "episodes" / STEP
    path.parent.mkdir()
    lines = indexed(STEP, 1, episodes, write_episodes(path, episodes), ())
    (path.parent / INDEX).write_bytes(b"".join(msgspec.json.encode(one) + b"\n" for one in lines))
    return folder


def found(store: Store, **filters: str) -> list[str]:
    return [row["task"] for row in store.query(filters)[1]]


@pytest.mark.parametrize(
    "line",
    [
        {"file": STEP, "offset": 0, "bytes": 3, "step": HUGE},
        {"file": STEP, "offset": HUGE, "bytes": 3},
        {"file": "\0", "offset": 0, "bytes": 3},
        {"file": "..", "offset": 0, "bytes": 3},
        {"file": STEP, "offset": -5, "bytes": 1 << 60},
    ],
)
def test_a_line_of_the_index_that_cannot_be_stops_no_reader(
    line: dict[str, Any], tmp_path: Path
) -> None:
    run = run_of(tmp_path, "a", "b")
    with (run / "episodes" / INDEX).open("ab") as index:
        index.write(msgspec.json.encode(line) + b"\n")
    store = Store(run, None)
    store.refresh()
    assert found(store, text="task")[:2] == ["a", "b"]
    assert [len(store.line(dict(row))) > 0 for row in store.query({})[1]][:2] == [True, True]


def test_names_and_rollouts_with_numbers_beyond_64_bits_stop_no_reader(tmp_path: Path) -> None:
    run = run_of(tmp_path, "a")
    (run / "episodes" / STEP).rename(run / "episodes" / f"step-{HUGE}.jsonl")
    (run / "episodes" / INDEX).unlink()
    row: dict[str, Any] = {"ordinal": 1, "group": 0, "task": "a", "fate": "trained", "step": 1}
    rollouts = [row, row | {"ordinal": HUGE}, row | {"ordinal": 2, "issued": -HUGE}]
    (run / "rollouts.jsonl").write_bytes(b"\n".join(map(msgspec.json.encode, rollouts)) + b"\n")
    store = Store(run, None)
    store.refresh()
    store.refresh_rollouts()
    assert found(store) == ["a"]
    assert store.bad == 2
    assert [one["ordinal"] for one in store.rows("SELECT ordinal FROM rollouts")] == [1]


@pytest.mark.parametrize(("most", "shown"), [("", 9), ("4", 4), ("-1", 0)])
def test_no_bound_of_rollouts_is_none(most: str, shown: int, tmp_path: Path) -> None:
    row: dict[str, Any] = {"group": 0, "task": "a", "fate": "trained", "step": 1, "started": 1.0}
    lines = [msgspec.json.encode({**row, "ordinal": number}) for number in range(9)]
    (run_of(tmp_path, "a") / "rollouts.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    runs = Runs([RunReader(tmp_path, "run", None)])
    assert len(view("lanes", runs, {"most": most})["rollouts"]) == shown


def test_an_inode_may_take_all_of_64_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stat = Path.stat

    def numbered_from_the_top(path: Path, **more: Any) -> os.stat_result:
        status = stat(path, **more)
        top = status.st_ino | 1 << 63  # as an overlay's files may be
        return os.stat_result((status.st_mode, top, *status[2:]))

    monkeypatch.setattr(Path, "stat", numbered_from_the_top)
    run = run_of(tmp_path, "a")
    store = Store(run / "episodes" / STEP, None)
    assert [store.refresh(), store.refresh()] == [True, False]
    assert found(store) == ["a"]


def test_a_filter_takes_any_task_and_a_bound_that_is_no_number_bounds_nothing(
    tmp_path: Path,
) -> None:
    store = Store(run_of(tmp_path, "pick a, b or c", "b"), None)
    store.refresh()
    assert found(store, task="pick a, b or c") == ["pick a, b or c"]
    assert found(store, grp="pick a, b or c#0") == ["pick a, b or c"]
    assert found(store, split="test,train") == found(store, step="nan") == ["pick a, b or c", "b"]


def test_an_index_in_the_home_of_nobody_is_a_temporary_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", "~nobody-of-this-name")
    folder = cache_folder()
    assert folder.is_dir()
    folder.rmdir()
    assert not list(tmp_path.iterdir())
