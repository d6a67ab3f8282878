"""Bounds on tokens follow the model's size and the memory; a slow type is told."""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from ludus.config import build
from ludus.errors import ConfigError
from ludus.trainer.config import LocalConfig, TrainConfig, TrainerConfig
from ludus.trainer.engines.local import EngineLimits, LocalEngine
from ludus.trainer.learning.learner import Learner
from ludus.trainer.learning.pass_memory import OutOfMemory
from ludus.trainer.models import capacity
from ludus.trainer.models.devices import slow_precision, slowdown
from ludus.trainer.models.tiny import build_model

GB = 1 << 30


SMOLLM2 = LlamaConfig(
    hidden_size=576,
    intermediate_size=1536,
    num_hidden_layers=30,
    num_attention_heads=9,
    num_key_value_heads=3,
    head_dim=64,
)
QWEN_7B = LlamaConfig(
    hidden_size=3584,
    intermediate_size=18944,
    num_hidden_layers=28,
    num_attention_heads=28,
    num_key_value_heads=4,
)


class Model:
    """As much of a model as the bounds read."""

    def __init__(self, config: LlamaConfig, weights: int) -> None:
        self.config, self.dtype, self.device = config, torch.float32, torch.device("cpu")
        self._weights = torch.empty(weights, device="meta", requires_grad=True)

    def parameters(self) -> list[torch.Tensor]:
        return [self._weights]


def model_of(config: LlamaConfig, weights: int) -> Any:
    return Model(config, weights)


def test_keys_and_values_of_a_token_have_their_size() -> None:
    # 2 tensors x 30 layers x 3 heads x 64 numbers x 4 bytes; 200,000 such tokens are 9.2 GB
    assert capacity.cached_bytes(SMOLLM2, torch.float32) == 46_080
    # 2 x 28 x 4 x 128 x 2 bytes, the head's size from 3584 / 28
    assert capacity.cached_bytes(QWEN_7B, torch.bfloat16) == 57_344


def test_a_pass_keeps_what_was_measured() -> None:
    # measured with SmolLM2 in float32: 1.7 to 2.0 MB a token
    assert 1.7 < capacity.training_bytes(SMOLLM2) / 2**20 < 2.1
    assert capacity.training_bytes(SMOLLM2, torch.bfloat16) * 2 == capacity.training_bytes(SMOLLM2)


def test_bounds_shrink_with_memory_and_with_the_size_of_the_model() -> None:
    small, large = model_of(SMOLLM2, 134_515_008), model_of(QWEN_7B, 7_600_000_000)
    # a tenth of 16 GB over 46,080 bytes
    assert capacity.fitting_cache(small, 16 * GB) == int(1.6 * GB / 46_080)
    assert capacity.fitting_cache(small, 1000 * GB) == 200_000
    assert capacity.fitting_cache(large, 16 * GB) < capacity.fitting_cache(small, 16 * GB)
    assert capacity.fitting_pass(small, free=1000 * GB) == 16_384
    # a quarter of what four copies of the weights leave of 16 GB
    left = 16 * GB - 4 * 4 * 134_515_008
    assert capacity.fitting_pass(small, free=16 * GB) == int(left / 4 / (1.93359375 * 2**20))
    assert capacity.fitting_pass(large, free=16 * GB) == capacity.MIN_PASS  # the weights do not fit
    assert (
        capacity.fitting_prefill(small, 16 * GB)
        < 16_384
        == capacity.fitting_prefill(small, 1000 * GB)
    )


def test_frozen_weights_and_layers_that_are_computed_again_leave_room_for_tokens() -> None:
    # 30 layers' inputs of 576 numbers, and 16 x 576 + 5 x 1536 of one layer
    assert capacity.training_bytes(SMOLLM2, checkpointed=True) == 4 * (30 * 576 + 16_896)
    model = model_of(QWEN_7B, 7_600_000_000)
    assert capacity.fitting_pass(model, free=80 * GB) == capacity.MIN_PASS
    model.parameters()[0].requires_grad_(False)
    found = capacity.fitting_pass(model, free=80 * GB, checkpointed=True)
    each = 4 * (28 * 3584 + 16 * 3584 + 5 * 18944)
    assert found == int((80 * GB - 4 * 7_600_000_000) / 4 / each)


def test_ranks_have_room_for_tokens_where_one_process_has_none() -> None:
    """Sizing comes after sharding: a rank sets aside a share, and a copy for an engine only where
    it feeds one.
    """
    with torch.device("meta"):
        model = LlamaForCausalLM(QWEN_7B)
    shard = 4 * sum(one.numel() for one in model.parameters()) // 8

    def fitting(ranks: int, free: int, **options: bool) -> int:
        return capacity.fitting_pass(
            model, torch.bfloat16, free, ranks=ranks, device="cuda", **options
        )

    assert fitting(1, 80 * GB, engine_copy=False) == capacity.MIN_PASS
    alone = fitting(8, 80 * GB - shard, engine_copy=False)
    beside = fitting(8, 80 * GB - shard, engine_copy=True)
    assert alone > beside > capacity.MIN_PASS
    # A head in float32 has two bytes more gathered of each weight outside of the layers.
    outside = 2 * QWEN_7B.vocab_size * QWEN_7B.hidden_size
    per_token = capacity.training_bytes(QWEN_7B, torch.bfloat16)
    exact = fitting(8, 80 * GB - shard, engine_copy=False, float32_head=True)
    fewer = capacity.PASS_SHARE["cuda"] * 2 * outside / per_token
    assert alone - exact == pytest.approx(fewer, rel=0.01)


def test_small_models_keep_the_bounds_they_had() -> None:
    model = build_model(40, hidden=64, layers=2, heads=2)
    assert capacity.fitting_pass(model, free=4 * GB) == 16_384
    assert capacity.fitting_cache(model, 4 * GB) == 200_000
    assert capacity.fitting_prefill(model, 4 * GB) == 16_384


async def test_what_is_set_wins() -> None:
    model = build_model(40, hidden=16, layers=1, heads=2)
    assert Learner(model, TrainerConfig(tokens_per_pass=7)).tokens_per_pass == 7
    assert Learner(model, TrainerConfig()).tokens_per_pass == 16_384
    engine = LocalEngine(model, EngineLimits(kept_tokens=0, prefill_tokens=5))
    try:
        assert (engine._batch.prefixes.max_tokens, engine._batch.cached.prefill_tokens) == (0, 5)
    finally:
        await engine.close()


@pytest.mark.parametrize(
    "table",
    [
        {"trainer": {"tokens_per_pass": 0}},
        {"local": {"kept_tokens": -1}},
        {"local": {"prefill_tokens": 0}},
    ],
)
def test_bounds_that_cannot_work_are_refused(table: dict[str, Any]) -> None:
    (section,) = table
    (name,) = table[section]
    with pytest.raises(ConfigError, match=f"{section}.{name}"):
        build(TrainConfig, table)
    assert LocalConfig(kept_tokens=0).kept_tokens == 0  # nothing is kept


def test_free_memory_falls_by_what_is_taken() -> None:
    before = capacity.free_bytes("cpu")
    taken = torch.ones(64 << 20)  # 256 MB
    after = capacity.free_bytes("cpu")
    del taken
    assert 0 < before < 1 << 45
    assert after < before + (1 << 30)  # other processes come and go


@pytest.mark.parametrize("version", [1, 2])
def test_pages_of_files_that_were_read_are_free(
    version: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group of 64 MB that has taken 60, of which 50 are pages of files that nobody needs now."""
    limit, used, stat = (tmp_path / name for name in ("limit", "used", "memory.stat"))
    limit.write_text(f"{64 << 20}\n")
    used.write_text(f"{60 << 20}\n")
    monkeypatch.setattr(capacity, "_CGROUPS", ((limit, used),))
    assert capacity.free_bytes("cpu") == 4 << 20  # where nothing says what was taken
    of_groups_below = f"total_inactive_file {50 << 20}\n" if version == 1 else ""
    own = 0 if version == 1 else 50 << 20
    stat.write_text(f"inactive_file {own}\nactive_file 7\n{of_groups_below}")
    assert capacity.free_bytes("cpu") == 54 << 20


def test_a_lack_of_memory_is_told_to_another_process_with_its_sizes() -> None:
    told = pickle.loads(pickle.dumps(OutOfMemory("4 rows", rows=4, tokens=900)))
    assert (type(told), str(told), told.rows, told.tokens) == (OutOfMemory, "4 rows", 4, 900)


def test_float32_needs_no_note_and_a_gpu_neither() -> None:
    assert slow_precision("float32", "cpu") == ()
    assert slow_precision("bfloat16", "cuda") == ()
    assert slowdown("float32", 16) == 1.0


SLOW = "from ludus.trainer.models.devices import slow_precision as s; print(s('bfloat16', 'cpu'))"


@pytest.mark.slow
def test_a_cpu_without_bfloat16_is_told_with_a_measured_slowdown() -> None:
    """oneDNN is told to use no instructions newer than AVX2: bfloat16 is then computed as on a CPU
    without them.
    """
    made = subprocess.run(
        [sys.executable, "-c", SLOW],
        env={**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2"},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    told = re.search(r"takes ([0-9.]+) times .* sampling, and ([0-9.]+) times", made.stdout)
    assert told, made.stdout
    assert float(told[2]) > 2
