"""The supervised warm start: cut, resumed, and what it refuses."""

import asyncio
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from ludus.agent.episodes import read_episodes
from ludus.errors import ConfigError, SaveFailed
from ludus.metrics import planned_steps, read_metrics
from ludus.trainer.config import ModelConfig, RunConfig, SFTConfig, TrainerConfig
from ludus.trainer.models.checkpoint_folders import checkpoints
from ludus.trainer.models.loading import load_model
from ludus.trainer.models.tiny import write_tiny_policy
from ludus.trainer.sft import run_sft


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_policy(tmp_path_factory.mktemp("model"), hidden=16, layers=1, heads=2)


def config(model: Path, folder: Path, *, steps: int = 6, **run: Any) -> SFTConfig:
    settings: dict[str, Any] = {
        "save_every": 2,
        "keep": 2,
        "episodes_every": 3,
        "tensorboard": False,
        **run,
    }
    return SFTConfig(
        env="ludus/arithmetic-v0",
        steps=steps,
        batch_size=4,
        seed=1,
        model=ModelConfig(path=str(model)),
        trainer=TrainerConfig(lr=1e-2, warmup_steps=3),
        run=RunConfig(folder=str(folder), **settings),
    )


def weights(path: Path) -> dict[str, torch.Tensor]:
    return dict(load_model(path).state_dict())


class Stop:
    """Ctrl-C after some steps, as `asyncio.run` gives it."""

    def __init__(self, step: int) -> None:
        self.step = step

    def __call__(self, step: int, steps: int, metrics: dict[str, float]) -> None:
        task = asyncio.current_task()
        if step == self.step and task is not None:
            task.cancel()


async def test_one_that_was_cut_and_resumed_equals_one_that_was_not(
    model: Path, tmp_path: Path
) -> None:
    whole = await run_sft(config(model, tmp_path / "whole"))
    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(run_sft(config(model, tmp_path / "cut"), progress=Stop(3)))
    assert [path.name for path in checkpoints(tmp_path / "cut" / "checkpoints")] == [
        "step-000002",
        "step-000004",
    ]
    resumed = await run_sft(config(model, tmp_path / "cut", resume=True))
    assert resumed.name == whole.name == "step-000006"
    expected = weights(whole)
    for name, value in weights(resumed).items():
        assert torch.equal(value, expected[name]), name
    rows = [read_metrics(tmp_path / one / "metrics.jsonl") for one in ("whole", "cut")]
    losses = [[row["loss"] for row in run] for run in rows]
    assert losses[0] == losses[1]
    assert [row["step"] for row in rows[1]] == [1, 2, 3, 4, 5, 6]


async def test_checkpoints_and_episodes_are_kept_as_often_as_asked(
    model: Path, tmp_path: Path
) -> None:
    await run_sft(config(model, tmp_path, keep=1))
    assert [path.name for path in checkpoints(tmp_path / "checkpoints")] == ["step-000006"]
    names = sorted(path.name for path in (tmp_path / "episodes").glob("step-*"))
    assert names == ["step-000003.jsonl", "step-000006.jsonl"]
    assert len(read_episodes(tmp_path / "episodes" / "step-000003.jsonl")) == 4


async def test_what_no_checkpoint_has_is_taken_back_before_going_on(
    model: Path, tmp_path: Path
) -> None:
    await run_sft(config(model, tmp_path, steps=2, save_every=1))
    log = tmp_path / "metrics.jsonl"
    # as kill -9 leaves it: two more steps and half a line
    with log.open("ab") as file:
        file.write(b'{"step":3,"loss":null}\n{"step":4,"loss":1.0}\n{"step":5,"lo')
    await run_sft(config(model, tmp_path, steps=4, resume=True))
    assert [row["step"] for row in read_metrics(log)] == [1, 2, 3, 4]
    assert log.read_bytes().count(b"\n") == 4


async def test_bfloat16_computes_in_it_and_keeps_float32_weights(
    model: Path, tmp_path: Path
) -> None:
    exact, rough = config(model, tmp_path / "a"), config(model, tmp_path / "b")
    rough = replace(rough, model=ModelConfig(path=str(model), dtype="bfloat16"))
    first, second = weights(await run_sft(exact)), weights(await run_sft(rough))
    assert all(value.dtype == torch.float32 for value in second.values())
    assert any(not torch.equal(value, first[name]) for name, value in second.items())
    assert all(torch.allclose(value, first[name], atol=0.1) for name, value in second.items())


async def test_it_ends_early_once_the_loss_is_low_enough_cut_or_not(
    model: Path, tmp_path: Path
) -> None:
    def early(name: str, **run: Any) -> SFTConfig:
        return replace(config(model, tmp_path / name, steps=40, **run), stop_loss=1e9)

    assert (await run_sft(early("whole"))).name == "step-000020"
    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(run_sft(early("cut"), progress=Stop(7)))
    assert planned_steps(tmp_path / "cut") == 40
    assert (await run_sft(early("cut", resume=True))).name == "step-000020"
    assert planned_steps(tmp_path / "cut") == 20  # nothing is left to be made
    never = replace(config(model, tmp_path / "never", steps=24), stop_loss=1e-9)
    assert (await run_sft(never)).name == "step-000024"


async def test_a_full_disk_at_a_checkpoint_costs_that_checkpoint_alone(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    flush, broken = os.fsync, {2, 3}

    def full(file: int) -> None:
        found = re.search(r"\.partial-(\d+)", os.readlink(f"/proc/self/fd/{file}"))
        if found and int(found[1]) in broken:
            raise OSError(28, "No space left on device")
        flush(file)

    monkeypatch.setattr(os, "fsync", full)
    last = await run_sft(config(model, tmp_path, steps=4, save_every=1, keep=9))
    names = [path.name for path in last.parent.iterdir()]
    assert sorted(names) == ["step-000001", "step-000004"]
    assert "the checkpoint of step 2 could not be written: No space left" in caplog.text
    broken |= {5, 6, 7}
    with pytest.raises(SaveFailed, match="the checkpoint of step 7 could not be written"):
        await run_sft(config(model, tmp_path, steps=9, save_every=1, keep=9, resume=True))


async def test_nothing_to_resume_is_said(model: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nothing to resume"):
        await run_sft(config(model, tmp_path, resume=True))


def test_several_updates_a_step_are_refused() -> None:
    with pytest.raises(ConfigError, match="one update a step"):
        SFTConfig(trainer=TrainerConfig(updates_per_step=2))
    with pytest.raises(ConfigError, match="reference_every is 10"):
        SFTConfig(trainer=TrainerConfig(reference_every=10))
