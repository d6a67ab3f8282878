"""Faults while rollouts are played ahead of the learner: training goes on or stops with everything
saved, and no rollout is lost, doubled or paid for a failure.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import ludus
from ludus.cli.main import main
from ludus.errors import TrainingFailed
from ludus.findings import read_findings
from ludus.metrics import read_metrics
from ludus.rewards import Sample
from ludus.trainer.config import (
    AsyncConfig,
    EvalConfig,
    ModelConfig,
    RewardConfig,
    RolloutConfig,
    RunConfig,
    TrainConfig,
    TrainerConfig,
)
from ludus.trainer.engines.local import LocalEngine
from ludus.trainer.models.tiny import write_tiny_policy
from ludus.trainer.rollout import scoring, source
from ludus.trainer.stream.accounts import FILE, count_rollouts, read_rollouts
from ludus.trainer.stream.watchdog import RunStalled
from ludus.trainer.train import run_training
from ludus.verdict import Verdict

ENV = "ludus/arithmetic-v0"


class LocalServer:
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
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_policy(tmp_path_factory.mktemp("model"), hidden=16, layers=1, heads=2)


def config(model: Path, folder: Path, **changes: Any) -> TrainConfig:
    settings: dict[str, Any] = {
        "env": ENV,
        "steps": 6,
        "model": ModelConfig(path=str(model)),
        "rollout": RolloutConfig(
            tasks_per_step=2, group_size=3, max_tokens=6, max_turns=2, retries=1
        ),
        "overlap": AsyncConfig(max_staleness=2, outage_s=60.0),
        "trainer": TrainerConfig(lr=1e-3),
        "eval": EvalConfig(tasks=2),
        "run": RunConfig(folder=str(folder), tensorboard=False, save_every=1),
    }
    return TrainConfig(**{**settings, **changes})


class AtStep:
    """Does something to a run when a step is done."""

    def __init__(self, step: int, act: Any) -> None:
        self.step, self.act = step, act

    def on_episode(self, episode: Any) -> None: ...

    def on_step(self, step: int, metrics: Any) -> None:
        if step == self.step:
            self.act()

    def on_evaluation(self, step: int, evaluation: Any) -> None: ...


@pytest.mark.slow
async def test_a_server_that_is_away_for_seconds_costs_no_rollout(
    model: Path, tmp_path: Path
) -> None:
    served = LocalServer()
    try:

        def away() -> None:
            served.kill()
            asyncio.get_running_loop().call_later(6.0, served.start)

        settings = config(model, tmp_path / "run", env_url=served.url)
        result = await asyncio.wait_for(run_training(settings, watcher=AtStep(2, away)), 200)
    finally:
        served.kill()
    assert result.step == 6
    found = count_rollouts(result.folder)
    assert (found.issued, found.trained, found.masked, found.holds) == (36, 36, {}, True)


@pytest.mark.slow
async def test_servers_that_stay_away_end_the_run_with_everything_saved(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "connect", partial(source.connect, timeout_s=2.0))
    served = LocalServer()
    overlap = AsyncConfig(max_staleness=2, outage_s=3.0)
    settings = config(model, tmp_path / "run", env_url=served.url, overlap=overlap)
    with pytest.raises(TrainingFailed, match="could be reached for 3 s") as raised:
        await asyncio.wait_for(run_training(settings, watcher=AtStep(2, served.kill)), 200)
    assert "groups were in flight" in raised.value.__notes__[0]
    served.start()
    try:
        on = RunConfig(folder=str(tmp_path / "run"), tensorboard=False, resume=True)
        result = await run_training(replace(settings, env_url=served.url, run=on))
    finally:
        served.kill()
    found = count_rollouts(result.folder)
    assert (result.step, found.issued, found.trained, found.holds) == (6, 36, 36, True)


@ludus.verifier("test/unreliable")
class Unreliable:
    """Three of ten verdicts fail for good."""

    asked = 0

    async def score(self, sample: Sample) -> Verdict:
        self.asked += 1
        if self.asked * 7 % 10 < 3:
            return Verdict.unavailable("the reward service is down")
        return Verdict.of(float(self.asked % 2))


async def test_a_reward_service_that_fails_three_times_in_ten_is_masked_and_told(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scoring, "MAX_ASKED_AGAIN", 0)
    settings = config(model, tmp_path / "run", reward=[RewardConfig("test/unreliable")])
    result = await run_training(settings)
    found = count_rollouts(result.folder)
    assert found.holds
    lost = found.masked["failed: unavailable"]
    assert found.issued == found.trained + lost == 36
    assert 0.15 * 36 < lost < 0.45 * 36
    rows = [row for row in read_metrics(result.folder / "metrics.jsonl") if "reward/mean" in row]
    assert len(rows) == 6
    assert sum(row["update/tokens"] > 0 for row in rows) >= 5
    assert rows[-1]["rollouts/masked/failed: unavailable"] == lost
    assert any("have no reward" in one.sentence for one in read_findings(result.folder))
    assert all(one.tokens for one in read_rollouts(result.folder / FILE))


async def test_a_rollout_that_is_lost_from_the_files_is_found_from_outside(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = await run_training(config(model, tmp_path / "run", steps=2))
    assert main(["accounts", str(result.folder)]) == 0  # the control
    assert capsys.readouterr().out.split()[:4] == ["issued", "12", "trained", "12"]
    path = result.folder / FILE
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:4] + lines[5:]))
    found = count_rollouts(result.folder)
    assert not found.holds
    (lost,) = found.missing
    assert main(["accounts", str(result.folder)]) == 1
    assert f"missing  1: ordinals {lost}" in capsys.readouterr().err
    assert main(["accounts", str(tmp_path)]) == 2


async def test_a_run_without_progress_says_who_waits_and_ends_at_the_limit(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    generate = LocalEngine.generate

    async def stuck(engine: Any, ids: Any, sampling: Any, **more: Any) -> Any:
        if engine.version == 1:
            await asyncio.sleep(300)
        return await generate(engine, ids, sampling, **more)

    monkeypatch.setattr(LocalEngine, "generate", stuck)
    overlap = AsyncConfig(stall_s=0.5, stall_limit_s=3.0)
    settings = config(model, tmp_path / "run", overlap=overlap)
    with pytest.raises(RunStalled, match="generation: 6 rollouts of group 2, 3"):
        await asyncio.wait_for(run_training(settings), 100)
    told = [one.sentence for one in read_findings(tmp_path / "run") if one.name == "stalled"]
    assert any("Waiting for generation: 6 rollouts of group 2, 3" in text for text in told)
    monkeypatch.setattr(LocalEngine, "generate", generate)
    on = RunConfig(folder=str(tmp_path / "run"), tensorboard=False, resume=True)
    result = await run_training(replace(settings, run=on, steps=3))
    assert count_rollouts(result.folder).trained == 18


@pytest.mark.parametrize("staleness", [0, 2])
async def test_a_step_whose_weights_no_engine_takes_has_its_line_and_is_not_made_again(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, staleness: int
) -> None:
    take = LocalEngine.set_weights

    async def deaf(engine: Any, source: Any, version: int) -> None:
        if version == 3:
            await asyncio.sleep(300)
        await take(engine, source, version)

    monkeypatch.setattr(LocalEngine, "set_weights", deaf)
    overlap = AsyncConfig(max_staleness=staleness, publish_timeout_s=0.5)
    settings = config(model, tmp_path / "run", overlap=overlap)
    with pytest.raises(TrainingFailed, match=r"not taken the weights of step 3 within 0\.5 s"):
        await asyncio.wait_for(run_training(settings), 100)
    lines = [
        one for one in read_metrics(tmp_path / "run" / "metrics.jsonl") if "time/update_s" in one
    ]
    assert [one["step"] for one in lines] == [1, 2, 3]
    assert lines[2]["rollouts/trained"] == 18
    assert lines[2]["time/publish_s"] > 0.4
    monkeypatch.setattr(LocalEngine, "set_weights", take)
    on = RunConfig(folder=str(tmp_path / "run"), tensorboard=False, resume=True)
    result = await run_training(replace(settings, run=on))
    lines = [one for one in read_metrics(result.folder / "metrics.jsonl") if "time/update_s" in one]
    assert [one["step"] for one in lines] == [1, 2, 3, 4, 5, 6]
    found = count_rollouts(result.folder)
    assert (found.issued, found.trained, found.holds) == (36, 36, True)
