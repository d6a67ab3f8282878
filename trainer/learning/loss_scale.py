"""The factor of the loss in float16, whose small gradients would otherwise be rounded to 0."""

from __future__ import annotations

import torch

FIRST, LEAST, MOST = 2.0**15, 1.0, 2.0**24
GROW_AFTER = 200
"""Updates without an overflow after which the factor is doubled."""


class LossScale:
    """Multiplies the loss, and halves itself where the gradient overflows.

    An overflow is the factor's fault and costs no update: the same rows are computed again with
    half the factor. Only a gradient that is not finite at a factor of 1 is a broken update. torch's
    GradScaler leaves out an update for each overflow, which an update on rollouts is too dear for.

    Args:
        dtype: the type of the computation; the factor of any but float16 stays 1.
    """

    def __init__(self, dtype: torch.dtype | None) -> None:
        self.used = dtype == torch.float16
        self.factor = FIRST if self.used else 1.0
        self.good = 0
        """Updates since the factor last changed."""

    def lower(self) -> bool:
        """Halve the factor; False where it cannot be lowered."""
        if self.factor <= LEAST:
            return False
        self.factor, self.good = max(LEAST, self.factor / 2), 0
        return True

    def made(self) -> None:
        """Count an update; the factor grows after many."""
        self.good += 1
        if self.used and self.good >= GROW_AFTER:
            self.factor, self.good = min(MOST, 2 * self.factor), 0

    def state(self) -> dict[str, float]:
        """Return what a checkpoint keeps."""
        return {"factor": self.factor, "good": self.good}

    def restore(self, state: dict[str, float]) -> None:
        """Continue from a kept `state`; a run in another type begins anew."""
        if self.used and state.get("factor", 1.0) > 1.0:
            self.factor, self.good = float(state["factor"]), int(state["good"])
