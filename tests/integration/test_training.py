"""Training for real: a tiny model, an environment in another process, faults on purpose."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ludus.agent.episodes import read_episodes
from ludus.cli.main import main
from ludus.config import build, merge, read_toml
from ludus.envs.serving.client import RemoteSession
from ludus.envs.session import Stepped
from ludus.messages import Message
from ludus.metrics import read_metrics
from ludus.trainer.config import (
    EvalConfig,
    ModelConfig,
    RolloutConfig,
    RunConfig,
    TrainConfig,
    TrainerConfig,
)
from ludus.trainer.models.checkpoint import load_state
from ludus.trainer.models.checkpoint_folders import checkpoints, step_of
from ludus.trainer.models.tiny import write_tiny_policy
from ludus.trainer.train import run_training

ENV = "ludus/arithmetic-v0"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return write_tiny_policy(tmp_path_factory.mktemp("model"), hidden=32, layers=2, heads=2)


def config(model: Path, folder: Path, **changes: Any) -> Any:
    settings: dict[str, Any] = {
        "env": ENV,
        "steps": 3,
        "model": ModelConfig(path=str(model)),
        "rollout": RolloutConfig(tasks_per_step=3, group_size=3, max_tokens=8, max_turns=2),
        "trainer": TrainerConfig(lr=1e-3),
        "eval": EvalConfig(tasks=4),
        "run": RunConfig(folder=str(folder), tensorboard=False, save_every=1, episodes_every=1),
    }
    return TrainConfig(**{**settings, **changes})


@pytest.mark.parametrize(("max_kl", "acts"), [(1e-6, True), (0.0, False)])
async def test_no_step_moves_the_policy_beyond_the_bound(
    model: Path, tmp_path: Path, max_kl: float, acts: bool
) -> None:
    trainer = TrainerConfig(lr=3e-2, updates_per_step=3, max_kl=max_kl)
    settings = config(model, tmp_path / "run", trainer=trainer, control="random")
    result = await run_training(settings)
    rows = read_metrics(result.folder / "metrics.jsonl")
    stopped = sum(row.get("update/stopped", 0.0) for row in rows)
    assert (stopped > 0) is acts
    kept = [row["update/kl_after"] for row in rows if "update/kl_after" in row]
    assert bool(kept) is acts
    assert all(divergence <= max_kl for divergence in kept)


class Served:
    """`ludus serve` as a process that can be killed and started again on its port."""

    def __init__(self) -> None:
        self.port = "0"
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "ludus", "serve", ENV, "--port", self.port]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().split(" at ")[1].strip()
        self.port = self.url.rpartition(":")[2]

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(60)
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture(scope="module")
def served() -> Any:
    made = Served()
    yield made
    made.kill()


async def test_a_run_over_http_leaves_a_folder_that_loads(
    model: Path, tmp_path: Path, served: Served
) -> None:
    result = await run_training(config(model, tmp_path / "run", env_url=served.url))
    rows = read_metrics(result.folder / "metrics.jsonl")
    assert [row["step"] for row in rows if "reward/mean" in row] == [1, 2, 3]
    assert rows[-1]["eval/failed"] == 0
    # three steps of 9 rollouts, the 4 tasks held out before, and a look at the first task
    assert rows[-2]["wire/sessions_opened"] == 3 * 9 + 4 + 1
    from transformers import AutoModelForCausalLM

    assert AutoModelForCausalLM.from_pretrained(result.checkpoint).config.hidden_size == 32
    episodes = read_episodes(result.folder / "episodes" / "step-000001.jsonl")
    assert len(episodes) == 9
    assert len({episode.group for episode in episodes}) == 3


async def test_local_and_served_environments_give_the_same_run(
    model: Path, tmp_path: Path, served: Served
) -> None:
    here = await run_training(config(model, tmp_path / "here", steps=2))
    there = await run_training(config(model, tmp_path / "there", steps=2, env_url=served.url))
    for name in ("step-000001", "step-000002"):
        first, second = (
            {
                (episode.group, episode.index): episode.trajectories[0].segments[0].ids()
                for episode in read_episodes(result.folder / "episodes" / f"{name}.jsonl")
            }
            for result in (here, there)
        )
        assert first == second


async def test_a_server_killed_in_the_middle_costs_time_and_no_reward(
    model: Path, tmp_path: Path, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kill -9 while episodes run: they are played again, none becomes a zero, nothing hangs."""
    stepping = RemoteSession.step
    steps = 0

    async def step_and_kill(session: RemoteSession, action: str | Message) -> Stepped:
        nonlocal steps
        steps += 1
        if steps == 20:  # with the four sessions of the evaluation behind, others in flight
            served.kill()
            served.start()
        return await stepping(session, action)

    monkeypatch.setattr(RemoteSession, "step", step_and_kill)
    rollout = RolloutConfig(
        tasks_per_step=4, group_size=4, max_tokens=8, max_turns=2, concurrency=4
    )
    settings = config(model, tmp_path / "run", steps=2, env_url=served.url, rollout=rollout)
    result = await asyncio.wait_for(run_training(settings), 120)
    assert result.step == 2
    rows = [row for row in read_metrics(result.folder / "metrics.jsonl") if "reward/mean" in row]
    assert rows[-1]["wire/replays"] > 0  # a deterministic episode is played to where it was
    assert sum(row["reward/unavailable"] for row in rows) == 0
    for path in (result.folder / "episodes").glob("step-*.jsonl"):
        assert all(episode.trajectories[0].verdict.ok for episode in read_episodes(path))


def interrupt_after(
    lines: int, arguments: list[str], cwd: Path, *, verb: str = "train", by: int = signal.SIGINT
) -> Any:
    """Run `ludus train` as a process and send it Ctrl-C once `lines` lines of metrics are there."""
    command = [sys.executable, "-m", "ludus", verb, *arguments, "--run.folder=run"]
    process = subprocess.Popen(command, cwd=cwd, stderr=subprocess.PIPE, text=True)
    metrics = cwd / "run" / "metrics.jsonl"
    deadline = time.monotonic() + 120
    while not metrics.exists() or len(metrics.read_text().splitlines()) < lines:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(by)
    _, errors = process.communicate(timeout=60)
    return process.returncode, errors


async def test_ctrl_c_keeps_a_checkpoint_and_the_run_goes_on_as_if_nothing_had_happened(
    model: Path, tmp_path: Path
) -> None:
    arguments = ["grpo", "--env", ENV, f"--model.path={model}", "--trainer.lr=1e-3"]
    arguments += ["--rollout.tasks_per_step=3", "--rollout.group_size=3", "--rollout.max_tokens=8"]
    arguments += ["--rollout.max_turns=2", "--eval.tasks=4", "--run.episodes_every=1"]
    code, errors = interrupt_after(4, [*arguments, "--steps=4000"], tmp_path)
    assert code == 130, errors
    at_once, _, at_the_end = errors.partition("stopping after what is under way")
    assert "go on with" not in at_once
    assert "go on with: ludus train run/config.toml --run.resume" in at_the_end
    folder = tmp_path / "run"
    done = step_of(checkpoints(folder / "checkpoints")[-1])
    assert 2 <= done < 4000
    steps = done + 2
    table = merge(read_toml(folder / "config.toml"), {"steps": steps})
    await run_training(
        build(TrainConfig, merge(table, {"run": {"resume": True, "folder": str(folder)}}))
    )
    await run_training(config(model, tmp_path / "whole", steps=steps))
    last = Path("episodes") / f"step-{steps:06d}.jsonl"
    assert sampled(folder / last) == sampled(tmp_path / "whole" / last)


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["train", "sft"])
def test_sigterm_keeps_a_checkpoint_too(model: Path, tmp_path: Path, verb: str) -> None:
    arguments = ["--env", ENV, f"--model.path={model}", "--steps=4000"]
    if verb == "train":
        arguments += ["--rollout.tasks_per_step=2", "--rollout.max_tokens=4", "--eval.tasks=2"]
    code, errors = interrupt_after(3, arguments, tmp_path, verb=verb, by=signal.SIGTERM)
    assert code == 130, errors
    assert f"go on with: ludus {verb} run/config.toml --run.resume" in errors
    assert step_of(checkpoints(tmp_path / "run" / "checkpoints")[-1]) >= 2


def sampled(path: Path) -> Any:
    return {
        (episode.group, episode.index): episode.trajectories[0].segments[0].ids()
        for episode in read_episodes(path)
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--trainer.lrr=1"], "unknown options: --trainer.lrr=1; did you mean --trainer.lr?"),
        (["--rollout.group_size=1"], "with sampling.group_size = 1 all advantages are 0"),
        (["--trainer.lr=fast"], "--trainer.lr takes a number, got 'fast'"),
        (["--env", "ludus/arithmetik-v0"], "did you mean 'ludus/arithmetic-v0'?"),
        (["--model.path=/nowhere"], "cannot load"),
        (["--recipe", "gpro"], "no recipe named 'gpro'; did you mean 'gspo' or 'grpo'?"),
        (["--run.folder=/proc/nothing"], "cannot write the run folder '/proc/nothing'"),
        (["nonsense"], "unknown options: nonsense"),
    ],
)
def test_a_bad_setting_is_one_line_that_says_what_to_do(
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    names = {argument.split("=")[0] for argument in arguments}  # an option is given once
    usual = {"--env": ENV, "--model.path": str(model), "--steps": "1"}
    common = [f"{name}={value}" for name, value in usual.items() if name not in names]
    assert main(["train", "grpo", *common, *arguments]) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("ludus:")]
    assert len(lines) == 1
    assert message in lines[0]


def test_a_folder_that_holds_a_run_is_not_overwritten(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = tmp_path / "old"
    old.mkdir()
    (old / "metrics.jsonl").write_text("{}\n")
    arguments = ["grpo", "--env", ENV, f"--model.path={model}", f"--run.folder={old}"]
    assert main(["train", *arguments]) == 2
    assert "holds a run already" in capsys.readouterr().err
    assert os.listdir(old) == ["metrics.jsonl"]


@pytest.mark.parametrize("recipe", ["dapo", "scale_rl"])
async def test_recipes_that_choose_their_groups_run_and_resume(
    model: Path, tmp_path: Path, recipe: str
) -> None:
    """An untrained policy gets no reward: DAPO's filter drops every group, and asks for more."""
    rollout = RolloutConfig(tasks_per_step=2, group_size=2, max_tokens=4, max_turns=2)
    result = await run_training(
        config(model, tmp_path / "run", steps=1, rollout=rollout, recipe=recipe)
    )
    state = load_state(result.checkpoint)["stream"]["tasks"]
    # 2 tasks, and with refill 4 more rounds of 2
    assert state["used"] == (10 if recipe == "dapo" else 2)
    on = RunConfig(folder=str(tmp_path / "run"), tensorboard=False, resume=True)
    settings = config(model, tmp_path / "run", steps=2, rollout=rollout, recipe=recipe, run=on)
    again = await run_training(settings)
    assert load_state(again.checkpoint)["stream"]["tasks"]["used"] == 2 * state["used"]
