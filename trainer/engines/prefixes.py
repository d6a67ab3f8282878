"""Keys and values worth keeping: prompts shared by a group, and episodes between two turns.

The next turn of an episode extends the ids of the last one exactly, so its keys are found here and
only what is new is computed. Everything is dropped when the weights change.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Sequence

import torch


class PrefixStore:
    """Saved rows by their ids, least recently used out first, bounded in tokens."""

    def __init__(self, max_tokens: int) -> None:
        self.max_tokens = max_tokens
        self.tokens = 0
        self._saved: OrderedDict[tuple[int, ...], torch.Tensor] = OrderedDict()
        self._lengths: dict[int, int] = {}
        """How many rows there are of each length."""
        self._sorted: list[int] = []

    def put(self, ids: Sequence[int], saved: torch.Tensor) -> None:
        """Keep the row of `ids`."""
        key = tuple(ids)
        if key in self._saved or len(key) > self.max_tokens:
            return
        self._saved[key] = saved
        self.tokens += len(key)
        self._count(len(key), 1)
        while self.tokens > self.max_tokens:
            self._forget(*self._saved.popitem(last=False))

    def __contains__(self, ids: tuple[int, ...]) -> bool:
        """Whether the row of just these ids is kept."""
        return ids in self._saved

    def longest(self, ids: Sequence[int]) -> tuple[int, torch.Tensor | None]:
        """The longest kept prefix that leaves at least one id to compute: its length and row."""
        for index in range(bisect_left(self._sorted, len(ids)) - 1, -1, -1):
            length = self._sorted[index]
            key = tuple(ids[:length])
            saved = self._saved.get(key)
            if saved is not None:
                self._saved.move_to_end(key)
                return length, saved
        return 0, None

    def clear(self) -> None:
        """Forget everything."""
        self._saved.clear()
        self._lengths.clear()
        self._sorted.clear()
        self.tokens = 0

    def _forget(self, key: tuple[int, ...], _: torch.Tensor) -> None:
        self.tokens -= len(key)
        self._count(len(key), -1)

    def _count(self, length: int, more: int) -> None:
        before = self._lengths.get(length, 0)
        if before == 0:
            insort(self._sorted, length)
        self._lengths[length] = before + more
        if before + more == 0:
            del self._lengths[length]
            self._sorted.remove(length)
