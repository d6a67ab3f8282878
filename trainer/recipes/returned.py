"""Checks of what a recipe's functions return, which may come from any module."""

from __future__ import annotations

from torch import Tensor

from ludus.errors import ConfigError

from ..algorithms.aggregation import Sum


def one_tensor(result: object, name: str, *, count: int | None = None) -> Tensor:
    """Return `result`, the return value of the function `name`, checked to be a tensor.

    Args:
        result: the value.
        name: the function's name, for the error.
        count: the numbers that the tensor must have, along a single axis; None for any shape. A
            scalar would otherwise be spread over all rollouts without a word.

    Raises:
        ConfigError: the result is not a tensor, or of another shape.
    """
    if not isinstance(result, Tensor):
        raise ConfigError(f"{name} returned a {type(result).__name__}, not a tensor")
    if count is not None and result.shape != (count,):
        raise ConfigError(
            f"{name} returned a tensor of shape {list(result.shape)}; it must be [{count}], a "
            "number for each rollout or row that it was given"
        )
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
