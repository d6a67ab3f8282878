"""A model of its own below the value head, so that the gradients of values and of the policy do not
move the same weights.
"""

from __future__ import annotations

import copy
from typing import Any

import torch

from ..models.loading import CausalLM


class Critic(torch.nn.Module):
    """A copy of the policy as it starts, whose last hidden states the value head reads.

    With an adapter the copy has an adapter of its own, and shares the frozen weights.

    Args:
        policy: copied; its language-model head is shared, and not trained here.
    """

    def __init__(self, policy: CausalLM) -> None:
        super().__init__()
        # `deepcopy` takes what its memo has for an id: frozen weights are shared and not copied.
        shared: dict[int, Any] = {
            id(weight): weight
            for weight in (*policy.parameters(), *policy.buffers())
            if not weight.requires_grad
        }
        self.model: Any = copy.deepcopy(policy, shared)
        inside = {id(weight) for weight in self.model.base_model.parameters()}
        for parameter in self.model.parameters():
            if id(parameter) not in inside:
                parameter.requires_grad_(False)


def trained_tensors(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return the trained weights of a module by name, not copied."""
    return {
        name: weight.detach() for name, weight in module.named_parameters() if weight.requires_grad
    }
