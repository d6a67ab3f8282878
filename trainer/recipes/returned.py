"""What came back from a function that a recipe names, checked: anybody's function may be named."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from ludus.errors import ConfigError

from ..algorithms.aggregation import Sum


def need(tensors: Mapping[str, Tensor], name: str, where: str) -> Tensor:
    """The tensor `name`.

    Raises:
        ConfigError: it was not given, though `where` of the recipe needs it.
    """
    if name not in tensors:
        raise ConfigError(f"{where} needs {name}, which was not given")
    return tensors[name]


def one_tensor(found: object, name: str) -> Tensor:
    """`found`, which the function `name` returned.

    Raises:
        ConfigError: it is not a tensor.
    """
    if not isinstance(found, Tensor):
        raise ConfigError(f"{name} returned a {type(found).__name__}, not a tensor")
    return found


def two_tensors(found: object, name: str) -> Sum:
    """`found`, which the function `name` returned.

    Raises:
        ConfigError: it is not a pair of tensors.
    """
    match found:
        case (Tensor() as first, Tensor() as second):
            return first, second
        case _:
            raise ConfigError(f"{name} returned a {type(found).__name__}, not two tensors")
