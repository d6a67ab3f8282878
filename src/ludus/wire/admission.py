"""A bound on work accepted but not finished: past it, the answer is 429 and when to come back."""

from __future__ import annotations

from collections import Counter

from .faults import QueueFull

SMOOTHING = 0.1
MIN_RETRY_S = 0.05
MAX_RETRY_S = 30.0


class Admission:
    """Counts operations in flight, in all and per key (an environment, a verifier)."""

    def __init__(self, limit: int, *, per_key: int | None = None) -> None:
        self.limit = limit
        self.per_key = limit if per_key is None else per_key
        self.depth = 0
        self.depths: Counter[str] = Counter()
        self.mean_s = 0.1
        """Exponential mean of how long one operation took from admission to reply."""

    def enter(self, key: str) -> None:
        """Count one operation in.

        Raises:
            QueueFull: there is no room.
        """
        if self.depth >= self.limit:
            raise self._full("the server's queue", self.depth, self.limit)
        if self.depths[key] >= self.per_key:
            raise self._full(f"the queue of {key}", self.depths[key], self.per_key)
        self.depth += 1
        self.depths[key] += 1

    def leave(self, key: str, took_s: float) -> None:
        """Count it out."""
        self.depth -= 1
        self.depths[key] -= 1
        self.mean_s += SMOOTHING * (took_s - self.mean_s)

    @property
    def retry_after_s(self) -> float:
        """When there should be room again: about one operation's time."""
        return min(MAX_RETRY_S, max(MIN_RETRY_S, self.mean_s))

    def _full(self, what: str, depth: int, limit: int) -> QueueFull:
        return QueueFull(
            f"{what} is full: {depth} of {limit} operations in flight",
            self.retry_after_s,
            depth=depth,
            limit=limit,
        )
