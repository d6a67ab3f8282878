"""`ludus export` read by pandas and datasets; the statistics of `ludus compare` beside scipy."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.peers
pandas = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")

from ludus.agent import Episode, Segment, Trajectory, Turn, write_episodes  # noqa: E402
from ludus.agent.viewer.compare import improvement, iqm  # noqa: E402
from ludus.agent.viewer.export import export, windows  # noqa: E402
from ludus.agent.viewer.run import RunReader  # noqa: E402
from ludus.messages import assistant, user  # noqa: E402
from ludus.verdict import Verdict  # noqa: E402


@pytest.fixture
def reader(tmp_path: Path) -> RunReader:
    folder = tmp_path / "run"
    (folder / "episodes").mkdir(parents=True)
    (folder / "metrics.jsonl").write_text('{"step": 1, "reward/mean": 0.5}\n')
    episodes = []
    for number in range(1200):  # more than are written at once
        turn = Turn(out_ids=[number, 2], logprobs=[-0.5, -1.0], versions=[0, 1])
        turn.observation, turn.message = [user(f"question {number}")], assistant("answer")
        verdict = Verdict.of(float(number % 2)) if number % 5 else Verdict.unavailable("lost")
        trajectory = Trajectory(verdict=verdict, segments=[Segment(prompt_ids=[7], turns=[turn])])
        split = "test" if number % 3 == 0 else "train"
        episodes.append(Episode(task="t", ordinal=number, split=split, trajectories=[trajectory]))
    write_episodes(folder / "episodes" / "step-000001.jsonl", episodes)
    made = RunReader(folder, "run", None)
    made.refresh()
    return made


def told(reader: RunReader) -> list[dict[str, object]]:
    _, rows = reader.store.query({}, limit=5000)
    return list(windows(reader, ((row, reader.episode(row["id"])[1]) for row in rows)))


def test_pandas_reads_the_tables_with_every_id(reader: RunReader, tmp_path: Path) -> None:
    files = {path.stem: path for path in export(reader, "parquet", tmp_path / "p", filters={})}
    table = pandas.read_parquet(files["windows"])
    expected = told(reader)
    assert len(table) == 1200
    assert [list(ids) for ids in table["ids"]] == [row["ids"] for row in expected]
    assert [list(ids) for ids in table["logprobs"]] == [row["logprobs"] for row in expected]
    assert int(table["reward"].isna().sum()) == 240
    assert pandas.read_parquet(files["metrics"])["value"].tolist() == [0.5]
    lines = export(reader, "jsonl", tmp_path / "j", filters={})[0]
    again = pandas.read_json(lines, lines=True)
    assert again["ids"].tolist() == [row["ids"] for row in expected]


def test_datasets_reads_the_folder_by_splits(reader: RunReader, tmp_path: Path) -> None:
    os.environ["HF_HOME"], os.environ["HF_HUB_OFFLINE"] = str(tmp_path / "hf"), "1"
    datasets = pytest.importorskip("datasets")
    export(reader, "hf", tmp_path / "folder", filters={})
    loaded = datasets.load_dataset(str(tmp_path / "folder"))
    assert {name: len(split) for name, split in loaded.items()} == {"test": 400, "train": 800}
    expected = [row for row in told(reader) if row["split"] == "train"]
    assert loaded["train"]["ids"][:] == [row["ids"] for row in expected]


def test_trackio_reads_sessions_of_pi(reader: RunReader, tmp_path: Path) -> None:
    traces = pytest.importorskip("trackio.logbook_trace")
    sessions = pytest.importorskip("trackio.agent_sessions")
    files = export(reader, "pi", tmp_path / "pi", filters={"reward": "1"})
    assert sessions.is_hub_native_jsonl(files[0])
    read = traces.normalize_trace(files[0])
    assert (read["provider"], read["model"]) == ("Pi", "policy")
    told = json.dumps(read["events"])
    assert re.search(r"question \d*[13579]\\?\"", told)  # odd ones have earned 1
    assert "answer" in told


HARBOR = """
import sys
from harbor.utils.trajectory_validator import TrajectoryValidator
for path in sys.argv[1:]:
    validator = TrajectoryValidator()
    assert validator.validate(path), validator.errors
print(len(sys.argv) - 1)
"""


def test_harbor_validates_atif(reader: RunReader, tmp_path: Path) -> None:
    python = os.environ.get("LUDUS_LIVE_PYTHON", "")
    if not python:
        pytest.skip("make test-peers installs harbor where there is a Python for it")
    files = export(reader, "atif", tmp_path / "atif", filters={"step": "..1"})[:50]
    command = [python, "-c", HARBOR, *map(str, files)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert ran.stdout.strip() == str(len(files)), ran.stderr


def test_statistics_are_those_of_scipy() -> None:
    stats = pytest.importorskip("scipy.stats")
    draw = np.random.default_rng(0)
    for runs, tasks in ((2, 1), (5, 3), (7, 10)):
        scores = draw.integers(0, 5, size=(runs, tasks)) / 4
        other = draw.integers(0, 5, size=(runs + 2, tasks)) / 4
        assert iqm(scores) == pytest.approx(stats.trim_mean(scores, 0.25, axis=None))
        expected = np.mean(
            [
                stats.mannwhitneyu(scores[:, task], other[:, task]).statistic / (runs * (runs + 2))
                for task in range(tasks)
            ]
        )
        assert improvement(scores, other) == pytest.approx(float(expected))


def test_a_column_that_begins_empty_has_its_type(reader: RunReader, tmp_path: Path) -> None:
    lines = [
        {"ordinal": number, "group": 0, "task": "t", "fate": "lost", "step": 1}
        | ({"reward": 0.5, "tokens": 3} if number > 900 else {})
        for number in range(1000)
    ]
    (reader.path / "rollouts.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    files = {path.stem: path for path in export(reader, "parquet", tmp_path / "p", filters={})}
    table = pandas.read_parquet(files["rollouts"])
    assert (len(table), table["reward"].sum(), table["tokens"].sum()) == (1000, 49.5, 297)
