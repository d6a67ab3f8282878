# pyright: basic
"""The weights of a sharded learner for an engine or a file, gathered piece by piece."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from ludus.agent.engine import TensorMeta

from ..models.adapters import BELOW, NAME, has_adapter, plain_name
from ..models.loading import CausalLM
from ..models.weights import PIECE_BYTES, adapter_tensors, bytes_of, described
from .group import Ranks


class ShardedWeights:
    """A `WeightSource` whose tensors are put together from all ranks when they are read.

    An adapter is merged into its base, one tensor at a time.

    Args:
        model: a sharded model.
        ranks: the group; on rank 0, reading a piece orders the others to take part.
        adapter: whether to bring the matrices of an adapter alone.
    """

    def __init__(self, model: CausalLM, ranks: Ranks, *, adapter: bool = False) -> None:
        self.ranks = ranks
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
        owner, below, rest = name.partition(BELOW)
        if not below or rest != "weight":
            return whole(weight)
        layer: Any = self._layers[owner.removesuffix(".")]
        low, high = whole(layer.lora_A[NAME].weight), whole(layer.lora_B[NAME].weight)
        merged = whole(weight) + layer.scaling[NAME] * (high @ low)
        return merged.to(weight.dtype)

    def _bounds(self) -> Iterator[tuple[int, int]]:
        """Yield the first and last number of each piece."""
        first = size = 0
        for number, meta in enumerate(self.metadata()):
            if number > first and size + bytes_of(meta) > PIECE_BYTES:
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
