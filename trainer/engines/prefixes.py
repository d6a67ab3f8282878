"""Keys and values kept for reuse: prompts shared by a group, and episodes between two turns.

The next turn of an episode extends the ids of the previous turn exactly, so the kept keys are
found here and only the new tokens are computed. A change of weights drops everything.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Sequence

import torch


class PrefixStore:
    """Saved rows by ids, bounded in tokens; the least recently used row is dropped first."""

    def __init__(self, max_tokens: int) -> None:
        self.max_tokens = max_tokens
        self.tokens = 0
        self._saved: OrderedDict[tuple[int, ...], torch.Tensor] = OrderedDict()
        self._lengths: dict[int, int] = {}
        """How many saved rows have each length."""
        self._sorted: list[int] = []
        """The lengths in ascending order, each once: `longest` tries one prefix of each length."""

    def put(self, ids: Sequence[int], saved: torch.Tensor) -> None:
        """Save the keys and values of `ids`, and drop old rows to stay within the bound."""
        key = tuple(ids)
        if key in self._saved or len(key) > self.max_tokens:
            return
        self._saved[key] = saved
        self.tokens += len(key)
        self._count(len(key), 1)
        while self.tokens > self.max_tokens:
            oldest, _ = self._saved.popitem(last=False)
            self.tokens -= len(oldest)
            self._count(len(oldest), -1)

    def __contains__(self, ids: tuple[int, ...]) -> bool:
        """Return whether a row with exactly these ids is saved."""
        return ids in self._saved

    def longest(self, ids: Sequence[int]) -> tuple[int, torch.Tensor | None]:
        """Return length and row of the longest saved prefix that is shorter than `ids`; (0, None)
        without a match.

        At least one id is left to compute: the next token is sampled from the logits after the last
        id, and only keys and values are saved.
        """
        for index in range(bisect_left(self._sorted, len(ids)) - 1, -1, -1):
            length = self._sorted[index]
            key = tuple(ids[:length])
            saved = self._saved.get(key)
            if saved is not None:
                self._saved.move_to_end(key)
                return length, saved
        return 0, None

    def clear(self) -> None:
        """Drop all saved rows, as new weights require."""
        self._saved.clear()
        self._lengths.clear()
        self._sorted.clear()
        self.tokens = 0

    def _count(self, length: int, more: int) -> None:
        before = self._lengths.get(length, 0)
        if before == 0:
            insort(self._sorted, length)
        self._lengths[length] = before + more
        if before + more == 0:
            del self._lengths[length]
            self._sorted.remove(length)
