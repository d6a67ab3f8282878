"""The sharding of modules by FSDP2, and the weights gathered piece by piece."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    MixedPrecisionPolicy,
    OffloadPolicy,
    fully_shard,
)
from torch.distributed.tensor import DTensor

from ludus.agent.engine import TensorMeta
from ludus.errors import ConfigError

from ..models.adapters import BELOW, NAME, has_adapter, plain_name
from ..models.loading import CausalLM
from ..models.weights import PIECE_BYTES, adapter_tensors, bytes_of, described
from .group import Ranks

# pyright: basic


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
        """Yield the layers of the policy, and of a critic with separate layers."""
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
    """Give `module` copies of the weights shared with `other`, tied as before.

    FSDP gathers a weight for one module, and refuses one that is in two. So the frozen weights
    below an adapter are held twice where the critic has an adapter of its own.
    """
    shared = {id(parameter) for parameter in other.parameters()}
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
    root: Root,
    mesh: DeviceMesh,
    *,
    dtype: torch.dtype | None = None,
    exact_root: bool = False,
    offload: bool = False,
    fill: Callable[[nn.Module], None] = lambda part: None,
) -> None:
    """Shard the weights of each layer by itself, then all other weights together.

    Tied weights are among the other weights, where they are sharded once and stay tied.

    Args:
        root: the module to shard in place.
        mesh: the ranks.
        dtype: the type in which weights are gathered and used; shards and gradients stay float32.
            None gathers in the type of the weights.
        exact_root: whether the weights outside of the layers, the head's among them, are gathered
            in their own type whatever `dtype` is.
        offload: whether shards, gradients and moments stay in the memory of the CPU.
        fill: called before a module is sharded, to read weights that are not there yet, so that
            one layer is whole at a time.
    """
    policy = MixedPrecisionPolicy(
        param_dtype=dtype, reduce_dtype=torch.float32 if dtype else None, cast_forward_inputs=False
    )
    exact = MixedPrecisionPolicy(cast_forward_inputs=False)
    place = CPUOffloadPolicy(pin_memory=mesh.device_type == "cuda") if offload else OffloadPolicy()
    for layer in root.layers():
        fill(layer)
        fully_shard(layer, mesh=mesh, mp_policy=policy, offload_policy=place)
    # The value head computes in float32 whatever the model's type is.
    if root.value_head is not None:
        fully_shard(root.value_head, mesh=mesh, mp_policy=exact, offload_policy=place)
    fill(root)
    outside = exact if exact_root else policy
    fully_shard(root, mesh=mesh, mp_policy=outside, offload_policy=place)
    for module in root.modules():
        if isinstance(module, FSDPModule):
            # Gradients are summed over the ranks and not averaged, since they are divided once by
            # the weight of the whole batch. gloo has no scaled sum, so both settings are needed.
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)


class ShardedWeights:
    """A `WeightSource` that gathers each tensor from all ranks at reading.

    An adapter is merged into its base, one tensor at a time.

    Args:
        model: a sharded model.
        ranks: the group; on rank 0, reading a piece orders the others to take part.
        adapter: whether to bring the matrices of an adapter alone.
        piece_bytes: the most bytes of a piece that has several tensors.
    """

    def __init__(
        self,
        model: CausalLM,
        ranks: Ranks,
        *,
        adapter: bool = False,
        piece_bytes: int = PIECE_BYTES,
    ) -> None:
        self.ranks, self.piece_bytes = ranks, piece_bytes
        self.adapter = adapter
        self._layers = dict(model.named_modules()) if has_adapter(model) else {}
        matrices = adapter_tensors(model)
        self._named = [
            (name, weight)
            for name, weight in (matrices if adapter else dict(model.named_parameters())).items()
            if adapter or name not in matrices
        ]

    def metadata(self) -> list[TensorMeta]:
        """Return name, type and shape of each whole tensor; see `WeightSource.metadata`."""
        return [described(plain_name(name), weight) for name, weight in self._named]

    def pieces(self) -> Iterator[dict[str, Tensor]]:
        """Return whole tensors in pieces; see `WeightSource.pieces`.

        Each piece is an order of its own, so that a reader may stop between pieces.
        """
        for first, last in self._bounds():
            with self.ranks.together("piece", first=first, last=last, adapter=self.adapter):
                piece = self.gather(first, last)
            yield piece

    @torch.inference_mode(False)
    @torch.no_grad()
    def gather(self, first: int, last: int) -> dict[str, Tensor]:
        """Gather the tensors of these numbers; collective, in the same order on all ranks.

        Engines read weights in inference mode, in which shards cannot be gathered.
        """
        return {
            plain_name(name): self._merged(name, weight) for name, weight in self._named[first:last]
        }

    def _merged(self, name: str, weight: Tensor) -> Tensor:
        owner, below, tail = name.partition(BELOW)
        if not below or tail != "weight":
            return whole(weight)
        layer: Any = self._layers[owner.removesuffix(".")]
        low, high = whole(layer.lora_A[NAME].weight), whole(layer.lora_B[NAME].weight)
        merged = whole(weight) + layer.scaling[NAME] * (high @ low)
        return merged.to(weight.dtype)

    def _bounds(self) -> Iterator[tuple[int, int]]:
        """Yield the first and last number of each piece."""
        first = size = 0
        for number, meta in enumerate(self.metadata()):
            if number > first and size + bytes_of(meta) > self.piece_bytes:
                yield first, number
                first, size = number, 0
            size += bytes_of(meta)
        if self._named:
            yield first, len(self._named)


def whole(tensor: Tensor) -> Tensor:
    """Return the whole of a sharded tensor; collective."""
    detached = tensor.detach()
    return detached.full_tensor() if isinstance(detached, DTensor) else detached


def local(tensor: Tensor) -> Tensor:
    """Return this rank's shard."""
    detached = tensor.detach()
    return detached.to_local() if isinstance(detached, DTensor) else detached
