"""A process of `plan.py`: prints the memory that updates of a learner allocate, and what the plan
says, as JSON.

    python plan_rank.py VOCABULARY HIDDEN LAYERS HEADS TOKENS [experts|images] [checkpoint] [lora]
        [bfloat16] [float32_head] [untied] [keys=HEADS] [seed=NUMBER]

Started as a rank, it measures this rank's part. `held` is what a rank holds of the gradient between
two passes, over the bytes of the whole gradient.
"""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path
from typing import Any

import torch
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

from ludus.trainer.config import LoraConfig, ModelConfig, TrainConfig, TrainerConfig
from ludus.trainer.learning.learner import Learner, UpdatePasses
from ludus.trainer.learning.reader import ReadingOptions
from ludus.trainer.models.adapters import add_adapter
from ludus.trainer.models.tiny import (
    TinyVisionShape,
    build_model,
    build_vision_model,
    build_vision_tokenizer,
)
from ludus.trainer.plan.memory import estimate_memory
from ludus.trainer.ranks.group import Ranks, place_of
from ludus.trainer.ranks.learner import ShardedLearner
from ludus.trainer.rollout.batch import Row, pad
from ludus.trainer.sft import negative_log_likelihood

LENGTH = 256
TIED, FLOAT32_HEAD = "untied" not in sys.argv, "float32_head" in sys.argv


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def high_water() -> int:
    """The largest resident size; `ru_maxrss` would count what the process was forked from."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


PASSES = 3
"""Passes that each rank makes in an update."""


def named(name: str, default: int) -> int:
    """Return the number that an argument such as `keys=2` names."""
    numbers = [word.partition("=")[2] for word in sys.argv if word.startswith(f"{name}=")]
    return int(numbers[-1]) if numbers else default


def update(learner: Learner, vocabulary: int, count: int) -> float:
    """Make two updates from `count` rows; return the bytes that the second holds between passes:
    the least of them, since other pages than the gradient's come and go.
    """
    draw = torch.Generator().manual_seed(named("seed", 0))
    rows = [
        Row(
            torch.randint(3, vocabulary, (LENGTH,), generator=draw).tolist(),
            [0] + [1] * (LENGTH - 1),
            [0.0] * LENGTH,
        )
        for _ in range(count)
    ]
    empty, held = [0], list[int]()
    backward = learner._backward

    def noted(*given: Any) -> None:
        backward(*given)
        held.append(resident() - empty[-1])

    learner._backward = noted  # type: ignore[method-assign]
    for _ in range(2):
        held.clear()
        how = UpdatePasses(afresh=lambda: empty.append(resident()))
        learner.update(pad(rows), torch.arange(count), negative_log_likelihood, how)
    return min(held[:-1], default=0)


def model_of(kind: str, vocabulary: int, hidden: int, layers: int, heads: int) -> Any:
    """Build a model with random weights: one of words alone, with experts, or with a vision
    tower.
    """
    if kind == "experts":
        return Qwen3MoeForCausalLM(
            Qwen3MoeConfig(
                vocab_size=vocabulary,
                hidden_size=hidden,
                num_hidden_layers=layers,
                num_attention_heads=heads,
                num_key_value_heads=heads,
                head_dim=hidden // heads,
                intermediate_size=4 * hidden,
                moe_intermediate_size=hidden,
                num_experts=8,
                num_experts_per_tok=2,
                tie_word_embeddings=True,
                pad_token_id=0,
                bos_token_id=None,
                eos_token_id=2,
            )
        )
    if kind == "images":
        shape = TinyVisionShape(hidden=hidden, layers=layers, heads=heads)
        return build_vision_model(build_vision_tokenizer(), shape)
    more = {"num_key_value_heads": named("keys", heads), "tie_word_embeddings": TIED}
    seed = named("seed", 0)
    return build_model(vocabulary, hidden=hidden, layers=layers, heads=heads, seed=seed, **more)


def make_learner(model: Any, settings: TrainerConfig, dtype: str, ranks: Ranks | None) -> Learner:
    half = torch.bfloat16 if dtype == "bfloat16" else None
    reading = ReadingOptions(autocast=half, float32_head=FLOAT32_HEAD)
    if ranks is None:
        return Learner(model, settings, reading)
    return ShardedLearner(model, settings, reading, ranks=ranks)


def main() -> None:
    vocabulary, hidden, layers, heads, tokens = map(int, sys.argv[1:6])
    torch.set_num_threads(1)
    place = place_of()
    ranks = None if place is None else Ranks(place)
    world = 1 if ranks is None else ranks.world
    settings = TrainerConfig(
        tokens_per_pass=tokens,
        checkpoint_layers="checkpoint" in sys.argv,
        lora=LoraConfig(rank=8 if "lora" in sys.argv else 0),
    )
    dtype = "bfloat16" if "bfloat16" in sys.argv else "float32"
    small = build_model(64, hidden=16, layers=1, heads=2)
    update(make_learner(small, settings, dtype, ranks), 64, 1)  # loads libraries
    before = resident()
    kinds = [each for each in ("experts", "images") if each in sys.argv]
    model = model_of("".join(kinds), vocabulary, hidden, layers, heads)
    types = ModelConfig(dtype=dtype, float32_head=FLOAT32_HEAD)
    config = TrainConfig(trainer=settings, engine="vllm", model=types)
    estimate = estimate_memory(config, model, free=1 << 40, ranks=world)
    if settings.lora.rank:
        add_adapter(model, settings.lora)
    learner = make_learner(model, settings, dtype, ranks)
    gradient = 4 * sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
    Path("/proc/self/clear_refs").write_text("5")  # the high-water mark starts over
    held = update(learner, vocabulary, PASSES * world * tokens // LENGTH)
    measured = {"measured": high_water() - before, "estimated": estimate.total}
    print(json.dumps({**measured, "held": held / gradient}))
    if ranks is not None:
        ranks.close()


if __name__ == "__main__":
    main()
