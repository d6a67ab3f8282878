"""One problem: data the policy does not see, behind tools that show or move a little of it."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar, Self

from ludus.errors import ToolError
from ludus.messages import ToolCall

from ..tools import Tool, ToolResult, tools_of


class Game(ABC):
    """A kind of problem; its `@tool` methods are what the policy has, `done` among them."""

    name: ClassVar[str]
    question: str
    """What the policy is told."""

    @classmethod
    @abstractmethod
    def draw(cls, rng: random.Random, calls: int) -> Self:
        """A problem that takes about `calls` calls."""

    @abstractmethod
    def expert(self) -> Iterator[ToolCall]:
        """The calls that solve it from here, of an algorithm that knows only what the tools say."""

    @abstractmethod
    def answer(self) -> object:
        """A right answer; there may be others."""

    @abstractmethod
    def text(self) -> str:
        """All of it, to tell problems apart."""

    @property
    def tools(self) -> dict[str, Tool]:
        """By name."""
        return tools_of(self)


def call(name: str, **arguments: Any) -> ToolCall:
    """A call of the expert's."""
    return ToolCall(name=name, arguments=arguments, id="call_0")


def judged(right: bool) -> ToolResult:
    """The end of an episode."""
    return ToolResult(
        content="That is right." if right else "That is wrong.",
        reward=float(right),
        terminated=True,
    )


def in_range(index: int, size: int, what: str) -> int:
    """`index`, if there is such a one.

    Raises:
        ToolError: there is none.
    """
    if not 0 <= index < size:
        raise ToolError(f"there is no {what} {index}; they are numbered from 0 to {size - 1}")
    return index
