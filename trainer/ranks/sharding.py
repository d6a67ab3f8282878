# pyright: basic
"""The sharding of modules by FSDP2; all untyped calls into torch's sharding are in this file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    MixedPrecisionPolicy,
    OffloadPolicy,
    fully_shard,
)

from ludus.errors import ConfigError

T = TypeVar("T")


class Root(nn.Module):
    """The module that FSDP calls the model: weights are used only inside its forward pass."""

    def __init__(
        self, model: nn.Module, value_head: nn.Module | None, critic: nn.Module | None = None
    ) -> None:
        super().__init__()
        self.model = model
        self.critic = critic
        self.value_head = value_head

    def forward(self, work: Callable[[], T]) -> T:
        """Run `work`, which may use every weight."""
        return work()

    def layers(self) -> Iterator[nn.Module]:
        """Yield the layers of the policy, and of the critic where it has some of its own."""
        for model in (self.model, self.critic):
            if model is not None:
                yield from layers_of(model)

    def outside_layers(self) -> Iterator[nn.Parameter]:
        """Yield the trained parameters that belong to no layer."""
        inside = {id(weight) for layer in self.layers() for weight in layer.parameters()}
        for weight in self.parameters():
            if weight.requires_grad and id(weight) not in inside:
                yield weight


def unshare(module: nn.Module, other: nn.Module) -> None:
    """Give `module` copies of the weights that it shares with `other`, tied as before.

    FSDP gathers a weight for one module, and refuses one that is in two. So the frozen weights
    below an adapter are held twice where the critic has an adapter of its own.
    """
    shared = {id(one) for one in other.parameters()}
    copies: dict[int, nn.Parameter] = {}
    for part in module.modules():
        for name, weight in part.named_parameters(recurse=False):
            if id(weight) in shared:
                copy = nn.Parameter(weight.detach().clone(), requires_grad=weight.requires_grad)
                setattr(part, name, copies.setdefault(id(weight), copy))


def layers_of(model: nn.Module) -> nn.ModuleList:
    """Return the decoder's layers: the largest list of modules named `layers`.

    Raises:
        ConfigError: there is no such list.
    """
    candidates = [
        module
        for name, module in model.named_modules()
        if isinstance(module, nn.ModuleList) and name.rpartition(".")[2] == "layers"
    ]
    if not candidates:
        raise ConfigError(
            f"{type(model).__name__} has no list of modules named layers, by which ranks share a "
            "model out; train it in one process"
        )
    return max(candidates, key=lambda layers: sum(weight.numel() for weight in layers.parameters()))


def shard_modules(
    root: Root, mesh: DeviceMesh, *, dtype: torch.dtype | None = None, offload: bool = False
) -> None:
    """Shard the weights of each layer by itself, then all other weights together.

    Tied weights are among the other weights, where they are sharded once and stay tied.

    Args:
        root: the module to shard in place.
        mesh: the ranks.
        dtype: the type in which weights are gathered and used; shards and gradients stay float32.
            None gathers in the type of the weights.
        offload: whether shards, gradients and moments stay in the memory of the CPU.
    """
    policy = MixedPrecisionPolicy(
        param_dtype=dtype, reduce_dtype=torch.float32 if dtype else None, cast_forward_inputs=False
    )
    exact = MixedPrecisionPolicy(cast_forward_inputs=False)
    place = CPUOffloadPolicy(pin_memory=mesh.device_type == "cuda") if offload else OffloadPolicy()
    for layer in root.layers():
        fully_shard(layer, mesh=mesh, mp_policy=policy, offload_policy=place)
    # The value head computes in float32 whatever the model's type is.
    if root.value_head is not None:
        fully_shard(root.value_head, mesh=mesh, mp_policy=exact, offload_policy=place)
    fully_shard(root, mesh=mesh, mp_policy=policy, offload_policy=place)
    for module in root.modules():
        if isinstance(module, FSDPModule):
            # Gradients are summed over the ranks and not averaged, since they are divided once by
            # the weight of the whole batch. gloo has no scaled sum, so both settings are needed.
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)
