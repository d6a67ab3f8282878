"""Checks of what a recipe's functions return, which may come from any module."""

from __future__ import annotations

from torch import Tensor

from ludus.errors import ConfigError

from ..algorithms.aggregation import Sum


def one_tensor(result: object, name: str) -> Tensor:
    """Return `result`, the return value of the function `name`, checked to be a tensor.

    Raises:
        ConfigError: the result is not a tensor.
    """
    if not isinstance(result, Tensor):
        raise ConfigError(f"{name} returned a {type(result).__name__}, not a tensor")
    return result


def two_tensors(result: object, name: str) -> Sum:
    """Return `result`, the return value of the function `name`, checked to be a pair of tensors.

    Raises:
        ConfigError: the result is not a pair of tensors.
    """
    match result:
        case (Tensor() as first, Tensor() as second):
            return first, second
        case _:
            raise ConfigError(
                f"{name} returned a {type(result).__name__}, not two tensors, (sum, weight)"
            )
