"""`ludus plan`: rates by hand, the best split, and what is refused, from a config.json alone."""

from __future__ import annotations

import re
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from ludus.cli.main import main
from ludus.cli.plan import MODELS
from ludus.errors import ConfigError
from ludus.trainer.config import ModelConfig, RolloutConfig, TrainConfig, TrainerConfig
from ludus.trainer.models.loading import outline_model
from ludus.trainer.models.model_paths import RELEASES
from ludus.trainer.models.tiny import TINY, build_model
from ludus.trainer.plan.gpus import ModelRates
from ludus.trainer.plan.memory import estimate_memory
from ludus.trainer.plan.simulation import Schedule, simulate
from ludus.trainer.plan.splits import Splits, split_plan
from ludus.trainer.settings.plan import PlanConfig


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    model = build_model(2000, hidden=64, layers=3, heads=4)
    model.config.architectures = ["Qwen2ForCausalLM"]
    model.config.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def settings(folder: Path, **more: Any) -> PlanConfig:
    given: dict[str, Any] = {
        "model": ModelConfig(path=str(folder), dtype="float32"),
        "rollout": RolloutConfig(tasks_per_step=8, group_size=8, max_tokens=64),
        "trainer": TrainerConfig(tokens_per_pass=512),
        "gpus": 4,
        **more,
    }
    return PlanConfig(**given)


@pytest.mark.slow
def test_a_config_alone_gives_a_plan_that_says_what_is_predicted(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert [one.name for one in folder.iterdir()] == ["config.json"]
    assert main(["plan", str(folder / "config.json"), "--gpus", "2"]) == 0
    said = capsys.readouterr().out
    for part in ("the learner's weights", "generation", "the best split", "1 GPU", "2 GPUs"):
        assert part in said
    assert said.count("predicted") >= 3


def test_a_name_of_a_model_gives_a_plan_and_the_table_of_a_cluster(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert (TINY, *RELEASES) == MODELS
    given = ["--gpus", "2", "--cluster", "auto", "--cluster.environments", "3"]
    assert main(["plan", "tiny", *given]) == 0
    table = capsys.readouterr().out.partition("[cluster] on 2 GPUs")[2].partition("notes")[0]
    rows = dict(re.findall(r"^  (\w[\w ]*?)  +(.*)$", table, re.MULTILINE))
    ranks, engines = (int(rows[name].split(",")[0]) for name in ("learner_ranks", "engines"))
    assert ranks + engines == 2
    assert rows["environments"] == "3, each 1 CPU"
    assert rows["in all"] == "5 CPU and 2 GPU"


def test_memory_is_what_the_dry_run_says(folder: Path) -> None:
    config = settings(folder)
    splits = Splits(config)
    run = TrainConfig(model=config.model, trainer=config.trainer, engine="vllm")
    for ranks in (1, 2, 4):
        dry = estimate_memory(run, outline_model(folder), ranks=ranks, free=1 << 34)
        assert splits.memory(ranks, 1 << 34).rows() == dry.rows()


def test_a_recipe_whose_head_is_in_float32_is_planned_with_it(folder: Path) -> None:
    for recipe, exact in (("grpo", False), ("scale_rl", True)):
        assert Splits(settings(folder, recipe=recipe)).config.model.float32_head is exact


def test_rates_are_those_of_the_formulas() -> None:
    config = PlanConfig(
        prompt_tokens=0, answer_tokens=1000, training_share=0.5, decode_share=0.5, gpu="a100-80"
    )
    rates = ModelRates(config, total=10**9, active=10**9, layers=10, hidden=1000, cached=10**5)
    # 6e9 + 12 x 10 x 1000 x 500 FLOPs a token, at 156 TFLOP/s
    assert rates.training(1, 4096) == pytest.approx(156e12 / 6.06e9, rel=1e-6)
    # two ranks of passes of 64 tokens wait for 4 GB over 300 GB/s
    assert rates.training(2, 64) == pytest.approx(128 / (4e9 / 300e9), rel=1e-6)
    engine = rates.sampling(1, 10)
    assert engine.base_s == pytest.approx(2e9 / 1.0195e12)
    assert engine.row_s == pytest.approx(10**5 * 500 / 1.0195e12 + 2e9 / 156e12)


@pytest.mark.parametrize(
    ("line", "changed", "epochs", "passes"),
    [
        ("", "", 1, 3),  # forward, and backward for twice as much
        ("splits = 1", "splits = 8", 1, 4),  # the old policy is scored before the first of 8
        ("epochs = 1", "epochs = 3", 3, 10),
        # the reference and the old policy are scored
        ("[updates]", '[algorithm.kl]\nplace = "loss"\ncoefficient = 0.1\n[updates]', 1, 5),
    ],
)
def test_training_is_as_slow_as_the_passes_of_its_recipe(
    folder: Path, tmp_path: Path, line: str, changed: str, epochs: int, passes: int
) -> None:
    text = (files("ludus.trainer.recipes") / "grpo.toml").read_text("utf-8")
    own = tmp_path / "own.toml"
    own.write_text(text.replace(line, changed))
    splits = Splits(settings(folder, recipe=str(own), training_share=1.0))
    rates, (split, *_) = splits.rates, splits.every(2)
    attention = epochs * 12 * rates.layers * rates.hidden * rates.row / 2
    share = rates.answer / (rates.answer + splits.config.prompt_tokens / 8)
    flops = 2 * passes * rates.active + attention
    assert split.training == pytest.approx(share * rates.gpu.flops / flops, rel=1e-6)


def test_the_best_split_is_the_best_of_all_that_fit(folder: Path) -> None:
    splits = Splits(settings(folder, gpus=8))
    best = splits.best(8)
    assert best is not None
    every = list(splits.every(8))
    assert {one.ranks + one.engines for one in every} == {8}
    assert best.trained >= 0.99 * max(map(splits.simulated, every))


def test_a_run_that_fits_nowhere_is_refused_with_its_terms(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"does not fit on 2 x h100: a rank of 1 needs"):
        split_plan(settings(folder, gpus=2, memory_gb=0.02))
    with pytest.raises(ConfigError, match="no model named"):
        Splits(replace(settings(folder), model=ModelConfig()))
    with pytest.raises(ConfigError, match="at most 1,024"):
        settings(folder, gpus=2000)


def test_a_learner_that_is_the_slower_stage_bounds_the_run() -> None:
    fast = simulate(Schedule(sigma=0.3, steps=30, skipped=10, seed=1))
    slow = Schedule(sigma=0.3, steps=30, skipped=10, seed=1, training=2.0)
    assert slow.bound == 2.0 < slow.generation
    assert simulate(slow).trained > 0.95
    assert fast.trained > 0.9
