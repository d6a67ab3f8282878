"""A problem on hidden data, which tools show or change a little at a time."""

from __future__ import annotations

import itertools
import random
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Literal, Self

from ludus.errors import ToolError
from ludus.messages import ToolCall

from ...tools import Tool, ToolResult, tool, tools_of


class FunctionGame(ABC):
    """A kind of problem; the `@tool` methods, such as `done`, are the policy's tools."""

    name: ClassVar[str]
    repeatable: ClassVar[bool] = True
    """Whether a call may be made again, which changes nothing."""
    question: str
    """The instruction, as the policy reads it."""

    @classmethod
    @abstractmethod
    def draw(cls, rng: random.Random, calls: int) -> Self:
        """Draw a problem that takes about `calls` calls."""

    @abstractmethod
    def expert(self) -> Iterator[ToolCall]:
        """Yield the calls that solve the problem, using only what the tools have said."""

    @abstractmethod
    def answer(self) -> object:
        """Return a right answer; others may be right as well."""

    @abstractmethod
    def text(self) -> str:
        """Return the whole problem as text, to tell problems apart."""

    def summary(self, calls: Sequence[tuple[ToolCall, str]]) -> str | None:
        """Return what the expert notes down when a context window is full: the calls made so far
        with what each said.

        Args:
            calls: the expert's calls in order, each with its result.
        """
        return "; ".join(
            f"{call.name}({', '.join(str(value) for value in call.arguments.values())}) = {said}"
            for call, said in calls
        )

    @property
    def tools(self) -> dict[str, Tool]:
        """The tools of the problem, by name."""
        return tools_of(self)


def call(name: str, **arguments: Any) -> ToolCall:
    """Make a call of the expert's."""
    return ToolCall(name=name, arguments=arguments, id="call_0")


def judged(right: bool) -> ToolResult:
    """Return the tool result that ends an episode, with reward 1 if `right`, else 0."""
    return ToolResult(
        content="That is right." if right else "That is wrong.",
        reward=float(right),
        terminated=True,
    )


def in_range(index: int, size: int, name: str) -> int:
    """Return `index` if that is from 0 to `size` - 1.

    Raises:
        ToolError: `index` is out of range; the text says what is numbered, by `name`.
    """
    if not 0 <= index < size:
        raise ToolError(f"there is no {name} {index}; they are numbered from 0 to {size - 1}")
    return index


MAX_WRITTEN = 10_000
Side = Literal["left", "right"]


class Merge(FunctionGame):
    """The merge problem: take the cards of two sorted piles in sorted order."""

    name = "merge"
    repeatable = False
    question = (
        "Two hidden piles of numbered cards, each sorted with its smallest card on top. Take all "
        "cards from the tops so that they come out sorted, smallest first; then say done."
    )

    def __init__(self, left: Sequence[int], right: Sequence[int]) -> None:
        self.left, self.right = list(left), list(right)
        self.taken: list[int] = []
        self._drawn = f"{self.name} {self.left} {self.right}"

    @classmethod
    def draw(cls, rng: random.Random, calls: int) -> Self:
        """Draw two sorted piles; each card costs a look and a move."""
        size = max(3, calls // 2)
        cards = rng.sample(range(10 * size), size)
        middle = rng.randint(1, size - 1)
        return cls(sorted(cards[:middle]), sorted(cards[middle:]))

    @tool
    def tops(self) -> str:
        """Look at the top cards."""
        tops = [
            f"{name}: {pile[0] if pile else 'empty'}"
            for name, pile in (("left", self.left), ("right", self.right))
        ]
        return ", ".join(tops)

    @tool
    def take(self, pile: Side) -> str:
        """Take the top card of a pile.

        Args:
            pile: which one
        """
        cards = self.left if pile == "left" else self.right
        if not cards:
            raise ToolError(f"the {pile} pile is empty")
        self.taken.append(cards.pop(0))
        return f"taken: {self.taken[-1]}"

    @tool
    def done(self) -> ToolResult:
        """Say that all cards are taken in order, which ends the task."""
        all_taken = not self.left and not self.right
        return judged(all_taken and self.taken == sorted(self.taken))

    def answer(self) -> list[int]:
        """Return the cards in order."""
        return sorted([*self.taken, *self.left, *self.right])

    def expert(self) -> Iterator[ToolCall]:
        """Look at the tops and take the smaller card; an empty pile ends the looking."""
        left, right = list(self.left), list(self.right)
        while left or right:
            if left and right:
                yield call("tops")
            side = "left" if left and (not right or left[0] < right[0]) else "right"
            (left if side == "left" else right).pop(0)
            yield call("take", pile=side)
        yield call("done")

    def text(self) -> str:
        """Return the whole problem as text, before any move."""
        return self._drawn


class Sort(FunctionGame):
    """The sorting problem, by comparing and swapping."""

    name = "sort"
    repeatable = False
    question = (
        "A hidden row of different numbers, which you cannot see. Compare and swap them until they "
        "rise from the first position to the last; then say done."
    )

    def __init__(self, items: Sequence[int]) -> None:
        self.items = list(items)
        self._drawn = f"{self.name} {self.items}"

    @classmethod
    def draw(cls, rng: random.Random, calls: int) -> Self:
        """Draw an unsorted row; insertion sort makes about n^2 / 2 comparisons and swaps."""
        size = max(3, round((2 * calls) ** 0.5))
        items = rng.sample(range(10 * size), size)
        if items == sorted(items):
            items[0], items[-1] = items[-1], items[0]
        return cls(items)

    @tool
    def length(self) -> int:
        """Tell how many numbers there are."""
        return len(self.items)

    @tool
    def compare(self, first: int, second: int) -> str:
        """Compare the numbers at two positions.

        Args:
            first: a position, from 0
            second: another
        """
        left, right = self._at(first), self._at(second)
        if left == right:
            return "the same"
        return f"the one at {first} is {'smaller' if left < right else 'larger'}"

    @tool
    def swap(self, first: int, second: int) -> str:
        """Swap the numbers at two positions.

        Args:
            first: a position, from 0
            second: another
        """
        self.items[first], self.items[second] = self._at(second), self._at(first)
        return "swapped"

    @tool
    def done(self) -> ToolResult:
        """Say that the row is sorted, which ends the task."""
        return judged(self.items == sorted(self.items))

    def _at(self, position: int) -> int:
        return self.items[in_range(position, len(self.items), "position")]

    def answer(self) -> list[int]:
        """Return the numbers in rising order."""
        return sorted(self.items)

    def expert(self) -> Iterator[ToolCall]:
        """Compare and swap as insertion sort does."""
        items = list(self.items)
        yield call("length")
        for end in range(1, len(items)):
            for position in range(end, 0, -1):
                yield call("compare", first=position - 1, second=position)
                if items[position - 1] < items[position]:
                    break
                items[position - 1], items[position] = items[position], items[position - 1]
                yield call("swap", first=position - 1, second=position)
        yield call("done")

    def summary(self, calls: Sequence[tuple[ToolCall, str]]) -> str:
        """Return the length, the number that insertion sort is placing, and the next call."""
        return sorting_notes(calls)

    def text(self) -> str:
        """Return the whole problem as text, before any move."""
        return self._drawn


def sorting_notes(
    calls: Sequence[tuple[ToolCall, str]],
    size: str = "unknown",
    placing: int = 1,
    following: str = "length",
) -> str:
    """Write down the state of an insertion sort, on which alone the next call depends.

    Args:
        calls: the calls since, each with its result.
        size: how many numbers there are.
        placing: the position of the number that is being placed.
        following: the next call before `calls`.
    """
    for call, said in calls:
        if call.name == "length":
            size, following = said, "compare 0 1"
            continue
        first, second = call.arguments["first"], call.arguments["second"]
        if said.endswith("larger"):
            following = f"swap {first} {second}"
        elif said.endswith("smaller") or first == 0:  # the number has found its place
            placing += 1
            following = "done" if str(placing) == size else f"compare {placing - 1} {placing}"
        else:
            following = f"compare {first - 1} {first}"
    return f"length {size}; placing {placing}; next {following}"


class Shorten(FunctionGame):
    """The run-length encoding problem, letter by letter."""

    name = "shorten"
    repeatable = False
    question = (
        "A hidden word. Write it down shortened: each run of the same letter as the letter and how "
        "often it comes, so that aaab is a3b1; then say done. What is written stays."
    )

    def __init__(self, word: str) -> None:
        self.word = word
        self.written = ""

    @classmethod
    def draw(cls, rng: random.Random, calls: int) -> Self:
        """Draw a word with runs of up to five equal letters."""
        word = ""
        while len(word) < max(4, round(calls * 0.7)):
            letters = "abcdefgh".replace(word[-1:], "") if word else "abcdefgh"
            word += rng.choice(letters) * rng.randint(1, 5)
        return cls(word)

    @tool
    def length(self) -> int:
        """Tell how many letters the word has."""
        return len(self.word)

    @tool
    def letter(self, index: int) -> str:
        """Read one letter.

        Args:
            index: its position, from 0
        """
        return self.word[in_range(index, len(self.word), "letter")]

    @tool
    def write(self, text: str) -> str:
        """Write at the end of what is written.

        Args:
            text: what to add
        """
        if len(self.written) + len(text) > MAX_WRITTEN:
            raise ToolError(f"there is room for {MAX_WRITTEN} letters in all")
        self.written += text
        return f"written so far: {len(self.written)} letters"

    @tool
    def done(self) -> ToolResult:
        """Say that the whole word is written, which ends the task."""
        return judged(self.written == self.answer())

    def answer(self) -> str:
        """Return the run-length encoding of the word."""
        runs = ((letter, len(list(run))) for letter, run in itertools.groupby(self.word))
        return "".join(f"{letter}{count}" for letter, count in runs)

    def expert(self) -> Iterator[ToolCall]:
        """Read letter by letter, and write each run when the next begins."""
        yield call("length")
        for letter, run in itertools.groupby(enumerate(self.word), key=lambda edit: edit[1]):
            places = [index for index, _ in run]
            for index in places:
                yield call("letter", index=index)
            yield call("write", text=f"{letter}{len(places)}")
        yield call("done")

    def summary(self, calls: Sequence[tuple[ToolCall, str]]) -> str:
        """Return the length, the number of letters read, and the letters not written yet."""
        read = [said for call, said in calls if call.name == "letter"]
        written = sum(
            int(count)
            for call, _ in calls
            if call.name == "write"
            for count in re.findall(r"\d+", str(call.arguments["text"]))
        )
        size = next((said for call, said in calls if call.name == "length"), "unknown")
        return f"length {size}; read {len(read)}; to write: {''.join(read[written:])}"

    def text(self) -> str:
        """Return the whole problem as text, to tell problems apart."""
        return f"{self.name} {self.word}"
