"""Prints the memory that updates of a learner allocate, and what was estimated, as JSON.

python measured_update.py VOCABULARY HIDDEN LAYERS HEADS TOKENS [checkpoint] [lora] [bfloat16]
"""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path

import torch

from ludus.trainer.config import LoraConfig, ModelConfig, TrainConfig, TrainerConfig
from ludus.trainer.learning.learner import Learner
from ludus.trainer.learning.reader import ReadingOptions
from ludus.trainer.models.adapters import add_adapter
from ludus.trainer.models.tiny import build_model
from ludus.trainer.plan.memory import estimate_memory
from ludus.trainer.rollout.batch import Row, pad
from ludus.trainer.sft import negative_log_likelihood

LENGTH = 256


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def high_water() -> int:
    """The largest resident size; `ru_maxrss` would count what the process was forked from."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def update(learner: Learner, vocabulary: int, count: int) -> None:
    draw = torch.Generator().manual_seed(0)
    rows = [
        Row(
            torch.randint(3, vocabulary, (LENGTH,), generator=draw).tolist(),
            [0] + [1] * (LENGTH - 1),
            [0.0] * LENGTH,
        )
        for _ in range(count)
    ]
    for _ in range(2):
        learner.update(pad(rows), torch.arange(count), negative_log_likelihood)


def main() -> None:
    vocabulary, hidden, layers, heads, tokens = map(int, sys.argv[1:6])
    torch.set_num_threads(1)
    settings = TrainerConfig(
        tokens_per_pass=tokens,
        checkpoint_layers="checkpoint" in sys.argv,
        lora=LoraConfig(rank=8 if "lora" in sys.argv else 0),
    )
    dtype = "bfloat16" if "bfloat16" in sys.argv else "float32"
    update(Learner(build_model(64, hidden=16, layers=1, heads=2), settings), 64, 1)  # libraries
    Path("/proc/self/clear_refs").write_text("5")  # the high-water mark starts over
    before = resident()
    model = build_model(vocabulary, hidden=hidden, layers=layers, heads=heads)
    config = TrainConfig(trainer=settings, engine="vllm", model=ModelConfig(dtype=dtype))
    estimate = estimate_memory(config, model, free=1 << 40)
    if settings.lora.rank:
        add_adapter(model, settings.lora)
    autocast = torch.bfloat16 if dtype == "bfloat16" else None
    update(
        Learner(model, settings, ReadingOptions(autocast=autocast)),
        vocabulary,
        2 * tokens // LENGTH,
    )
    peak = high_water()
    print(json.dumps({"measured": peak - before, "estimated": estimate.total}))


if __name__ == "__main__":
    main()
