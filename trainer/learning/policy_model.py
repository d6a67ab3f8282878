"""The model of a learner: whole, or with an adapter beside frozen weights."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from ludus.errors import ConfigError

from ..config import LoraConfig
from ..models.adapters import add_adapter, base_of, without_adapter
from ..models.loading import ADAPTER, CausalLM, load_model
from ..rollout.batch import Batch
from .credit import Scores
from .learner import Learner, PolicyLearner


class BelowAdapter:
    """The frozen model below a learner's adapter, without a second copy of the weights.

    Args:
        learner: whose model has an adapter.
    """

    def __init__(self, learner: PolicyLearner) -> None:
        self.learner = learner

    def score(self, batch: Batch) -> Tensor:
        """Return log-probabilities [B, T] of the whole batch, without gradient, on the CPU."""
        with without_adapter(self.learner.model):
            return self.learner.score(batch)


class MovingReference:
    """A reference that becomes the policy after every `trainer.reference_every` steps.

    The optimizer goes on as it is. After the first reset the reference before it is let go, and
    the policy's own model scores with the copies that the learner keeps.

    Args:
        learner: trains the policy, and keeps the copies.
        first: the reference until the first reset.
    """

    def __init__(self, learner: Learner, first: Scores) -> None:
        self.learner = learner
        self._first: Scores | None = first

    def score(self, batch: Batch) -> Tensor:
        """Return log-probabilities [B, T] of the whole batch, without gradient, on the CPU."""
        if self._first is not None and not self.learner.anchor.moved:
            return self._first.score(batch)
        # within a step, which holds the weights
        with self.learner.anchor.in_place(), self.learner.unmasked():
            return self.learner.score(batch)

    def after_step(self) -> None:
        """Count a step, after which the reference may become the policy."""
        self.learner.anchor.after_step()
        if self.learner.anchor.moved:
            self._first = None


def load_policy(
    path: str | Path,
    lora: LoraConfig,
    *,
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
    resumed: bool = False,
) -> CausalLM:
    """Load the model that a learner trains.

    Args:
        path: a model, or the checkpoint of a run that continues.
        lora: the adapter to train; rank 0 trains all weights.
        dtype: the type of the weights; the matrices of an adapter are float32.
        device: the device of the model.
        resumed: whether `path` is a checkpoint whose adapter is continued on its own base model.

    Raises:
        ConfigError: the checkpoint and the settings do not agree on an adapter, or the adapter is
            of another model.
    """
    saved = Path(path) / ADAPTER
    if resumed and saved.is_dir() != bool(lora.rank):
        raise ConfigError(
            f"trainer.lora.rank is {lora.rank}, but the checkpoint {str(path)!r} was trained "
            f"{'with' if saved.is_dir() else 'without'} an adapter; resume with the settings it "
            "was trained with, or start from it with --model.path"
        )
    if not lora.rank:
        return load_model(path, dtype=dtype, device=device)
    base = base_of(saved) if resumed else str(path)
    model = load_model(base, dtype=dtype, device=device)
    named = str(Path(base).absolute()) if Path(base).is_dir() else base
    add_adapter(model, replace(lora, adapter=str(saved)) if resumed else lora, base=named)
    return model
