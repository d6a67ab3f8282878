"""The problems: what to do with a list, or with a map."""

from __future__ import annotations

import itertools
import random
from abc import abstractmethod
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

from ludus.errors import ToolError
from ludus.messages import ToolCall

from ...tools import ToolResult, tool
from .moves import FunctionGame, call, in_range, judged


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
        padding = [rng.randint(1, 40 * size) for _ in range(rng.randint(0, size // 4))]
        return cls([*items, *padding], items[first] + items[last])

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


LAND, WATER = "land", "water"


class Islands(FunctionGame):
    """The connected components problem: count the islands of a grid and measure the largest."""

    name = "islands"
    question = (
        "A hidden map of squares, each land or water. Land squares that touch by a side (not by a "
        "corner alone) are one island. Find how many islands there are, and how many squares the "
        "largest has."
    )

    def __init__(self, rows: Sequence[str]) -> None:
        self.rows = list(rows)

    @classmethod
    def draw(cls, rng: random.Random, calls: int) -> Self:
        """Draw a grid about as wide as high, with some land."""
        squares = max(4, calls - 2)
        height = max(2, round(squares**0.5) + rng.randint(-1, 1))
        width = max(2, round(squares / height))
        rows = ["".join(rng.choices("#.", (45, 55), k=width)) for _ in range(height)]
        return cls([*rows[:-1], "#" + rows[-1][1:]])

    @tool
    def size(self) -> str:
        """Tell how many rows and columns the map has."""
        return f"{len(self.rows)} rows, {len(self.rows[0])} columns"

    @tool
    def square(self, row: int, column: int) -> str:
        """Look at one square.

        Args:
            row: from 0
            column: from 0
        """
        line = self.rows[in_range(row, len(self.rows), "row")]
        return LAND if line[in_range(column, len(line), "column")] == "#" else WATER

    @tool
    def done(self, islands: int, largest: int) -> ToolResult:
        """Answer, which ends the task.

        Args:
            islands: how many there are
            largest: squares of the largest
        """
        return judged([islands, largest] == self.answer())

    def answer(self) -> list[int]:
        """Return the number of islands and the size of the largest, by flood filling."""
        land = {
            (row, column)
            for row, line in enumerate(self.rows)
            for column, mark in enumerate(line)
            if mark == "#"
        }
        sizes: list[int] = []
        while land:
            waiting, size = [land.pop()], 0
            while waiting:
                row, column = waiting.pop()
                size += 1
                sides = [(row + 1, column), (row - 1, column), (row, column + 1), (row, column - 1)]
                neighbours = [side for side in sides if side in land]
                land.difference_update(neighbours)
                waiting += neighbours
            sizes.append(size)
        return [len(sizes), max(sizes)]

    def expert(self) -> Iterator[ToolCall]:
        """Look at every square, then answer."""
        yield call("size")
        for row, line in enumerate(self.rows):
            for column in range(len(line)):
                yield call("square", row=row, column=column)
        islands, largest = self.answer()
        yield call("done", islands=islands, largest=largest)

    def text(self) -> str:
        """Return the whole problem as text, to tell problems apart."""
        return f"{self.name} {'/'.join(self.rows)}"


class Roads(FunctionGame):
    """The shortest path problem, on an undirected graph of named places."""

    name = "roads"

    def __init__(self, roads: Mapping[str, Sequence[str]], start: str, goal: str) -> None:
        self.roads = {place: list(neighbours) for place, neighbours in roads.items()}
        self.start, self.goal = start, goal
        self.question = (
            "Hidden places joined by roads that go both ways. Find a shortest way (fewest roads) "
            f"from {start} to {goal}, and give its places in order, both ends included."
        )

    @classmethod
    def draw(cls, rng: random.Random, calls: int) -> Self:
        """Draw a tree with some more roads; the goal is the last place breadth-first search
        finds.
        """
        names = place_names(rng, max(4, round(calls * 1.15)))
        roads: dict[str, list[str]] = {name: [] for name in names}
        for index, name in enumerate(names[1:], 1):
            _join(roads, name, names[rng.randrange(max(0, index - 6), index)])
        for _ in range(len(names) // 3):
            _join(roads, *rng.sample(names, 2))
        for neighbours in roads.values():
            rng.shuffle(neighbours)
        order = list(_found_from(roads, names[0]))
        return cls(roads, names[0], order[-1])

    @tool
    def roads_from(self, place: str) -> list[str]:
        """List the places one road away.

        Args:
            place: its name
        """
        if place not in self.roads:
            raise ToolError(f"there is no place called {place[:40]!r}")
        return self.roads[place]

    @tool
    def done(self, way: list[str]) -> ToolResult:
        """Answer, which ends the task.

        Args:
            way: the places in order
        """
        is_joined = all(b in self.roads.get(a, ()) for a, b in itertools.pairwise(way))
        has_ends = bool(way) and way[0] == self.start and way[-1] == self.goal
        return judged(has_ends and is_joined and len(way) == len(self.answer()))

    def answer(self) -> list[str]:
        """Return a shortest path, by breadth-first search."""
        before = _found_from(self.roads, self.start)
        route = [self.goal]
        while route[0] != self.start:
            route.insert(0, before[route[0]])
        return route

    def expert(self) -> Iterator[ToolCall]:
        """Ask for the roads of each place, in breadth-first order, until the goal is found."""
        reached = {self.start}
        for place in _found_from(self.roads, self.start):
            yield call("roads_from", place=place)
            reached.update(self.roads[place])
            if self.goal in reached:
                break
        yield call("done", way=self.answer())

    def text(self) -> str:
        """Return the whole problem as text, to tell problems apart."""
        return f"{self.name} {self.roads} {self.start} {self.goal}"


def _join(roads: dict[str, list[str]], first: str, second: str) -> None:
    if second not in roads[first]:
        roads[first].append(second)
        roads[second].append(first)


def _found_from(roads: Mapping[str, Sequence[str]], start: str) -> dict[str, str]:
    """Return the places in breadth-first order, each with the place before on the way."""
    before, waiting = {start: start}, deque([start])
    while waiting:
        place = waiting.popleft()
        for neighbour in roads[place]:
            if neighbour not in before:
                before[neighbour] = place
                waiting.append(neighbour)
    return before


class Loop(FunctionGame):
    """The cycle detection problem: find where a chain of steps begins to repeat."""

    name = "loop"
    question = (
        "From every hidden place a one-way step leads to another. Whoever goes on from the start "
        "walks in a circle in the end. Find the first place of that circle that is reached, and "
        "how many places the circle has."
    )

    def __init__(self, places: Sequence[str], back_to: int) -> None:
        self.places = list(places)
        self.back_to = back_to

    @classmethod
    def draw(cls, rng: random.Random, calls: int) -> Self:
        """Draw a chain whose last place leads back into the chain."""
        names = place_names(rng, max(3, calls - 2))
        return cls(names, rng.randrange(len(names)))

    @tool
    def start(self) -> str:
        """Name the place to start from."""
        return self.places[0]

    @tool
    def step_from(self, place: str) -> str:
        """Name the place one step further.

        Args:
            place: where the step begins
        """
        if place not in self.places:
            raise ToolError(f"there is no place called {place[:40]!r}")
        index = self.places.index(place) + 1
        return self.places[index if index < len(self.places) else self.back_to]

    @tool
    def done(self, first: str, places: int) -> ToolResult:
        """Answer, which ends the task.

        Args:
            first: the first place of the circle that is reached
            places: how many the circle has
        """
        return judged([first, places] == self.answer())

    def answer(self) -> list[object]:
        """Return the first place and the length of the circle."""
        return [self.places[self.back_to], len(self.places) - self.back_to]

    def expert(self) -> Iterator[ToolCall]:
        """Follow the steps until a place comes up again."""
        yield call("start")
        for place in self.places:
            yield call("step_from", place=place)
        first, places = self.answer()
        yield call("done", first=first, places=places)

    def text(self) -> str:
        """Return the whole problem as text, to tell problems apart."""
        return f"{self.name} {self.places} {self.back_to}"


def place_names(rng: random.Random, count: int) -> list[str]:
    """Draw `count` different names of two syllables and a letter."""
    names: dict[str, None] = {}
    while len(names) < count:
        syllables = "".join(rng.choice("bdfgklmnprstvz") + rng.choice("aeiou") for _ in range(2))
        names[(syllables + rng.choice("nrlsm")).capitalize()] = None
    return list(names)
