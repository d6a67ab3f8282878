"""Structs with tensors as bytes, for the ranks of a group: msgpack, never pickle."""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar

import msgspec
import torch
from torch import Tensor

T = TypeVar("T")


class PackedTensor(msgspec.Struct, array_like=True, frozen=True):
    """A tensor as type, shape and bytes."""

    dtype: str
    shape: list[int]
    data: bytes


def encode(value: object) -> bytes:
    """Return a struct or dataclass as bytes, its tensors included."""
    return msgspec.msgpack.encode(value, enc_hook=_packed)


def decode(data: bytes, kind: type[T]) -> T:
    """Return what `encode` was given.

    Raises:
        msgspec.ValidationError: the bytes are of another struct.
    """
    hashable: Any = kind  # as type[T] is, which mypy does not know
    decoded: T = _decoder(hashable).decode(data)
    return decoded


@cache
def _decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(kind, dec_hook=_unpacked)


def _packed(value: Any) -> PackedTensor:
    if not isinstance(value, Tensor):
        raise TypeError(f"{type(value).__name__} has no form in bytes")
    flat = value.detach().cpu().contiguous()
    data = flat.flatten().view(torch.uint8).numpy().tobytes() if flat.numel() else b""
    return PackedTensor(str(flat.dtype).removeprefix("torch."), list(flat.shape), data)


def _unpacked(kind: type[Any], given: Any) -> Any:
    if kind is not Tensor:
        raise TypeError(f"{kind.__name__} has no form in bytes")
    packed = msgspec.convert(given, PackedTensor)
    dtype = getattr(torch, packed.dtype)
    if not packed.data:
        return torch.empty(packed.shape, dtype=dtype)
    return torch.frombuffer(bytearray(packed.data), dtype=dtype).reshape(packed.shape)
