"""The solution's side of a grading: load it, then answer calls.

It is given function names and arguments, and nothing else: no test, no expected value, no other
descriptor.
"""

from __future__ import annotations

import builtins
import gc
import sys
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType, ModuleType

from . import one_core, peer, program
from .request import Request

PEER = 3
"""The descriptor of the line to the tests."""

_MOST_ITEMS = 64
"""How many items of an iterator one answer carries at most."""


def run(request: Request) -> int:
    """Load `blobs[0]` and answer until the tests' side closes."""
    server = Server(PEER)
    server.line.tell_core(one_core.stay())
    server.load(request.blobs[0])
    try:
        server.line.serve_forever()
    except BaseException:
        return 0  # the tests are over, or the solution has torn down its own side
    return 0


class Server:
    """The loaded solution and the objects of its that the tests hold."""

    def __init__(self, descriptor: int) -> None:
        self._objects: list[object] = []
        self._numbers: dict[int, str] = {}
        self.line = peer.Peer(descriptor, self._serve, self._name, self._find, returns_changes=True)
        self._failure: BaseException | None = None
        self._names: dict[str, object] = {}

    def load(self, source: bytes) -> None:
        """Run the solution; what it raises is raised again when it is asked for its names."""
        main = program.fresh_main()
        main.__name__ = "solution"  # `if __name__ == "__main__"` is not for graders
        sys.modules["solution"] = main
        self._names = main.__dict__
        gc.enable()
        try:
            exec(compile(source, program.NAME, "exec", dont_inherit=True), self._names)
        except BaseException as error:
            self._failure = error

    def _name(self, item: object) -> str:
        kind = "j" if isinstance(item, Iterator) else "f" if isinstance(item, type) else "h"
        known = self._numbers.get(id(item))
        if known is None:
            known = self._numbers[id(item)] = f"{kind}{len(self._objects)}"
            self._objects.append(item)
        return known

    def _find(self, token: str) -> object:
        number = int(token[1:])
        if token[0] == "h":
            return self._objects[number]
        if token[0] == "j":
            return self._draw(number)

        def callback(*arguments: object, **named: object) -> object:
            return self._ask("callback", number, arguments, named)

        return callback

    def _draw(self, number: int) -> Iterator[object]:
        """The items of an iterator the tests passed."""
        while True:
            try:
                answer = self._ask("next", number)
            except StopIteration:
                return
            yield answer[0]  # type: ignore[index]

    def _ask(self, verb: str, *arguments: object) -> object:
        """Call what the tests gave us to call; raises here what it raised there."""
        try:
            return self.line.request(verb, *arguments)
        except peer.Answer as answer:
            kind = getattr(builtins, answer.base, RuntimeError)
            raise kind(*answer.arguments) from None

    def _serve(self, verb: str, arguments: list[object]) -> object:
        return _VERBS[verb](self, *arguments)

    def resolve(self, names: list[str]) -> object:
        """What each name is: (kind, detail)."""
        if self._failure is not None:
            raise self._failure
        return {name: self._kind(self._names[name]) for name in names if name in self._names}

    def _kind(self, item: object) -> tuple[object, ...]:
        if isinstance(item, ModuleType):
            return "module", item.__name__
        if isinstance(item, type) and issubclass(item, BaseException):
            base = next(kind.__name__ for kind in item.__mro__ if kind.__module__ == "builtins")
            return "exception", item.__name__, base, self._name(item)
        if callable(item):
            return "class" if isinstance(item, type) else "function", self._name(item)
        return "value", item

    def call(
        self,
        target: object,
        arguments: tuple[object, ...],
        named: Mapping[str, object] = MappingProxyType({}),
    ) -> object:
        """Call an object the tests hold."""
        program.give_full_depth()
        return target(*arguments, **named)  # type: ignore[operator]

    def method(self, target: object, name: str, arguments: tuple[object, ...]) -> object:
        """Call a special method; it is looked up on the type, as Python does."""
        return getattr(type(target), name)(target, *arguments)

    def attribute(self, target: object, name: str) -> object:
        """The value of an attribute; a method is named, not sent."""
        return getattr(target, name)

    def assign(self, target: object, name: str, value: object) -> None:
        """Set an attribute."""
        setattr(target, name, value)

    def iterate(self, target: object) -> object:
        """An iterator over the object."""
        return iter(target)  # type: ignore[call-overload]

    def advance(self, number: int, count: int) -> object:
        """Up to `count` items of an iterator: (items, whether there may be more)."""
        iterator: Iterator[object] = self._objects[number]  # type: ignore[assignment]
        items: list[object] = []
        for item in iterator:
            items.append(item)
            if len(items) >= min(count, _MOST_ITEMS):
                return items, True
        return items, False


_VERBS: dict[str, Callable[..., object]] = {
    "resolve": Server.resolve,
    "call": Server.call,
    "method": Server.method,
    "attribute": Server.attribute,
    "assign": Server.assign,
    "iterate": Server.iterate,
    "advance": Server.advance,
}
