"""The numeric types of the model's computation."""

from __future__ import annotations

import torch
from torch import Tensor

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def autocast_of(dtype: str) -> torch.dtype | None:
    """Return the type that a learner's passes are cast to; None for float32, the type of the
    weights.

    The weights stay float32, since a step of a small learning rate is lost in the rounding of
    bfloat16.
    """
    return None if dtype == "float32" else DTYPES[dtype]


def at_least_float32(values: Tensor) -> Tensor:
    """Convert half precision to float32; float64 stays float64.

    >>> at_least_float32(torch.zeros(1, dtype=torch.bfloat16)).dtype
    torch.float32
    """
    return values if values.dtype == torch.float64 else values.float()
