"""A bound on operations in flight: past the bound, a server answers 429 and says when to come
back.
"""

from __future__ import annotations

from collections import Counter

from .faults import QueueFull

SMOOTHING = 0.1
MIN_RETRY_S = 0.05
MAX_RETRY_S = 30.0


class Admission:
    """Counts operations in flight, in all and per key (an environment, a verifier).

    Args:
        limit: the most operations in flight over all keys.
        per_key: the most operations in flight of one key; `limit` if None.
    """

    def __init__(self, limit: int, *, per_key: int | None = None) -> None:
        self.limit = limit
        self.per_key = limit if per_key is None else per_key
        self.depth = 0
        self.depths: Counter[str] = Counter()
        self.mean_s = 0.1
        """The exponential mean of the seconds from admission to reply of one operation."""

    def enter(self, key: str) -> None:
        """Count an operation of `key` in.

        Raises:
            QueueFull: `limit` operations are in flight, or `per_key` operations of this key.
        """
        if self.depth >= self.limit:
            raise self._full("the server's queue", self.depth, self.limit)
        if self.depths[key] >= self.per_key:
            raise self._full(f"the queue of {key}", self.depths[key], self.per_key)
        self.depth += 1
        self.depths[key] += 1

    def leave(self, key: str, took_s: float) -> None:
        """Count an operation of `key` out, which took `took_s` seconds from admission to reply."""
        self.depth -= 1
        self.depths[key] -= 1
        self.mean_s += SMOOTHING * (took_s - self.mean_s)

    @property
    def retry_after_s(self) -> float:
        """The estimated seconds until the queue has room: the mean time of an operation, in
        0.05..30.
        """
        return min(MAX_RETRY_S, max(MIN_RETRY_S, self.mean_s))

    def _full(self, what: str, depth: int, limit: int) -> QueueFull:
        return QueueFull(
            f"{what} is full: {depth} of {limit} operations in flight",
            self.retry_after_s,
            depth=depth,
            limit=limit,
        )
