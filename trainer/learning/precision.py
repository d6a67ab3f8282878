"""The numeric types of the model's computation."""

from __future__ import annotations

import time
from statistics import median

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


SLOWER = 1.2
"""Slowdown from which a type is said to be slower."""
SIDE, ROUNDS = 512, 5
"""Size of the matrices that are multiplied to measure, and how often; 10 to 60 ms in all."""


def slowdown(dtype: str) -> float:
    """Return how many times as long as in float32 a product of two matrices takes on this CPU."""
    times_s: dict[str, list[float]] = {"float32": [], dtype: []}
    made = {name: torch.ones(SIDE, SIDE, dtype=DTYPES[name]) for name in times_s}
    for _ in range(ROUNDS + 1):
        for name, one in made.items():
            started = time.perf_counter()
            torch.mm(one, one)
            times_s[name].append(time.perf_counter() - started)
    # the first round includes what is loaded once
    return median(times_s[dtype][1:]) / median(times_s["float32"][1:])


def slow_precision(dtype: str, device: str) -> tuple[str, ...]:
    """Return a note, if any, that a type is slower than float32 on this machine: many CPUs have no
    instructions for bfloat16.
    """
    if dtype == "float32" or device != "cpu":
        return ()
    times = slowdown(dtype)
    if times < SLOWER:
        return ()
    return (
        f"model.dtype is {dtype!r}, in which a matrix product takes {times:.1f} times as long as "
        "in float32 on this CPU (measured now): float32 is the faster choice here",
    )
