"""Iterators, generators and coroutines of the solution, as seen by the tests."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Iterator
from typing import TYPE_CHECKING, Any

from . import value_wire
from .proxies import Handle

if TYPE_CHECKING:
    from .solution_line import TestsLine

MAX_ITEMS = 1_000_000
"""The most items of an iterator, so that an endless iterator of the solution is stopped."""


class RemoteIterator(Iterator[object]):
    """An iterator of the solution that is drawn lazily: first a single item, then more at a time if
    nothing but its items is asked for (`prefetch`).
    """

    def __init__(self, line: TestsLine, token: str, *, prefetch: bool) -> None:
        self._line, self.token, self._prefetch = line, value_wire.named(token), prefetch
        self._items: list[object] = []
        self._more, self._count, self._drawn = True, 1, 0

    def __iter__(self) -> Iterator[object]:
        return self

    def __getattr__(self, name: str) -> object:
        # An open file, for example, is an iterator with methods.
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(Handle(self._line, self.token), name)

    def __next__(self) -> object:
        if not self._items and self._more:
            answer = self._line.ask("advance", self.token, self._count)
            if type(answer) is not tuple or len(answer) != 2 or type(answer[0]) is not list:
                raise value_wire.Malformed("items of an iterator")
            items: list[object] = answer[0]
            self._more = answer[1] is True and bool(items)
            self._drawn += len(items)
            self._count = min(64, self._count * 2) if self._prefetch else 1
            if self._drawn > MAX_ITEMS:
                raise RuntimeError(f"the solution's iterator has more than {MAX_ITEMS} items")
            self._items = items[::-1]
        if not self._items:
            raise StopIteration
        return self._items.pop()


async def items_of(line: TestsLine, token: str) -> AsyncGenerator[object]:
    """Represent an asynchronous iterator of the solution by a generator on this side."""
    named = value_wire.named(token)
    for _ in range(MAX_ITEMS):
        answer = line.ask("anext", named)
        if type(answer) is not tuple or len(answer) > 1:
            raise value_wire.Malformed("an item of an asynchronous iterator")
        if not answer:
            return
        yield answer[0]


def generate(line: TestsLine, token: str, *, prefetch: bool) -> Generator[object, object, object]:
    """Represent a generator of the solution by a generator on this side.

    `prefetch`: items may be drawn before they are wanted, since nothing is sent or thrown into the
    generator.
    """
    if prefetch:
        yield from RemoteIterator(line, token, prefetch=True)
        return None
    named, sent, verb = value_wire.named(token), None, "send"
    while True:
        answer: Any = line.ask(verb, named, sent)
        if type(answer) is not tuple or len(answer) != 2:
            raise value_wire.Malformed("an item of a generator")
        if answer[1] is not True:
            return answer[0]
        try:
            sent, verb = (yield answer[0]), "send"
        except GeneratorExit:
            line.ask("close", named)
            raise
        except Exception as error:
            sent, verb = error, "throw"


async def awaited(line: TestsLine, token: str) -> object:
    """Wait for a coroutine of the solution and return the result."""
    return line.ask("await", value_wire.named(token))
