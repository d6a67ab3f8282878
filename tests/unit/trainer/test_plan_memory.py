"""The model of memory agrees with what runs allocate, and says what would fit."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from ludus.errors import ConfigError
from ludus.trainer.config import LocalConfig, LoraConfig, TrainConfig, TrainerConfig
from ludus.trainer.models.tiny import build_model
from ludus.trainer.plan.memory import estimate_memory, require_fit

SCRIPT = Path(__file__).parent / "measured_update.py"
GB = 1 << 30
SMALL, SMOLLM2 = ("8192", "256", "8", "4", "1024"), ("49152", "576", "30", "9", "512")


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        SMALL,
        (*SMALL, "checkpoint"),
        (*SMALL, "lora"),
        pytest.param(SMOLLM2, marks=pytest.mark.large),
        pytest.param((*SMOLLM2, "checkpoint", "lora"), marks=pytest.mark.large),
    ],
    ids=" ".join,
)
def test_the_estimate_is_near_what_an_update_allocates(options: tuple[str, ...]) -> None:
    """Blocks of 64 KB and more go back to the system at once, so that the peak of the process is
    what was held, not what the allocator kept.
    """
    kept_small = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
    made = subprocess.run(
        [sys.executable, str(SCRIPT), *options],
        env={**os.environ, **kept_small, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=500,
        check=True,
    )
    found = json.loads(made.stdout)
    assert 0.85 < found["estimated"] / found["measured"] < 1.5, found


def outline() -> Any:
    with torch.device("meta"):
        return build_model(1000, hidden=64, layers=4, heads=4)


def sizes(estimate: Any) -> dict[str, int]:
    return {re.sub(r" of .*", "", name): count for name, count in estimate.rows()}


def config(**trainer: Any) -> TrainConfig:
    return TrainConfig(
        trainer=TrainerConfig(tokens_per_pass=1024, **trainer), local=LocalConfig(kept_tokens=100)
    )


def test_every_part_has_its_size() -> None:
    model = outline()
    # tied embeddings 64,000; a layer: 4 of 64 x 64, 3 of 64 x 256, biases 3 x 64, norms 2 x 64
    weights = 64_000 + 4 * (4 * 64 * 64 + 3 * 64 * 256 + 3 * 64 + 2 * 64) + 64
    found = sizes(estimate_memory(config(), model, free=GB))
    assert found["the learner's weights"] == found["gradient"] == 4 * weights
    assert found["the optimizer's moments"] == 8 * weights
    assert found["the engine's weights"] == 4 * weights
    assert found["keys and values"] > 0
    assert found["activations"] == 1024 * 4 * 4 * (16 * 64 + 5 * 256)
    assert found["logits"] == 3 * 4 * 1024 * 1000
    halved = sizes(estimate_memory(config(), model, free=GB, ranks=2))
    assert halved["the optimizer's moments"] == 4 * weights
    assert halved["the engine's weights"] == 4 * weights  # rank 0 has the engine
    assert halved["gathered weights"] > 0
    frozen = sizes(estimate_memory(config(lora=LoraConfig(rank=2)), model, free=GB))
    matrices = 4 * 2 * (4 * 128 + 3 * 320)
    assert frozen["gradient"] == 4 * matrices
    assert frozen["the learner's weights"] == 4 * (weights + matrices)
    again = sizes(estimate_memory(config(checkpoint_layers=True), model, free=GB))
    assert again["inputs"] == 1024 * 4 * 64 * 4
    assert sum(again.values()) < sum(found.values())


def test_what_cannot_fit_is_refused_with_the_setting_that_would() -> None:
    model = outline()
    needed = estimate_memory(config(), model, free=GB).total
    assert require_fit(config(), model, free=needed).fits
    with pytest.raises(ConfigError, match=r"the run needs about .* are free") as refused:
        require_fit(config(), model, free=int(0.8 * needed))
    told = str(refused.value)
    assert "it would fit with --" in told
    (size,) = re.findall(r"--trainer\.tokens-per-pass (\d+)", told) or ["0"]
    if int(size):
        mended = replace(config(), trainer=TrainerConfig(tokens_per_pass=int(size)))
        assert require_fit(mended, model, free=int(0.8 * needed)).fits


def test_more_devices_are_proposed_where_no_setting_of_one_is_enough() -> None:
    with torch.device("meta"):
        model = build_model(32_000, hidden=4096, layers=32, heads=32)
    with pytest.raises(ConfigError, match=r"it would fit on \d+ devices .* torchrun --nproc_per"):
        require_fit(replace(config(), engine="vllm"), model, free=24 * GB)
    with pytest.raises(ConfigError, match="take a smaller model"):
        require_fit(config(), model, free=GB)
