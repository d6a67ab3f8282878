"""A problem on hidden data, which tools show or change a little at a time."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Self

from ludus.errors import ToolError
from ludus.messages import ToolCall

from ...tools import Tool, ToolResult, tools_of


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
            f"{made.name}({', '.join(str(value) for value in made.arguments.values())}) = {said}"
            for made, said in calls
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
