"""The learning rate of each update."""

from __future__ import annotations

import math
from typing import Literal

Decay = Literal["constant", "linear", "cosine"]


def learning_rate(
    update: int, *, peak: float, warmup: int = 0, decay: Decay = "constant", total: int = 0
) -> float:
    """The learning rate of update number `update`, counted from 0.

    The rate rises linearly to `peak` over the first `warmup` updates, then stays or falls towards
    0, which would be reached at update `total`. A run that continues beyond `total` keeps the last
    rate above 0.

    Args:
        update: number of the update, from 0.
        peak: the highest rate.
        warmup: number of updates of the rise.
        decay: course of the fall: none, a line, or half a cosine.
        total: planned number of updates; 0 is unknown, and nothing falls.

    >>> [learning_rate(n, peak=1.0, warmup=2, decay="linear", total=6) for n in range(6)]
    [0.5, 1.0, 1.0, 0.75, 0.5, 0.25]
    """
    if update < warmup:
        return peak * (update + 1) / warmup
    if decay == "constant" or total <= warmup:
        return peak
    done = min(update, total - 1) - warmup
    remaining = 1 - done / (total - warmup)
    return peak * (remaining if decay == "linear" else 0.5 - 0.5 * math.cos(math.pi * remaining))
