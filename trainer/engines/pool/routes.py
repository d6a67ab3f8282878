"""Which engine has computed the beginning of a prompt before.

Prompts are cut into blocks, and the name of a block depends on all blocks before it, so that the
longest known beginning is found by looking up each block once.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

BLOCK = 16
"""How many tokens are a block; a prompt's last tokens that fill no block are not looked at."""
MAX_BLOCKS = 200_000
"""How many blocks are remembered: the prompts of some hundred episodes."""


class PrefixRoutes:
    """Remembers the engine that was last given each beginning of a prompt."""

    def __init__(self, max_blocks: int = MAX_BLOCKS) -> None:
        self.max_blocks = max_blocks
        self._holders: OrderedDict[int, int] = OrderedDict()

    def longest(self, ids: Sequence[int]) -> tuple[int, int]:
        """Return how many tokens of a prompt an engine has seen, and the index of that engine;
        (0, -1) if none has.
        """
        names = _names(ids)
        for count in range(len(names), 0, -1):
            holder = self._holders.get(names[count - 1])
            if holder is not None:
                return count * BLOCK, holder
        return 0, -1

    def note(self, ids: Sequence[int], holder: int) -> None:
        """Remember that an engine computes `ids`; the beginnings unused for longest are dropped."""
        for name in _names(ids):
            self._holders[name] = holder
            self._holders.move_to_end(name)
        while len(self._holders) > self.max_blocks:
            self._holders.popitem(last=False)

    def forget(self, holder: int) -> None:
        """Forget an engine whose keys and values are gone."""
        gone = [name for name, one in self._holders.items() if one == holder]
        for name in gone:
            del self._holders[name]


def _names(ids: Sequence[int]) -> list[int]:
    names: list[int] = []
    name = 0
    for start in range(0, len(ids) - BLOCK + 1, BLOCK):
        # Hashes of integers are the same in every process, unlike those of strings.
        name = hash((name, *ids[start : start + BLOCK]))
        names.append(name)
    return names
