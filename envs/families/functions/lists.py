"""Problems on a hidden list of numbers, with the tools `length()` and `item(index)`."""

from __future__ import annotations

import itertools
import random
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, Self

from ludus.messages import ToolCall

from ...tools import ToolResult, tool
from .game import FunctionGame, call, in_range, judged


class HiddenList(FunctionGame):
    """A problem on a list that is read item by item; every position has to be read."""

    question = ""

    def __init__(self, items: Sequence[int]) -> None:
        self.items = list(items)

    @tool
    def length(self) -> int:
        """Tell how many items the list has."""
        return len(self.items)

    @tool
    def item(self, index: int) -> int:
        """Read one item.

        Args:
            index: its position, from 0
        """
        return self.items[in_range(index, len(self.items), "item")]

    def text(self) -> str:
        """Return the whole problem as text, to tell problems apart."""
        return f"{self.name} {self.question} {self.items}"

    @abstractmethod
    def solution(self) -> dict[str, Any]:
        """Return the arguments of a right `done`."""

    def answer(self) -> object:
        """Return the arguments of a right `done`, without the names."""
        return list(self.solution().values())

    def needed(self) -> int:
        """Return how many items, from the first on, must be read to know the solution."""
        return len(self.items)

    def expert(self) -> Iterator[ToolCall]:
        """Read the list item by item, then answer."""
        yield call("length")
        for index in range(self.needed()):
            yield call("item", index=index)
        yield call("done", **self.solution())


class LargestRun(HiddenList):
    """The maximum subarray problem: find neighbouring items with the largest sum."""

    name = "largest_run"
    question = (
        "A hidden list of whole numbers, some negative. Find neighbouring items (one or more) "
        "whose sum is as large as it can be, and give the positions of the first and the last."
    )

    @classmethod
    def draw(cls, rng: random.Random, calls: int) -> Self:
        """Draw numbers from -30 to 30, with at least a single positive number."""
        items = [rng.randint(-30, 30) for _ in range(max(3, calls - 2))]
        items[rng.randrange(len(items))] = rng.randint(5, 30)
        return cls(items)

    @tool
    def done(self, first: int, last: int) -> ToolResult:
        """Answer, which ends the task.

        Args:
            first: position of the first item
            last: position of the last item
        """
        inside = 0 <= first <= last < len(self.items)
        return judged(inside and sum(self.items[first : last + 1]) == self._best()[0])

    def solution(self) -> dict[str, Any]:
        """Solve the problem by Kadane's algorithm."""
        _, first, last = self._best()
        return {"first": first, "last": last}

    def _best(self) -> tuple[int, int, int]:
        best = (self.items[0], 0, 0)
        total, start = 0, 0
        for index, item in enumerate(self.items):
            if total <= 0:
                total, start = 0, index
            total += item
            if total > best[0]:
                best = (total, start, index)
        return best


class Pair(HiddenList):
    """The two-sum problem: find two positions whose items add up to a target."""

    name = "pair"

    def __init__(self, items: Sequence[int], target: int) -> None:
        super().__init__(items)
        self.target = target
        self.question = (
            "A hidden list of whole numbers. Find two different positions whose items add up to "
            f"{target}; there is such a pair."
        )

    @classmethod
    def draw(cls, rng: random.Random, calls: int) -> Self:
        """Draw a list in which the pair is complete at the last position that the expert reads."""
        size = max(3, calls - 2)
        items = rng.sample(range(1, 40 * size), size)
        first, last = rng.randrange(size - 1), size - 1
        rest = [rng.randint(1, 40 * size) for _ in range(rng.randint(0, size // 4))]
        return cls([*items, *rest], items[first] + items[last])

    @tool
    def done(self, first: int, second: int) -> ToolResult:
        """Answer, which ends the task.

        Args:
            first: position of one of the two
            second: position of the other
        """
        size = range(len(self.items))
        is_pair = first in size and second in size and first != second
        return judged(is_pair and self.items[first] + self.items[second] == self.target)

    def solution(self) -> dict[str, Any]:
        """Return the pair that is complete first when reading from the left."""
        seen: dict[int, int] = {}
        for index, item in enumerate(self.items):
            if self.target - item in seen:
                return {"first": seen[self.target - item], "second": index}
            seen.setdefault(item, index)
        raise AssertionError("a pair was drawn")

    def needed(self) -> int:
        """Return the number of items up to the second of the pair."""
        return int(self.solution()["second"]) + 1


class Rising(HiddenList):
    """The longest increasing subsequence problem."""

    name = "rising"
    question = (
        "A hidden list of whole numbers. Leave items out so that those left rise strictly, each "
        "larger than the one before, and as many as possible are left. Give their positions."
    )

    @classmethod
    def draw(cls, rng: random.Random, calls: int) -> Self:
        """Draw numbers without any two alike."""
        size = max(4, calls - 2)
        return cls(rng.sample(range(10 * size), size))

    @tool
    def done(self, positions: list[int]) -> ToolResult:
        """Answer, which ends the task.

        Args:
            positions: of the items left, in order
        """
        size = len(self.items)
        ordered = all(0 <= position < size for position in positions) and positions == sorted(
            set(positions)
        )
        picked = [self.items[position] for position in positions] if ordered else []
        rises = all(left < right for left, right in itertools.pairwise(picked))
        return judged(ordered and rises and len(picked) == len(self._longest()))

    def solution(self) -> dict[str, Any]:
        """Solve the problem by dynamic programming."""
        return {"positions": self._longest()}

    def _longest(self) -> list[int]:
        best: list[list[int]] = []
        for index, item in enumerate(self.items):
            before = [run for run in best if self.items[run[-1]] < item]
            best.append([*max(before, key=len, default=[]), index])
        return max(best, key=len)
