"""What the driver of a run on a cluster learns of the run's processes."""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("ray", reason="the extra cluster installs Ray")

import ray
from ray.exceptions import GetTimeoutError

from ludus.trainer.cluster import board
from ludus.trainer.cluster.board import Board, PlacedProcess, Rosters, look

LIMIT_S = 0.4


def test_processes_that_do_not_answer_are_waited_for_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A lost machine with eight processes takes one limit, and those that answer are heard."""

    def get(report: Any, *, timeout: float) -> Any:
        if report is None:
            time.sleep(timeout)
            raise GetTimeoutError
        return report

    monkeypatch.setattr(ray, "get", get)
    monkeypatch.setattr(board, "ANSWER_S", LIMIT_S)
    told = SimpleNamespace(pid=7, node="b", code=None, url="", ready=True)
    reports = [None] * 8 + [told]
    processes = [
        PlacedProcess(
            f"rank-{number}",
            SimpleNamespace(state=SimpleNamespace(remote=lambda report=report: report)),
            pid=7,
        )
        for number, report in enumerate(reports)
    ]
    began = time.monotonic()
    look(processes)
    assert LIMIT_S <= time.monotonic() - began < 2 * LIMIT_S
    assert [process.state for process in processes] == ["lost"] * 8 + ["running"]


def test_a_file_that_cannot_be_written_ends_nothing_and_is_written_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    told = Board(tmp_path / "away")
    rank = told.add("rank-0", None)
    with caplog.at_level(logging.WARNING):
        told.enter("training")
        rank.state = "running"
        told.write()
        told.write()
    assert len(caplog.records) == 1
    told.path.parent.mkdir()
    told.write()
    kept = json.loads(told.path.read_bytes())
    assert (kept["stage"], kept["processes"][0]["state"]) == ("training", "running")
    assert [event["what"] for event in kept["events"]] == [
        "training",
        "rank-0: starting on no node yet",
        "rank-0: running on no node yet",
    ]
    before = told.path.stat().st_mtime_ns
    told.write()
    assert told.path.stat().st_mtime_ns == before


def test_a_roster_that_cannot_be_written_ends_nothing_and_is_written_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rosters = Rosters(tmp_path / "away")
    servers = [PlacedProcess(name, None, url=f"http://{name}:1") for name in ("a", "b", "a")]
    with caplog.at_level(logging.WARNING):
        rosters.write("rewards", servers)
        rosters.write("rewards", servers)
    assert len(caplog.records) == 1
    assert list(rosters.unwritten) == ["rewards"]
    rosters.folder.mkdir()
    rosters.write("rewards", servers)
    path = rosters.path("rewards")
    assert path.read_text() == "http://a:1\nhttp://b:1\n"
    assert not rosters.unwritten
    path.unlink()
    rosters.write("rewards", servers)  # nothing is new
    assert not path.exists()
    servers[0].url = "http://a:2"
    rosters.write("rewards", servers)
    assert path.read_text() == "http://a:2\nhttp://b:1\nhttp://a:1\n"
