"""Iterators, generators and coroutines of the solution, as seen by the tests."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

from . import value_wire
from .proxies import Handle

MAX_ITEMS = 1_000_000
"""The most items of an iterator, so that an endless iterator of the solution is stopped."""
_ALONE = 64
"""The number of items that are drawn one by one, since the next item may take forever: tests ask
for the first four perfect numbers. Then so many are drawn at a time.
"""


class RemoteIterator(Iterator[object]):
    """An iterator of the solution that is drawn lazily: first one by one, then more items at a time
    if nothing but its items is asked for (`prefetch`).
    """

    def __init__(self, line: Any, token: str, *, prefetch: bool) -> None:
        # Other names are attributes of the solution's object.
        self.ludus_line, self.ludus_token = line, value_wire.named(token)
        self.ludus_prefetch = prefetch
        self.ludus_items: list[object] = []
        self.ludus_more, self.ludus_count, self.ludus_drawn = True, 1, 0

    def __iter__(self) -> Iterator[object]:
        return self

    def __getattr__(self, name: str) -> object:
        # An open file, for example, is an iterator with methods. `dict` looks for `keys`.
        if name.startswith("__") or name == "keys":
            raise AttributeError(name)
        return getattr(Handle(self.ludus_line, self.ludus_token), name)

    def __next__(self) -> object:
        if not self.ludus_items and self.ludus_more:
            answer = self.ludus_line.ask("advance", self.ludus_token, self.ludus_count)
            if type(answer) is not tuple or len(answer) != 2 or type(answer[0]) is not list:
                raise value_wire.Malformed("items of an iterator")
            items: list[object] = answer[0]
            self.ludus_more = answer[1] is True and bool(items)
            self.ludus_drawn += len(items)
            if self.ludus_prefetch and self.ludus_drawn >= _ALONE:
                self.ludus_count = _ALONE
            if self.ludus_drawn > MAX_ITEMS:
                raise RuntimeError(f"the solution's iterator has more than {MAX_ITEMS} items")
            self.ludus_items = items[::-1]
        if not self.ludus_items:
            raise StopIteration
        return self.ludus_items.pop()


def generate(line: Any, token: str, *, prefetch: bool) -> Generator[object, object, object]:
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


async def awaited(line: Any, token: str) -> object:
    """Wait for a coroutine of the solution and return the result."""
    return line.ask("await", value_wire.named(token))
