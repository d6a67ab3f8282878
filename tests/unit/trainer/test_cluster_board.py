"""What the driver of a run on a cluster learns of the run's processes."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("ray", reason="the extra cluster installs Ray")

import ray
from ray.exceptions import GetTimeoutError

from ludus.trainer.cluster import board
from ludus.trainer.cluster.board import PlacedProcess, look

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
