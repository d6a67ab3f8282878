"""What the tests hold of the solution: functions to call and objects to ask, never objects to
believe.

Any object may be called, handed back and told apart from others. Attributes are those that the
task names (`interface`). An object of a class or maker under test (*known*) may also be iterated,
indexed, measured, turned into text, ordered among its like by `sorted`, calculated with others of
the solution: what comes back is plain data again, which the tests compare. Everything else, and all
of it on any other object, would let the solution decide the test, and fails it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

from . import value_wire


class Line(Protocol):
    """What a proxy needs of the connection."""

    def ask(self, verb: str, *arguments: object) -> object:
        """Ask the solution; raises here what it raised there."""
        ...

    def check_attribute(self, token: object, name: str) -> None:
        """Raises unless the task names this attribute of objects."""
        ...

    def adopt(self, maker: str, made: Handle) -> None:
        """A function of the solution has returned an object."""
        ...

    def refuse(self, token: object, use: str) -> BaseException:
        """The test has failed: an object crossed where a value was meant."""
        ...

    def compares_objects(self) -> bool:
        """Whether the tests' syntax shows that they compare objects under test."""
        ...

    def cannot_judge(self, idiom: str) -> BaseException:
        """The tests cannot be used: they ask the solution itself whether it is right."""
        ...


_OWN_EQUALITY = "compare objects by the solution's own __eq__"
_REFLECTED = ("__name__", "__qualname__", "__doc__", "__module__", "__dict__", "__annotations__",
              "__defaults__", "__kwdefaults__", "__wrapped__")  # fmt: skip


class Handle:
    """An object that stays with the solution."""

    __slots__ = ("_known", "_line", "_token")

    _line: Line
    _token: value_wire.Ready
    _known: bool

    def __init__(self, line: Line, token: str) -> None:
        object.__setattr__(self, "_line", line)
        object.__setattr__(self, "_token", value_wire.Ready("h" + token[1:]))
        object.__setattr__(self, "_known", token[0] == "o")

    def __call__(self, *arguments: object, **named: object) -> object:
        line, token = line_of(self), token_of(self)
        return (
            line.ask("call", token, arguments, named)
            if named
            else line.ask("call", token, arguments)
        )

    def __getattr__(self, name: str) -> object:
        if name in _REFLECTED:
            return line_of(self).ask("reflect", token_of(self), name)
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)  # `copy`, `pickle` and numpy look for hooks of their own
        line_of(self).check_attribute(token_of(self), name)
        return line_of(self).ask("attribute", token_of(self), name)

    def __setattr__(self, name: str, value: object) -> None:
        line_of(self).ask("assign", token_of(self), name, value)

    def __delattr__(self, name: str) -> None:
        line_of(self).ask("unassign", token_of(self), name)

    def __iter__(self) -> Iterator[object]:
        iterator = _operate("iter", self)
        if not isinstance(iterator, Iterator):
            raise line_of(self).refuse(token_of(self), "an iterator")
        return iterator

    def __next__(self) -> object:
        return _operate("next", self)

    def __contains__(self, item: object) -> bool:
        if not is_known(self):
            raise line_of(self).refuse(token_of(self), "in")
        return any(item is other or item == other for other in self)

    def __enter__(self) -> object:
        return line_of(self).ask("enter", token_of(self))

    def __exit__(self, *_: object) -> None:
        line_of(self).ask("exit", token_of(self))

    async def __aenter__(self) -> object:
        return line_of(self).ask("aenter", token_of(self))

    async def __aexit__(self, *_: object) -> None:
        line_of(self).ask("aexit", token_of(self))

    def __bool__(self) -> bool:
        if is_function(self):
            return True
        return bool(_exactly(bool, self, "truth"))

    def __eq__(self, other: object) -> bool:
        if self is other or other is None:
            return self is other
        if not isinstance(other, Handle):
            if is_known(self) and not _has_own(self, "__eq__"):
                return False
            raise line_of(self).refuse(token_of(self), "==")
        if not (_has_own(self, "__eq__") or _has_own(other, "__eq__")):
            return False
        if is_known(self) and is_known(other) and line_of(self).compares_objects():
            raise line_of(self).cannot_judge(_OWN_EQUALITY)
        raise line_of(self).refuse(token_of(self), "==")

    def __hash__(self) -> int:
        if is_function(self):
            return id(self)
        if not is_known(self):
            raise line_of(self).refuse(token_of(self), "hash()")
        if _has_own(self, "__hash__") or _has_own(self, "__eq__"):
            if not line_of(self).compares_objects():
                raise line_of(self).refuse(token_of(self), "hash()")
            raise line_of(self).cannot_judge("look objects up by the solution's own __hash__")
        return id(self)

    def __repr__(self) -> str:
        return str(_exactly(str, self, "repr")) if is_known(self) else "<object of the solution>"

    def __str__(self) -> str:
        return str(_exactly(str, self, "str")) if is_known(self) else repr(self)

    def __format__(self, form: str) -> str:
        if not is_known(self):
            return repr(self)
        return str(_exactly(str, self, "format", form))

    def __copy__(self) -> object:
        return _operate("copy", self)

    def __deepcopy__(self, _: object) -> object:
        return self if is_function(self) else _operate("deepcopy", self)

    def __radd__(self, other: object) -> object:
        if type(other) is int and other == 0:  # what `sum` begins with
            return _operate("radd", self, 0)
        return _pair("add", other, self)

    def __instancecheck__(self, instance: object) -> bool:
        if not isinstance(instance, Handle):
            return False
        return line_of(self).ask("isinstance", token_of(instance), token_of(self)) is True

    def __subclasscheck__(self, kind: object) -> bool:
        if not isinstance(kind, Handle):
            return False
        return line_of(self).ask("issubclass", token_of(kind), token_of(self)) is True


def token_of(handle: Handle) -> value_wire.Ready:
    """What names the object on the line. (Not a method: every attribute of a handle is the
    solution's.)
    """
    token: value_wire.Ready = object.__getattribute__(handle, "_token")
    return token


def line_of(handle: Handle) -> Line:
    """Where the object is."""
    line: Line = object.__getattribute__(handle, "_line")
    return line


def is_known(handle: Handle) -> bool:
    """Whether it is of a class or maker under test."""
    known: bool = object.__getattribute__(handle, "_known")
    return known


def is_function(handle: object) -> bool:
    """Whether it is a function or class of the solution, by name."""
    named = isinstance(handle, ClassHandle) and is_known(handle)
    return named or isinstance(handle, FunctionHandle)


class FunctionHandle(Handle):
    """A function of the solution."""

    __slots__ = ("_asked_as",)

    def __init__(self, line: Line, token: str, name: str) -> None:
        super().__init__(line, token)
        object.__setattr__(self, "_asked_as", name)

    def __call__(self, *arguments: object, **named: object) -> object:
        made = super().__call__(*arguments, **named)
        if isinstance(made, Handle) and not is_known(made):
            line_of(self).adopt(object.__getattribute__(self, "_asked_as"), made)
        return made


def adopt(made: Handle) -> None:
    """From now on the object is one under test, and so are others of its class."""
    if line_of(made).ask("declare", token_of(made)) is True:
        object.__setattr__(made, "_known", True)


class ClassHandle(Handle):
    """A class of the solution; *known* if it is one under test."""

    __slots__ = ()


class MisplacedClass(FunctionHandle):
    """A class where the tests ask for a function."""

    __slots__ = ()

    def __call__(self, *arguments: object, **named: object) -> object:
        raise line_of(self).refuse(token_of(self), "a class where a function is asked for")


def _reflect(name: str) -> property:
    def read(self: Handle) -> object:
        return line_of(self).ask("reflect", token_of(self), name)

    return property(read)


for _kind in (Handle, FunctionHandle, ClassHandle, MisplacedClass):
    for _name in ("__doc__", "__module__", "__annotations__"):  # otherwise those of the proxies
        setattr(_kind, _name, _reflect(_name))


def _signature(self: Handle) -> object:
    import inspect

    said: Any = line_of(self).ask("signature", token_of(self))
    empty = inspect.Parameter.empty
    parameters = [
        inspect.Parameter(
            name, getattr(inspect.Parameter, kind), default=default[0] if default else empty
        )
        for name, kind, default in said
    ]
    return inspect.Signature(parameters)


setattr(Handle, "__signature__", property(_signature))  # noqa: B010 - a property of handles alone


# --- operators ------------------------------------------------------------------


def _operate(name: str, *operands: object) -> object:
    """Have the solution operate on its own object."""
    first = next(item for item in operands if isinstance(item, Handle))
    if not is_known(first):
        raise line_of(first).refuse(token_of(first), name)
    return line_of(first).ask("operate", name, operands)


def _exactly(kind: type, handle: Handle, name: str, *more: object) -> Any:
    found = _operate(name, handle, *more)
    if type(found) is not kind:
        raise line_of(handle).refuse(token_of(handle), name)
    return found


def _pair(name: str, left: object, right: object) -> object:
    """Between objects of the solution alone: a value of the tests would go along."""
    for side in (left, right):
        if isinstance(side, Handle) and not is_known(side):
            raise line_of(side).refuse(token_of(side), name)
    for side, other in ((left, right), (right, left)):
        if isinstance(side, Handle) and not isinstance(other, Handle):
            raise line_of(side).refuse(token_of(side), name)
    return _operate(name, left, right)


def operate(name: str, left: object, right: object) -> object:
    """Where the tests' syntax shows that an object under test is meant."""
    import operator

    if isinstance(left, Handle) or isinstance(right, Handle):
        for side in (left, right):
            if isinstance(side, Handle) and not is_known(side):
                raise line_of(side).refuse(token_of(side), name)
        found = _operate(name, left, right)
        if name == "contains" and isinstance(left, Handle) and type(found) is not bool:
            raise line_of(left).refuse(token_of(left), "in")
        return found
    function: Callable[[object, object], object] = getattr(operator, name)
    return function(left, right)


_SIGNS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}


def compare(name: str, meant: bool, left: object, right: object) -> object:
    """A comparison that the tests themselves write down; `meant`: their syntax shows that objects
    under test are compared.
    """
    import operator

    for side, other in ((left, right), (right, left)):
        if not isinstance(side, Handle):
            continue
        if name not in ("eq", "ne"):
            alike = is_known(side) and isinstance(other, Handle) and is_known(other)
            if meant and alike:
                idiom = f"compare objects of the solution by {_SIGNS[name]}"
                raise line_of(side).cannot_judge(idiom)
            raise line_of(side).refuse(token_of(side), _SIGNS[name])
        if meant and is_known(side) and other is not None and _has_own(side, "__eq__"):
            raise line_of(side).cannot_judge(_OWN_EQUALITY)
    function: Callable[[object, object], object] = getattr(operator, name)
    return function(left, right)


def type_of(item: object) -> object:
    """The class of an object, which for one under test is the solution's."""
    if isinstance(item, Handle) and is_known(item):
        return line_of(item).ask("class", token_of(item))
    return type(item)


def _has_own(handle: Handle, name: str) -> bool:
    return line_of(handle).ask("owns", token_of(handle), name) is True


def _binary(name: str, *, reflected: bool) -> Callable[[Handle, object], object]:
    def forward(self: Handle, other: object) -> object:
        return _pair(name, other, self) if reflected else _pair(name, self, other)

    return forward


def _ordering(name: str) -> Callable[[Handle, object], bool]:
    def forward(self: Handle, other: object) -> bool:
        found = _pair(name, self, other)
        if type(found) is not bool:
            raise line_of(self).refuse(token_of(self), _SIGNS[name])
        return found

    return forward


def _unary(name: str) -> Callable[..., object]:
    def forward(self: Handle, *more: object) -> object:
        return _operate(name, self, *more)

    return forward


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and_", "or_",
              "xor", "lshift", "rshift", "divmod"):  # fmt: skip
    _bare = _name.rstrip("_")
    setattr(Handle, f"__{_bare}__", _binary(_name, reflected=False))
    if _bare != "add":
        setattr(Handle, f"__r{_bare}__", _binary(_name, reflected=True))
for _name in ("lt", "le", "gt", "ge"):
    setattr(Handle, f"__{_name}__", _ordering(_name))
for _name in ("neg", "pos", "abs", "invert", "len", "reversed", "getitem", "setitem",
              "delitem", "round", "trunc", "floor", "ceil", "int", "float", "complex", "index",
              "bytes"):  # fmt: skip
    setattr(Handle, f"__{_name}__", _unary(_name))


_CONTROL = (StopIteration, StopAsyncIteration, GeneratorExit)
"""Raised by a call, these would silently end a `map` or a loop of the tests; from a plain call
they are errors.
"""


def here(error: BaseException, verb: str, operands: tuple[object, ...]) -> BaseException:
    """What to raise for an exception of the solution."""
    if isinstance(error, StopIteration) and (verb, operands[:1]) == ("operate", ("next",)):
        return error
    return RuntimeError(*error.args) if isinstance(error, _CONTROL) else error
