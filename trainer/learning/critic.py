"""A model of its own below the value head, so that values and policy do not pull at one trunk."""

from __future__ import annotations

import copy
from typing import Any

import torch

from ..engines.models import CausalLM


class Critic(torch.nn.Module):
    """A copy of the policy as it starts, whose last hidden states the value head reads.

    With an adapter the copy has one of its own, and the frozen weights below are shared.

    Args:
        policy: copied; its language-model head is shared, and not trained here.
    """

    def __init__(self, policy: CausalLM) -> None:
        super().__init__()
        shared: dict[int, Any] = {
            id(one): one
            for one in (*policy.parameters(), *policy.buffers())
            if not one.requires_grad
        }
        self.model: Any = copy.deepcopy(policy, shared)
        inside = {id(one) for one in self.model.base_model.parameters()}
        for parameter in self.model.parameters():
            if id(parameter) not in inside:
                parameter.requires_grad_(False)


def trained_tensors(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return the trained weights of a module by name, not copied."""
    return {name: one.detach() for name, one in module.named_parameters() if one.requires_grad}
