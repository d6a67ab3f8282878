"""A policy with random weights learns to see: warm start, evaluation and RL on pictures."""

from __future__ import annotations

from pathlib import Path

import pytest

from ludus.agent.episodes import read_episodes
from ludus.metrics import read_metrics
from ludus.trainer.config import (
    EvalConfig,
    ModelConfig,
    RolloutConfig,
    RunConfig,
    SFTConfig,
    TrainConfig,
    TrainerConfig,
)
from ludus.trainer.models.tiny import write_tiny_vision_policy
from ludus.trainer.sft import run_sft
from ludus.trainer.train import run_training

COLOURS = "ludus/shapes-v0?ask=colour&max_things=2"
CHANCE = 1 / 6


def trained(
    path: Path, folder: Path, steps: int, *, tasks: int = 20, resume: bool = False
) -> TrainConfig:
    return TrainConfig(
        env=COLOURS,
        steps=steps,
        model=ModelConfig(path=str(path), device="cpu"),
        rollout=RolloutConfig(tasks_per_step=4, group_size=4, max_tokens=8),
        trainer=TrainerConfig(lr=5e-5),
        eval=EvalConfig(tasks=tasks),
        run=RunConfig(folder=str(folder), tensorboard=False, episodes_every=1, resume=resume),
    )


@pytest.mark.slow
async def test_a_random_model_learns_to_name_colours(tmp_path: Path) -> None:
    settings = SFTConfig(
        env=COLOURS,
        steps=45,
        batch_size=64,
        model=ModelConfig(path="tiny", device="cpu"),
        trainer=TrainerConfig(lr=1e-3),
        run=RunConfig(folder=str(tmp_path / "sft"), tensorboard=False),
    )
    checkpoint = await run_sft(settings)
    assert (checkpoint / "preprocessor_config.json").is_file()
    result = await run_training(trained(checkpoint, tmp_path / "run", 1, tasks=200))
    assert evaluated(result.folder) > 1.5 * CHANCE
    untrained = write_tiny_vision_policy(tmp_path / "random")
    before = await run_training(trained(untrained, tmp_path / "before", 1))
    assert evaluated(before.folder) == 0.0


def evaluated(folder: Path) -> float:
    """The held-out reward before the first update."""
    rows = read_metrics(folder / "metrics.jsonl")
    return next(row["eval/mean"] for row in rows if "eval/mean" in row)


@pytest.mark.slow
async def test_a_run_goes_on_from_a_checkpoint_with_its_images(tmp_path: Path) -> None:
    untrained = write_tiny_vision_policy(tmp_path / "random")
    result = await run_training(trained(untrained, tmp_path / "run", 1))
    again = await run_training(trained(untrained, tmp_path / "run", 2, resume=True))
    assert (result.step, again.step) == (1, 2)
    episodes = read_episodes(again.folder / "episodes" / "step-000002.jsonl")
    for episode in episodes:
        (segment,) = episode.trajectories[0].segments
        (image,) = segment.images()
        assert image.image.data.startswith(b"\x89PNG")
        assert image.image == segment.turns[0].observation[-1].images[0]
    shown = {one.name for one in (again.folder / "episodes" / "images").iterdir()}
    assert 0 < len(shown) < 200
