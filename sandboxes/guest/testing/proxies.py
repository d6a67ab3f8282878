"""Proxies of the solution's objects: functions to call and objects to ask, never objects to trust.

Any object may be called, handed back and told apart from others. Attributes are those that the task
names (`interface`). An object of a class or maker under test (*known*) may also be iterated,
indexed, measured, turned into text, ordered among its like by `sorted`, and calculated with other
objects of the solution: the result is plain data again, which the tests compare. Everything else,
and all of these on any other object, would let the solution decide the test, so it fails the test.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import suppress
from functools import lru_cache
from opcode import opmap
from typing import Any

from . import derived, value_wire
from .operations import ABILITIES, BINARY, CHANGES, LOOKS, OPERATIONS, ORDERINGS, UNARY
from .plain_attributes import CHANGING_METHODS, PREDICATES, READING_METHODS
from .values import OpaqueClass, all_plain

_REFLECTED = ("__name__", "__qualname__", "__doc__", "__module__", "__dict__", "__annotations__",
              "__defaults__", "__kwdefaults__", "__wrapped__")  # fmt: skip


class HandleState:
    """What this side knows of an object that stays with the solution.

    Args:
        line: the connection to the process of the object (`solution_line.TestsLine`).
        token: the handle token.
    """

    known = False
    """Whether the object is or was made by an object or class under test."""
    called = ""
    """The class by whose name the tests made the object."""
    meant = False
    """Whether the tests have just made the object, by calling a class or maker by name.

    The same object has another proxy where it comes from a method.
    """
    of_class = False
    """Whether, besides, the name is that of a class.

    Only such a proxy meets plain data of the tests in an operation: `Vector(1, 2) * 3`, and not
    `account.balance() - 3`, where an object came in the place of a value. Nor does what a function
    makes: one attribute, such as `__len__` or `name`, does not show that no value was meant.
    """
    giver = ""
    """The function that gave the object, or the holder of the object."""
    name = ""
    """The name under which the tests know a function or class."""
    kind = ""
    """`function`, `class`, `misplaced` for a class where the tests ask for a function, `iterator`
    for an asynchronous one; empty for any other object."""

    def __init__(self, line: Any, token: str) -> None:
        self.line = line
        self.token = value_wire.named(token)
        self.abilities = token.partition(".")[2]
        """The object's special methods, as a hexadecimal number (`operations.abilities_of`)."""
        self.shown: dict[object, Any] = {}
        """What the object has answered where it stands in the place of a value, by position and by
        operation."""
        self.ways = set[str]()
        """The attributes, methods, operators (`__add__`) and names (`f()`) that gave the object."""
        self.since = 0
        """When the object began to answer so (`TestsLine.changes`)."""
        self.is_value = False
        """Whether a function gave the object by itself, and the tests use nothing of it that only
        an object has."""


def state_of(handle: Handle) -> HandleState:
    """Return what is known of an object. This is not an attribute or method of the proxy, since
    those are the solution's.
    """
    state: HandleState = object.__getattribute__(handle, "ludus_state_")
    return state


def ask(handle: Handle, verb: str, *arguments: object, source: str | bool = False) -> Any:
    """Send a request about an object to the solution."""
    state = state_of(handle)
    return state.line.ask(verb, state.token, *arguments, source=source)


def refuse(handle: Handle, use: str) -> Any:
    """Return the error of a failed test: an object crossed where a value was meant."""
    state = state_of(handle)
    return state.line.refuse(state.token, use)


class Handle:
    """A proxy of an object that stays with the solution.

    Its class has the methods below and, of `Abilities`, those that the object's class has:
    `callable(x)`, `hasattr(x, "__len__")` and `isinstance(x, Iterable)` are answered by Python.
    """

    __slots__ = ("ludus_state_",)

    def __new__(cls, _: object, token: str) -> Handle:
        handle: Handle = object.__new__(_with_abilities(token.partition(".")[2]))
        return handle

    def __init__(self, line: Any, token: str) -> None:
        object.__setattr__(self, "ludus_state_", HandleState(line, token))

    def __getattr__(self, name: str) -> object:
        if name in _REFLECTED:
            return ask(self, "reflect", name)
        if name.startswith("__") and name.endswith("__"):
            # `copy`, `pickle` and numpy look for hooks of their own, which are not the tests'.
            raise AttributeError(name)
        state = state_of(self)
        interface = state.line.interface
        # A predicate is the outcome of a test, so that only what the tests have made may answer.
        is_known = state.known and (state.meant or name not in PREDICATES)
        is_named = name in interface.attributes or (is_known and name in interface.data_methods)
        if name in READING_METHODS:
            plain = as_plain(self, name)
            # A copy of its items knows nothing of a collection's own ways to look something up, and
            # the plain value nothing of a method that its class defines anew.
            is_own = derived.handle_of(plain) is None or name in vars(type(plain))
            if hasattr(type(plain), name) and not (is_own and is_named):
                return getattr(plain, name)
        if not (is_named or name in interface.said):
            raise AttributeError(name)  # A library looks for something.
        value = ask(self, "attribute", name, source=state.known)
        if name in interface.bounded:  # It is one number, and not two that keep to a bound each.
            value = _answers(self).setdefault((name, state.line.effects), value)
        if not is_named and callable(value):
            return _method_of_values(self, name, value)
        if state.kind == "class" and name[:1].isupper() and isinstance(value, Handle):
            what = ask(value, "what")
            if type(what) is tuple and what[0] == "exception" and len(what) == 4:
                return state.line.error_class(name, what[1:])
        return value

    def __setattr__(self, name: str, value: object) -> None:
        ask(self, "assign", name, value)

    def __delattr__(self, name: str) -> None:
        ask(self, "unassign", name)

    def __bool__(self) -> bool:
        if is_function(self):
            return True
        # Without a truth of its own, an object in the place of a value is true, if it holds items.
        if state_of(self).is_value and not has_own(self, "__bool__"):
            return not hasattr(type(self), "__len__") or len(self) > 0  # type: ignore[arg-type]
        return bool(still(self, "truth", _decided(self, "truth")))

    def __eq__(self, other: object) -> bool:
        if is_same(self, other) or other is None:
            return other is not None
        handles = [side for side in (self, other) if isinstance(side, Handle)]
        own = any(has_own(handle, "__eq__") for handle in handles)
        if not own and (len(handles) == 2 or state_of(self).known):
            return False
        plain = as_plain(self, "__eq__")
        if plain is not None and isinstance(other, Handle):
            other = as_plain(other, "__eq__")
        if plain is not None and other is not None:
            return bool(plain == other)
        raise refuse(self, "==")

    def __hash__(self) -> int:
        state = state_of(self)
        if not state.kind:
            if (plain := as_plain(self, "__hash__")) is not None:
                return hash(plain)
            if state.is_value or has_own(self, "__hash__") or has_own(self, "__eq__"):
                raise refuse(self, "hash()")
        return hash(state.token)

    def __repr__(self) -> str:
        return _text(self, "repr")

    def __str__(self) -> str:
        return _text(self, "str")

    def __format__(self, form: str) -> str:
        return _text(self, "format", form)

    def __copy__(self) -> object:
        return forward("copy", self)

    def __deepcopy__(self, _: object) -> object:
        return self if is_function(self) else forward("deepcopy", self)

    def __instancecheck__(self, instance: object) -> bool:
        instance = held(instance)
        # A named tuple has crossed as data, of which the solution makes one of its own again.
        is_own = isinstance(instance, Handle) or hasattr(type(instance), "_fields")
        return is_own and state_of(self).line.ask("isinstance", instance, self) is True

    def __subclasscheck__(self, kind: object) -> bool:
        return isinstance(kind, Handle) and ask(kind, "issubclass", self) is True


def is_same(left: object, right: object) -> bool:
    """Return whether both are the same object, or proxies of the same object."""
    if isinstance(left, Handle) and isinstance(right, Handle):
        return state_of(left).token == state_of(right).token
    # A class that the solution sent is the class that it stands for.
    return left == right if OpaqueClass in (type(left), type(right)) else left is right


def is_function(handle: Handle) -> bool:
    """Return whether an object is a function or class that the tests name, or an asynchronous
    iterator, and so never a value.
    """
    return bool(state_of(handle).kind)


class Abilities:
    """The special methods that only some proxies have (`operations.ABILITIES`)."""

    def __call__(self: Any, *arguments: object, **keywords: object) -> object:
        state, extra = state_of(self), (keywords,) if keywords else ()
        if not is_function(self):
            return ask(self, "method", arguments, *extra, source=state.known)
        verb = "make" if state.known and state.kind == "class" else "call"
        before = len(state.line.handles)
        result = ask(self, verb, arguments, *extra, source=state.name)
        result = state.line.meant(result, state.name)
        # An exception and a named tuple are true and show what they were given. What else a class
        # gives in the place of a function is calculated, as a function's value is.
        is_record = isinstance(result, BaseException) or hasattr(type(result), "_fields")
        if state.kind == "misplaced" and is_record:
            raise refuse(self, "a class where a function is asked for")
        if state.kind == "misplaced" and callable(result):
            result = held(result)  # It stands for a function, and not for the data it derives from.
        if not isinstance(result, Handle):
            return result
        if state.kind == "class":
            state_of(result).called = state.name
        interface = state.line.interface
        shown = interface.acted | interface.texts | interface.ranking
        if len(state.line.handles) > before and state.name not in shown:
            state_of(result).is_value = not state_of(result).known
        return result

    def __iter__(self: Any) -> Iterator[object]:
        state = state_of(self)
        if (items := _collection(self)) is not None:
            return _still_items(self, iter(items))
        iterator = ask(self, "iter", source=state.known)
        if not isinstance(iterator, Iterator):
            raise refuse(self, "an iterator")
        if getattr(iterator, "ludus_token", "") == state.token:
            return self  # type: ignore[no-any-return]
        return iterator if state.meant else _still_items(self, iterator)

    def __contains__(self: Any, item: object) -> bool:
        state = state_of(self)
        if (state.meant and state.of_class) or state.called in state.line.interface.kept:
            return _decided(self, "contains", item)
        if not hasattr(type(self), "__iter__"):
            raise refuse(self, "in")
        is_member = any(item is other or item == other for other in self)
        if state.called and is_member != _decided(self, "contains", item):
            raise refuse(self, "in")
        return is_member

    def __enter__(self: Any) -> object:
        return ask(self, "enter", source=state_of(self).known)

    def __exit__(self: Any, *_: object) -> None:
        ask(self, "exit")

    async def __aenter__(self: Any) -> object:
        return ask(self, "aenter", source=state_of(self).known)

    async def __aexit__(self: Any, *_: object) -> None:
        ask(self, "aexit")

    async def __anext__(self: Any) -> object:
        return ask(self, "anext", source=state_of(self).known)

    def __aiter__(self: Any) -> Any:
        return ask(self, "aiter", source=state_of(self).known)

    def __await__(self: Any) -> Generator[object, object, object]:
        yield from ()
        return ask(self, "await", source=state_of(self).known)

    def __radd__(self: Any, other: object) -> object:
        # `sum` begins with 0, which tells the solution nothing of the tests' values.
        if type(other) is int and other == 0 and state_of(self).known:
            return forward("radd", self, 0)
        return _pair("add", other, self)

    __hash__ = Handle.__hash__

    def __get__(self: Any, *_: object) -> object:
        # The objects of a class of the tests do not cross.
        raise refuse(self, "a descriptor")

    __set__ = __delete__ = __get__


def _answers(handle: Handle) -> dict[object, Any]:
    """Return what an object has answered since anything may have changed it."""
    state = state_of(handle)
    if state.since != (since := state.line.changes(state.giver)):
        state.since, state.shown = since, {}
    return state.shown


def still(handle: Handle, use: object, answer: Any) -> Any:
    """Return what an object answers in the place of a value. A value holds still: the first answer
    to a use counts until something may have changed the object, or the solution gives it again.
    """
    # What the tests have made is no value, but something that they look at.
    return answer if state_of(handle).meant else _answers(handle).setdefault(use, answer)


def _still_items(handle: Handle, iterator: Iterator[object]) -> Iterator[object]:
    most, number = ("most",), 0
    for number, item in enumerate(iterator, 1):
        first = still(handle, number - 1, item)
        shown = state_of(handle).shown
        shown[most] = max(number, shown.get(most, 0))
        yield first
    if number != still(handle, ("len",), number) or number < state_of(handle).shown.get(most, 0):
        raise refuse(handle, "an end that changes")


def _item(handle: Any, key: Any) -> object:
    """Return the item of an object at a place, which its iterator shows there too."""
    state, frame = state_of(handle), sys._getframe(1)
    is_value = not (state.meant or state.called in state.line.interface.kept)
    items = _collection(handle)
    # `in` asks an object without `__contains__` for each place, where it may answer as it likes.
    looks_up = is_value and frame.f_code.co_code[frame.f_lasti] == _MEMBERSHIP
    if looks_up and not isinstance(items, list):
        raise refuse(handle, "in")
    with suppress(IndexError, KeyError, TypeError):
        if items is not None and type(key) is not slice:
            return items[key]
    answer: Any
    try:
        answer = IndexError(key) if looks_up else forward("getitem", handle, key)
    except IndexError as error:
        answer = error
    if is_value and all_plain([key]) and (items is None or type(key) not in (int, slice)):
        answer = still(handle, key if type(key) is int else ("item", repr(key)), answer)
    if isinstance(answer, IndexError):
        raise answer
    if items is not None and type(key) in (int, slice):
        with suppress(IndexError):
            given, shown = list(answer) if type(key) is slice else answer, list(items)[key]
            if all_plain([given, shown]) and given != shown:
                raise refuse(handle, "a part that is another")
    return answer


def _collection(handle: Handle) -> Any:
    """Return what an object in the place of a collection holds, a list or dict that is taken once
    for all uses; None for other objects.
    """
    state, kind = state_of(handle), type(handle)
    finds = hasattr(kind, "__getitem__") and (hasattr(kind, "__iter__") or hasattr(kind, "__len__"))
    if not finds or state.meant or state.called in state.line.interface.kept:
        return None
    plain = as_plain(handle, derived.ALL)
    return plain if isinstance(plain, list) or (plain and isinstance(plain, dict)) else None


def _method_of_values(handle: Handle, name: str, method: Callable[..., object]) -> object:
    """Return a method of an object of which the tests do not show that it is no value.

    What it is told could be what the tests expect, and what a predicate answers is their outcome.
    What changes an object, or looks up a key, tells no more than the object has to know.
    """
    line = state_of(handle).line
    interface = line.interface
    tells = name in CHANGING_METHODS or name == "get" or name in interface.stated

    def call(*arguments: object, **keywords: object) -> object:
        if name in PREDICATES or ((arguments or keywords) and not tells):
            raise refuse(handle, f".{name}")
        asks = name == "pop" or (name in derived.OF_DICTS and (arguments or name != "get"))
        held = as_plain(handle, derived.ALL) if asks else None
        acts = line.acts
        answer: Any = method(*arguments, **keywords)
        if name == "get":
            line.acts = acts  # It only looks, and so has to say the same again.
            answer = still(handle, (name, repr(arguments)), answer)
        agrees = True
        if isinstance(held, list) and name == "pop":
            agrees = answer in held
        elif isinstance(held, dict) and name == "get":
            agrees = not held or answer == held.get(*arguments)
        elif isinstance(held, dict) and name != "pop" and (held or name != "keys"):
            agrees = sorted(map(repr, answer)) == sorted(map(repr, getattr(held, name)()))
        if not agrees:
            raise refuse(handle, f".{name}")
        return answer

    return call


def text_of(handle: Handle, verb: str, *form: str) -> str:
    """Return the text that the object's class gives the object.

    A text that is another at each look could be more than one value of the tests and less than
    another.
    """
    answer = still(handle, (verb, *form), ask(handle, verb, *form))
    if type(answer) is not str:
        raise refuse(handle, verb)
    return answer


def _text(handle: Handle, verb: str, *form: str) -> str:
    is_value = state_of(handle).is_value
    return "<object of the solution>" if is_value else text_of(handle, verb, *form)


def _reflect(name: str) -> property:
    return property(lambda self: ask(self, "reflect", name))


# Without these, the classes of the proxies would answer with attributes of their own.
_REFLECTING = {name: _reflect(name) for name in ("__doc__", "__module__", "__annotations__")}


@lru_cache(maxsize=1024)
def _with_abilities(abilities: str) -> Any:
    """Return the class of proxies that has some special methods."""
    number = int(abilities or "0", 16)
    names = {name for place, name in enumerate(ABILITIES) if number >> place & 1}
    methods = {name: vars(Abilities).get(name) for name in names}
    methods.setdefault("__hash__", None)
    return type("Handle", (Handle,), {"__slots__": (), **methods, **_REFLECTING})


def _signature(self: Handle) -> object:
    import inspect

    parts = ask(self, "signature")
    return inspect.Signature([inspect.Parameter(name, kind, **more) for name, kind, more in parts])


setattr(Handle, "__signature__", property(_signature))  # noqa: B010 - a property of handles alone


# --- operators ------------------------------------------------------------------


def forward(name: str, *operands: object) -> object:
    """Let the solution apply an operation to an object of the solution."""
    first = next(item for item in operands if isinstance(item, Handle))
    state = state_of(first)
    if state.is_value and name not in ("getitem", *CHANGES):
        return operate_on_plain(name, first, operands)
    return state.line.ask(name, *operands, source=state.known)


def operate_on_plain(name: str, handle: Handle, operands: tuple[object, ...]) -> object:
    """Apply an operation here, to what the operands' classes leave to plain data."""
    plain = [
        item if not isinstance(item, Handle) else as_plain(item, f"__{name}__") for item in operands
    ]
    if any(item is None for item in plain):
        raise refuse(handle, name)
    return OPERATIONS[name](*plain)


def _decided(handle: Handle, name: str, *operands: object) -> bool:
    """Return what an object answers to a question of yes or no."""
    result = forward(name, handle, *operands)
    if type(result) is not bool:
        raise refuse(handle, name)
    return result


def _pair(name: str, left: object, right: object) -> object:
    """Apply an operation to objects of the solution, or to one and plain data if it is meant or the
    tests show that the operator makes objects.
    """
    handles = [side for side in (left, right) if isinstance(side, Handle)]
    known, first = all(state_of(handle).known for handle in handles), state_of(handles[0])
    if known and (len(handles) == 2 or _meets_plain(first, name)):
        return forward(name, left, right)
    return operate_on_plain(name, handles[0], (left, right))


def _meets_plain(state: HandleState, name: str) -> bool:
    """Return whether an operator of an object may meet plain data of the tests.

    A library that calculates, such as `unittest` or numpy, does so to compare.
    """
    asking = str(sys._getframe(3).f_globals.get("__name__")).partition(".")[0]
    return scales(state, name) or (state.of_class and asking not in _COMPARING)


_COMPARING = frozenset((*sys.stdlib_module_names, "numpy", "pytest", "_pytest"))


def scales(state: HandleState, name: str) -> bool:
    """Return whether the tests show that an operator makes objects of what comes in this way."""
    shown = state.line.interface.scaling
    return bool(state.ways) and all((name, way) in shown for way in state.ways)


_COMPARISON, _MEMBERSHIP = opmap["COMPARE_OP"], opmap["CONTAINS_OP"]


def as_plain(handle: Handle, operation: str) -> object | None:
    """Return the genuine data of this side that answers in the object's place; None without any."""
    state = state_of(handle)
    if is_function(handle):
        return None
    shown, use = _answers(handle), ("plain", operation)
    # Taken once, whatever the use, and kept until something may change it. An object that answers
    # each comparison anew could be less than one number and more than another.
    if use not in shown:
        plain = ask(handle, "as_plain", operation, bool(state.called))
        taken = plain is not None and not isinstance(plain, Handle)
        shown[use] = shown.setdefault(("plain",), plain) if taken else None
    answer: object = shown[use]
    return answer


def held(item: object) -> object:
    """Return the handle of the object that a value stands for, or the item itself."""
    handle = derived.handle_of(item)
    return item if handle is None else handle


def has_own(handle: Handle, name: str) -> bool:
    """Return whether the class of an object defines a special method itself."""
    return ask(handle, "owns", name) is True


def _unary(name: str) -> Callable[..., object]:
    def ask_for(self: Handle, *operands: object) -> object:
        if name not in LOOKS:
            return forward(name, self, *operands)
        if name == "len" and (items := _collection(self)) is not None:
            return len(items)
        # What stands for a value is as long as what it shows, whatever it says of that.
        if name == "len" and state_of(self).is_value and hasattr(type(self), "__iter__"):
            return sum(1 for _ in Abilities.__iter__(self))
        return still(self, (name, *operands), forward(name, self, *operands))

    return ask_for


def _in_place(name: str) -> Callable[[Handle, object], object]:
    def apply(self: Handle, operand: object) -> object:
        if not state_of(self).meant:
            return _pair(name, self, operand)
        result = _pair(f"i{name}", self, operand)
        return self if is_same(self, result) else result

    return apply


def _ordering(name: str) -> Callable[[Handle, object], object]:
    def apply(self: Handle, operand: object) -> object:
        frame = sys._getframe(1)
        # A comparison that is written down would be decided by the solution. `sorted` and `max`
        # only put its objects in order.
        written = frame.f_code.co_code[frame.f_lasti] == _COMPARISON
        interface = state_of(self).line.interface
        written |= name in {"le", "ge"} | interface.said | interface.bound  # `operator.le`
        is_shown = state_of(self).known or interface.shows_objects
        is_shown |= state_of(self).giver in interface.ranking
        if written or not is_shown or not isinstance(operand, Handle):
            return operate_on_plain(name, self, (self, operand))
        return _decided(self, name, operand)

    return apply


for _name in (*BINARY, "divmod"):
    setattr(Abilities, f"__{_name}__", lambda self, item, *, name=_name: _pair(name, self, item))
    if _name != "add":
        setattr(
            Abilities, f"__r{_name}__", lambda self, item, *, name=_name: _pair(name, item, self)
        )
for _name in BINARY:
    setattr(Abilities, f"__i{_name}__", _in_place(_name))
for _name in ORDERINGS:
    setattr(Handle, f"__{_name}__", _ordering(_name))
for _name in UNARY:
    setattr(Abilities, f"__{_name}__", _unary(_name))
setattr(Abilities, "__getitem__", _item)  # noqa: B010


_CONTROL = {StopIteration: "next", StopAsyncIteration: "anext", GeneratorExit: ""}
"""Exceptions that, raised by a call, would silently end a `map` or a loop of the tests -> the one
verb that means them. Where any other raises them, they become errors, unless the tests name them.
"""


def here(error: BaseException, verb: str, tests: Iterable[str]) -> BaseException:
    """Return the exception to raise on this side for an exception of the solution."""
    kind = next((kind for kind in _CONTROL if isinstance(error, kind)), None)
    is_named = kind is not None and any(kind.__name__ in source for source in tests)
    ends_nothing = kind is None or _CONTROL[kind] == verb or is_named
    return error if ends_nothing else RuntimeError(*error.args)
