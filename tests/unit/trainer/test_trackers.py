"""Trackers are told every step, by their own readers; one that fails costs nothing else."""

import importlib.util
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from ludus.cli.main import main
from ludus.errors import ConfigError, MissingExtra
from ludus.metrics import read_metrics
from ludus.trainer.config import RunConfig, TrainConfig
from ludus.trainer.run import trackers
from ludus.trainer.run.folder import RunFolder

STEPS = {1: {"reward/mean": 0.25, "loss": 2.0}, 2: {"reward/mean": 0.5}, 3: {"loss": 1.0}}


def written(folder: Path, *names: str, tensorboard: bool = False) -> RunFolder:
    settings = RunConfig(tensorboard=tensorboard, trackers=names)
    run = RunFolder(folder, TrainConfig(env="a-v0"), settings=settings)
    for step, numbers in STEPS.items():
        run.log(step, numbers)
    run.close()
    return run


def test_tensorboard_reads_what_was_written(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    written(tmp_path, tensorboard=True)
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    rewards = [(one.step, one.value) for one in events.Scalars("reward/mean")]
    assert rewards == [(1, 0.25), (2, 0.5)]


def test_a_tracker_that_fails_ends_and_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failing:
        """Somebody's tracker, whose server goes away after a step."""

        closed = 0

        def log(self, step: int, numbers: Mapping[str, float]) -> None:
            if step > 1:
                raise RuntimeError("the server is gone")

        def close(self) -> None:
            Failing.closed += 1
            raise RuntimeError("nothing to close")

    monkeypatch.setitem(trackers.TRACKERS, "trackio", lambda *given: Failing())
    run = written(tmp_path, "trackio")
    assert Failing.closed == 1
    assert "trackio cannot be written (RuntimeError: the server is gone)" in run.faults()["trackio"]
    assert [row["step"] for row in read_metrics(tmp_path / "metrics.jsonl")] == [1, 2, 3]


def test_trackers_that_cannot_be_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ConfigError, match="'mlflow'; trackers: wandb, trackio"):
        RunConfig(trackers=("mlflow",))
    assert main(["train", "grpo", "--run.trackers", "wanbd"]) == 2
    assert "trackers: wandb, trackio" in capsys.readouterr().err
    for name in ("wandb", "trackio"):
        if importlib.util.find_spec(name) is None:
            with pytest.raises(MissingExtra, match=rf"ludus-rl\[{name}\]"):
                written(tmp_path / name, name)


def records(data: bytes) -> Iterator[bytes]:
    """The records of a log of LevelDB: blocks of 32 KiB, records in up to several parts."""
    place, whole = 7, b""  # behind the mark of the file
    while place + 7 <= len(data):
        room = 32768 - place % 32768
        if room < 7:
            place += room
            continue
        length, kind = int.from_bytes(data[place + 4 : place + 6], "little"), data[place + 6]
        whole += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # all of a record, or its last part
            yield whole
            whole = b""


@pytest.mark.peers
def test_wandb_reads_the_files_that_were_written_without_a_network(tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    from wandb.proto import wandb_internal_pb2

    written(tmp_path, "wandb")
    (file,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    rows: dict[int, dict[str, str]] = {}
    for data in records(file.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        if record.WhichOneof("record_type") == "history":
            items = {(one.key or "/".join(one.nested_key)): one for one in record.history.item}
            values = {key: one.value_json for key, one in items.items() if key[0] != "_"}
            rows[record.history.step.num] = values
    assert {step: {k: float(v) for k, v in row.items()} for step, row in rows.items()} == STEPS


@pytest.mark.peers
def test_trackio_holds_every_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))  # read as it is imported
    pytest.importorskip("trackio")
    written(tmp_path / "run", "trackio")
    (file,) = (tmp_path / "trackio").glob("*.db")
    with sqlite3.connect(file) as base:
        rows = base.execute("SELECT step, metrics FROM metrics ORDER BY step").fetchall()
    assert [step for step, _ in rows] == [1, 2, 3]
    assert all(b'"reward/mean"' in bytes(metrics) for _, metrics in rows[:2])
