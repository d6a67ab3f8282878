"""Environments that end their process inside `ludus train` or `ludus eval`; a killed server."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

import ludus

BAD = """
import os, sys, time
import ludus

@ludus.register("mine/bad-v0")
class Bad(ludus.TextEnv):
    "Every third task ends the process it is played in."
    system_prompt = "Say a word."

    def reset(self, *, seed=None, options=None):
        with open("processes.txt", "a") as file:
            file.write(f"{os.getpid()}\\n")
        return "word?", {}

    def step(self, action):
        number = int(self.task.id.rpartition("/")[2]) % 3
        if number == 2:
            os._exit(3)
        return "", float("a" in action), True, False, {}

    def demonstrate(self):
        return "a"
"""


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "bad.py").write_text(BAD)
    command = [sys.executable, "-m", "ludus", "--import", "bad.py", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)


def test_an_evaluation_goes_on_when_its_environment_ends_its_process(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        *("eval", "mine/bad-v0", "--policy", "random", "--tasks", "9", "--concurrency", "1"),
        "--json",
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["episodes"], result["failed"]) == (9, 3)
    processes = {int(line) for line in (tmp_path / "processes.txt").read_text().split()}
    assert len(processes) >= 3  # a new one for each that was lost


@pytest.mark.slow
def test_a_training_run_goes_on_when_its_environment_ends_its_process(tmp_path: Path) -> None:
    warm = run(
        tmp_path,
        *("sft", "--env", "ludus/arithmetic-v0", "--model.path", "tiny", "--steps", "1"),
        *("--batch_size", "4", "--run.folder", "warm"),
    )
    assert warm.returncode == 0, warm.stderr
    model = "warm/checkpoints/step-000001"
    done = run(
        tmp_path,
        *("train", "grpo", "--env", "mine/bad-v0", "--model.path", model, "--steps", "2"),
        *("--rollout.tasks_per_step", "4", "--rollout.max_tokens", "8", "--eval.tasks", "3"),
        *("--run.folder", "run"),
    )
    assert done.returncode == 0, done.stderr
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    steps = [json.loads(line) for line in lines]
    assert any(step.get("reward/unavailable", 0) > 0 for step in steps)
    assert all(step.get("reward/mean", 0.0) <= 1.0 for step in steps)
    assert "config.toml" in {path.name for path in (tmp_path / "run").iterdir()}


def test_no_worker_outlives_a_server_that_is_killed(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text(BAD)
    command = [sys.executable, "-m", "ludus", "--import", "bad.py", "serve", "mine/bad-v0"]
    server = subprocess.Popen(
        [*command, "--port", "0"], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    url = server.stdout.readline().rpartition(" ")[2].strip()
    with ludus.connect(url) as connection:
        env = connection.make("mine/bad-v0")
        env.reset(seed=0)
        below = psutil.Process(server.pid).children(recursive=True)
        worker = int((tmp_path / "processes.txt").read_text().split()[-1])
        assert worker in {process.pid for process in below}  # the control: they are there
        server.kill()
        server.wait()
    server.stdout.close()
    _, alive = psutil.wait_procs(below, timeout=30)
    assert not alive
