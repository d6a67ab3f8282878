# pyright: basic
"""Writes the model and the shards of all ranks into a checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..engines.models import save_model
from ..learning.copies import FOLDER as AVERAGE
from .shards import write_shards
from .source import ShardedWeights, local

if TYPE_CHECKING:
    from .learner import ShardedLearner


class ShardWriter:
    """The `WeightsWriter` of a sharded learner.

    Args:
        learner: whose weights are written.
        tokenizer: written beside the model by rank 0; None on other ranks.
    """

    def __init__(self, learner: ShardedLearner, tokenizer: Any = None) -> None:
        self.learner = learner
        self.tokenizer = tokenizer

    def broken(self) -> list[str]:
        """Return the names of weights that are not finite; collective."""
        named = dict(self.learner.model.named_parameters())
        ranks = self.learner.ranks
        with ranks.together("broken"):
            broken = [not bool(local(weight).isfinite().all()) for weight in named.values()]
            counts = ranks.summed(torch.tensor(broken, dtype=torch.float32)).tolist()
        return [name for name, count in zip(named, counts, strict=True) if count]

    def write(self, folder: Path) -> None:
        """Write the shards of all ranks, then on rank 0 the whole model as a transformers folder,
        and its moving average as another where one is kept.

        Raises:
            SaveFailed: a rank could not write; the message names the rank.
        """
        self.write_shards(folder)
        learner = self.learner
        save_model(learner.model, self.tokenizer, folder, images=learner.images, whole=self)
        if learner.average.used:
            with learner.averaged():
                save_model(
                    learner.model,
                    self.tokenizer,
                    folder / AVERAGE,
                    images=learner.images,
                    whole=self,
                )

    def adapter(self) -> dict[str, Tensor]:
        """Return the matrices of the adapter, gathered on the CPU."""
        return self._gathered(ShardedWeights(self.learner.model, self.learner.ranks, adapter=True))

    def merged(self) -> dict[str, Tensor]:
        """Return the weights of the model, gathered on the CPU, an adapter merged."""
        return self._gathered(ShardedWeights(self.learner.model, self.learner.ranks))

    def _gathered(self, source: ShardedWeights) -> dict[str, Tensor]:
        return {name: tensor.cpu() for piece in source.pieces() for name, tensor in piece.items()}

    def write_shards(self, folder: Path) -> None:
        """Write the shards alone; collective."""
        ranks = self.learner.ranks
        with ranks.together("shards", folder=str(folder)):
            write_shards(folder, self.learner, ranks)
