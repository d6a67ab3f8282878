"""A run with learner and sampler behind the Tinker API, against the same run in one process."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ludus.agent.episodes import read_episodes
from ludus.errors import ConfigError, Unauthorized
from ludus.metrics import read_metrics
from ludus.secret import Secret
from ludus.trainer.config import (
    EvalConfig,
    LoraConfig,
    ModelConfig,
    RolloutConfig,
    RunConfig,
    TrainConfig,
    TrainerConfig,
)
from ludus.trainer.models.tiny import write_tiny_policy
from ludus.trainer.plan.dry_run import make_plan
from ludus.trainer.tinker.models import BaseModel, ModelHouse
from ludus.trainer.tinker.service import TinkerService
from ludus.trainer.tinker.store import CheckpointStore
from ludus.trainer.train import run_training
from ludus.wire.server import BackgroundServer, HttpServer

ENV = "ludus/arithmetic-v0?max_operations=1"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_policy(tmp_path_factory.mktemp("model"), hidden=32, layers=2, heads=2)


@pytest.fixture(scope="module")
def learner(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    base = BaseModel.load(ModelConfig(path=str(model), device="cpu"), "served")
    service = TinkerService(ModelHouse(base), CheckpointStore(tmp_path_factory.mktemp("served")))
    with BackgroundServer(HttpServer([service], token="tml-key")) as url:
        yield url.replace("http://", "tinker://")


def config(model: Path, folder: Path, learner: str = "", **settings: Any) -> TrainConfig:
    # Without tools nothing earns a reward by luck; a control of random rewards has a signal.
    given: dict[str, Any] = {
        "env": ENV,
        "steps": 2,
        "control": "random",
        "model": ModelConfig(path=str(model), device="cpu"),
        "rollout": RolloutConfig(tasks_per_step=3, group_size=3, max_tokens=8, max_turns=2),
        "trainer": TrainerConfig(lr=1e-2, max_kl=0.0),
        "eval": EvalConfig(every=0),
        "run": RunConfig(folder=str(folder), episodes_every=1),
    }
    if learner:
        given |= {"learner": learner, "learner_model": "served", "learner_token": Secret("tml-key")}
    return TrainConfig(**{**given, **settings})


def sampled(folder: Path, step: int) -> dict[tuple[str, int], list[list[int]]]:
    return {
        (episode.group, episode.index): [s.ids() for s in episode.trajectories[0].segments]
        for episode in read_episodes(folder / "episodes" / f"step-{step:06d}.jsonl")
    }


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["dapo", "gspo"])
async def test_a_run_elsewhere_is_the_run_here(
    model: Path, tmp_path: Path, learner: str, recipe: str
) -> None:
    """The same tokens are sampled in both steps, the second with weights that moved; the numbers of
    the updates agree.
    """
    here = await run_training(config(model, tmp_path / "here", recipe=recipe))
    there = await run_training(config(model, tmp_path / "there", learner, recipe=recipe))
    for step in (1, 2):
        assert sampled(here.folder, step) == sampled(there.folder, step)
    first, second = (
        [row for row in read_metrics(run.folder / "metrics.jsonl") if "update/loss" in row]
        for run in (here, there)
    )
    assert len(first) == len(second) == 2
    for one, two in zip(first, second, strict=True):
        assert one["update/grad_norm"] > 0
        for name in ("update/loss", "update/grad_norm", "update/tokens", "update/kl"):
            assert one[name] == pytest.approx(two[name], rel=1e-4, abs=1e-6), name


@pytest.mark.slow
async def test_a_run_elsewhere_continues_from_its_checkpoint(
    model: Path, tmp_path: Path, learner: str
) -> None:
    whole = await run_training(config(model, tmp_path / "whole", learner, recipe="dapo"))
    half = config(model, tmp_path / "half", learner, recipe="dapo", steps=1)
    result = await run_training(half)
    assert (result.checkpoint / "tinker.json").is_file()
    resumed = dataclasses.replace(half, steps=2, run=dataclasses.replace(half.run, resume=True))
    await run_training(resumed)
    assert sampled(tmp_path / "half", 2) == sampled(whole.folder, 2)


async def test_what_an_api_cannot_do_is_refused_by_name(model: Path, tmp_path: Path) -> None:
    nobody = "tinker://127.0.0.1:9"  # nothing listens: it is refused before anybody is asked
    refusals: list[tuple[str, dict[str, Any]]] = [
        ("recipe 'ppo' reads values of states", {"recipe": "ppo"}),
        ("trainer.ema_decay", {"trainer": TrainerConfig(ema_decay=0.9)}),
        ("trainer.lora.alpha", {"trainer": TrainerConfig(lora=LoraConfig(rank=4, alpha=8.0))}),
        ("trainer.lora.targets", {"trainer": TrainerConfig(lora=LoraConfig(targets="q_proj"))}),
        ("trainer.max_kl is 0.2: it takes a part", {"trainer": TrainerConfig()}),
        ("rollout.temperature", {"rollout": RolloutConfig(temperature=0.7)}),
        ("learner is tinker://HOST:PORT, got 'http://x'", {"learner": "http://x"}),
    ]
    for why, settings in refusals:
        folder = tmp_path / "refused"
        with pytest.raises(ConfigError, match=why.replace("(", "\\(")):
            await run_training(
                config(model, folder, **{"learner": nobody, "recipe": "dapo", **settings})
            )
        assert not (folder / "metrics.jsonl").exists()


async def test_a_server_without_the_model_or_with_another_key_is_named(
    model: Path, tmp_path: Path, learner: str
) -> None:
    with pytest.raises(ConfigError, match="has no model 'other', but served"):
        await run_training(
            config(model, tmp_path / "a", learner, recipe="dapo", learner_model="other")
        )
    with pytest.raises(Unauthorized, match="refuses client/config"):
        await run_training(
            config(model, tmp_path / "b", learner, recipe="dapo", learner_token=Secret("tml-no"))
        )


async def test_a_plan_says_that_the_memory_is_elsewhere(model: Path, tmp_path: Path) -> None:
    settings = config(model, tmp_path / "plan", "tinker://127.0.0.1:9", recipe="dapo")
    plan = await make_plan(settings)
    assert "elsewhere, at tinker://127.0.0.1:9" in str(plan)
    assert "gradient  " not in str(plan)
