"""Encodes values whose classes, defined by the solution, derive from plain data such as `int`.

Such a value crosses as three parts: the handle of the object, the names of the methods that its
classes define anew, and the plain value without its class. The tests' side rebuilds that plain
value (`derived_values`), and asks the solution for its text and its attributes.
"""

from __future__ import annotations

import datetime
import sys
from collections import Counter, OrderedDict, UserString, deque, namedtuple
from collections.abc import Callable, Mapping, Sequence, Set as AbstractSet
from itertools import islice
from typing import Any

from . import failures, values

TAG = "V"
MODULE = "solution"
"""The module of the solution's classes, and of their stand-ins in the tests' process."""

_MAX_ITEMS = 10_000
"""The longest collection that is copied to find out what a method would answer."""

_ABSTRACT = ("__iter__", "__len__", "__getitem__", "__contains__")
"""Methods that every collection defines, and that a copy of the collection answers as well."""

_TEXTS = ("__str__", "__repr__", "__format__")


def _items(kind: Any) -> Callable[[Any], object]:
    """Return a function that copies the items of a collection into a plain `kind`."""
    return lambda item: kind(kind.__iter__(item))


def _pairs(kind: Any) -> Callable[[Any], object]:
    """Return a function that copies the pairs of a mapping into a plain `kind`."""
    return lambda item: kind(dict(dict.items(item)))


def _bounded(item: deque[object]) -> object:
    return deque(deque.__iter__(item), item.maxlen)


_BARE: dict[type, Callable[[Any], object]] = {
    int: lambda item: int.__add__(item, 0),
    str: str.__str__,
    float: float.__float__,
    complex: lambda item: complex(item.real, item.imag),
    bytes: lambda item: b"".join([item]),
    tuple: _items(tuple),
    frozenset: _items(frozenset),
    list: _items(list),
    set: _items(set),
    Counter: _pairs(Counter),
    OrderedDict: _pairs(OrderedDict),
    dict: _pairs(dict),
    deque: _bounded,
    datetime.datetime: lambda item: datetime.datetime.fromisoformat(
        datetime.datetime.isoformat(item)
    ),
    datetime.date: lambda item: datetime.date.fromisoformat(datetime.date.isoformat(item)),
    datetime.timedelta: lambda item: datetime.timedelta(item.days, item.seconds, item.microseconds),
}
"""Base type -> what makes the plain value of an object; a subclass comes before its base."""

_BARE_BY_NAME: dict[str, Callable[[type, Any], object]] = {
    "fractions.Fraction": lambda kind, item: kind(item.numerator, item.denominator),
    "decimal.Decimal": lambda kind, item: kind(item),
}
"""Like `_BARE`, for types whose modules are loaded only where a program uses them."""


def is_derived(item: object) -> bool:
    """Return whether a value may be of a class of the solution, or stand for such a value."""
    return type(item).__module__ == MODULE


def handle_of(item: object) -> object | None:
    """Return the handle of the object that a value on the tests' side stands for, or None.

    The answer is also None once the tests have changed the value.
    """
    derived_values: Any = sys.modules.get(f"{__package__}.derived_values")
    if (
        derived_values is None
        or not isinstance(item, derived_values.Derived)
        or derived_values.is_changed(item)
    ):
        return None
    handle: object = vars(item)["ludus_handle_"]
    return handle


def bare(item: object) -> object | None:
    """Return the plain value of an object whose class derives from plain data, else None."""
    if isinstance(item, BaseException):
        return None
    if isinstance(item, tuple) and hasattr(type(item), "_fields"):
        return _bare_fields(item)
    if values.is_member(item):
        return values.stand_in(item)
    for kind, make in _BARE.items():
        if isinstance(item, kind):
            return make(item)
    for kind_name, build in _BARE_BY_NAME.items():
        module, _, name = kind_name.partition(".")
        base = getattr(sys.modules.get(module), name, None)
        if base is not None and isinstance(item, base):
            return build(base, item)
    return None


def _bare_fields(item: tuple[object, ...]) -> object | None:
    """Return a named tuple without the methods of its class; None for one that has no methods."""
    kind = type(item)
    fields = values.fields_of(item)
    methods = [
        name for name in defined_anew(kind) if name[0] != "_" and callable(getattr(kind, name))
    ]
    if not (fields and methods):
        return None
    if kind not in _FIELDS_ALONE:
        _FIELDS_ALONE[kind] = namedtuple(kind.__name__, fields)
    bare_kind: Any = _FIELDS_ALONE[kind]
    return bare_kind(*tuple.__iter__(item))  # type: ignore[no-any-return]


_FIELDS_ALONE: dict[type, type] = {}


def parts_of(item: object) -> tuple[str, object] | None:
    """Return the names of the methods defined anew, and the plain value; None without such a
    value.
    """
    value = bare(item) if failures.own_module == MODULE else None
    if value is None:
        return None
    return " ".join(sorted(defined_anew(type(item)))), value


def defined_anew(kind: type) -> set[str]:
    """Return the names that the solution's classes among the bases of a class define."""
    overridden = {name for base in kind.__mro__ if base.__module__ == MODULE for name in vars(base)}
    enum: Any = sys.modules.get("enum")
    # The text of a member comes from its enumeration, also where the solution does not define the
    # method: so it is asked of the solution in every case.
    return (
        overridden.union(_TEXTS) if enum is not None and issubclass(kind, enum.Enum) else overridden
    )


def as_plain(item: object, operation: str, *, anew: bool) -> object | None:
    """Return the data that answers a use of an object in the object's place; None if nothing does.

    That is the object itself if it derives from plain data, or a copy of its items if it is a
    collection; but None if its class defines the use anew.

    Args:
        item: the object.
        operation: a special method or an attribute.
        anew: whether an object that derives from plain data answers even for what its class defines
            anew; the tests' side then notes that (`Derived`).
    """
    is_overridden = operation in defined_anew(type(item))
    if bare(item) is not None:
        return None if is_overridden and not anew else item
    if is_overridden and operation not in _ABSTRACT:
        return None
    if isinstance(item, UserString):
        return str(item.data)
    if isinstance(item, Mapping):
        pairs = [(key, item[key]) for key in islice(item, _MAX_ITEMS + 1)]
        return dict(pairs) if len(pairs) <= _MAX_ITEMS else None
    for kind, copied in ((AbstractSet, set), (Sequence, list)):
        if isinstance(item, kind):
            items: list[object] = list(islice(item, _MAX_ITEMS + 1))
            return copied(items) if len(items) <= _MAX_ITEMS else None
    return None
