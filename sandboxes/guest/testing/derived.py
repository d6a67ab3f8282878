"""Encodes values whose classes, defined by the solution, derive from plain data such as `int`.

Such a value crosses as three parts: the handle of the object, the names of the methods that its
classes define anew, and the plain value without its class. The tests' side rebuilds that plain
value (`derived_values`), and asks the solution for its text and its attributes.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence, Set as AbstractSet
from contextlib import suppress
from itertools import islice
from typing import Any

from . import failures, values
from .operations import ABILITIES

TAG = "V"
MODULE = "solution"
"""The module of the solution's classes, and of their stand-ins in the tests' process."""

_MAX_ITEMS = 10_000
"""The longest collection that is copied to find out what a method would answer."""

ALL = "*"
"""The operation of `as_plain` that stands for all that an object holds."""
OF_DICTS = ("keys", "values", "items", "get")
_ABSTRACT = ("__iter__", "__len__", "__getitem__", "__contains__")
"""Methods that every collection defines, and that a copy of the collection answers as well."""

TEXTS = ("__str__", "__repr__", "__format__")
OF_FLAGS = ("__contains__", "__iter__", "__len__", "__or__", "__and__", "__xor__", "__invert__")


def is_derived(item: object) -> bool:
    """Return whether a value may be of a class of the solution or a member of an enumeration, or
    stand for such a value.
    """
    return type(item).__module__ == MODULE or values.is_member(item)


class Standing:
    """A value on the tests' side that stands for an object of the solution."""

    ludus_handle_: object


def handle_of(item: object) -> object | None:
    """Return the handle of the object that a value on the tests' side stands for, or None."""
    return vars(item).get("ludus_handle_") if isinstance(item, Standing) else None


def is_plain(item: object) -> bool:
    """Return whether the class of an object derives from plain data, and adds something to it."""
    if isinstance(item, BaseException):
        return False
    if isinstance(item, tuple) and hasattr(type(item), "_fields"):
        own = defined_anew(type(item)).difference(values.fields_of(item) or ())
        more = any(name[0] != "_" or name in ("__getattr__", *ABILITIES) for name in own)
        if not (more or getattr(item, "__dict__", None)):
            return False
    elif not values.is_member(item) and values.scalar(item) is not values.NOT_SCALAR:
        return True
    parts = values.parts_of(item)
    return parts is not None and parts[0] not in values.BUFFERS


def names_of(item: object) -> str | None:
    """Return the names of the methods defined anew; None for a value that is not derived."""
    if failures.own_module != MODULE or not is_plain(item):
        return None
    return " ".join(sorted(defined_anew(type(item))))


def defined_anew(kind: type) -> set[str]:
    """Return the names that the solution's classes among the bases of a class define."""
    overridden = {name for base in kind.__mro__ if base.__module__ == MODULE for name in vars(base)}
    enum: Any = sys.modules.get("enum")
    if enum is None or not issubclass(kind, enum.Enum):
        return overridden
    # These come from the enumeration, also where the solution does not define the methods.
    return overridden.union(TEXTS, OF_FLAGS if issubclass(kind, enum.Flag) else ())


def as_plain(item: object, operation: str, anew: bool = False) -> object | None:
    """Return the data that answers a use of an object in the object's place; None if nothing does.

    That is the object itself if it derives from plain data, or a copy of its items if it is a
    collection; but None if its class defines the use anew.

    Args:
        item: the object.
        operation: a special method or an attribute; `ALL` for all that it holds.
        anew: whether an object that derives from plain data answers even for what its class defines
            anew; the tests' side then notes that (`Derived`).
    """
    is_overridden = operation in defined_anew(type(item))
    if is_plain(item):
        return None if is_overridden and not anew else item
    if is_overridden and operation not in _ABSTRACT:
        return None
    if isinstance(item, Mapping):
        pairs = [(key, item[key]) for key in islice(item, _MAX_ITEMS + 1)]
        return dict(pairs) if len(pairs) <= _MAX_ITEMS else None
    for kind, copied in ((AbstractSet, set), (Sequence, list)):
        if isinstance(item, kind):
            items: list[object] = list(islice(item, _MAX_ITEMS + 1))
            return copied(items) if len(items) <= _MAX_ITEMS else None
    return _collected(item) if operation == ALL else None


def _collected(item: Any) -> object | None:
    """Return the items of an object whose class is no collection by name but is used like one: a
    list of what it has at each place, or a dict of what it has for each item or key. The dict is
    empty where the object is used like a dict and does not show what it has. None for an object
    that holds more than is copied: a part of it would be another object.
    """
    kind: Any = type(item)
    is_dict = any(hasattr(kind, name) for name in OF_DICTS)
    with suppress(Exception):
        if not hasattr(kind, "__getitem__"):
            pairs = list(islice(item.items(), _MAX_ITEMS + 1))
            return dict(pairs) if len(pairs) <= _MAX_ITEMS else None
        keys = list(islice(item.keys() if hasattr(kind, "keys") else item, _MAX_ITEMS + 1))
        if len(keys) > _MAX_ITEMS:
            return None
        with suppress(LookupError, TypeError):  # Those that have no such place.
            if not is_dict and all(item[place] == key for place, key in enumerate(keys)):
                return keys
        return {key: item[key] for key in keys}
    return {} if is_dict else None
