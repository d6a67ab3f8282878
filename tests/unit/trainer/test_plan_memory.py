"""The model of memory agrees with what runs allocate, and says what would fit."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

from ludus.errors import ConfigError
from ludus.trainer.config import LocalConfig, LoraConfig, ModelConfig, TrainConfig, TrainerConfig
from ludus.trainer.learning.learner import Learner
from ludus.trainer.models.tiny import (
    TinyVisionShape,
    build_model,
    build_vision_model,
    build_vision_tokenizer,
)
from ludus.trainer.plan.memory import estimate_memory, require_fit
from ludus.trainer.plan.pass_trace import PassKind, trace_pass
from ludus.trainer.rollout.batch import Row, pad

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "plan.py"
GB = 1 << 30


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        ("--shapes", "words", "--ranks", "2"),
        # most of its weights are outside of the layers: the peak is where their gradient is reduced
        ("--shapes", "vocabulary", "--ranks", "2", "--more", "bfloat16", "checkpoint"),
    ],
)
def test_the_plan_of_two_ranks_is_within_a_tenth_of_their_peak(options: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *options],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def words() -> Any:
    return build_model(50, hidden=32, layers=5, heads=4, max_length=64)


def experts() -> Any:
    settings = Qwen3MoeConfig(
        vocab_size=50,
        hidden_size=32,
        num_hidden_layers=5,
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=8,
        moe_intermediate_size=48,
        num_experts=6,
        num_experts_per_tok=2,
        max_position_embeddings=64,
        pad_token_id=0,
    )
    torch.manual_seed(0)
    return Qwen3MoeForCausalLM(settings)


def images() -> Any:
    shape = TinyVisionShape(hidden=48, layers=5, heads=4)
    return build_vision_model(build_vision_tokenizer(), shape)


@pytest.mark.parametrize("build", [words, experts, images])
def test_a_traced_pass_keeps_what_torch_saves(build: Callable[[], Any]) -> None:
    """The oracle is torch's own hook on what is saved for the backward pass."""
    model = build()
    learner = Learner(model, TrainerConfig())
    ids = torch.randint(3, 50, (4, 48), generator=torch.Generator().manual_seed(0)).tolist()
    given = pad([Row(one, [0, *([1] * 47)], [0.0] * 48) for one in ids])
    weights = {one.untyped_storage().data_ptr() for one in model.parameters()}
    saved: dict[int, int] = {}

    def note(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        hidden = learner._hidden(given)
    assert hidden.requires_grad
    trace = trace_pass(model, PassKind(tokens=4 * 48))
    assert trace is not None
    assert trace.saved == pytest.approx(sum(saved.values()), rel=0.05)


def test_layers_that_are_computed_again_are_traced_as_their_inputs() -> None:
    whole, again = (
        trace_pass(outline(), PassKind(tokens=512, checkpointed=checkpointed))
        for checkpointed in (False, True)
    )
    assert whole is not None
    assert again is not None
    inputs = 4 * 512 * 4 * 64  # layers x tokens x hidden size x 4 bytes
    assert inputs <= again.saved <= 2 * inputs + 512 * 64 * 8
    assert again.layers > 0 > whole.layers - whole.head


def outline(words: int = 1000, *, hidden: int = 64, layers: int = 4) -> Any:
    with torch.device("meta"):
        return build_model(words, hidden=hidden, layers=layers, heads=4)


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
    # a layer keeps about 10 tensors of the hidden size and 4 of the middle one
    kept = 1024 * 4 * 4 * (10 * 64 + 4 * 256)
    assert kept < found["activations"] < 1.1 * kept
    # three copies of the logits: their log-softmax, and two gradients
    assert found["logits, and their gradients"] == pytest.approx(3 * 4 * 1024 * 1000, rel=0.05)
    halved = sizes(estimate_memory(config(), model, free=GB, ranks=2))
    assert halved["the optimizer's moments"] == 4 * weights
    assert halved["the engine's weights"] == 4 * weights  # rank 0 has the engine
    assert halved["gathered weights"] > 0
    frozen = sizes(estimate_memory(config(lora=LoraConfig(rank=2)), model, free=GB))
    matrices = 4 * 2 * (4 * 128 + 3 * 320)
    assert frozen["gradient"] == 4 * matrices
    assert frozen["the learner's weights"] == 4 * (weights + matrices)
    again = sizes(estimate_memory(config(checkpoint_layers=True), model, free=GB))
    assert again["activations"] < kept / 4
    assert sum(again.values()) < sum(found.values())


@pytest.mark.parametrize("tied", [True, False])
def test_a_head_in_float32_has_the_weights_outside_of_the_layers_gathered_in_float32(
    tied: bool,
) -> None:
    with torch.device("meta"):
        model = build_model(9000, hidden=64, layers=4, heads=4, tie_word_embeddings=tied)
    layer = sum(weight.numel() for weight in model.model.layers[0].parameters())
    outside = sum(weight.numel() for weight in model.parameters()) - 4 * layer
    gathered, peaks = list[int](), list[int]()
    for exact in (False, True):
        types = ModelConfig(dtype="bfloat16", float32_head=exact)
        run = replace(config(), model=types, engine="vllm")
        estimate = estimate_memory(run, model, free=GB, ranks=2)
        gathered.append(sizes(estimate)["gathered weights"])
        peaks.append(estimate.total)
    assert gathered == [2 * (2 * layer + outside), 2 * 2 * layer + 4 * outside]
    assert peaks[1] - peaks[0] >= 2 * outside


def test_images_are_named_as_what_the_plan_does_not_count() -> None:
    told = [name for name, _ in estimate_memory(config(), images(), free=GB).rows()]
    assert any(name.endswith("its images not counted") for name in told)


def test_what_cannot_fit_is_refused_with_the_setting_that_would() -> None:
    model = outline()
    long = replace(config(), trainer=TrainerConfig(tokens_per_pass=4096))
    needed = estimate_memory(long, model, free=GB).total
    assert require_fit(long, model, free=needed).fits
    with pytest.raises(ConfigError, match=r"the run needs about .* are free") as refused:
        require_fit(long, model, free=int(0.8 * needed))
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
