"""An exponential moving average of the trained weights, which is often better than the last ones.

After each update `a = d a + (1 - d) w`. The average begins as the first weights.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from ..models.loading import save_model

FOLDER = "average"
"""Folder of the averaged model inside a checkpoint."""


class WeightAverage:
    """Holds a float32 average of some weights; nothing where the decay is 0.

    Args:
        parameters: the weights.
        decay: weight of the past in each update, in [0, 1).
    """

    def __init__(self, parameters: Sequence[Parameter], decay: float) -> None:
        self._parameters = list(parameters) if decay else []
        self._decay = decay
        self._values = [weight.detach().float().clone() for weight in self._parameters]

    @property
    def used(self) -> bool:
        """Whether an average is kept."""
        return bool(self._decay)

    @torch.no_grad()
    def update(self) -> None:
        """Take the weights after an update into the average."""
        for value, weight in zip(self._values, self._parameters, strict=True):
            value.lerp_(weight.float(), 1 - self._decay)

    @contextmanager
    def in_place(self) -> Generator[None]:
        """Put the average in the place of the weights inside the block."""
        before = [weight.detach().clone() for weight in self._parameters]
        self._write(self._values)
        try:
            yield
        finally:
            self._write(before)

    def state(self) -> list[Tensor]:
        """Return what a checkpoint keeps, in the order of the weights."""
        return self._values

    @torch.no_grad()
    def restore(self, state: Sequence[Tensor]) -> None:
        """Continue from the average that a checkpoint has kept; without any, from the weights.
        A run without an average ignores the checkpoint's.
        """
        if not self.used:
            return
        for value, kept in zip(self._values, state or self._parameters, strict=True):
            value.copy_(kept)

    @torch.no_grad()
    def _write(self, values: Sequence[Tensor]) -> None:
        for weight, value in zip(self._parameters, values, strict=True):
            weight.copy_(value)


class AverageWriter:
    """Writes a model into a checkpoint, and its average as a model in the folder `average`.

    Args:
        learner: has the model and the average.
        tokenizer: saved beside both.
    """

    def __init__(self, learner: Any, tokenizer: object) -> None:
        self._learner = learner
        self._tokenizer = tokenizer

    def broken(self) -> list[str]:
        """Return the names of weights that are not finite."""
        named = self._learner.model.named_parameters()
        return [name for name, weight in named if not bool(weight.isfinite().all())]

    def write(self, folder: Path) -> None:
        """Write both into an existing folder."""
        model, images = self._learner.model, self._learner.images
        save_model(model, self._tokenizer, folder, images=images)
        with self._learner.averaged():
            save_model(model, self._tokenizer, folder / FOLDER, images=images)
