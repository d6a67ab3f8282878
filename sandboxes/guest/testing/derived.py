"""Values of the solution's classes that derive from plain data: how they are spelt on the wire.

Such a value crosses as three parts: the handle of the object, the names of the methods that its
classes define anew, and the plain value that it is without its class. The tests' side rebuilds it
as that plain value (`derived_values`), which knows whom to ask for its text and its attributes.
"""

from __future__ import annotations

import datetime
import sys
from collections import Counter, OrderedDict, UserString, deque
from collections.abc import Callable, Mapping, Sequence, Set as AbstractSet
from itertools import islice
from typing import Any

from . import failures, rare_values

TAG = "V"
MODULE = "solution"
"""The module of the solution's classes, and of those that stand for them in the tests' process."""

_MOST_ITEMS = 10_000
"""Longer collections are not copied to find out what a method of theirs would answer."""

_ABSTRACT = ("__iter__", "__len__", "__getitem__", "__contains__")
"""What every collection defines, and what a copy of it answers as well."""

_TEXTS = ("__str__", "__repr__", "__format__")


def _items(kind: Any) -> Callable[[Any], object]:
    """What makes a collection of exactly this type of another's items."""
    return lambda item: kind(kind.__iter__(item))


def _pairs(kind: Any) -> Callable[[Any], object]:
    """The same for mappings."""
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
"""base type -> what makes the plain value of an object; a subclass stands before its base."""

_BARE_BY_NAME: dict[str, Callable[[type, Any], object]] = {
    "fractions.Fraction": lambda kind, item: kind(item.numerator, item.denominator),
    "decimal.Decimal": lambda kind, item: kind(item),
}
"""The same for types whose modules are loaded only where a program uses them."""


def is_derived(item: object) -> bool:
    """Whether a value may be of a class of the solution's (or stand for one)."""
    return type(item).__module__ == MODULE


def handle_of(item: object) -> object | None:
    """The handle of the object that a value on the tests' side stands for, while it is the same;
    None for other values.
    """
    held: Any = sys.modules.get(f"{__package__}.derived_values")
    if held is None or not isinstance(item, held.Derived) or held.is_changed(item):
        return None
    handle: object = vars(item)["ludus_handle_"]
    return handle


def called(item: object) -> object:
    """Note that the tests made a value by calling a class of the solution."""
    held: Any = sys.modules.get(f"{__package__}.derived_values")
    if held is not None and isinstance(item, held.Derived):
        vars(item)["ludus_called_"] = True
    return item


def bare(item: object) -> object | None:
    """The plain value of an object whose class derives from plain data; None if it does not."""
    if isinstance(item, BaseException) or hasattr(type(item), "_fields"):
        return None
    if rare_values.is_member(item):
        return rare_values.stand_in(item)
    for kind, make in _BARE.items():
        if isinstance(item, kind):
            return make(item)
    for where, build in _BARE_BY_NAME.items():
        module, _, name = where.partition(".")
        base = getattr(sys.modules.get(module), name, None)
        if base is not None and isinstance(item, base):
            return build(base, item)
    return None


def parts_of(item: object) -> tuple[str, object] | None:
    """The names of the methods defined anew, and the plain value; None if it has none."""
    value = bare(item) if failures.own_module == MODULE else None
    if value is None:
        return None
    return " ".join(sorted(defined_anew(type(item)))), value


def defined_anew(kind: type) -> set[str]:
    """What the solution's classes among the bases of a class define."""
    found = {name for base in kind.__mro__ if base.__module__ == MODULE for name in vars(base)}
    enum: Any = sys.modules.get("enum")
    # how a member is written is the enumeration's to say, whoever defines it
    return found.union(_TEXTS) if enum is not None and issubclass(kind, enum.Enum) else found


def as_plain(item: object, used: str, *, anew: bool) -> object | None:
    """What answers a use of an object in its place: the object itself if it derives from plain
    data, a copy of what is in it if it is a collection; None if it is neither, or if its class
    defines the use anew.

    Args:
        used: a special method or an attribute.
        anew: an object that derives from plain data answers even for what it defines anew; the
            tests' side notes that (`Derived`).
    """
    own = used in defined_anew(type(item))
    if bare(item) is not None:
        return None if own and not anew else item
    if own and used not in _ABSTRACT:
        return None
    if isinstance(item, UserString):
        return str(item.data)
    if isinstance(item, Mapping):
        pairs = [(key, item[key]) for key in islice(item, _MOST_ITEMS + 1)]
        return dict(pairs) if len(pairs) <= _MOST_ITEMS else None
    for kind, copied in ((AbstractSet, set), (Sequence, list)):
        if isinstance(item, kind):
            items: list[object] = list(islice(item, _MOST_ITEMS + 1))
            return copied(items) if len(items) <= _MOST_ITEMS else None
    return None
