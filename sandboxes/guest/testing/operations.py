"""The operators and built-in functions that are applied to objects of the solution, by name."""

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
        "member": _member,
    }  # fmt: skip


OPERATIONS = _operations()
"""The function that carries out each operation, by name."""
