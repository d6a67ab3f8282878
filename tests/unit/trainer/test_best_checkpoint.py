"""The guard: a collapse costs a step, not the run."""

from __future__ import annotations

from pathlib import Path

import pytest

from ludus.trainer.config import RunConfig, TrainConfig, TrainerConfig
from ludus.trainer.learning.learner import Learner
from ludus.trainer.models.checkpoint_folders import checkpoints
from ludus.trainer.models.tiny import build_model, build_tokenizer
from ludus.trainer.run.best import BestByReward
from ludus.trainer.run.claim import RunClaim
from ludus.trainer.run.folder import RunFolder
from ludus.trainer.run.saver import LearnedPolicy, Saver


def row(step: int, reward: float) -> dict[str, float]:
    """A step of 64 rollouts of 8 tasks."""
    return {
        "step": float(step),
        "reward/mean": reward,
        "reward/std": 0.3,
        "group/count": 8.0,
        "group/spread": 0.3,
        "episode/count": 64.0,
    }


class Run:
    """A run without training: each step earns a given reward."""

    def __init__(self, path: Path, rewards: list[float], *, done: int = 0) -> None:
        tokenizer = build_tokenizer()
        model = build_model(len(tokenizer), hidden=16, layers=1, heads=2)
        claim = RunClaim(path, resume=done > 0)
        config = TrainConfig(env="a-v0")
        self.folder = RunFolder(path, config, claim=claim)
        self.rewards = dict(enumerate(rewards, 1))
        self.saver = Saver(
            RunConfig(keep=1),
            self.folder,
            LearnedPolicy(Learner(model, TrainerConfig()), tokenizer),
            dict,
            lambda step, name, text: None,
        )
        rows = [row(step, self.rewards[step]) for step in range(1, done + 1)]
        self.best = BestByReward(len(rewards), 5, self.saver, rows)

    async def play(self, first: int, last: int) -> None:
        for step in range(first, last + 1):
            await self.best.at(step, row(step, self.rewards[step]))

    async def end(self) -> str:
        await self.saver.save(len(self.rewards))
        self.best.finish(len(self.rewards))
        self.folder.close()
        return (self.folder.checkpoints / "best").resolve().name


COLLAPSE = [0.1 * step for step in range(1, 10)] + [0.9] * 4 + [0.05] * 17
"""The reward of step 14 shows that the update of step 13 has ruined the policy."""


async def test_a_run_that_collapses_ends_with_the_weights_from_before(tmp_path: Path) -> None:
    run = Run(tmp_path, COLLAPSE)
    await run.play(1, 30)
    assert await run.end() == "step-000010"
    names = [path.name for path in checkpoints(tmp_path / "checkpoints")]
    assert names == ["step-000010", "step-000030"]  # run.keep = 1, and the best


async def test_a_run_that_only_rises_ends_with_its_last_weights(tmp_path: Path) -> None:
    run = Run(tmp_path, [0.03 * step for step in range(1, 31)])
    await run.play(1, 30)
    assert await run.end() == "step-000030"
    assert len(checkpoints(tmp_path / "checkpoints")) == 1


@pytest.mark.parametrize("cut", [6, 11, 13, 16, 20])
async def test_a_resumed_run_keeps_the_best_that_the_whole_run_keeps(
    tmp_path: Path, cut: int
) -> None:
    run = Run(tmp_path, COLLAPSE)
    await run.play(1, cut)
    await run.saver.save(cut)
    run.folder.close()
    again = Run(tmp_path, COLLAPSE, done=cut)
    await again.play(cut + 1, 30)
    assert await again.end() == "step-000010"
