"""Runs whose learner trains an adapter, keeps an average, or has a critic of its own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest

from ludus.errors import ConfigError
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
from ludus.trainer.models.loading import load_model
from ludus.trainer.models.tiny import write_tiny_policy
from ludus.trainer.setup import assemble
from ludus.trainer.train import run_training


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_policy(tmp_path_factory.mktemp("model"), hidden=16, layers=1, heads=2)


def recipe(folder: Path, base: str) -> str:
    """A recipe that moves the weights although an untrained policy earns nothing."""
    path = folder.parent / f"{base}.toml"
    path.write_text(f'base = "{base}"\n[algorithm.entropy]\ncoefficient = 0.5\n')
    return str(path)


def config(model: Path, folder: Path, **changes: Any) -> TrainConfig:
    settings: dict[str, Any] = {
        "env": "ludus/arithmetic-v0",
        "steps": 4,
        "recipe": recipe(folder, "grpo"),
        "model": ModelConfig(path=str(model)),
        "rollout": RolloutConfig(tasks_per_step=2, group_size=2, max_tokens=6, max_turns=1),
        "trainer": TrainerConfig(lr=1e-3),
        "eval": EvalConfig(tasks=2),
        "run": RunConfig(folder=str(folder), tensorboard=False, save_every=0),
    }
    return TrainConfig(**{**settings, **changes})


def weights(path: Path) -> dict[str, Any]:
    return dict(load_model(str(path)).named_parameters())


async def test_an_entropy_bonus_with_a_target_goes_on_where_it_stopped(
    model: Path, tmp_path: Path
) -> None:
    aiming = tmp_path / "aiming.toml"
    aiming.write_text('base = "grpo"\n[algorithm.entropy]\ntarget = 9\nchange = 0.1\n')
    whole = await run_training(config(model, tmp_path / "whole", recipe=str(aiming)))
    half = config(model, tmp_path / "half", recipe=str(aiming), steps=2)
    await run_training(half)
    on = RunConfig(folder=str(tmp_path / "half"), tensorboard=False, save_every=0, resume=True)
    rest = await run_training(config(model, tmp_path / "half", recipe=str(aiming), run=on))
    for run in (whole, rest):
        rows = read_metrics(run.folder / "metrics.jsonl")
        found = [row["update/entropy_coefficient"] for row in rows if "update/updates" in row]
        assert found == pytest.approx([0.1, 0.2, 0.3, 0.4])
    first, second = weights(whole.checkpoint), weights(rest.checkpoint)
    assert all(bool((first[name] == second[name]).all()) for name in first)


@pytest.mark.parametrize("published", ["merged", "adapter"])
@pytest.mark.parametrize("saved", ["merged", "adapter"])
async def test_a_run_with_an_adapter_goes_on_where_it_stopped(
    model: Path,
    tmp_path: Path,
    published: Literal["merged", "adapter"],
    saved: Literal["merged", "adapter"],
) -> None:
    pytest.importorskip("peft", reason="the extra lora is not installed")
    lora = LoraConfig(rank=2, publish=published, save=saved)
    trainer = TrainerConfig(lr=1e-3, lora=lora, checkpoint_layers=True)
    whole = await run_training(config(model, tmp_path / "whole", trainer=trainer))
    half = config(model, tmp_path / "half", trainer=trainer, steps=2)
    await run_training(half)
    on = RunConfig(folder=str(tmp_path / "half"), tensorboard=False, save_every=0, resume=True)
    rest = await run_training(config(model, tmp_path / "half", trainer=trainer, run=on))
    first, second, base = weights(whole.checkpoint), weights(rest.checkpoint), weights(model)
    assert all(bool((first[name] == second[name]).all()) for name in first)
    moved = [name for name in base if not bool((base[name] == first[name]).all())]
    assert moved
    assert all("_proj.weight" in name for name in moved)
    for row in read_metrics(whole.folder / "metrics.jsonl"):
        # the engine samples with the weights that the learner has
        assert row.get("update/old_sampler_gap", 0.0) < 1e-4
    with pytest.raises(ConfigError, match="was trained with an adapter"):
        await run_training(
            config(
                model,
                tmp_path / "half",
                steps=6,
                run=RunConfig(
                    folder=str(tmp_path / "half"),
                    tensorboard=False,
                    resume=True,
                    resume_changed=True,
                ),
            )
        )


async def test_the_reference_of_an_adapter_is_its_base_without_a_second_copy(
    model: Path, tmp_path: Path
) -> None:
    pytest.importorskip("peft", reason="the extra lora is not installed")
    pulled = tmp_path / "kl.toml"
    pulled.write_text('base = "grpo"\n[algorithm.kl]\nplace = "loss"\ncoefficient = 0.1\n')
    trainer = TrainerConfig(lr=1e-3, lora=LoraConfig(rank=2))
    parts = await assemble(
        config(model, tmp_path / "run", trainer=trainer, recipe=str(pulled), steps=1)
    )
    try:
        reference: Any = parts.updater.reference
        assert reference.learner is parts.learner
    finally:
        await parts.closing.aclose()


async def test_an_average_plays_the_evaluations_and_lies_beside_the_model(
    model: Path, tmp_path: Path
) -> None:
    trainer = TrainerConfig(lr=1e-2, ema_decay=0.5, ema_use="evaluate")
    beside = EvalConfig(tasks=2, every=2, beside="own")
    made = await run_training(config(model, tmp_path / "run", trainer=trainer, eval=beside))
    last, averaged = weights(made.checkpoint), weights(made.checkpoint / "average")
    assert set(last) == set(averaged)
    assert not all(bool((last[name] == averaged[name]).all()) for name in last)
    with pytest.raises(ConfigError, match=r"ema_use is 'evaluate', which needs an engine"):
        config(model, tmp_path / "other", trainer=trainer)
    for harmless in (replace(trainer, ema_decay=0.0), replace(trainer, ema_use="export")):
        config(model, tmp_path / "other", trainer=harmless)  # evaluates what it trains


async def test_a_reference_that_nobody_reads_is_not_reset(model: Path, tmp_path: Path) -> None:
    trainer = TrainerConfig(lr=1e-2, reference_every=10)
    with pytest.raises(ConfigError, match=r"reference_every is 10, and recipe 'grpo' compares wit"):
        await assemble(config(model, tmp_path / "run", recipe="grpo", trainer=trainer))


async def test_a_run_with_a_moving_reference_continues_from_its_checkpoint(
    model: Path, tmp_path: Path
) -> None:
    """A half, and the other half from its checkpoint, end with the weights of the whole."""
    trainer = TrainerConfig(lr=1e-2, reference_every=2)
    path = tmp_path / "pulled.toml"
    path.write_text(
        'base = "grpo"\n[algorithm.entropy]\ncoefficient = 0.5\n'
        '[algorithm.kl]\nplace = "loss"\ncoefficient = 0.5\n'
    )
    changes: dict[str, Any] = {"recipe": str(path), "trainer": trainer}
    whole = await run_training(config(model, tmp_path / "whole", steps=6, **changes))
    half = config(model, tmp_path / "half", steps=3, **changes)
    await run_training(half)
    ended = await run_training(replace(half, steps=6, run=replace(half.run, resume=True)))
    expected, got = weights(whole.checkpoint), weights(ended.checkpoint)
    assert all(bool((got[name] == expected[name]).all()) for name in expected)
    still = await run_training(
        config(model, tmp_path / "still", steps=6, **changes | {"trainer": TrainerConfig(lr=1e-2)})
    )
    other = weights(still.checkpoint)
    assert not all(bool((other[name] == expected[name]).all()) for name in expected)


async def test_a_run_of_nlpo_samples_and_learns_over_one_vocabulary(
    model: Path, tmp_path: Path
) -> None:
    """Sampler and learner agree to rounding, also where the copy has changed, and a half and its
    other half are the whole, to the last bit.
    """
    path = tmp_path / "masked.toml"
    path.write_text(
        'base = "ppo"\n[algorithm.entropy]\ncoefficient = 0.5\n'
        "[sampling.vocabulary]\ntop_p = 0.5\nevery = 2\n"
    )
    changes: dict[str, Any] = {"recipe": str(path), "trainer": TrainerConfig(lr=1e-2)}
    whole = await run_training(config(model, tmp_path / "whole", steps=6, **changes))
    rows = read_metrics(whole.folder / "metrics.jsonl")
    gaps = [row["update/old_sampler_gap"] for row in rows if "update/old_sampler_gap" in row]
    assert len(gaps) == 6
    assert max(gaps) < 1e-5, gaps
    half = config(model, tmp_path / "half", steps=3, **changes)
    await run_training(half)
    ended = await run_training(replace(half, steps=6, run=replace(half.run, resume=True)))
    expected, got = weights(whole.checkpoint), weights(ended.checkpoint)
    assert all(bool((got[name] == expected[name]).all()) for name in expected)
    for row in (row for row in rows if "update/entropy" in row):
        assert row["update/entropy"] < 3.0  # of all tokens it would be 3.7


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"local": LocalConfig(engines=1)}, "local.engines"),
        ({"engine": "vllm"}, "engine = 'vllm'"),
        ({"trainer": TrainerConfig(lora=LoraConfig(rank=2))}, "trainer.lora.rank"),
        ({"overlap": AsyncConfig(max_staleness=1)}, "overlap.max_staleness, eval.beside"),
        ({"eval": EvalConfig(tasks=2, beside="own")}, "eval.beside = 'own'"),
    ],
)
async def test_a_mask_that_the_sampler_would_not_have_is_refused(
    changes: dict[str, Any], told: str, model: Path, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=f"sampling.vocabulary masks by a copy .*{told}"):
        await assemble(config(model, tmp_path / "run", recipe="ppo", sampling="nlpo", **changes))


async def test_a_critic_of_its_own_learns_before_the_policy_moves(
    model: Path, tmp_path: Path
) -> None:
    trainer = TrainerConfig(lr=1e-2, critic="separate")
    ppo, base = recipe(tmp_path / "held", "ppo"), weights(model)
    for updates in (100, 0):
        trainer = replace(trainer, value_updates=updates)
        folder = tmp_path / f"held-{updates}"
        made = weights(
            (await run_training(config(model, folder, trainer=trainer, recipe=ppo))).checkpoint
        )
        stood = all(bool((made[name] == base[name]).all()) for name in base)
        assert stood == bool(updates)
    parts = await assemble(config(model, tmp_path / "none", recipe="grpo", trainer=trainer))
    try:
        assert any("trainer.critic is set, but the recipe trains no" in one for one in parts.notes)
    finally:
        await parts.closing.aclose()
