"""`overlap.max_staleness = 0` is the synchronous trainer: against a plain loop, bit for bit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import ludus
from ludus.agent.episodes import read_episodes
from ludus.metrics import Stopwatch, read_metrics
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
from ludus.trainer.learning.experience import gather
from ludus.trainer.models.loading import load_model
from ludus.trainer.models.tiny import write_tiny_policy
from ludus.trainer.rollout.evaluate import evaluate
from ludus.trainer.run.metrics import summarize_step
from ludus.trainer.setup import assemble
from ludus.trainer.stream.accounts import count_rollouts
from ludus.trainer.train import run_training
from ludus.verdict import Verdict

TIMED = ("time", "tokens_per_s", "wire/", "rollouts/", "staleness/", "bias/")
"""Metrics that are of the clock, or that only the stream knows."""


@ludus.verifier("test/digits")
class Digits:
    """Something to learn that an untrained policy finds: digits in the answer."""

    async def score(self, sample: Sample) -> Verdict:
        return Verdict.of(float(sum(one.isdigit() for one in sample.text)))


def config(folder: Path, model: Path) -> TrainConfig:
    return TrainConfig(
        env="ludus/arithmetic-v0",
        steps=3,
        seed=5,
        model=ModelConfig(path=str(model)),
        # one rollout at a time: what else is in the engine's batch changes the last bit of a number
        rollout=RolloutConfig(
            tasks_per_step=2, group_size=3, max_tokens=6, max_turns=2, concurrency=1
        ),
        trainer=TrainerConfig(lr=1e-2, updates_per_step=2),
        reward=[RewardConfig("test/digits")],
        eval=EvalConfig(tasks=2),
        run=RunConfig(folder=str(folder), tensorboard=False, save_every=0, episodes_every=1),
    )


async def plain_loop(config: TrainConfig) -> tuple[list[torch.Tensor], list[dict[str, float]], Any]:
    """Generate, update, publish; generate, update, publish."""
    parts = await assemble(config)
    rollout, rows, sampled = parts.config.rollout, list[dict[str, float]](), list[Any]()
    try:
        await evaluate(parts.evaluator, config.eval)
        for step in range(config.steps):
            watch = Stopwatch()
            with watch("generate"):
                groups = await parts.collector.collect(
                    await parts.tasks.take(rollout.tasks_per_step),
                    group_size=rollout.group_size,
                    seed=config.seed,
                    first=step * rollout.tasks_per_step,
                )
            experience = gather(groups, version=step)
            assert experience is not None
            generator = torch.Generator().manual_seed(config.seed * 1_000_003 + step)
            metrics = parts.updater.step(experience, generator=generator)
            await parts.engine.set_weights(parts.learner.source(), step + 1)
            rows.append(summarize_step(groups, metrics, watch, {}))
            sampled.append([turns_of(episode) for group in groups for episode in group.episodes])
        return [one.detach().clone() for one in parts.learner.model.parameters()], rows, sampled
    finally:
        await parts.closing.aclose()


def turns_of(episode: Any) -> Any:
    return [
        (episode.ordinal, turn.out_ids, turn.logprobs, turn.versions)
        for trajectory in episode.trajectories
        for turn in trajectory.turns
    ]


@pytest.fixture
def one_thread() -> Iterator[None]:
    """The plain loop learns on this thread, and the run on a new one, which begins with the number
    of threads that any thread has set last, in an earlier test too. Sums of two threads have other
    last bits than those of one.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("one_thread")
async def test_without_staleness_the_run_is_the_plain_loop_bit_for_bit(tmp_path: Path) -> None:
    model = write_tiny_policy(tmp_path / "model", hidden=16, layers=1, heads=2)
    weights, rows, sampled = await plain_loop(config(tmp_path / "plain", model))
    result = await run_training(config(tmp_path / "run", model))
    # in the order in which one follows from the other: the first that differs is named
    for step, mine in enumerate(sampled, start=1):
        path = result.folder / "episodes" / f"step-{step:06d}.jsonl"
        assert [turns_of(episode) for episode in read_episodes(path)] == mine
    logged = [row for row in read_metrics(result.folder / "metrics.jsonl") if "reward/mean" in row]
    for mine, its in zip(rows, logged, strict=True):
        timeless = {name: value for name, value in its.items() if not name.startswith(TIMED)}
        timeless.pop("step")
        assert timeless == {n: v for n, v in mine.items() if not n.startswith(TIMED)}
    saved = list(load_model(str(result.checkpoint)).parameters())
    assert len(saved) == len(weights)
    assert all(torch.equal(mine, its) for mine, its in zip(weights, saved, strict=True))
    first = load_model(str(model)).parameters()
    assert not all(torch.equal(a, b) for a, b in zip(first, saved, strict=True))  # it did learn
    assert count_rollouts(result.folder).trained == 3 * 2 * 3
    assert count_rollouts(result.folder).holds


@pytest.mark.parametrize("eta", [1, 4])
async def test_ahead_of_the_learner_the_accounts_hold_and_the_ages_are_bounded(
    tmp_path: Path, eta: int
) -> None:
    model = write_tiny_policy(tmp_path / "model", hidden=16, layers=1, heads=2)
    settings = replace(
        config(tmp_path / "run", model),
        steps=8,
        overlap=AsyncConfig(max_staleness=eta, deadline=eta),
        rollout=RolloutConfig(tasks_per_step=2, group_size=3, max_tokens=6, max_turns=2),
    )
    result = await run_training(settings)
    rows = [row for row in read_metrics(result.folder / "metrics.jsonl") if "reward/mean" in row]
    assert result.step == 8
    found = count_rollouts(result.folder)
    assert (found.issued, found.trained, found.holds) == (48, 48, True)
    assert max(row["staleness/max"] for row in rows) <= eta
    assert max(row["staleness/max"] for row in rows) > 0
    for row in rows:
        shares = [row[f"staleness/share_{age}"] for age in (0, 1, 2, 3, "4_or_more")]
        assert sum(shares) == pytest.approx(1)
    assert rows[-1]["rollouts/in_flight"] == rows[-1]["rollouts/waiting"] == 0
    assert rows[-1]["bias/length"] == pytest.approx(1)
