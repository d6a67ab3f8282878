"""Whether the lengths that are trained are the lengths that were issued.

A bound that drops what is late drops what is long, and a run that trains on the rest learns to be
short. Rollouts are compared in the order of issue, up to the oldest that is not final, so that the
long ones that are still being played bias nothing for a while.
"""

from __future__ import annotations

from collections.abc import Iterable

from .accounts import RolloutRecord


class LengthBias:
    """The mean length of trained rollouts over the mean length of issued rollouts."""

    def __init__(self) -> None:
        self._ahead: dict[int, RolloutRecord] = {}
        self._next = 0
        self._tokens, self._seconds = 0, 0.0
        self._trained, self._trained_tokens = 0, 0
        self._known, self._known_tokens = 0, 0
        self._cut, self._cut_seconds = 0, 0.0

    def add(self, records: Iterable[RolloutRecord]) -> None:
        """Add rollouts whose fate is final."""
        self._ahead |= {record.ordinal: record for record in records}
        while (record := self._ahead.pop(self._next, None)) is not None:
            self._next += 1
            if record.tokens is None:
                self._cut += 1
                self._cut_seconds += record.seconds
                continue
            self._tokens += record.tokens
            self._seconds += record.seconds
            if record.reason.startswith("failed"):  # how long it would have become is not known
                continue
            self._known += 1
            self._known_tokens += record.tokens
            if record.fate == "trained":
                self._trained += 1
                self._trained_tokens += record.tokens

    @property
    def ratio(self) -> float | None:
        """Mean tokens of trained rollouts over mean tokens of issued rollouts; None without any.

        A rollout that was cut off counts with the tokens that the others sampled in the same time,
        which is less than its length: the true bias is at least as large.
        """
        rate = self._tokens / self._seconds if self._seconds else 0.0
        count = self._known + self._cut
        total = self._known_tokens + rate * self._cut_seconds
        if not self._trained or not total:
            return None
        return (self._trained_tokens / self._trained) / (total / count)
