"""The operations on objects of the solution that need nothing but the object, by name."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any


def _add_to(item: Any, zero: int) -> Any:
    return zero + item


def _is_instance(item: object, kind: type) -> bool:
    return kind in type(item).__mro__ or isinstance(item, kind)


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
    """Return the parameters of a function: (name, kind, default or nothing)."""
    import inspect

    return [
        (part.name, part.kind.name, () if part.default is part.empty else (part.default,))
        for part in inspect.signature(function).parameters.values()
    ]


def _operations() -> dict[str, Callable[..., object]]:
    import copy

    names = """
        add sub mul truediv floordiv mod pow matmul and_ or_ xor lshift rshift lt le gt ge neg pos
        abs invert getitem setitem delitem index iadd isub imul itruediv ifloordiv imod ipow
        imatmul iand ior ixor ilshift irshift contains truth
    """.split()  # noqa: SIM905 - a list literal would take a line a name
    return {
        **{name: getattr(operator, name) for name in names},
        "len": len, "iter": iter, "next": next, "reversed": reversed, "round": round, "int": int,
        "float": float, "complex": complex, "bytes": bytes, "aiter": aiter, "str": str,
        "repr": repr, "format": format, "divmod": divmod, "trunc": math.trunc, "floor": math.floor,
        "ceil": math.ceil, "copy": copy.copy, "deepcopy": copy.deepcopy,
        "radd": _add_to, "attribute": getattr, "reflect": getattr, "assign": setattr,
        "unassign": delattr, "isinstance": _is_instance, "issubclass": issubclass,
        "member": _member, "kind": _kind, "signature": _signature,
        "enter": lambda target: type(target).__enter__(target),
        "exit": lambda target: type(target).__exit__(target, None, None, None),
        "send": lambda generator, value: _step(generator.send, value),
        "throw": lambda generator, error: _step(generator.throw, error),
        "close": lambda generator: generator.close(),
    }  # fmt: skip


OPERATIONS = _operations()
"""The function that carries out each operation, by name."""

ABILITIES = tuple(
    f"__{name}__"
    for name in """
        call iter next reversed contains enter exit aenter aexit aiter await hash len getitem
        setitem delitem get set delete
        add sub mul truediv floordiv mod pow matmul and or xor lshift rshift divmod
        radd rsub rmul rtruediv rfloordiv rmod rpow rmatmul rand ror rxor rlshift rrshift
        rdivmod iadd isub imul itruediv ifloordiv imod ipow imatmul iand ior ixor ilshift irshift
        neg pos abs invert round trunc floor ceil int float complex index bytes
    """.split()  # noqa: SIM905 - a list literal would take a line a name
)
"""The special methods that a proxy has only where the class of its object has them."""


def abilities_of(item: object) -> int:
    """Return which of `ABILITIES` the class of an object has: bit n is for number n.

    A class may also be subscripted by `__class_getitem__`.
    """
    members: dict[str, object] = {}
    for base in reversed(type(item).__mro__):
        members.update(vars(base))
    if isinstance(item, type) and hasattr(item, "__class_getitem__"):
        members["__getitem__"] = True
    # A class that sets a method to None has it, and raises where it is used.
    has_hash = members.get("__hash__") is not None
    present = members.keys() - (set() if has_hash else {"__hash__"})
    return sum(1 << place for place, name in enumerate(ABILITIES) if name in present)
