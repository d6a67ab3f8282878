"""examples/07_evolving_rubrics.py: rubrics change while a policy is trained."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ludus.agent.viewer.page import write_report
from ludus.rewards.judge.evolving.snapshots import SnapshotStore


@pytest.fixture(scope="module")
def example(run_example: Callable[[str], Any]) -> Any:
    return run_example("07_evolving_rubrics.py")


@pytest.mark.slow
def test_rubrics_evolve_and_the_report_names_the_judge(
    example: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "rubrics"
    printer = example.main(["--steps", "2", "--warm-steps", "160", "--folder", str(folder)])
    told = capsys.readouterr().out
    assert len(printer.truths) == 2
    assert told.count("true score") >= 4
    assert "The response mentions" in told
    assert "+" in told
    store = SnapshotStore(folder / "rubrics.sqlite")
    newest = store.newer({})
    store.close()
    assert len(newest) >= 10
    assert max(buffer.version for buffer in newest) >= 2
    assert {one.state.value for buffer in newest for one in buffer.criteria} >= {"active"}
    page = write_report(folder / "run").read_text()
    assert '"judges":[{"reward":"' in page
    assert "evolving-rubric" in page
