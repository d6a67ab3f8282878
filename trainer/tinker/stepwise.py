"""A learner whose gradient is added up call by call, and whose updates come with their settings.

A client of the Tinker API decides what a step is: passes over rows of its choice, then an update.
The rows have targets of their own, which need not be the next tokens, and a position may have
several.

Axes: B rows, T positions, K targets of a position, N trained positions, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ludus.errors import ConfigError, UpdateRefused

from ..learning.learner import Learner
from ..rollout.batch import Batch
from .losses import LossInputs, NamedLoss, find_loss
from .wire import AdamParams, Array, Datum, ForwardBackward, Passed

TARGETS = "target_tokens"


@dataclass(frozen=True, slots=True)
class TargetRows:
    """Rows with their targets; what belongs to the token at t of an input stands at t + 1, where a
    `Batch` has what is predicted from it.
    """

    batch: Batch
    """[B, T + 1]; the mask is 1 where there is a target."""
    targets: Tensor
    """[B, T + 1, K] int."""
    tensors: dict[str, Tensor]
    """[B, T + 1, K] by name."""

    @classmethod
    def of(cls, request: ForwardBackward, loss: NamedLoss, vocabulary: int) -> TargetRows:
        """Stack the rows of a request.

        Args:
            request: its rows.
            loss: says which tensors are read.
            vocabulary: the number of tokens that there are.

        Raises:
            ConfigError: a row misses a tensor, has one of another length, or a token that does not
                exist.
        """
        if not request.data:
            raise ConfigError("a pass needs at least one row, and data is empty")
        for number, datum in enumerate(request.data):
            _refuse_broken_row(number, datum, request.loss_fn, loss, vocabulary)
        lengths = torch.tensor([len(datum.tokens) for datum in request.data])
        shape = len(request.data), int(lengths.max()) + 1
        widest = max(_wide(datum.inputs[TARGETS]).shape[1] for datum in request.data)
        names = [*loss.required, *(n for n in loss.optional if n in request.data[0].inputs)]
        ids, mask = torch.zeros(shape, dtype=torch.long), torch.zeros(shape)
        targets = torch.zeros((*shape, widest), dtype=torch.long)
        tensors = {name: torch.zeros((*shape, widest)) for name in names}
        for row, datum in enumerate(request.data):
            size = len(datum.tokens)
            ids[row, :size] = torch.from_numpy(datum.tokens.astype(np.int64))
            mask[row, 1 : size + 1] = 1
            for name, stack in [(TARGETS, targets), *tensors.items()]:
                values = torch.from_numpy(_wide(datum.inputs[name]).astype(stack.numpy().dtype))
                stack[row, 1 : size + 1, : values.shape[1]] = values
        batch = Batch(ids, mask, torch.zeros(shape), lengths + 1)
        return cls(batch, targets, tensors)

    def take(self, rows: Tensor, device: torch.device | str) -> TargetRows:
        """Return some rows, on a device."""
        batch = self.batch.take(rows, device)
        width = batch.ids.shape[1]
        tensors = {name: each[rows, :width].to(device) for name, each in self.tensors.items()}
        return TargetRows(batch, self.targets[rows, :width].to(device), tensors)


class StepwiseLearner(Learner):
    """Adds up the gradients of passes, and makes an update when told to; see `Learner`."""

    def accumulate(self, request: ForwardBackward) -> Passed:
        """Add the gradient of a loss over some rows to what there is; with `forward_only` compute
        the loss alone.

        Returns:
            the log-probability of every target, and `loss:sum`.

        Raises:
            ConfigError: the loss is not known, or the rows do not fit it; nothing is added.
            UpdateRefused: the loss is not finite; nothing is added.
        """
        loss = find_loss(request.loss_fn, request.config)
        vocabulary = int(self.model.config.get_text_config().vocab_size)
        rows = TargetRows.of(request, loss, vocabulary)
        logp = torch.zeros(rows.targets.shape)
        before = [(parameter, parameter.grad) for parameter in self._parameters()]

        def passes() -> float:
            for parameter, _ in before:  # also after an attempt that memory was too small for
                parameter.grad = None
            total = 0.0
            for part in self._passes(rows.batch, torch.arange(len(rows.batch))):
                with self._watching(rows.batch, part):
                    taken = rows.take(part.sort().values, self.model.device)
                    part_logp = self._target_logp(taken)
                    part_sum = loss.compute(
                        LossInputs(part_logp, taken.batch.mask, taken.tensors, request.config)
                    )
                    self._add_gradient(part_sum, part_logp)
                    total += float(part_sum.detach())
                    width = part_logp.shape[1]
                    logp[part.sort().values, :width] = part_logp.detach().float().cpu()
                    del taken, part_logp, part_sum
            return self._over_ranks(total, 0.0)[0]

        try:
            with torch.no_grad() if request.forward_only else nullcontext():
                total = self._fitting(passes)
            if not math.isfinite(total):
                raise UpdateRefused(f"the loss is not finite ({total:g})")
        except BaseException:
            for parameter, gradient in before:
                parameter.grad = gradient
            raise
        for parameter, gradient in before:
            if gradient is not None:
                parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient
        return Passed(_of_each(request.data, self._summed(logp)), {"loss:sum": total})

    def step(self, settings: AdamParams) -> dict[str, float]:
        """Make an update with the gradient that was added up, which is gone afterwards.

        Returns:
            `grad_norm` before clipping, and `lr`.

        Raises:
            ConfigError: there is no gradient, or a setting is out of its range.
            UpdateRefused: the gradient is not finite; weights and optimizer are as before.
        """
        for name in ("learning_rate", "eps", "weight_decay"):
            if not 0 <= getattr(settings, name) < math.inf:
                raise ConfigError(f"{name} must be at least 0, got {getattr(settings, name)}")
        for name in ("beta1", "beta2"):
            if not 0 <= getattr(settings, name) < 1:
                raise ConfigError(f"{name} must be in [0, 1), got {getattr(settings, name)}")
        parameters = self._parameters()
        if all(parameter.grad is None for parameter in parameters):
            raise ConfigError("there is no gradient to step with: call forward_backward first")
        most = settings.grad_clip_norm if settings.grad_clip_norm > 0 else math.inf
        norm = float(torch.nn.utils.clip_grad_norm_(parameters, most))
        if not math.isfinite(norm):
            self.forget()
            raise UpdateRefused(f"the gradient is not finite (norm {norm:g})")
        for group in self.optimizer.param_groups:
            group.update(
                lr=settings.learning_rate,
                betas=(settings.beta1, settings.beta2),
                eps=settings.eps,
                weight_decay=settings.weight_decay,
            )
        self.optimizer.step()
        self.masters.write_back()
        self.forget()
        self.updates += 1
        return {"grad_norm": norm, "lr": settings.learning_rate}

    def forget(self) -> None:
        """Drop the gradient so far."""
        for parameter in self._parameters():
            parameter.grad = None

    def _add_gradient(self, part_sum: Tensor, logp: Tensor) -> None:
        """Add the gradient of a pass's sum; `logp` is what the pass has computed."""
        if part_sum.requires_grad:
            part_sum.backward()

    def _summed(self, tensor: Tensor) -> Tensor:
        """Return the sum of a CPU tensor over all ranks."""
        return tensor

    def _target_logp(self, rows: TargetRows) -> Tensor:
        """Return the log-probability of every target, [B, T, K]; 0 where there is none."""
        trained = rows.batch.mask[:, 1:].bool()
        hidden = self._hidden(rows.batch)
        read = self._read(
            rows.batch,
            hidden,
            lambda every, chosen: chosen.reshape(len(every), -1),
            rows.targets[:, 1:][trained],
        )
        spread = read.new_zeros(rows.targets[:, 1:].shape)
        spread[trained] = read
        return torch.nn.functional.pad(spread, (0, 0, 1, 0))


def _of_each(data: Sequence[Datum], logp: Tensor) -> list[Array]:
    """Return the log-probabilities of each row in the shape of its targets."""
    results = list[Array]()
    for row, datum in enumerate(data):
        targets = datum.inputs[TARGETS]
        values: Any = logp[row, 1 : len(datum.tokens) + 1].numpy()
        width = _wide(targets).shape[1]
        results.append(values[:, :width].reshape(targets.shape))
    return results


def _wide(values: Array) -> Array:
    return values if values.ndim == 2 else values.reshape(len(values), 1)


def _refuse_broken_row(
    number: int, datum: Datum, name: str, loss: NamedLoss, vocabulary: int
) -> None:
    size = len(datum.tokens)
    if not size:
        raise ConfigError(f"row {number} has no tokens")
    if missing := [each for each in (TARGETS, *loss.required) if each not in datum.inputs]:
        raise ConfigError(f"row {number}: loss_fn {name!r} needs {missing[0]!r} for every position")
    shape = datum.inputs[TARGETS].shape
    if len(shape) not in (1, 2) or (len(shape) == 2 and not loss.several and shape[1] != 1):
        raise ConfigError(f"row {number}: loss_fn {name!r} takes no targets of shape {list(shape)}")
    for each in (TARGETS, *loss.required, *loss.optional):
        values = datum.inputs.get(each)
        if values is not None and (len(values) != size or values.shape[1:] != shape[1:]):
            raise ConfigError(
                f"row {number}: {each!r} has the shape {list(values.shape)}, and the row has "
                f"{size} tokens with targets of shape {list(shape)}"
            )
    for each, ids in (("model_input", datum.tokens), (TARGETS, datum.inputs[TARGETS])):
        if ids.min() < 0 or ids.max() >= vocabulary:
            raise ConfigError(
                f"row {number}: {each!r} has a token outside the {vocabulary} of this model"
            )
