"""The size of a run in memory and on disk, from the model's layers and the settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from ..config import TrainConfig
from ..learning.devices import pick_device
from ..learning.precision import DTYPES
from ..memory import cached_bytes, fitting_cache, fitting_pass, free_bytes, training_bytes


@dataclass(frozen=True, slots=True)
class ModelSize:
    """The parameters of a model."""

    total: int
    trained: int
    """Fewer than `total` with LoRA."""

    @staticmethod
    def of(outline: Any, config: TrainConfig) -> ModelSize:
        """Count the parameters of a model without weights; tied weights count once."""
        total = sum(one.numel() for one in outline.parameters())
        lora = config.trainer.lora
        if not lora.rank:
            return ModelSize(total, total)
        names = tuple(lora.targets.split(","))
        matrices = sum(
            lora.rank * (layer.in_features + layer.out_features)
            for name, layer in outline.named_modules()
            if isinstance(layer, torch.nn.Linear)
            and not name.endswith("lm_head")
            and (lora.targets == "all" or name.endswith(names))
        )
        return ModelSize(total + matrices, matrices)


def memory_parts(
    config: TrainConfig, outline: Any, size: ModelSize, *, reference: bool
) -> dict[str, int]:
    """Estimate what a run holds in memory at its peak, in bytes by part.

    The learner's weights, gradient and the two moments of Adam are float32. Activations are those
    of one pass of `trainer.tokens_per_pass` tokens; see `trainer/memory.py` for the estimate.

    Args:
        config: the settings.
        outline: the model without weights.
        size: its parameters.
        reference: whether the recipe needs the weights of a reference model.
    """
    free, kind = free_bytes(pick_device(config.model.device)), DTYPES[config.model.dtype]
    tokens = config.trainer.tokens_per_pass or fitting_pass(outline, kind, free)
    parts = {
        "the learner's weights": 4 * size.total,
        "gradient": 4 * size.trained,
        "the optimizer's moments": 8 * size.trained,
        f"activations of a pass of {tokens:,} tokens": tokens
        * training_bytes(outline.config, torch.float32 if kind is torch.float32 else kind),
    }
    if config.engine == "local":
        copies = 2 if config.eval.beside == "own" else 1
        kept = config.local.kept_tokens
        outline_of_engine = outline.to(kind) if kind is not torch.float32 else outline
        kept = fitting_cache(outline_of_engine, free) if kept is None else kept
        parts["the engine's weights"] = copies * kind.itemsize * size.total
        parts[f"keys and values of {kept:,} tokens, at most"] = kept * cached_bytes(
            outline.config, kind
        )
    if reference:
        parts["the reference's weights"] = 4 * size.total
    return parts


def checkpoint_bytes(config: TrainConfig, size: ModelSize) -> int:
    """Return about how many bytes a checkpoint takes: float32 weights and the two moments."""
    lora = config.trainer.lora
    weights = size.trained if lora.rank and lora.save == "adapter" else size.total
    return 4 * weights + 8 * size.trained


def checkpoints_written(config: TrainConfig) -> int:
    """Return the most checkpoints that a whole run writes; with `eval.keep_best` each evaluation
    before the end may be the best.
    """
    steps = {config.steps}
    if config.run.save_every:
        steps |= set(range(config.run.save_every, config.steps, config.run.save_every))
    if config.eval.every and config.eval.keep_best:
        steps |= set(range(config.eval.every, config.steps, config.eval.every))
    return len(steps)


def checkpoints_kept(config: TrainConfig) -> int:
    """Return how many checkpoints are on the disk at the same time, with one that is being
    written.
    """
    best = config.eval.keep_best and 0 < config.eval.every < config.steps
    return min(config.run.keep + best + 1, checkpoints_written(config))
