"""What the driver of a run on a cluster learns of the run's processes."""

from __future__ import annotations

import json
import logging
import signal
import subprocess
import time
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("ray", reason="the extra cluster installs Ray")

import ray
from ray.exceptions import ActorUnavailableError, GetTimeoutError

from ludus.trainer.cluster import board
from ludus.trainer.cluster.board import AddressFile, Board, PlacedProcess, look

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
    path = tmp_path / "away" / "rewards"
    roster, urls = AddressFile(path), ["http://a:1", "http://b:1", "http://a:1"]
    with caplog.at_level(logging.WARNING):
        assert [roster.write(urls) for _ in range(3)] == [False] * 3
    assert len(caplog.records) == 1
    assert isinstance(roster.fault, FileNotFoundError)
    path.parent.mkdir()
    assert roster.write(urls)
    assert path.read_text() == "http://a:1\nhttp://b:1\n"
    assert roster.fault is None
    assert not roster.write(urls), "nothing is new"
    assert not roster.write([]), "nobody answers, who may be back soon"
    assert roster.write(["http://b:2"])
    assert path.read_text() == "http://b:2\n"


def test_a_replica_is_stopped_though_nobody_keeps_addresses_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def get(_: Any, *, timeout: float) -> None:
        raise ActorUnavailableError("gone", None)

    monkeypatch.setattr(ray, "get", get)
    pytest.importorskip("fastapi", reason="the extra cluster installs Ray Serve")
    with warnings.catch_warnings(action="ignore"):  # of Ray Serve, as it is imported
        from ludus.trainer.cluster.scaled import ServedReplica

    process = subprocess.Popen(["sleep", "600"])
    replica = object.__new__(ServedReplica)
    replica.id, replica.drain_s = "a", 1.0
    replica._process = process
    replica._addresses = SimpleNamespace(tell=SimpleNamespace(remote=lambda *_: None))
    replica.__del__()
    assert process.returncode == -signal.SIGTERM
