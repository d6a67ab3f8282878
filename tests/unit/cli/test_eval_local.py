"""`ludus eval --policy local`: a checkpoint is measured as its own run measures it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ludus.cli.main import main
from ludus.trainer.models.tiny import write_tiny_policy

ENV = "ludus/number-quiz-v0"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_policy(tmp_path_factory.mktemp("model"), hidden=16, layers=1, heads=2)


def sampled(path: Path) -> dict[str, list[int]]:
    """The sampled ids of each task in a file of episodes."""
    episodes: list[dict[str, Any]] = [json.loads(line) for line in path.read_text().splitlines()]
    return {
        episode["task"]: episode["trajectories"][0]["segments"][0]["turns"][0]["out_ids"]
        for episode in episodes
    }


def evaluated(model: Path | str, *more: str, env: str = ENV) -> int:
    chosen = ["--policy", "local", "--model", str(model), "--max-tokens", "6", "--tasks", "5"]
    return main(["eval", env, *chosen, *more])


def test_a_checkpoint_answers_as_in_the_evaluation_of_its_run(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, out = tmp_path / "run", tmp_path / "out.jsonl"
    options = (
        f"--env {ENV} --model.path {model} --steps 1 --rollout.tasks-per-step 1 "
        "--rollout.group-size 2 --rollout.max-tokens 6 --trainer.lr 0.05 --eval.tasks 5 "
        f"--run.folder {run} --run.tensorboard false"
    )
    assert main(["train", "grpo", *options.split()]) == 0
    for path, of_run in (
        (model, run / "episodes" / "eval-000000.jsonl"),
        (run / "checkpoints" / "step-000001", run / "episodes" / "eval-000001.jsonl"),
    ):
        assert evaluated(path, "--temperature", "0", "--out", str(out)) == 0
        assert sampled(out) == sampled(of_run)
    assert "5" in capsys.readouterr().out


def test_the_report_is_that_of_every_policy(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    assert evaluated(model, "--samples", "2", "--json", "--html", str(page)) == 0
    local: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert main(["eval", ENV, "--policy", "expert", "--tasks", "5", "--json"]) == 0
    assert set(local) >= set(json.loads(capsys.readouterr().out)) - {"failures"}
    assert (local["episodes"], local["failed"], local["tasks"]) == (10, 0, 5)
    assert set(local["pass_at"]) == {"1", "2"}
    assert page.read_text().count('"trajectories":[{"role"') == 10


@pytest.mark.parametrize(
    ("passing", "told"),
    [("1", "an episode passes with a return of at least 1 (--passing)"),
     ("1.5", "an episode passes with a return of at least 1.5 (--passing); none did")],
)  # fmt: skip
def test_what_counts_as_passed_is_said_beside_the_rates(
    passing: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = ["--policy", "expert", "--tasks", "3", "--passing", passing]
    assert main(["eval", ENV, *chosen]) == 0
    assert told in capsys.readouterr().out.splitlines()
    assert main(["eval", ENV, *chosen, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["passing"] == float(passing)


def test_the_same_seed_samples_the_same(model: Path, tmp_path: Path) -> None:
    files = [tmp_path / f"{name}.jsonl" for name in ("a", "b", "c")]
    for file, seed in zip(files, ("3", "3", "4"), strict=True):
        assert evaluated(model, "--seed", seed, "--out", str(file)) == 0
    same, again, other = map(sampled, files)
    assert same == again
    assert same != other


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--policy", "local"], "--policy local needs --model"),
        (["--policy", "local", "--model", "smolm3"], "cannot load a model from 'smolm3'"),
        (
            ["--policy", "local", "--model", "m", "--base-url", "http://x/v1"],
            "--base-url http://x/v1: is for --policy openai",
        ),
        (
            ["--policy", "local", "--model", "m", "--no-send-reasoning"],
            "--no-send-reasoning: is for --policy openai",
        ),
        (
            [
                "--policy",
                "openai",
                "--base-url",
                "http://x/v1",
                "--model",
                "m",
                "--max-image-pixels",
                "9",
            ],
            "--max-image-pixels 9: is for --policy local",
        ),
        (["--policy", "local", "--model", "m", "--budget", "9"], "--budget 9: is for --policy op"),
    ],
)
def test_what_cannot_work_is_told_before_anything_is_played(
    arguments: list[str],
    complaint: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    assert main(["eval", ENV, *arguments]) == 2
    assert complaint in capsys.readouterr().err


def test_a_window_that_leaves_no_room_is_refused(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    full = ["--window", "60", "--context.manager", "summarize"]
    assert evaluated(model, *full, env="ludus/arithmetic-v0") == 2
    assert "no window would hold a step" in capsys.readouterr().err


def test_images_that_the_model_would_not_see_are_refused(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert evaluated(model, env="ludus/shapes-v0") == 2
    assert "image" in capsys.readouterr().err


AGENT = """
import httpx


def run(task):
    body = {"model": "any", "messages": [{"role": "user", "content": task.prompt}]}
    headers = {"Authorization": f"Bearer {task.key}"}
    url = f"{task.base_url}/chat/completions"
    reply = httpx.post(url, json=body, headers=headers, timeout=60).json()
    return reply["choices"][0]["message"]["content"]
"""


def test_an_agent_is_evaluated_and_trained_and_its_rows_are_those_of_the_gateway(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    agent, out, run = tmp_path / "agent.py", tmp_path / "out.jsonl", tmp_path / "run"
    agent.write_text(AGENT)
    env = "ludus/arithmetic-v0"
    assert evaluated(model, "--agent", f"{agent}:run", "--out", str(out), env=env) == 0
    for line in out.read_text().splitlines():
        (trajectory,) = json.loads(line)["trajectories"]
        (row,) = trajectory["segments"]
        assert [row["cause"], trajectory["metrics"]["trained_share"]] == ["start", 1.0]
    options = (
        f"--env {env} --model.path {model} --agent {agent}:run --steps 1 "
        "--rollout.tasks-per-step 2 --rollout.group-size 2 --rollout.max-tokens 6 "
        f"--eval.tasks 2 --run.folder {run} --run.tensorboard false"
    )
    assert main(["train", "grpo", *options.split()]) == 0
    capsys.readouterr()
    assert main(["train", "ppo", *options.split()]) == 2
    assert "take a recipe without a critic" in capsys.readouterr().err


def test_an_agent_needs_a_model_to_call(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", ENV, "--policy", "random", "--agent", "agent.py:run"]) == 2
    assert "needs a model to call" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "--model is missing"),
        (("--model", "tiny", "--host", "0.0.0.0"), "without a key"),
        (("--model", "tiny", "--port", "99999"), "ports are 0 to 65535"),
        (("--model", "tiny", "--max-tokens", "0"), "--max-tokens must be at least 1"),
        (("--model", "tiny", "--temperature", "nan"), "--temperature must be"),
        (("--model", "tiny", "--lease-s", "nan"), "--lease-s must be more than 0"),
        (("inspect", "ro_1", "--url", "http://127.0.0.1:9"), "--key is missing"),
        (("inspect", "ro_1", "--url", "http://[::1", "--key", "k"), "no gateway answers"),
        (("inspect", "ro\n1", "--url", "http://127.0.0.1:9", "--key", "k"), "no gateway answers"),
        (("inspect", "ro_1", "--key", "k\u00e9y"), "--key holds characters"),
        (("inspect", "ro_1", "--url", "http://127.0.0.1:9", "--key", "k"), "no gateway answers"),
    ],
)
def test_a_gateway_that_cannot_be_served_or_asked_says_what_is_missing(
    arguments: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["gateway", *arguments]) == 2
    assert words in capsys.readouterr().err
