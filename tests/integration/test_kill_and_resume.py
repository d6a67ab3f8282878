"""kill -9 at any moment: what was trained is what would have been trained, or the check fails."""

from __future__ import annotations

import json
import os
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from ludus.config import build, merge, read_toml
from ludus.trainer.config import TrainConfig
from ludus.trainer.models.checkpoint import STATE_FILE
from ludus.trainer.models.checkpoint_folders import checkpoints
from ludus.trainer.stream.accounts import AccountsBroken, count_rollouts
from ludus.trainer.train import run_training

pytestmark = pytest.mark.slow
BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "kill_and_resume.py"


def measured(*arguments: str) -> tuple[int, str]:
    command = [sys.executable, str(BENCHMARK), *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=550, env=environment)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run ahead of its learner that was killed three times."""
    work = tmp_path_factory.mktemp("killed")
    code, said = measured(
        "--kills=3", "--steps=8", "--staleness=1", f"--keep={work}", "--life-s=0.7"
    )
    assert code == 0, said
    assert "3 kills" in said
    assert "the same multiset: True" in said
    return work / "cut"


@pytest.mark.parametrize("recipe", ["grpo", "dapo"])
def test_a_synchronous_run_that_is_killed_five_times_is_the_run_that_was_not(recipe: str) -> None:
    """Without a filter to the last bit of the weights."""
    code, said = measured("--kills=5", "--steps=14", f"--recipe={recipe}")
    assert code == 0, said
    assert "the law holds" in said


@pytest.mark.large
@pytest.mark.parametrize("staleness", [0, 2])
@pytest.mark.parametrize("recipe", ["grpo", "dapo"])
def test_twenty_kills(recipe: str, staleness: int) -> None:
    # Lives are short, or a quick machine ends the run before it was killed twenty times.
    settings = ("--steps=40", "--life-s=0.7", f"--recipe={recipe}", f"--staleness={staleness}")
    code, said = measured(*settings)
    assert code == 0, said


def breaches(run: Path) -> list[str]:
    """What the independent reader finds."""
    found: list[str] = runpy.run_path(str(BENCHMARK))["breaches"](run)
    return found


def test_the_law_of_a_run_that_was_killed_holds_by_two_readers(run: Path) -> None:
    assert breaches(run) == []
    count = count_rollouts(run)
    assert count.holds
    assert count.trained == 8 * 3 * 3


Line = dict[str, Any]


def lost(lines: list[Line]) -> list[Line]:
    return lines[:40] + lines[41:]


def doubled(lines: list[Line]) -> list[Line]:
    return [*lines, lines[7]]


def invented(lines: list[Line]) -> list[Line]:
    return [*lines, {**lines[0], "ordinal": 999}]


def masked_for_nothing(lines: list[Line]) -> list[Line]:
    return [{**lines[0], "fate": "masked"}, *lines[1:]]


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (lost, "lost ordinals: [40]"),
        (doubled, "ordinals with two fates: [7]"),
        (invented, "never issued: [999]"),
        (masked_for_nothing, "masked without a reason: [0]"),
    ],
)
def test_a_planted_fault_makes_the_check_fail(
    run: Path, tmp_path: Path, fault: Callable[[list[Line]], list[Line]], told: str
) -> None:
    copy = Path(shutil.copytree(run, tmp_path / "copy", symlinks=True))
    path = copy / "rollouts.jsonl"
    lines: list[Line] = [json.loads(line) for line in path.read_text().splitlines()]
    planted = fault(sorted(lines, key=lambda line: line["ordinal"]))
    path.write_text("".join(json.dumps(line) + "\n" for line in planted))
    assert told in "; ".join(breaches(copy))


async def test_rollouts_that_a_checkpoint_has_lost_are_found_when_the_run_resumes(
    run: Path, tmp_path: Path
) -> None:
    runpy.run_path(str(BENCHMARK))["prepare"](tmp_path)  # the reward of the run
    copy = Path(shutil.copytree(run, tmp_path / "copy", symlinks=True))
    path = checkpoints(copy / "checkpoints")[-1] / STATE_FILE
    state = torch.load(path, weights_only=True)
    assert set(state) == {"entropy_coefficient", "learner", "step", "stream"}
    state["stream"]["trained"] -= 3
    torch.save(state, path)
    table = merge(
        read_toml(copy / "config.toml"), {"steps": 9, "run": {"resume": True, "folder": str(copy)}}
    )
    with pytest.raises(AccountsBroken, match="do not add up"):
        await run_training(build(TrainConfig, table))
