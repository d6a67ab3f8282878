"""float32 copies of weights that are held in half precision.

A step of a small learning rate is lost in the rounding of bfloat16. The optimizer therefore moves
float32 copies, and the model's weights are those rounded. Gradients of several passes are added in
float32 too: as soon as a weight's gradient of a pass is complete it is added to the copy's.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import Parameter

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
        """Return what the optimizer moves in place of a weight."""
        return self._copies.get(id(parameter), parameter)

    @torch.no_grad()
    def write_back(self) -> None:
        """Round the copies into the model's weights."""
        for parameter in self._held:
            parameter.copy_(self._copies[id(parameter)])

    def state(self) -> list[Tensor]:
        """Return what a checkpoint keeps, in the order of the weights."""
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
