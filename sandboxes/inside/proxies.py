"""What the tests hold of the solution: functions to call and objects to use, never objects to
believe.

Forwarded: calls, attributes, items, length, iteration. Decided here: comparison (identity),
containment (by iterating and comparing here), hash, truth, text, `isinstance`. Arithmetic is
forwarded only between objects of the solution or on one the tests built from its class: forwarded
with a plain number it would hand the solution that number and believe what comes back (`abs(answer
- expected) < 1e-6`).
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator
from typing import Protocol

from . import peer, wire

MAX_ITEMS = 1_000_000
"""An endless iterator of the solution is stopped here."""


class Line(Protocol):
    """What a proxy needs of the connection."""

    def ask(self, verb: str, *arguments: object) -> object:
        """Ask the solution; raises here what it raised there."""
        ...


class Handle:
    """An object that stays with the solution."""

    __slots__ = ("_built", "_kind", "_line", "_token")

    _line: Line
    _token: wire.Ready

    def __init__(self, line: Line, token: str) -> None:
        object.__setattr__(self, "_line", line)
        object.__setattr__(self, "_token", wire.Ready("h" + token[1:]))
        object.__setattr__(self, "_built", False)
        object.__setattr__(self, "_kind", None)

    def __call__(self, *arguments: object, **named: object) -> object:
        if named:
            return self._line.ask("call", self._token, arguments, named)
        return self._line.ask("call", self._token, arguments)

    def __getattr__(self, name: str) -> object:
        if (
            name.startswith("__")
            and name.endswith("__")
            and name not in ("__name__", "__doc__", "__dict__")
        ):
            raise AttributeError(
                name
            )  # `copy`, `pickle`, `inspect` and numpy look for hooks of their own
        return self._line.ask("attribute", self._token, name)

    def __setattr__(self, name: str, value: object) -> None:
        self._line.ask("assign", self._token, name, value)

    def __getitem__(self, key: object) -> object:
        return self._line.ask("method", self._token, "__getitem__", (key,))

    def __setitem__(self, key: object, value: object) -> None:
        self._line.ask("method", self._token, "__setitem__", (key, value))

    def __delitem__(self, key: object) -> None:
        self._line.ask("method", self._token, "__delitem__", (key,))

    def __len__(self) -> int:
        length = self._line.ask("method", self._token, "__len__", ())
        if type(length) is not int:
            raise TypeError("a length is a number")
        return length

    def __iter__(self) -> Iterator[object]:
        iterator = self._line.ask("iterate", self._token)
        if not isinstance(iterator, Iterator):
            raise TypeError("not an iterator")
        return iterator

    def __contains__(self, item: object) -> bool:
        return any(item is other or item == other for other in self)

    def __enter__(self) -> object:
        return self._line.ask("method", self._token, "__enter__", ())

    def __exit__(self, *_: object) -> None:
        self._line.ask("method", self._token, "__exit__", (None, None, None))

    def __bool__(self) -> bool:
        return True

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def __repr__(self) -> str:
        return "<object of the solution>"

    def __instancecheck__(self, instance: object) -> bool:
        return isinstance(instance, Handle) and instance._kind is self


def token_of(handle: Handle) -> wire.Ready:
    """What names the object on the line. (Not a method: every attribute of a handle is the
    solution's.)
    """
    token: wire.Ready = object.__getattribute__(handle, "_token")
    return token


class ClassHandle(Handle):
    """A class of the solution: what it makes was made by the tests."""

    __slots__ = ()

    def __call__(self, *arguments: object, **named: object) -> object:
        made = super().__call__(*arguments, **named)
        if isinstance(made, Handle):
            object.__setattr__(made, "_built", True)
            object.__setattr__(made, "_kind", self)
        return made


class RemoteIterator(Iterator[object]):
    """A generator or iterator of the solution, drawn lazily: one item first, then more at a
    time.
    """

    def __init__(self, line: Line, token: str) -> None:
        self._line, self.number = line, int(token[1:])
        self._items: list[object] = []
        self._more, self._count, self._drawn = True, 1, 0

    def __iter__(self) -> Iterator[object]:
        return self

    def __next__(self) -> object:
        if not self._items and self._more:
            self._draw()
        if not self._items:
            raise StopIteration
        return self._items.pop()

    def _draw(self) -> None:
        answer = self._line.ask("advance", self.number, self._count)
        if type(answer) is not tuple or len(answer) != 2 or type(answer[0]) is not list:
            raise wire.Malformed("items of an iterator")
        items: list[object] = answer[0]
        self._more = answer[1] is True and bool(items)
        self._drawn += len(items)
        self._count = min(64, self._count * 2)
        if self._drawn > MAX_ITEMS:
            raise RuntimeError(f"the solution's iterator has more than {MAX_ITEMS} items")
        self._items = items[::-1]


def _forward(name: str) -> Callable[..., object]:
    def operate(self: Handle, *others: object) -> object:
        built = object.__getattribute__(self, "_built")
        if not (built or all(isinstance(other, Handle) for other in others)):
            raise TypeError(f"{name} of an object of the solution is not forwarded")
        line: Line = object.__getattribute__(self, "_line")
        return line.ask("method", token_of(self), name, others)

    return operate


for _operation in (
    "add",
    "sub",
    "mul",
    "truediv",
    "floordiv",
    "mod",
    "pow",
    "matmul",
    "and",
    "or",
    "xor",
    "lshift",
    "rshift",
):
    for _name in (f"__{_operation}__", f"__r{_operation}__", f"__i{_operation}__"):
        setattr(Handle, _name, _forward(_name))
for _name in ("__neg__", "__pos__", "__abs__", "__invert__", "__next__"):
    setattr(Handle, _name, _forward(_name))


_CONTROL = (StopIteration, StopAsyncIteration, GeneratorExit)
"""Raised by a call, these would silently end a `map` or a loop of the tests; from a plain call
they are errors.
"""


def here(answer: peer.Answer, known: dict[str, type[BaseException]]) -> BaseException:
    """What to raise for it: a built-in exception, or the tests' stand-in for one of the
    solution's own.
    """
    kind = known.get(answer.name) or getattr(builtins, answer.base, RuntimeError)
    if not (isinstance(kind, type) and issubclass(kind, BaseException)) or issubclass(
        kind, _CONTROL
    ):
        kind = RuntimeError
    try:
        return kind(*answer.arguments)
    except TypeError:
        return RuntimeError(answer.name, *answer.arguments)
