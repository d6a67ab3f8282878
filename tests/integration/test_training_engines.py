"""Training with engines in processes of their own, one of which is killed."""

import asyncio
import os
import signal
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ludus.agent import Episode
from ludus.agent.episodes import read_episodes
from ludus.errors import ConfigError, EngineLost, TrainingFailed
from ludus.metrics import read_metrics
from ludus.trainer.config import (
    AsyncConfig,
    EvalConfig,
    LocalConfig,
    LoraConfig,
    ModelConfig,
    RolloutConfig,
    RunConfig,
    TrainConfig,
    TrainerConfig,
)
from ludus.trainer.engines.process import ProcessEngine
from ludus.trainer.models.tiny import write_tiny_policy
from ludus.trainer.stream.accounts import count_rollouts
from ludus.trainer.train import run_training

pytestmark = pytest.mark.slow


def config(model: Path, folder: Path, **changes: Any) -> TrainConfig:
    settings: dict[str, Any] = {
        "env": "ludus/arithmetic-v0",
        "steps": 3,
        "model": ModelConfig(path=str(model)),
        "rollout": RolloutConfig(tasks_per_step=3, group_size=3, max_tokens=8, max_turns=2),
        "trainer": TrainerConfig(lr=1e-3),
        "eval": EvalConfig(tasks=4),
        "run": RunConfig(folder=str(folder), tensorboard=False, save_every=0, episodes_every=1),
    }
    return TrainConfig(**{**settings, **changes})


def engine_processes() -> list[int]:
    """Return the engine processes that this process has started and that still run."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        try:
            command = (entry / "cmdline").read_text()
            parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]
        except OSError:
            continue
        if "ludus.isolation.worker" in command and int(parent) == os.getpid():
            found.append(int(entry.name))
    return found


def played(folder: Path) -> dict[int, Episode]:
    """Return the trained episodes of a run by their ordinals."""
    files = [folder / "episodes" / f"step-{step:06d}.jsonl" for step in (1, 2, 3)]
    return {one.ordinal: one for file in files for one in read_episodes(file)}


def sampled(episode: Episode) -> list[list[int]]:
    return [turn.out_ids for one in episode.trajectories[0].segments for turn in one.turns]


class Killer:
    """Kills an engine process after the first step."""

    def __init__(self) -> None:
        self.killed: list[int] = []

    def on_episode(self, episode: Episode) -> None: ...

    def on_evaluation(self, step: int, evaluation: Any) -> None: ...

    def on_step(self, step: int, metrics: Mapping[str, float]) -> None:
        if step == 1:
            self.killed = engine_processes()[:1]
            for pid in self.killed:
                os.kill(pid, signal.SIGKILL)


async def test_a_run_survives_the_loss_of_an_engine_and_leaves_none_behind(tmp_path: Path) -> None:
    model = write_tiny_policy(tmp_path / "model", hidden=32, layers=2, heads=2)
    killer = Killer()
    local = LocalConfig(engines=2)
    ahead = config(model, tmp_path / "apart", local=local, overlap=AsyncConfig(max_staleness=2))
    await run_training(ahead, watcher=killer)
    await run_training(config(model, tmp_path / "within"))
    assert killer.killed
    assert engine_processes() == []
    rows = read_metrics(tmp_path / "apart" / "metrics.jsonl")
    steps = [row for row in rows if "reward/mean" in row]
    assert [row["step"] for row in steps] == [1, 2, 3]
    assert steps[0]["engine/serving"] == 2
    assert steps[-1]["engine/lost"] == 1
    assert steps[-1]["rollouts/issued"] == steps[-1]["rollouts/trained"] == 27
    apart, within = (played(tmp_path / name) for name in ("apart", "within"))
    assert sorted(apart) == sorted(within) == list(range(27))
    assert not any(one.trajectories[0].exclude_from_loss for one in apart.values())
    # The first groups are sampled from the first weights in both runs; later weights may differ in
    # their last bits.
    assert all(sampled(apart[ordinal]) == sampled(within[ordinal]) for ordinal in range(9))


async def test_a_run_whose_engines_are_all_gone_for_good_ends_and_loses_no_rollout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = write_tiny_policy(tmp_path / "model", hidden=32, layers=2, heads=2)
    settings = config(
        model,
        tmp_path / "run",
        local=LocalConfig(engines=1),
        overlap=AsyncConfig(max_staleness=2),
        steps=8,
    )
    revive = ProcessEngine.revive

    async def never(engine: ProcessEngine) -> None:
        raise EngineLost("no such machine any more")

    class KillsAll(Killer):
        def on_step(self, step: int, metrics: Mapping[str, float]) -> None:
            if step == 1:
                monkeypatch.setattr(ProcessEngine, "revive", never)
                for pid in engine_processes():
                    os.kill(pid, signal.SIGKILL)

    with pytest.raises(
        TrainingFailed, match=r"nothing samples any more.* process 0 was lost 5 times"
    ):
        await asyncio.wait_for(run_training(settings, watcher=KillsAll()), 120)
    assert engine_processes() == []
    monkeypatch.setattr(ProcessEngine, "revive", revive)
    on = RunConfig(folder=str(tmp_path / "run"), tensorboard=False, resume=True)
    result = await run_training(replace(settings, run=on))
    count = count_rollouts(result.folder)
    assert (result.step, count.issued, count.trained, count.masked) == (8, 72, 72, {})
    assert count.holds


def test_settings_of_engine_processes_that_cannot_work_are_refused(tmp_path: Path) -> None:
    lora = TrainerConfig(lora=LoraConfig(rank=2, publish="adapter"))
    with pytest.raises(ConfigError, match=r"lora\.publish is 'adapter'.* take 'merged'"):
        config(tmp_path, tmp_path, trainer=lora, local=LocalConfig(engines=1))
    config(tmp_path, tmp_path, trainer=lora)
    with pytest.raises(ConfigError, match=r"local\.threads is 2, but there is no engine process"):
        LocalConfig(threads=2)
