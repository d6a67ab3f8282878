"""What the model computes in."""

from __future__ import annotations

import torch
from torch import Tensor

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def autocast_of(dtype: str) -> torch.dtype | None:
    """What a learner's passes are cast to; None where they are as its weights, float32.

    The weights stay float32: a step of a small learning rate is lost in the rounding of bfloat16.
    """
    return None if dtype == "float32" else DTYPES[dtype]


def at_least_float32(values: Tensor) -> Tensor:
    """Half precision as float32; float64 stays what it is.

    >>> at_least_float32(torch.zeros(1, dtype=torch.bfloat16)).dtype
    torch.float32
    """
    return values if values.dtype == torch.float64 else values.float()
