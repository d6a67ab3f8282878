"""Evaluation during a real run: beside training, of one version or several, and what it decides."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from ludus.agent.episodes import read_episodes
from ludus.metrics import read_metrics
from ludus.trainer.config import (
    AuditConfig,
    EvalConfig,
    ModelConfig,
    RolloutConfig,
    RunConfig,
    TrainConfig,
    TrainerConfig,
)
from ludus.trainer.models.checkpoint_folders import checkpoints
from ludus.trainer.models.loading import load_model
from ludus.trainer.models.tiny import write_tiny_policy
from ludus.trainer.train import run_training


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_policy(tmp_path_factory.mktemp("model"), hidden=16, layers=1, heads=2)


def config(model: Path, folder: Path, **changes: Any) -> TrainConfig:
    settings: dict[str, Any] = {
        "env": "ludus/arithmetic-v0",
        "steps": 4,
        "model": ModelConfig(path=str(model)),
        "rollout": RolloutConfig(tasks_per_step=2, group_size=2, max_tokens=6, max_turns=1),
        "trainer": TrainerConfig(lr=1e-3),
        "eval": EvalConfig(tasks=3, every=1),
        "run": RunConfig(folder=str(folder), tensorboard=False, save_every=0, keep=9),
    }
    return TrainConfig(**{**settings, **changes})


def weights(path: Path) -> dict[str, Any]:
    return dict(load_model(str(path)).named_parameters())


async def test_an_engine_of_its_own_evaluates_one_version_and_training_is_bitwise_the_same(
    model: Path, tmp_path: Path
) -> None:
    plain = await run_training(config(model, tmp_path / "plain"))
    beside = EvalConfig(tasks=3, every=1, beside="own")
    result = await run_training(config(model, tmp_path / "beside", eval=beside))
    first, second = weights(plain.checkpoint), weights(result.checkpoint)
    assert all(bool((first[name] == second[name]).all()) for name in first)
    rows = read_metrics(result.folder / "metrics.jsonl")
    scored = [row for row in rows if "eval/episodes" in row]
    assert [scored[0]["step"], scored[-1]["step"]] == [0, 4]
    for row in scored:
        assert row["eval/oldest_version"] == row["eval/newest_version"] == row["step"]
    # greedy episodes of the same weights are the same, played beside training or between steps
    for row in scored:
        name = Path("episodes") / f"eval-{int(row['step']):06d}.jsonl"
        played, before = (
            [one.trajectories[0].segments[0].ids() for one in read_episodes(folder / name)]
            for folder in (result.folder, plain.folder)
        )
        assert played == before


async def test_the_engine_of_training_evaluates_beside_it_and_says_which_versions(
    model: Path, tmp_path: Path
) -> None:
    beside = EvalConfig(tasks=3, every=1, beside="shared")
    result = await run_training(config(model, tmp_path / "run", eval=beside))
    rows = read_metrics(result.folder / "metrics.jsonl")
    scored = [row for row in rows if "eval/episodes" in row]
    assert [scored[0]["step"], scored[-1]["step"]] == [0, 4]
    for row in scored:
        assert row["step"] <= row["eval/oldest_version"] <= row["eval/newest_version"] <= 4
    assert [row["step"] for row in rows if "reward/mean" in row] == [1, 2, 3, 4]


async def test_samples_of_each_task_give_pass_at_k(model: Path, tmp_path: Path) -> None:
    sampled = EvalConfig(tasks=3, samples=4, temperature=1.0)
    result = await run_training(config(model, tmp_path / "run", steps=1, eval=sampled))
    (row, _) = [
        row for row in read_metrics(result.folder / "metrics.jsonl") if "eval/episodes" in row
    ]
    assert row["eval/episodes"] == 12
    assert row["eval/pass@4/low"] <= row["eval/pass@4"] <= row["eval/pass@4/high"]
    episodes = read_episodes(result.folder / "episodes" / "eval-000000.jsonl")
    assert len({one.task for one in episodes}) == 3
    assert len({tuple(one.trajectories[0].segments[0].ids()) for one in episodes}) > 3


async def test_a_run_that_ends_early_says_why_keeps_its_best_and_stays_ended(
    model: Path, tmp_path: Path
) -> None:
    """An untrained policy earns 0 each time: nothing is better than the first."""
    early = EvalConfig(tasks=3, every=1, patience=2)
    result = await run_training(config(model, tmp_path / "run", steps=50, eval=early))
    assert result.step == 2
    assert "2 evaluations in a row were no better than 0.000 at step 0" in result.stopped
    assert [path.name for path in checkpoints(result.folder / "checkpoints")] == ["step-000002"]
    assert not os.path.lexists(result.folder / "checkpoints" / "best")  # it is model.path
    on = RunConfig(folder=str(result.folder), tensorboard=False, resume=True)
    again = await run_training(config(model, result.folder, steps=50, eval=early, run=on))
    assert (again.step, again.stopped) == (2, result.stopped)


async def test_the_episodes_of_every_second_step_are_audited(model: Path, tmp_path: Path) -> None:
    audited = config(model, tmp_path, audit=AuditConfig(every=2), eval=EvalConfig(tasks=1))
    result = await run_training(audited)
    rows = [row for row in read_metrics(result.folder / "metrics.jsonl") if "reward/mean" in row]
    assert [row["step"] for row in rows if "audit/reward" in row] == [2, 4]
    assert all(row["audit/reward"] <= row["reward/mean"] for row in rows if "audit/reward" in row)
