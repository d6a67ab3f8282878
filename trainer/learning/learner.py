"""The model that learns, with the optimizer.

A loss is a pure function that returns (sum, weight) for one forward pass. Sums are back-propagated
as they are and the gradient is divided once by the total weight, so how rows are split into passes
changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ludus.agent import WeightSource
from ludus.errors import ConfigError, UpdateRefused

from ..adapters import MergedWeights, has_adapter
from ..config import TrainerConfig
from ..engines.models import CausalLM
from ..memory import fitting_pass
from ..run.checkpoint import WeightsWriter
from ..vision import ImageReader, last_hidden
from ..weights import MemoryWeights, adapter_tensors
from .activations import checkpoint_layers
from .attention import packed_hidden, why_unpackable
from .batch import Batch, passes, units
from .guard import broken_units, is_finite, told
from .logits import LOGITS_AT_ONCE, Reading, read_logits
from .packing import MIN_SHARED, pack_rows, packs
from .precision import at_least_float32
from .readings import logp, logp_and_entropy, new_value_head, scatter, score_norm
from .schedule import learning_rate

PACKING_OFF = "trainer.packing is none"
NEVER_SHARED = 1 << 40


class Predicted(NamedTuple):
    """Outputs of the model for the trained tokens; 0 elsewhere."""

    logp: Tensor
    """Log-probabilities, [B, T], in nats."""
    entropy: Tensor | None
    """Entropies, [B, T], in nats; None unless they were asked for."""
    values: Tensor | None = None
    """Values of the state before each token, [B, T]; None without a value head."""


SHARDS = "shards"
"""Key of a state whose tensors ranks have written beside it."""

Loss = Callable[[Batch, Predicted], tuple[Tensor, Tensor]]
"""A function from one pass and the model's outputs to (sum, weight)."""


class Learner:
    """Holds the weights being trained.

    Args:
        model: trained in place.
        config: settings of the optimizer.
        temperature: sampling temperature of the policy; log-probabilities are computed at the same
            one.
        values: whether to train a value head on the last hidden state; the head starts at 0
            everywhere.
        autocast: type to compute in, with float32 weights; None computes in the type of the
            weights.
        planned_updates: number of updates in the run, over which `config.lr_decay` falls; 0 is
            unknown.
        logits_at_once: largest number of logits held at a time; any number gives the same gradient.
        images: reads the images of rows; None for a model that reads none.
    """

    def __init__(
        self,
        model: CausalLM,
        config: TrainerConfig,
        *,
        temperature: float = 1.0,
        values: bool = False,
        autocast: torch.dtype | None = None,
        planned_updates: int = 0,
        logits_at_once: int = LOGITS_AT_ONCE,
        images: ImageReader | None = None,
    ) -> None:
        self.model = model.eval()  # no dropout: it would be noise in the ratio to the sampler
        self.config = config
        self.temperature = temperature
        self.autocast = autocast
        self.planned_updates = planned_updates
        self.logits_at_once = logits_at_once
        self.images = images
        self.updates = 0
        self.value_head = new_value_head(model) if values else None
        self.unpacked = PACKING_OFF if config.packing == "none" else why_unpackable(model)
        """Why rows are padded instead of packed; empty where they are packed."""
        self._min_shared = MIN_SHARED if config.packing == "shared" else NEVER_SHARED
        if config.checkpoint_layers:
            checkpoint_layers(model)
        self._place()
        self.optimizer = torch.optim.AdamW(
            self._parameters(),
            lr=config.lr,
            betas=(config.beta1, config.beta2),
            weight_decay=config.weight_decay,
        )

    def update(
        self,
        batch: Batch,
        rows: Tensor,
        loss: Loss,
        *,
        idle: Tensor | None = None,
        together: Tensor | None = None,
        entropy: bool = False,
    ) -> dict[str, float]:
        """Make an optimizer update from the given rows.

        Args:
            batch: the whole batch.
            rows: [R] int, the rows of this update.
            loss: called once for each pass.
            idle: [B] bool, rows whose gradient is known to be zero: they count in the weight, and
                the model is not run on them.
            together: [B] int, rows with the same number share a pass, however long the pass gets:
                for losses that compare rows.
            entropy: whether the loss reads entropies.

        Returns:
            `loss`, `grad_norm` (before clipping), `lr`, `tokens` (trained). Where nothing has
            weight no update is made.

        Raises:
            UpdateRefused: the loss or the gradient is not finite; weights and optimizer are as
                before, and the error names the rows.
        """
        idle = torch.zeros(len(batch), dtype=torch.bool) if idle is None else idle
        left = rows[~idle[rows]]

        def backward(those: Tensor) -> tuple[float, float]:
            """Compute the gradient of the given rows afresh; return the sum and the weight of the
            loss.
            """
            self.optimizer.zero_grad(set_to_none=True)
            total, weight = 0.0, 0.0
            for part in self._passes(batch, those, together):
                one = batch.take(part).to(self.model.device)
                said = self.predict(one, entropy=entropy)
                part_sum, part_weight = loss(one, said)
                self._backward(part_sum, said)
                total, weight = total + float(part_sum.detach()), weight + float(part_weight)
            return self._over_ranks(total, weight)

        resting, resting_weight = self._resting(batch, rows[idle[rows]], loss)
        total, weight = backward(left)
        total, weight = total + resting, weight + resting_weight
        made = {"tokens": float(batch.mask[rows].sum()), "lr": self.lr}
        if weight == 0:
            return {"loss": 0.0, "grad_norm": 0.0, **made}
        norm = self._clipped_norm(weight)
        if fault := told(total / weight, norm):

            def breaks(those: list[int]) -> bool:
                loss_sum, _ = backward(torch.tensor(those))
                return not (math.isfinite(loss_sum) and self._gradient_is_finite())

            found = broken_units(units(batch.lengths, left, together), breaks)
            self.optimizer.zero_grad(set_to_none=True)
            raise UpdateRefused(fault, found)
        for group in self.optimizer.param_groups:
            group["lr"] = self.lr
        self.optimizer.step()
        self.updates += 1
        return {"loss": total / weight, "grad_norm": norm, **made}

    def predict(self, batch: Batch, *, entropy: bool = False) -> Predicted:
        """Return log-probabilities, and entropies if asked for, of the trained tokens.

        Only the logits of trained tokens are computed.
        """
        hidden = self._hidden(batch)
        read = self._read(batch, hidden, logp_and_entropy if entropy else logp)
        values = (
            None
            if self.value_head is None
            else self.value_head(at_least_float32(hidden)).squeeze(-1)
        )
        return Predicted(
            scatter(read[:, 0], batch),
            scatter(read[:, 1], batch) if entropy else None,
            None if values is None else scatter(values, batch),
        )

    def score(self, batch: Batch) -> Tensor:
        """Return log-probabilities [B, T] of the whole batch, without gradient, on the CPU."""
        return self._over(batch, lambda part: self.predict(part).logp)

    def score_values(self, batch: Batch) -> Tensor:
        """Return values [B, T] of the state before each trained token, without gradient, on the
        CPU.
        """

        def values(part: Batch) -> Tensor:
            found = self.predict(part).values
            assert found is not None, "made without a value head"
            return found

        return self._over(batch, values)

    def score_entropy(self, batch: Batch) -> Tensor:
        """Return entropies [B, T] in nats at each trained token, without gradient, on the CPU."""

        def entropy(part: Batch) -> Tensor:
            found = self.predict(part, entropy=True).entropy
            assert found is not None, "asked for"
            return found

        return self._over(batch, entropy)

    def score_norms(self, batch: Batch) -> Tensor:
        """Return the squared norm [B, T] of each trained token's score with respect to the logits,
        on the CPU.

        The norm is `1 - 2 p(token) + sum_v p(v)^2`. An optimal token baseline weighs returns by
        these norms.
        """

        def norms(part: Batch) -> Tensor:
            return scatter(self._read(part, self._hidden(part), score_norm)[:, 0], part)

        return self._over(batch, norms)

    def split(
        self, batch: Batch, rows: Tensor, tokens: int, together: Tensor | None = None
    ) -> Iterable[Tensor]:
        """Split `rows` into forward passes of at most `tokens` tokens, counted as they are
        computed: packed and after sharing, or with their padding; see `packs` and `passes`.
        """
        if not self._packs(batch):
            return passes(batch.lengths, rows, tokens, together)
        return packs(batch.ids, batch.lengths, rows, tokens, together, min_shared=self._min_shared)

    def _packs(self, batch: Batch) -> bool:
        """Whether a batch is computed without padding; rows with images are not."""
        return not self.unpacked and not any(batch.images)

    @property
    def tokens_per_pass(self) -> int:
        """The largest number of tokens that a forward pass computes."""
        return self.config.tokens_per_pass or self._fitting_pass

    @cached_property
    def _fitting_pass(self) -> int:
        return fitting_pass(self.model, self.autocast or torch.float32)

    def notes(self) -> tuple[str, ...]:
        """Return what a user should know about how this model is trained, one line each."""
        if not self.unpacked or self.config.packing == "none":
            return ()
        return (f"rows are padded, since this model cannot be packed: {self.unpacked}",)

    @property
    def lr(self) -> float:
        """The learning rate of the next update."""
        return learning_rate(
            self.updates,
            peak=self.config.lr,
            warmup=self.config.warmup_steps,
            decay=self.config.lr_decay,
            total=self.planned_updates,
        )

    def gathered(self, items: list[tuple[float, ...]]) -> list[tuple[float, ...]]:
        """Return what every rank measured of its own passes; with one process, `items`."""
        return items

    def source(self) -> WeightSource:
        """Return the weights for an engine, not copied: they stay as they are until read. An
        adapter is merged into its base, or comes alone where `trainer.lora.publish` says so.
        """
        if not has_adapter(self.model):
            return MemoryWeights.of(self.model)
        if self.config.lora.publish == "adapter":
            return MemoryWeights(adapter_tensors(self.model))
        return MergedWeights(self.model)

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps besides the model."""
        head = {} if self.value_head is None else self.value_head.state_dict()
        optimizer = self.optimizer.state_dict()
        return {"optimizer": optimizer, "updates": self.updates, "value_head": head}

    def writer(self, tokenizer: object) -> WeightsWriter | None:
        """Return what writes the model into a checkpoint where ranks share the weights; None where
        `model` is whole.
        """
        return None

    def restore(self, state: Mapping[str, Any], folder: Path | None = None) -> None:
        """Continue from the `state` that a checkpoint has kept; what ranks have written beside the
        state is read from the checkpoint's `folder`.

        Raises:
            ConfigError: the checkpoint was written by another model.
        """
        if SHARDS in state:
            self.updates = int(state["updates"])
            self._read_shards(folder)
            return
        self.optimizer.load_state_dict(state["optimizer"])
        self.updates = int(state["updates"])
        if self.value_head is not None:
            self.value_head.load_state_dict(state["value_head"])

    def _read_shards(self, folder: Path | None) -> None:
        from ..ranks.shards import read_shards  # which knows this module

        if folder is None:
            raise ConfigError("the state was written by ranks; its checkpoint's folder is missing")
        read_shards(folder, self)

    # What several ranks do in another way; see `ludus.trainer.ranks`.

    def _place(self) -> None:
        """Put the modules where they are trained, before the optimizer is made."""

    def _passes(
        self, batch: Batch, rows: Tensor, together: Tensor | None = None
    ) -> Iterable[Tensor]:
        """Split `rows` into the forward passes of this process."""
        return self.split(batch, rows, self.tokens_per_pass, together)

    def _backward(self, part_sum: Tensor, said: Predicted) -> None:
        """Add the gradient of a pass's sum."""
        if part_sum.requires_grad:
            part_sum.backward()

    def _over_ranks(self, total: float, weight: float) -> tuple[float, float]:
        """Sum the loss and the weight over all ranks."""
        return total, weight

    def _gradient_is_finite(self) -> bool:
        return is_finite(self._parameters())

    def _parameters(self) -> list[torch.nn.Parameter]:
        head = [] if self.value_head is None else list(self.value_head.parameters())
        return [*(one for one in self.model.parameters() if one.requires_grad), *head]

    @torch.no_grad()
    def _over(self, batch: Batch, of: Callable[[Batch], Tensor]) -> Tensor:
        """Apply `of` to every row, pass by pass, and return the results on the CPU."""
        found = torch.zeros_like(batch.mask)
        every = torch.arange(len(batch))
        for part in self._passes(batch, every):
            values = of(batch.take(part).to(self.model.device)).cpu()
            found[part, : values.shape[1]] = values.to(found.dtype)
        return found

    def _hidden(self, batch: Batch) -> Tensor:
        """Return the last hidden states [N, D] before the trained tokens."""
        trained = batch.mask[:, 1:].bool()
        with self._precision():
            if self._packs(batch):
                rows = pack_rows(batch.ids, batch.lengths, min_shared=self._min_shared)
                hidden = packed_hidden(self.model, rows)
                return hidden.index_select(0, rows.places[:, :-1][trained])
            hidden = last_hidden(self.model, batch.ids, batch.images, self.images)
        return hidden[:, :-1][trained]

    def _precision(self) -> torch.autocast:
        kind = torch.device(self.model.device).type
        return torch.autocast(kind, dtype=self.autocast, enabled=self.autocast is not None)

    def _read(self, batch: Batch, hidden: Tensor, reading: Reading) -> Tensor:
        """Apply `reading` to each trained token, and return [N, K]."""

        def head(states: Tensor) -> Tensor:
            with self._precision():
                return at_least_float32(self.model.lm_head(states)) / self.temperature

        tokens = batch.ids[:, 1:][batch.mask[:, 1:].bool()]
        return read_logits(head, hidden, tokens, reading, at_once=self.logits_at_once)

    def _resting(self, batch: Batch, rows: Tensor, loss: Loss) -> tuple[float, float]:
        """Return the sum and weight of rows that the model is not run on."""
        if not len(rows):
            return 0.0, 0.0
        one = batch.take(rows).to(self.model.device)
        zero = torch.zeros_like(one.mask)
        part_sum, part_weight = loss(one, Predicted(zero, zero))
        return float(part_sum), float(part_weight)

    def _clipped_norm(self, weight: float) -> float:
        """Divide the gradient by `weight` and clip the result; return the norm before clipping."""
        parameters = self._parameters()
        for parameter in parameters:
            if parameter.grad is not None:
                parameter.grad /= weight
        return float(torch.nn.utils.clip_grad_norm_(parameters, self.config.max_grad_norm))
