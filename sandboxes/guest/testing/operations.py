"""The operations on objects of the solution that need nothing but the object, by name."""

from __future__ import annotations

import builtins
import copy
import enum
import math
import operator
from collections.abc import Callable
from typing import Any

BINARY = "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift".split()  # noqa: SIM905
"""The operators that also exist reflected and in place."""

ORDERINGS = ("lt", "le", "gt", "ge")

LOOKS = """
    neg pos abs invert len reversed getitem round trunc floor ceil int float complex index bytes
""".split()  # noqa: SIM905 - a list literal would take a line a name
CHANGES = ["next", "setitem", "delitem"]
UNARY = LOOKS + CHANGES
"""What an object answers by itself, or by what a test gives it."""


def _add_to(item: Any, zero: int) -> Any:
    return zero + item


def _is_instance(item: object, kind: type) -> bool:
    return kind in type(item).__mro__ or isinstance(item, kind)


def _owns(item: object, name: str) -> bool:
    """Return whether an object's class defines a special method and does not use the default."""
    usual = None, getattr(object, name, None), getattr(enum.Enum, name, None)
    return not isinstance(item, type) and getattr(type(item), name, None) not in usual


def _member(item: object, value: object) -> object:
    return type(item)(value)  # type: ignore[call-arg]


def _step(act: Callable[[Any], object], given: object) -> tuple[object, bool]:
    """Act on a generator; return (item or result, whether more may come)."""
    try:
        return act(given), True
    except StopIteration as stop:
        return stop.value, False


def _kind(item: object) -> str:
    """Return the name of an object's class, for messages."""
    return type(item).__name__ + " (a class)" * isinstance(item, type)


def _signature(function: Callable[..., object]) -> object:
    """Return the parameters of a function: (name, kind, the default by that word or nothing)."""
    import inspect

    return [
        (part.name, int(part.kind), {} if part.default is part.empty else {"default": part.default})
        for part in inspect.signature(function).parameters.values()
    ]


_NAMED: list[tuple[Any, str, list[str]]] = [
    (operator, "__{}__", [*BINARY, *map("i{}".format, BINARY), *ORDERINGS]),
    (operator, "__{}__", "neg pos abs invert getitem setitem delitem index contains".split()),  # noqa: SIM905
    (builtins, "{}", "len iter next reversed round int float complex bytes aiter".split()),  # noqa: SIM905
    (builtins, "{}", ["str", "repr", "format", "divmod", "issubclass"]),
    (math, "{}", ["trunc", "floor", "ceil"]),
    (copy, "{}", ["copy", "deepcopy"]),
]
OPERATIONS: dict[str, Callable[..., object]] = {
    **{name: getattr(of, form.format(name)) for of, form, names in _NAMED for name in names},
    "truth": bool, "radd": _add_to, "attribute": getattr, "reflect": getattr, "assign": setattr,
    "unassign": delattr, "isinstance": _is_instance, "owns": _owns, "member": _member,
    "kind": _kind, "signature": _signature,
    "enter": lambda target: type(target).__enter__(target),
    "exit": lambda target: type(target).__exit__(target, None, None, None),
    "send": lambda generator, value: _step(generator.send, value),
    "throw": lambda generator, error: _step(generator.throw, error),
    "close": lambda generator: generator.close(),
}  # fmt: skip
"""The function that carries out each operation, by name."""

AWAITED: dict[str, Callable[[Any], Any]] = {
    "await": lambda awaitable: awaitable,
    "anext": lambda iterator: type(iterator).__anext__(iterator),
    "aenter": lambda target: type(target).__aenter__(target),
    "aexit": lambda target: type(target).__aexit__(target, None, None, None),
}
"""Likewise those whose result is awaited in the solution's process."""

ABILITIES = tuple(
    f"__{name}__"
    for name in (
        *"call iter contains enter exit aenter aexit aiter anext await hash get set delete".split(),  # noqa: SIM905
        *UNARY, *BINARY, *map("r{}".format, BINARY), *map("i{}".format, BINARY),
        "divmod", "rdivmod",
    )
)  # fmt: skip
"""The special methods that a proxy has only where the class of its object has them."""


def abilities_of(item: object) -> int:
    """Return which of `ABILITIES` the class of an object has: bit n is for number n.

    A class may also be subscripted by `__class_getitem__`.
    """
    # A class that sets a method to None has it, and raises where it is used.
    present = set[str]().union(*map(vars, type(item).__mro__))
    if isinstance(item, type) and hasattr(item, "__class_getitem__"):
        present.add("__getitem__")
    if type(item).__hash__ is None:
        present.remove("__hash__")
    return sum(1 << place for place, name in enumerate(ABILITIES) if name in present)
