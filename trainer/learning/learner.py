"""The model that learns, with the optimizer.

A loss is a pure function that returns (sum, weight) for one forward pass. Sums are back-propagated
as they are and the gradient is divided once by the total weight, so how rows are split into passes
changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import Parameter

from ludus.agent import WeightSource
from ludus.errors import ConfigError, UpdateRefused

from ..config import TrainerConfig
from ..engines.vllm.served import scorer_of
from ..models.adapters import MergedWeights, has_adapter
from ..models.checkpoint import WeightsWriter
from ..models.images import ImageReader
from ..models.loading import CausalLM
from ..models.mask_policy import MaskPolicy
from ..models.weights import MemoryWeights, SteadyWeights, adapter_tensors, checked
from ..rollout.batch import Batch, units
from ..settings.learner import Decay
from .copies import Anchor, AverageWriter, MasterWeights, WeightAverage
from .guard import ScaleBack, broken_units, is_finite, told
from .reader import DEFAULT_READING, PolicyReader, Predicted, ReadingOptions, trained_tensors

__all__ = ["Learner", "Loss", "Predicted"]

FIRST_SCALE, LEAST_SCALE, MOST_SCALE = 2.0**15, 1.0, 2.0**24
GROW_AFTER = 200
"""Updates without an overflow after which the factor is doubled."""
Loss = Callable[[Batch, Predicted], tuple[Tensor, Tensor]]
"""A function from one pass and the model's outputs to (sum, weight)."""


class PolicyLearner(Protocol):
    """The learner of a run: in this process, in several, or elsewhere.

    `Learner` says what each does.
    """

    model: CausalLM
    updates: int
    steady: SteadyWeights

    @property
    def images(self) -> ImageReader | None: ...
    @property
    def mask(self) -> MaskPolicy | None: ...
    @property
    def value_head(self) -> torch.nn.Module | None: ...
    @property
    def lr(self) -> float: ...
    def update(
        self, batch: Batch, rows: Tensor, loss: Loss, how: UpdatePasses | None = None
    ) -> dict[str, float]: ...
    def score(self, batch: Batch) -> Tensor: ...
    def score_values(self, batch: Batch) -> Tensor: ...
    def score_entropy(self, batch: Batch) -> Tensor: ...
    def score_norms(self, batch: Batch) -> Tensor: ...
    def score_proxy(self, batch: Batch, ratio: float) -> Tensor: ...
    def score_ids(self, ids: Sequence[int], temperature: float) -> list[float]: ...
    def gathered(self, items: list[tuple[float, ...]]) -> list[tuple[float, ...]]: ...
    def source(self) -> WeightSource: ...
    def evaluated(self) -> WeightSource: ...
    def state(self) -> dict[str, Any]: ...
    def writer(self, tokenizer: object, *, whole: bool = True) -> WeightsWriter | None: ...
    def restore(self, state: Mapping[str, Any]) -> None: ...
    def notes(self) -> tuple[str, ...]: ...


@dataclass(frozen=True, kw_only=True)
class UpdatePasses:
    """Settings of the passes of one update."""

    idle: Tensor | None = None
    """[B] bool, rows whose gradient is known to be zero: they count in the weight, and the model is
    not run on them.
    """
    together: Tensor | None = None
    """[B] int, rows with the same number share a pass, however long the pass gets: for losses that
    compare rows.
    """
    entropy: bool = False
    """Whether the loss reads entropies."""
    afresh: Callable[[], None] = lambda: None
    """Called before the first pass of each attempt at the gradient. An update makes another attempt
    after memory ran out or a scaled loss overflowed, and several while it searches for broken rows.
    A loss that collects statistics discards here what earlier attempts have added.
    """
    hold: Callable[[ScaleBack], None] = lambda scale_back: None
    """Called when the weights have moved; see `StepBound.hold`. Every rank calls it."""


class LossScale:
    """Multiplies the loss, and halves itself where the gradient overflows.

    An overflow is the factor's fault and costs no update: the same rows are computed again with
    half the factor. Only a gradient that is not finite at a factor of 1 is a broken update. torch's
    GradScaler leaves out an update for each overflow, which an update on rollouts is too dear for.

    Args:
        dtype: the type of the computation; the factor of any but float16 stays 1.
    """

    def __init__(self, dtype: torch.dtype | None) -> None:
        self.used = dtype == torch.float16
        self.factor = FIRST_SCALE if self.used else 1.0
        self.good = 0
        """Updates since the factor last changed."""

    def lower(self) -> bool:
        """Halve the factor; False where the factor cannot be lowered."""
        if self.factor <= LEAST_SCALE:
            return False
        self.factor, self.good = max(LEAST_SCALE, self.factor / 2), 0
        return True

    def made(self) -> None:
        """Count an update; the factor grows after many."""
        self.good += 1
        if self.used and self.good >= GROW_AFTER:
            self.factor, self.good = min(MOST_SCALE, 2 * self.factor), 0

    def state(self) -> dict[str, float]:
        """Return the factor and its count of good updates, for a checkpoint."""
        return {"factor": self.factor, "good": self.good}

    def restore(self, state: dict[str, float]) -> None:
        """Continue from a kept `state`; a run in another type begins anew."""
        if self.used and state.get("factor", 1.0) > 1.0:
            self.factor, self.good = float(state["factor"]), int(state["good"])


def learning_rate(
    update: int, *, peak: float, warmup: int = 0, decay: Decay = "constant", total: int = 0
) -> float:
    """The learning rate of update number `update`, counted from 0.

    The rate rises linearly to `peak` over the first `warmup` updates, then stays or falls towards
    0, which would be reached at update `total`. A run that continues beyond `total` keeps the last
    rate above 0.

    Args:
        update: number of the update, from 0.
        peak: the highest rate.
        warmup: number of updates of the rise.
        decay: course of the fall: none, a line, or half a cosine.
        total: planned number of updates; 0 is unknown, and nothing falls.

    >>> [learning_rate(n, peak=1.0, warmup=2, decay="linear", total=6) for n in range(6)]
    [0.5, 1.0, 1.0, 0.75, 0.5, 0.25]
    """
    if update < warmup:
        return peak * (update + 1) / warmup
    if decay == "constant" or total <= warmup:
        return peak
    done = min(update, total - 1) - warmup
    remaining = 1 - done / (total - warmup)
    return peak * (remaining if decay == "linear" else 0.5 - 0.5 * math.cos(math.pi * remaining))


class Learner(PolicyReader):
    """Holds the weights being trained.

    Args:
        model: trained in place.
        config: settings of the optimizer.
        options: how the policy is read.
        planned_updates: number of updates in the run, over which `config.lr_decay` falls; 0 is
            unknown.
    """

    def __init__(
        self,
        model: CausalLM,
        config: TrainerConfig,
        options: ReadingOptions = DEFAULT_READING,
        *,
        planned_updates: int = 0,
    ) -> None:
        super().__init__(model, config, options)
        self.planned_updates = planned_updates
        self.updates = 0
        self.steady = SteadyWeights()
        """The version of the policy's weights, as the run counts versions."""
        self.scale = LossScale(options.autocast)
        """What the loss is multiplied by before the backward pass; 1 but in float16."""
        self._place()
        self.masters = MasterWeights(self._held())
        """float32 copies of weights that are held in half precision; the optimizer moves these."""
        self.optimizer = torch.optim.AdamW(
            self._groups(),
            lr=config.lr,
            betas=(config.beta1, config.beta2),
            weight_decay=config.weight_decay,
        )
        self.average = WeightAverage(self._policy(), config.ema_decay)
        """Moving average of the policy's trained weights; empty where `ema_decay` is 0."""
        self.anchor = Anchor(self._trained(), config.reference_every)
        """The weights that the reference was last reset to; see `MovingReference`."""

    def update(
        self, batch: Batch, rows: Tensor, loss: Loss, how: UpdatePasses | None = None
    ) -> dict[str, float]:
        """Make an optimizer update from the given rows.

        Args:
            batch: the whole batch.
            rows: [R] int, the rows of this update.
            loss: called once for each pass.
            how: how the passes of the update are made; by default the model is run on every
                row, and the loss reads no entropies.

        Returns:
            `loss`, `grad_norm` (before clipping), `lr`, `tokens` (trained). Where nothing has
            weight no update is made.

        Raises:
            UpdateRefused: the loss or the gradient is not finite; weights and optimizer are as
                before, and the error names the rows.
        """
        how = how or UpdatePasses()
        idle = torch.zeros(len(batch), dtype=torch.bool) if how.idle is None else how.idle
        computed_rows = rows[~idle[rows]]

        def backward(some_rows: Tensor) -> tuple[float, float]:
            return self._gradient_of(batch, some_rows, loss, how)

        shortages_before = self.shortage.count
        idle_sum, idle_weight = self._idle_sum(batch, rows[idle[rows]], loss)
        while True:
            total, weight = self._fitting(lambda: backward(computed_rows))
            total, weight = total + idle_sum, weight + idle_weight
            metrics = {"tokens": float(batch.mask[rows].sum()), "lr": self.lr}
            if weight == 0:
                return {"loss": 0.0, "grad_norm": 0.0, **metrics}
            norm = self._clipped_norm(weight)
            # `total` is the sum of the loss before scaling. If `total` is finite and the gradient
            # is not, the factor may be the cause, and the same rows are computed again with half
            # the factor. If `total` is not finite either, no factor helps (decision 0653).
            overflown = math.isfinite(total) and not math.isfinite(norm)
            if not (overflown and self.scale.lower()):
                break
        if fault := told(total / weight, norm):

            def breaks(some_rows: list[int]) -> bool:
                loss_sum, _ = backward(torch.tensor(some_rows))
                return not (math.isfinite(loss_sum) and self._gradient_is_finite())

            broken_rows = broken_units(units(batch.lengths, computed_rows, how.together), breaks)
            self.optimizer.zero_grad(set_to_none=True)
            raise UpdateRefused(fault, broken_rows)
        self._move(how)
        if self.scale.used:
            metrics["loss_scale"] = self.scale.factor
        if self.shortage.count > shortages_before:
            metrics["out_of_memory"] = float(self.shortage.count - shortages_before)
        return {"loss": total / weight, "grad_norm": norm, **metrics}

    def _gradient_of(
        self, batch: Batch, rows: Tensor, loss: Loss, how: UpdatePasses
    ) -> tuple[float, float]:
        """Compute the gradient of rows afresh; return the sum and the weight of the loss."""
        self.optimizer.zero_grad(set_to_none=True)
        how.afresh()
        total, weight = 0.0, 0.0
        for part in self._passes(batch, rows, how.together):
            with self._watching(batch, part):
                # In order: what comes later in a rollout stands in its later rows.
                part_batch = batch.take(part.sort().values, self.model.device)
                predicted = self.predict(part_batch, entropy=how.entropy)
                part_sum, part_weight = loss(part_batch, predicted)
                self._backward(part_sum * self.scale.factor, predicted)
                total, weight = total + float(part_sum.detach()), weight + float(part_weight)
                # The names would keep these tensors alive during the next forward pass.
                del part_batch, predicted, part_sum
        return self._over_ranks(total, weight)

    def _move(self, how: UpdatePasses) -> None:
        """Move the weights by the gradient."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.lr * group.get("factor", 1.0)
        self.optimizer.step()
        self.masters.write_back()
        how.hold(self._scale_back)
        self.average.update()
        self.scale.made()
        self.updates += 1

    @torch.no_grad()
    def _scale_back(self, have: float, keep: float) -> None:
        """Leave the share `keep` of AdamW's last update in the policy, which has the share `have`.

        The update follows from the moments, `-lr (decay w + m / (sqrt(v) + e))` with their bias
        corrected, so that no copy of the weights is needed. Moments stay as they are.
        """
        policy = {id(parameter) for parameter in self._policy()}
        for group in self.optimizer.param_groups:
            rate, (beta1, beta2) = group["lr"], group["betas"]
            decayed = rate * group["weight_decay"]
            for weight in group["params"]:
                if id(weight) not in policy or weight.grad is None:
                    continue
                state = self.optimizer.state[weight]
                count = float(state["step"])
                spread = (state["exp_avg_sq"] / (1 - beta2**count)).sqrt_().add_(group["eps"])
                moved = state["exp_avg"] / spread * (rate / (1 - beta1**count))
                before = (weight + have * moved) / (1 - have * decayed)
                weight.add_(moved + decayed * before, alpha=have - keep)
        self.masters.write_back()

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
        """Return the measurements of all ranks' passes; in a single process, `items`."""
        return items

    @contextmanager
    def averaged(self) -> Generator[None]:
        """Put the moving average in the place of the policy's weights inside the block, for an
        evaluation or an export; without an average nothing changes.
        """
        with self.steady.changing():
            # The average is kept of the float32 copies, so the model's own weights change only when
            # these copies are rounded into them, before the block and again after it: also after an
            # error in the block, such as a full disk, since the run goes on.
            try:
                with self.average.in_place():
                    self.masters.write_back()
                    yield
            finally:
                self.masters.write_back()

    def evaluated(self) -> WeightSource:
        """Return the weights that evaluations play with: a copy of the moving average where
        `trainer.ema_use` says so, else those of `source`.
        """
        if not self.average.used or self.config.ema_use != "evaluate":
            return self.source()
        with self.averaged():
            # Copies, since the average leaves the model's tensors at the end of this block.
            return MemoryWeights({name: tensor.clone() for name, tensor in checked(self.source())})

    def source(self) -> WeightSource:
        """Return the weights for an engine, not copied: they stay as they are until read. An
        adapter is merged into its base, or comes alone where `trainer.lora.publish` says so.
        """
        if not has_adapter(self.model):
            return MemoryWeights.of(self.model)
        if self.config.lora.publish == "adapter":
            return MemoryWeights(adapter_tensors(self.model))
        return MergedWeights(self.model)

    def score_ids(self, ids: Sequence[int], temperature: float) -> list[float]:
        """Return the log-probability of each of `ids` given the ids before, in nats; the first is
        0. An engine is compared with these.
        """
        return scorer_of(self.model)(ids, temperature)

    def state(self) -> dict[str, Any]:
        """Return the learner's state for a checkpoint, besides the model."""
        head = {} if self.value_head is None else self.value_head.state_dict()
        return {
            "optimizer": self.optimizer.state_dict(),
            "updates": self.updates,
            "value_head": head,
            "critic": {} if self.critic is None else trained_tensors(self.critic),
            "masters": self.masters.state(),
            "average": self.average.state(),
            "anchor": self.anchor.state(),
            "mask": {} if self.mask is None else self.mask.state(),
            "loss_scale": self.scale.state(),
        }

    def writer(self, tokenizer: object, *, whole: bool = True) -> WeightsWriter | None:
        """Return what writes the model into a checkpoint where ranks share the weights, or where an
        average is written too; None where `model` alone is to be written.

        Args:
            tokenizer: saved beside the model.
            whole: whether ranks write the whole model beside their shards; a learner in one process
                always writes it.
        """
        return AverageWriter(self, tokenizer) if self.average.used else None

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from the `state` that a checkpoint of one process has kept; `restore_learner`
        in `ranks` also takes those of several.

        Raises:
            ConfigError: the checkpoint was written by another model.
        """
        try:
            self.optimizer.load_state_dict(state["optimizer"])
        except ValueError as error:
            raise ConfigError(
                f"the checkpoint was written by another model, or with other trainer settings (an "
                f"adapter, a critic): {error}"
            ) from error
        self.updates = int(state["updates"])
        if self.value_head is not None:
            self.value_head.load_state_dict(state["value_head"])
        if self.critic is not None:
            # Not strict, because the state has the critic's trained weights only.
            self.critic.load_state_dict(state["critic"], strict=False)
        self.masters.restore(state.get("masters", ()))
        self.average.restore(state.get("average", ()))
        self.anchor.restore(state.get("anchor", {}))
        if self.mask is not None:
            self.mask.restore(state.get("mask", {}))
        self.scale.restore(state.get("loss_scale", {}))

    # The methods from here to `_gradient_is_finite` are overridden by `ranks.ShardedLearner`, in
    # which several processes take part in an update.

    def _place(self) -> None:
        """Place the modules for training, before the optimizer is made."""

    def _backward(self, part_sum: Tensor, predicted: Predicted) -> None:
        """Add the gradient of a pass's sum."""
        if part_sum.requires_grad:
            part_sum.backward()

    def _over_ranks(self, total: float, weight: float) -> tuple[float, float]:
        """Sum the loss and the weight over all ranks."""
        return total, weight

    def _gradient_is_finite(self) -> bool:
        return is_finite(self._parameters())

    def _parameters(self) -> list[Parameter]:
        """Return what the optimizer moves."""
        return [self.masters.of(parameter) for parameter in self._held()]

    def _held(self) -> list[Parameter]:
        """Return the trained weights: the policy's, the critic's, the value head's."""
        modules = [self.model, self.critic, self.value_head]
        return [
            parameter
            for module in modules
            if module is not None
            for parameter in module.parameters()
            if parameter.requires_grad
        ]

    def _trained(self) -> list[Parameter]:
        """Return the trained weights of the policy alone."""
        return [parameter for parameter in self.model.parameters() if parameter.requires_grad]

    def _policy(self) -> list[Parameter]:
        """Return what the optimizer moves of the policy alone."""
        return [self.masters.of(parameter) for parameter in self._trained()]

    def _groups(self) -> list[dict[str, Any]]:
        """Return the parameter groups: one, or two where the critic has a rate of its own."""
        every, policy = self._parameters(), self._policy()
        if not self.config.critic_lr or self.value_head is None:
            return [{"params": every}]
        factor = self.config.critic_lr / self.config.lr
        of_policy = {id(parameter) for parameter in policy}
        values = [parameter for parameter in every if id(parameter) not in of_policy]
        return [{"params": policy, "factor": 1.0}, {"params": values, "factor": factor}]

    def _idle_sum(self, batch: Batch, rows: Tensor, loss: Loss) -> tuple[float, float]:
        """Return the sum and weight of the loss over rows that the model is not run on."""
        if not len(rows):
            return 0.0, 0.0
        idle_batch = batch.take(rows, self.model.device)
        zero = torch.zeros_like(idle_batch.mask)
        part_sum, part_weight = loss(idle_batch, Predicted(zero, zero))
        return float(part_sum), float(part_weight)

    def _clipped_norm(self, weight: float) -> float:
        """Divide the gradient by `weight` and clip the result; return the norm before clipping.

        During the first `value_updates` updates, which train the value head and critic alone, the
        gradients of the policy are removed.
        """
        parameters = self._parameters()
        # None and not zeros: AdamW skips a parameter without a gradient, but decays the weight and
        # the moments of a parameter whose gradient is 0.
        if self.value_head is not None and self.updates < self.config.value_updates:
            for parameter in self._policy():
                parameter.grad = None
        for parameter in parameters:
            if parameter.grad is not None:
                parameter.grad /= weight * self.scale.factor
        return float(torch.nn.utils.clip_grad_norm_(parameters, self.config.max_grad_norm))
