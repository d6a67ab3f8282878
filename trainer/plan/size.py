"""The size of a model and of its checkpoints, from the model's layers and the settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from ..config import TrainConfig

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True, slots=True)
class ModelSize:
    """The parameters of a model."""

    total: int
    trained: int
    """Fewer than `total` with LoRA."""

    @staticmethod
    def of(outline: PreTrainedModel, config: TrainConfig) -> ModelSize:
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
