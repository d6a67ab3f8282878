"""Copies of the trained weights: in float32 where the weights are held in half precision, and an
exponential moving average, which is often better than the last weights; and the weights of some
steps ago, which a moving reference scores with.

A step of a small learning rate is lost in the rounding of bfloat16. The optimizer therefore moves
float32 copies, and the model's weights are those rounded. Gradients of several passes are added in
float32 too: as soon as a weight's gradient of a pass is complete it is added to the copy's.

After each update the average becomes `a = d a + (1 - d) w`. It begins as the first weights.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from ..models.loading import save_model

FOLDER = "average"
"""Folder of the averaged model inside a checkpoint."""
HALF = (torch.bfloat16, torch.float16)


class MasterWeights:
    """Holds a float32 copy of each weight in half precision; others stand for themselves.

    Args:
        parameters: all trained weights.
    """

    def __init__(self, parameters: Sequence[Parameter]) -> None:
        self._copies = {
            id(parameter): Parameter(parameter.detach().float())
            for parameter in parameters
            if parameter.dtype in HALF
        }
        self._held = [parameter for parameter in parameters if id(parameter) in self._copies]
        # Taking each gradient as soon as it is complete means that no second set of gradients, in
        # half precision, is held besides that of the copies.
        for parameter in self._held:
            parameter.register_post_accumulate_grad_hook(self._take)

    def of(self, parameter: Parameter) -> Parameter:
        """Return the copy that the optimizer moves in place of a weight, or the weight itself
        without one.
        """
        return self._copies.get(id(parameter), parameter)

    @torch.no_grad()
    def write_back(self) -> None:
        """Round the copies into the model's weights."""
        for parameter in self._held:
            parameter.copy_(self._copies[id(parameter)])

    def state(self) -> list[Tensor]:
        """Return the copies for a checkpoint, in the order of the weights."""
        return [self._copies[id(parameter)].detach() for parameter in self._held]

    @torch.no_grad()
    def restore(self, state: Sequence[Tensor]) -> None:
        """Continue from the copies that a checkpoint has kept; without any, from the weights."""
        for parameter, kept in zip(self._held, state, strict=bool(state)):
            self._copies[id(parameter)].copy_(kept)
        self.write_back()

    def _take(self, parameter: Tensor) -> None:
        copy, gradient = self._copies[id(parameter)], parameter.grad
        assert gradient is not None, "called after a gradient was added"
        copy.grad = gradient.float() if copy.grad is None else copy.grad.add_(gradient)
        parameter.grad = None


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
        """Return the average for a checkpoint, in the order of the weights."""
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


class Anchor:
    """The policy's weights after every so many steps, to which a moving reference is set.

    Args:
        parameters: the policy's trained weights.
        every: steps between two resets; 0 keeps no copy.
    """

    def __init__(self, parameters: Sequence[Parameter], every: int) -> None:
        self._parameters = list(parameters) if every else []
        self._values = list[Tensor]()
        self.every = every
        self._steps = 0

    @property
    def moved(self) -> bool:
        """Whether the reference has been reset."""
        return bool(self._values)

    def after_step(self) -> None:
        """Count a step, after which the copies may become the weights."""
        self._steps += 1
        if self.every and self._steps % self.every == 0:
            self.reset()

    def reset(self) -> list[Tensor]:
        """Make the copies the weights as they are now; returns them, in the order of the weights.
        Without resets nothing is copied.
        """
        self._values = [weight.detach().clone() for weight in self._parameters]
        return self._values

    @contextmanager
    def in_place(self) -> Generator[None]:
        """Let the copies and the weights change places inside the block."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint: copies in the order of the weights, and the steps."""
        return {"steps": self._steps, "values": self._values} if self.every else {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from the kept state of a checkpoint. A run without resets ignores the state."""
        if self.every and state:
            self._steps = int(state["steps"])
            pairs = zip(state["values"], self._parameters, strict=bool(state["values"]))
            self._values = [kept.to(weight.device, weight.dtype) for kept, weight in pairs]

    @torch.no_grad()
    def _swap(self) -> None:
        # Copied and not exchanged, since FSDP keeps views of a shard's memory. One tensor is held
        # a third time.
        for weight, value in zip(self._parameters, self._values, strict=True):
            held = weight.detach().clone()
            weight.copy_(value)
            value.copy_(held)


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
