"""SUPO for real: a tiny model on LedgerRelay, in this process and over HTTP."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ludus.agent.context import ContextSettings
from ludus.agent.episodes import read_episodes
from ludus.envs import make_async
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
from ludus.trainer.demos.calculator import served
from ludus.trainer.models.tiny import briefing_phrases, write_tiny_policy
from ludus.trainer.sft import run_sft
from ludus.trainer.train import run_training

ENV = "ludus/ledger-v0?turns=6&registers=2&gap=4"
WINDOW = 48
CONTEXT = ContextSettings(
    manager="summarize",
    threshold=0.75,
    max_summaries=6,
    summary_tokens=6,
    last_pair="carry",
    instruction="Sum up.",
    continuation="{summary}",
)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that has seen a few demonstrations: enough to say n and to reach summaries."""
    folder = tmp_path_factory.mktemp("supo")
    phrases = briefing_phrases(make_async("ludus/ledger-v0").env.briefing())
    marks = ["go", "Sum up.", "\n<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n"]
    shape = {"hidden": 32, "layers": 2, "heads": 2}
    path = write_tiny_policy(folder / "model", phrases=[*phrases, *marks], **shape)
    warm = run_sft(
        SFTConfig(
            env=ENV,
            steps=40,
            batch_size=16,
            window=WINDOW,
            context=CONTEXT,
            model=ModelConfig(path=str(path), device="cpu"),
            trainer=TrainerConfig(lr=5e-3, warmup_steps=5),
            run=RunConfig(folder=str(folder / "sft"), tensorboard=False),
        )
    )
    return asyncio.run(warm)


def config(model: Path, folder: Path, **changes: Any) -> TrainConfig:
    fields: dict[str, Any] = {
        "env": ENV,
        "recipe": "supo",
        "steps": 2,
        "model": ModelConfig(path=str(model), device="cpu"),
        "rollout": RolloutConfig(tasks_per_step=4, group_size=4, max_tokens=2, window=WINDOW),
        "context": CONTEXT,
        "trainer": TrainerConfig(lr=1e-3, updates_per_step=2),
        "eval": EvalConfig(tasks=8),
        "run": RunConfig(folder=str(folder), tensorboard=False, episodes_every=1, save_every=1),
    }
    return TrainConfig(**(fields | changes))


def segments_of(folder: Path, name: str) -> dict[tuple[str, int], list[list[int]]]:
    return {
        (episode.group, episode.index): [one.ids() for one in episode.trajectories[0].segments]
        for episode in read_episodes(folder / "episodes" / f"{name}.jsonl")
    }


@pytest.mark.slow
async def test_a_run_is_the_same_over_http(model: Path, tmp_path: Path) -> None:
    here = await run_training(config(model, tmp_path / "here"))
    async with served(ENV, tmp_path / "server.log") as url:
        there = await run_training(
            config(model, tmp_path / "there", env="ludus/ledger-v0", env_url=url)
        )
    for name in ("step-000001", "step-000002"):
        assert segments_of(here.folder, name) == segments_of(there.folder, name)


async def test_windows_hold_and_a_run_that_was_interrupted_is_cut_at_the_same_places(
    model: Path, tmp_path: Path
) -> None:
    whole = await run_training(config(model, tmp_path / "whole"))
    for name in ("step-000001", "step-000002"):
        rows = segments_of(whole.folder, name)
        assert max(len(row) for segments in rows.values() for row in segments) <= WINDOW
        assert max(len(segments) for segments in rows.values()) > 1
    (first, second) = [
        row for row in read_metrics(whole.folder / "metrics.jsonl") if "reward/mean" in row
    ]
    for row in (first, second):
        assert row["context/p_sum"] > 0
        assert row["kind/summary_tokens"] > 0
    await run_training(config(model, tmp_path / "parts", steps=1))
    run = RunConfig(
        folder=str(tmp_path / "parts"), tensorboard=False, episodes_every=1, resume=True
    )
    rest = await run_training(config(model, tmp_path / "parts", run=run))
    assert segments_of(whole.folder, "step-000002") == segments_of(rest.folder, "step-000002")
