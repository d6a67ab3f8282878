"""The solution's side of a grading: loads the solution, then answers calls.

It receives function names and arguments, and nothing else: no test, no expected value, no other
descriptor.
"""

from __future__ import annotations

import gc
import sys
from _thread import RLock
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from types import GeneratorType, MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any

from ..run import one_core, program
from ..run.request import Request
from . import derived, failures, peer, value_wire, values
from .operations import ABILITIES, AWAITED, OPERATIONS, abilities_of

if TYPE_CHECKING:
    import asyncio

PEER = 3
"""The descriptor of the line to the tests."""

_FRAMES_OF_A_CALL = 6
"""Frames between `run` and a function of the solution, more than while the solution loads."""
_ITERABLE_COROUTINE = 0x100
_MAX_ITEMS = 64
"""The most items of an iterator in a single answer."""


def run(request: Request) -> int:
    """Load `blobs[0]` and answer requests until the tests' side closes."""
    server = SolutionServer(PEER)
    failures.own_module = "solution"
    server.line.tell_core(one_core.stay())
    server.load(request.blobs[0])
    values.own_names = server.names
    with suppress(BaseException):  # the tests are over, or the solution has broken its own side
        server.line.serve_forever()
    return 0


class ObjectOfTheTests:
    """Stands for an object of the tests, which can be kept and handed back and is told apart."""


class SolutionServer:
    """The loaded solution, and the objects that the tests hold."""

    def __init__(self, descriptor: int) -> None:
        self._objects: list[object] = []
        self._lent: dict[int, object] = {}
        """What stands for the tests' own functions and objects, by number."""
        self._tokens: dict[int, str] = {}
        self.line = peer.Peer(descriptor, self._serve, self._name, self._find)
        self._asking = RLock()
        self._failure: BaseException | None = None
        self._late: dict[int, BaseException] = {}
        """Iterator, by `id` -> the exception that ended it behind items which were drawn ahead."""
        self.names: dict[str, object] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    def load(self, source: bytes) -> None:
        """Run the solution's source; an exception is kept and raised when names are asked for."""
        main = program.fresh_main()
        # Code under `if __name__ == "__main__"` must not run in a grading.
        main.__name__ = "solution"
        sys.modules["solution"] = main
        self.names = main.__dict__
        gc.enable()
        program.give_full_depth(_FRAMES_OF_A_CALL)
        try:
            exec(compile(source, program.NAME, "exec", dont_inherit=True), self.names)
        except BaseException as error:
            self._failure = error

    def _serve(self, verb: str, arguments: list[object]) -> object:
        if verb in AWAITED:
            return self._awaited(AWAITED[verb](*arguments))
        if verb in OPERATIONS:
            return OPERATIONS[verb](*arguments)
        if verb in _VERBS:
            return _VERBS[verb](self, *arguments)
        from . import surroundings

        return surroundings.VERBS[verb](*arguments)

    def _name(self, item: object) -> str:
        token = self._tokens.get(id(item))
        if token is None:
            letter, number = self._kind_of(item), len(self._objects)
            self._objects.append(item)
            token = f"{letter}{number}"
            if letter not in "gw":
                token += f".{abilities_of(item):x}"
            self._tokens[id(item)] = token
        return token

    def _kind_of(self, item: object) -> str:
        """Return the letter by which the tests' side knows the uses of an object
        (`value_wire.HANDLES`).
        """
        kind = type(item)
        if kind is GeneratorType:
            # One of `types.coroutine` is awaited.
            return "w" if item.gi_code.co_flags & _ITERABLE_COROUTINE else "g"  # type: ignore[attr-defined]
        # Coroutines, and what an asynchronous generator's `asend` and `aclose` return.
        is_builtin = kind.__module__ == "builtins" and hasattr(kind, "__await__")
        if is_builtin:
            return "w"
        if isinstance(item, type):
            return "f"
        if isinstance(item, Iterator):
            return "j"
        return "y" if isinstance(item, AsyncIterator) else "h"

    def _find(self, token: str) -> object:
        number = int(token[1:])
        if token[0] == "h":
            return self._objects[number]
        if token[0] == "j":
            return self._draw(number)
        if number not in self._lent:
            item = ObjectOfTheTests() if token[0] == "o" else self._callback(number)
            self._lent[number] = item
            # Where it is handed back, it is the tests' own again.
            self._tokens[id(item)] = f"t{number}"
        return self._lent[number]

    def _callback(self, number: int) -> object:
        """Return a function that calls a function of the tests, and looks like that function.

        A function of a library is that of this process.
        """

        def call(*arguments: object, **keywords: object) -> object:
            return self._ask("callback", number, arguments, keywords)

        details: Any = self._ask("about", number)
        if type(details) is str:
            return values.at(details)
        name, text, source, defaults = details
        callback: Any = eval(source, {"ludus_call": call, "ludus_defaults": defaults})
        callback.__name__ = callback.__qualname__ = str(name)
        callback.__doc__ = text
        return callback

    def _draw(self, number: int) -> Iterator[object]:
        """Yield the items of an iterator that the tests passed."""
        while True:
            try:
                answer = self._ask("next", number)
            except StopIteration:
                return
            yield answer[0]  # type: ignore[index]

    def _ask(self, verb: str, *arguments: object) -> object:
        """Send a request to the tests' side; re-raise what that side raised."""
        with self._asking:  # A thread of the solution may call the tests too.
            raised, answer = self.line.request(verb, *arguments)
        if raised:
            raise answer
        return answer

    def resolve(self, names: tuple[str, ...]) -> object:
        """Return what each name is: (kind, detail). Nothing of it can change, and need be kept."""
        if self._failure is not None:
            raise self._failure
        kinds = {name: self._kind(self.names[name]) for name in names if name in self.names}
        for name in set(names) - kinds.keys():
            with suppress(AttributeError, KeyError):
                kinds[name] = self._kind(self.names["__getattr__"](name))  # type: ignore[operator]
        for name in names:
            if name not in kinds and (method := self._method_of_solution(name)):
                kinds[name] = "function", self._name(method)
        return MappingProxyType(kinds)

    def _method_of_solution(self, name: str) -> Callable[..., object] | None:
        """Return a method of `class Solution`, where a function of that name is asked for.

        Each call has a new object of the class.
        """
        kind: Any = self.names.get("Solution")
        if name.startswith("__") or not isinstance(kind, type):
            return None
        if not callable(getattr(kind, name, None)) or name in dir(object):
            return None

        def method(*arguments: object, **keywords: object) -> object:
            return getattr(kind(), name)(*arguments, **keywords)

        return method

    def _kind(self, item: object) -> tuple[object, ...]:
        if isinstance(item, ModuleType):
            return "module", item.__name__
        if isinstance(item, type) and issubclass(item, BaseException):
            return "exception", *failures.bases_of(item), self._name(item)
        if callable(item):
            return "class" if isinstance(item, type) else "function", self._name(item)
        return "value", item

    def call(self, target: Any, arguments: Any, keywords: Any = None) -> object:
        """Call an object that the tests hold."""
        return target(*arguments, **keywords or {})

    def make(self, target: type, arguments: Any, keywords: Any = None) -> object:
        """Call a class that the tests name: the new object stays here, even if it derives from a
        plain type. Named tuples without operators of their own and members of enumerations cross as
        data.
        """
        result = target(*arguments, **keywords or {})
        own = isinstance(result, target) and target.__module__ == derived.MODULE
        is_tuple = hasattr(type(result), "_fields") and derived.defined_anew(target).isdisjoint(
            ABILITIES
        )
        if not own or is_tuple or values.is_member(result):
            return result
        token = self._name(result)
        # An iterator that the tests have made is an object first, and iterated as one.
        return value_wire.Ready("h" + token[1:] if token[0] == "j" else token)

    # --- iterators, coroutines --------------------------------------------------

    def advance(self, iterator: Iterator[object], count: int) -> object:
        """Return up to `count` items of an iterator: (items, whether more may come).

        Where the iterator raises behind items that were drawn ahead, the tests get these items
        first, and the exception when they ask for more.
        """
        if (late := self._late.pop(id(iterator), None)) is not None:
            raise late
        items: list[object] = []
        try:
            for item in iterator:
                items.append(item)
                if len(items) >= min(count, _MAX_ITEMS):
                    return items, True
        except BaseException as error:
            if not items:
                raise
            self._late[id(iterator)] = error
            return items, True
        return items, False

    def _awaited(self, awaitable: Any) -> object:
        import asyncio

        if self._loop is None:
            self._loop = asyncio.new_event_loop()

        async def complete() -> object:
            return await awaitable

        return self._loop.run_until_complete(complete())


# The tests' side names a verb of these tables, never an attribute of an object.
_VERBS: dict[str, Callable[..., object]] = {
    "as_plain": lambda _, *arguments: derived.as_plain(*arguments),
    **{name: getattr(SolutionServer, name) for name in ("resolve", "call", "make", "advance")},
    "method": SolutionServer.call,
    "what": lambda self, target: self._kind(target),
    "class": lambda self, target: value_wire.Ready(self._name(type(target))),
}
