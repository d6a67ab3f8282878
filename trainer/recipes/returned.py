"""Checks of what a recipe's functions return, which may come from any module."""

from __future__ import annotations

from torch import Tensor

from ludus.errors import ConfigError

from ..algorithms.aggregation import Sum


def one_tensor(found: object, name: str) -> Tensor:
    """Return `found`, the result of the function `name`, checked to be a tensor.

    Raises:
        ConfigError: the result is not a tensor.
    """
    if not isinstance(found, Tensor):
        raise ConfigError(f"{name} returned a {type(found).__name__}, not a tensor")
    return found


def two_tensors(found: object, name: str) -> Sum:
    """Return `found`, the result of the function `name`, checked to be a pair of tensors.

    Raises:
        ConfigError: the result is not a pair of tensors.
    """
    match found:
        case (Tensor() as first, Tensor() as second):
            return first, second
        case _:
            raise ConfigError(
                f"{name} returned a {type(found).__name__}, not two tensors, (sum, weight)"
            )
