"""A whole run of two ranks is that of one process, also when it is killed and resumed."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from ludus.trainer.models.checkpoint_folders import checkpoints
from ludus.trainer.models.model_paths import shards_alone
from ludus.trainer.models.tiny import write_tiny_policy
from ludus.trainer.ranks.whole import join
from ludus.trainer.stream.accounts import count_rollouts

STEPS = 6
ROLLOUTS = 2 * 4
TIMEOUT_S = 300
MEASURED = ("time", "tokens_per_s")
"""Metrics of this machine, not of the run."""
Run = list["subprocess.Popen[str]"]


def settings(work: Path) -> Path:
    model = write_tiny_policy(work / "model", hidden=16, layers=2, heads=2)
    recipe = work / "recipe.toml"  # the bonus counts in every step, and grows
    recipe.write_text('base = "ppo"\n[algorithm.entropy]\ntarget = 9\nchange = 0.01\n')
    file = work / "run.toml"
    file.write_text(
        f"""
recipe = "{recipe}"
env = "ludus/arithmetic-v0"
steps = {STEPS}
[model]
path = "{model}"
device = "cpu"
[rollout]
tasks_per_step = 2
group_size = 4
max_tokens = 8
max_turns = 2
[trainer]
lr = 1e-4
tokens_per_pass = 128
[eval]
tasks = 2
[run]
tensorboard = false
save_every = 2
episodes_every = 0
keep = {STEPS}
[[reward]]
name = "test/parity"
"""
    )
    return file


def finish(run: Run) -> None:
    said = [rank.communicate(timeout=TIMEOUT_S)[0] for rank in run]
    assert [rank.returncode for rank in run] == [0] * len(run), "\n".join(said)


def kill(run: Run, folder: Path, step: int, ranks: list[int]) -> None:
    """Kill ranks after the checkpoint of a step, and wait for the end of all."""
    end = time.monotonic() + TIMEOUT_S
    while not (folder / "checkpoints" / f"step-{step:06d}").exists():
        ended = [rank.communicate()[0] for rank in run if rank.poll() is not None]
        assert not ended, "\n".join(ended)
        assert time.monotonic() < end, "the run has saved nothing"
        time.sleep(0.01)
    for number in ranks:
        os.kill(run[number].pid, signal.SIGKILL)
    for number, rank in enumerate(run):
        said = rank.communicate(timeout=30)[0]
        assert rank.returncode != 0, said
        assert (rank.returncode == -signal.SIGKILL) is (number in ranks), said


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def assert_ended_by(run: Run, dead: int) -> None:
    """Wait for a rank to be killed, and for the others to end with its name."""
    assert run[dead].wait(timeout=TIMEOUT_S) == -signal.SIGKILL
    for number, rank in enumerate(run):
        said = rank.communicate(timeout=60)[0]
        if number != dead:
            assert rank.returncode not in (0, None)
            assert re.search(rf"rank {dead} \(host \S+, pid {run[dead].pid}\) died", said), said


def fates(folder: Path) -> list[tuple[int, str, str, int]]:
    found = lines(folder / "rollouts.jsonl")
    return sorted((one["ordinal"], one["task"], one["fate"], one["step"]) for one in found)


def assert_equal_runs(one: Path, other: Path) -> None:
    """Compare rollouts, metrics and weights: float32, and Adam's steps of 1e-4."""
    count = count_rollouts(other)
    assert count.holds
    assert (count.issued, count.trained) == (STEPS * ROLLOUTS, STEPS * ROLLOUTS)
    assert fates(one) == fates(other)
    rows, others = lines(one / "metrics.jsonl"), lines(other / "metrics.jsonl")
    assert [row["step"] for row in others] == [row["step"] for row in rows]
    for row, found in zip(rows, others, strict=True):
        kept = {name for name in row.keys() | found.keys() if not name.startswith(MEASURED)}
        for name in sorted(kept):
            assert math.isclose(row[name], found[name], rel_tol=1e-3, abs_tol=1e-5), (
                row["step"],
                name,
                row[name],
                found[name],
            )
    for step in range(2, STEPS + 1, 2):
        name = f"checkpoints/step-{step:06d}"
        if shards_alone(other / name):
            join(other / name)
        weights, found = (load_file(run / name / "model.safetensors") for run in (one, other))
        assert weights.keys() == found.keys()
        worst = max(float((found[key] - value).abs().max()) for key, value in weights.items())
        assert worst <= 1e-5, (step, worst)


def in_shards(folder: Path) -> list[str]:
    """Return the checkpoints of a run without a whole model, but for the best."""
    best = (folder / "checkpoints" / "best").resolve()
    assert not shards_alone(best)
    others = [path for path in checkpoints(folder / "checkpoints") if path != best]
    return [path.name for path in others if shards_alone(path)]


@pytest.mark.slow
def test_a_run_of_two_ranks_is_that_of_one_process_also_when_it_is_killed_and_resumed(
    start: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = settings(tmp_path)

    def run(name: str, world: int, *more: str) -> Run:
        started: Run = start(
            "runs.py", world, "train", file, f"--run.folder={tmp_path / name}", *more
        )
        return started

    alone, two, cut = run("alone", 1), run("two", 2), run("cut", 2)
    kill(cut, tmp_path / "cut", 2, [1])
    monkeypatch.setenv("LUDUS_TEST_DIE_IN_SAVE", "1:1")  # of the checkpoint of step 4
    dying = run("cut", 2, "--run.resume")
    monkeypatch.delenv("LUDUS_TEST_DIE_IN_SAVE")
    assert_ended_by(dying, 1)
    assert [one.name for one in (tmp_path / "cut/checkpoints").glob("step-*")] == ["step-000002"]
    again = run("cut", 2, "--run.resume", "--run.whole=always")
    kill(again, tmp_path / "cut", 4, [0, 1])
    last = run("cut", 1, "--run.resume")
    for one in (alone, two, last):
        finish(one)
    moved = load_file(tmp_path / "alone/checkpoints/step-000006/model.safetensors")
    begun = load_file(tmp_path / "model/model.safetensors")
    assert max(float((moved[key] - one).abs().max()) for key, one in begun.items()) > 3e-4
    # ranks write the whole model at the end, for the best checkpoint, and where that is asked for
    assert in_shards(tmp_path / "two") == ["step-000002", "step-000004"]
    assert in_shards(tmp_path / "cut") == ["step-000002"]
    for name in ("two", "cut"):
        assert_equal_runs(tmp_path / "alone", tmp_path / name)
