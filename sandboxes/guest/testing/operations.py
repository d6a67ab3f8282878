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
        "float": float, "complex": complex, "bytes": bytes, "str": str, "repr": repr,
        "format": format, "divmod": divmod, "trunc": math.trunc, "floor": math.floor,
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
