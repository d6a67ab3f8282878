"""Sources of weights for engines, and which version the learner's weights are.

An engine is handed a `WeightSource` rather than a mapping, so that publishing needs no second copy
of the model: pieces of at most 64 MB pass one after the other. `weight_files.py` has the source
that reads a file.

An update changes the weights in a thread. Meanwhile an engine that was lost may be given the
version before, and be compared with the learner: the comparison has to know whether that is a
comparison of the same weights.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from ludus.agent.engine import TensorMeta, WeightSource
from ludus.errors import ConfigError

PIECE_BYTES = 64_000_000
"""The most bytes of a piece that has several tensors."""


class WeightsRefused(ConfigError):
    """Weights that cannot be installed: names, types or shapes are not those that were announced,
    or not those of the model.
    """


class MemoryWeights:
    """Tensors of this process, as a source that copies nothing.

    Args:
        tensors: the weights by name; tied weights once.
    """

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        for name, tensor in tensors.items():
            if not isinstance(tensor, Tensor):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise WeightsRefused(f"weight {name!r} is a {type(tensor).__name__}, not a tensor")
        self.tensors = {name: tensor.detach() for name, tensor in tensors.items()}

    @classmethod
    def of(cls, module: nn.Module) -> MemoryWeights:
        """Return the parameters of a module; a parameter with two names has the first alone."""
        return cls(dict(module.named_parameters()))

    def metadata(self) -> list[TensorMeta]:
        """Return name, type and shape of each tensor; see `WeightSource.metadata`."""
        return [described(name, tensor) for name, tensor in self.tensors.items()]

    def pieces(self) -> Iterator[dict[str, Tensor]]:
        """Return the tensors in pieces; see `WeightSource.pieces`."""
        return in_pieces(self.tensors.items())


def described(name: str, tensor: Tensor) -> TensorMeta:
    """Return the metadata of a tensor."""
    return TensorMeta(name, str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape))


def dtype_of(meta: TensorMeta) -> torch.dtype:
    """Return the torch type of a tensor that is described.

    Raises:
        WeightsRefused: torch has no type of this name.
    """
    dtype = getattr(torch, meta.dtype, None)
    if not isinstance(dtype, torch.dtype):
        raise WeightsRefused(f"weight {meta.name!r} is of type {meta.dtype!r}, unknown to torch")
    return dtype


def bytes_of(meta: TensorMeta) -> int:
    """Return the size of a tensor that is described."""
    return math.prod(meta.shape) * dtype_of(meta).itemsize


def in_pieces(
    named: Iterable[tuple[str, Tensor]], limit: int = PIECE_BYTES
) -> Iterator[dict[str, Tensor]]:
    """Group tensors into pieces of at most `limit` bytes; a larger tensor goes alone.

    At most one piece is held, so `named` may make each tensor when it is asked for.
    """
    piece: dict[str, Tensor] = {}
    size = 0
    for name, tensor in named:
        if piece and size + tensor.nbytes > limit:
            yield piece
            piece, size = {}, 0
        piece[name] = tensor
        size += tensor.nbytes
    if piece:
        yield piece


def checked(source: WeightSource) -> Iterator[tuple[str, Tensor]]:
    """Return the tensors of a source in order, each compared with the source's own metadata.

    Raises:
        WeightsRefused: the tensors are not those that the metadata announces.
    """
    announced = iter(source.metadata())
    for piece in source.pieces():
        for name, tensor in piece.items():
            if not isinstance(tensor, Tensor):
                raise WeightsRefused(f"weight {name!r} is a {type(tensor).__name__}, not a tensor")
            brought, expected = described(name, tensor), next(announced, None)
            if brought != expected:
                raise WeightsRefused(
                    f"a source of weights brings {_description(brought)} where its metadata "
                    f"announces {_description(expected)}"
                )
            yield name, tensor.detach()
    missing = next(announced, None)
    if missing is not None:
        raise WeightsRefused(f"a source of weights ends before {_description(missing)}")


def adapter_tensors(module: nn.Module) -> dict[str, Tensor]:
    """Return the matrices of a model's LoRA adapter by name, not copied; none without an adapter.

    They are all that changes of such a model.
    """
    return {
        name: parameter.detach()
        for name, parameter in module.named_parameters()
        if ".lora_A." in name or ".lora_B." in name
    }


def refuse_foreign(source: WeightSource, module: nn.Module) -> None:
    """Refuse weights whose names or shapes are not those of a model, before any is installed.

    Raises:
        WeightsRefused: with the first names that differ.
    """
    expected = adapter_tensors(module) or dict(module.named_parameters())
    shapes_here = {name: tuple(weight.shape) for name, weight in expected.items()}
    new_shapes = {meta.name: meta.shape for meta in source.metadata()}
    if unknown := sorted(set(new_shapes) - set(shapes_here)):
        raise WeightsRefused(f"weights the engine's model does not have: {unknown[:3]}")
    if missing := sorted(set(shapes_here) - set(new_shapes)):
        raise WeightsRefused(
            f"weights of the engine's model that are not among the new ones: {missing[:3]}; these "
            "would stay as they were"
        )
    for name, shape in new_shapes.items():
        if shape != shapes_here[name]:
            raise WeightsRefused(
                f"weight {name!r} is {list(shape)}, in the engine's model it is "
                f"{list(shapes_here[name])}"
            )


def _description(meta: TensorMeta | None) -> str:
    return "nothing" if meta is None else f"{meta.name} ({meta.dtype} {list(meta.shape)})"


READ_AGAIN_S = 60.0
"""Seconds that a reader waits for another reader, or for a change that has just begun."""


class SteadyWeights:
    """The version of some weights, or None while they change or before it is known.

    >>> weights = SteadyWeights()
    >>> with weights.changing(to=3):
    ...     weights.version is None
    True
    >>> with weights.held(3) as same:
    ...     same
    True
    """

    def __init__(self) -> None:
        self.version: int | None = None
        self._lock = threading.Lock()

    @contextmanager
    def changing(self, *, to: int | None = None) -> Generator[None]:
        """Change the weights inside the block, which begins when present readers are done.

        Args:
            to: their version afterwards, which stays None after an error in the block. None as the
                argument says that the block puts them back as they were, after an error too.
        """
        # None before the lock is taken: a reader that comes while an earlier reader holds the lock
        # gives up at once, and does not wait for the whole change.
        before, self.version = self.version, None
        with self._lock:
            try:
                yield
            except BaseException:
                self.version = before if to is None else None
                raise
            self.version = before if to is None else to

    @contextmanager
    def held(self, version: int) -> Generator[bool]:
        """Keep the weights from changing inside the block; say whether `version` is installed."""
        if self.version != version or not self._lock.acquire(timeout=READ_AGAIN_S):
            yield False
            return
        try:
            # Looked at again, since a change may have come between the first look and the lock.
            yield self.version == version
        finally:
            self._lock.release()
