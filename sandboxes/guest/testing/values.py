"""Decides which values are plain, and encodes each by the exact base type.

Nothing of a subclass crosses. A scalar is a single token, a container a tag and its parts. A bare
number, bool or null is itself; the first letter of a string is its tag.
"""

from __future__ import annotations

import base64
import builtins
import datetime
import operator
import re
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from types import NoneType
from typing import Any

from . import failures, rare_values

Bare = None | bool | int | float | str
BARE = frozenset((NoneType, bool, int, float, str))
"""The exact types that JSON has itself."""

SMALL = 1 << 53
"""Integers below this are sent as they are, larger integers in hexadecimal: that has no limit on
digits, and no quadratic conversion.
"""

NOT_SCALAR = object()

TAGS: dict[Any, str] = {list: "[", tuple: "(", set: "{", frozenset: "<"}
"""The tag of each usual container, by exact type."""

_TIMES = (datetime.datetime, datetime.date, datetime.time)
_DTYPE = re.compile(r"[<>|=][?bBiufcSUmM]\d+(\[\w+\])?")
PLAIN_TYPES: dict[str, type] = {
    kind.__name__: kind
    for kind in (
        int, float, str, bytes, bytearray, bool, list, tuple, dict, set, frozenset, complex,
        NoneType, object, type, range, slice, deque, Counter, OrderedDict, defaultdict,
        *_TIMES, datetime.timedelta,
        *(kind for kind in vars(builtins).values()
          if isinstance(kind, type) and issubclass(kind, BaseException)),
    )
}  # fmt: skip
"""Classes that are values themselves, by name."""


class Malformed(Exception):
    """The other side sent something that is not a value, or too much."""


def is_small(number: int) -> bool:
    """Return whether an integer is sent as a JSON number."""
    return -SMALL < number < SMALL


def scalar(item: object) -> object:
    """Return the token of a value without parts, or `NOT_SCALAR`."""
    if item is None or type(item) is bool or type(item) is float:
        return item
    if isinstance(item, int):
        # Methods of the base types are called by name here: a subclass could answer as it likes.
        integer = int.__add__(item, 0)
        return integer if is_small(integer) else f"i{integer:x}"
    if isinstance(item, str):
        return "s" + str.__str__(item)
    if isinstance(item, float):
        return float.__float__(item)
    if isinstance(item, bytes):
        return "b" + base64.b64encode(bytes(item)).decode()
    kind = type(item)
    if isinstance(item, complex):
        return f"c{item.real.hex()} {item.imag.hex()}"
    if (kind.__module__, kind.__name__) in (("decimal", "Decimal"), ("fractions", "Fraction")):
        return f"{kind.__name__[0]}{item}"
    if kind in _TIMES:
        return f"t{kind.__name__} {item.isoformat()}"  # type: ignore[attr-defined]
    if kind is datetime.timedelta:
        return f"td {item.days} {item.seconds} {item.microseconds}"  # type: ignore[attr-defined]
    if kind is range:
        return f"r{item.start:x} {item.stop:x} {item.step:x}"  # type: ignore[attr-defined]
    if item is Ellipsis:
        return "e"
    if kind is OpaqueClass:
        return f"T{item.kind.__name__}"  # type: ignore[attr-defined]
    if isinstance(item, type) and PLAIN_TYPES.get(item.__name__) is item:
        return "T" + item.__name__
    return _numpy_token(item, "generic", "n")


def buffer(item: object) -> object:
    """Return the token of a bytearray or numpy array, or `NOT_SCALAR`.

    Such a value can change, and therefore has a number like a container.
    """
    if isinstance(item, bytearray):
        return "B" + base64.b64encode(bytes(item)).decode()
    return _numpy_token(item, "ndarray", "a")


def _numpy_token(item: object, family: str, tag: str) -> object:
    numpy: Any = sys.modules.get("numpy")  # loaded only where a program uses it
    if numpy is None or not isinstance(item, getattr(numpy, family)):
        return NOT_SCALAR
    array: Any = item
    if array.dtype.hasobject or array.dtype.names or not _DTYPE.fullmatch(array.dtype.str):
        return NOT_SCALAR
    data = base64.b64encode(array.tobytes()).decode()
    return f"{tag}{array.dtype.str} {'x'.join(map(str, array.shape))} {data}"


def parts_of(item: object) -> tuple[str, list[object]] | None:
    """Return the tag and the items of a container; None for other values."""
    typed_item: Any = item
    if tag := TAGS.get(type(typed_item)):
        return tag, list(typed_item)
    if isinstance(item, Counter):
        return "C", [part for pair in dict.items(item) for part in pair]
    if isinstance(item, dict):
        flat: list[object] = [part for pair in dict.items(item) for part in pair]
        return "O" if isinstance(item, OrderedDict) else ":", flat
    if isinstance(item, deque):
        return "d", [item.maxlen, *deque.__iter__(item)]
    if isinstance(item, type({}.keys())):
        return "k", list(item)
    if is_odd(item) and rare_values.is_member(item):
        return rare_values.member_parts(item)
    if isinstance(item, tuple) and hasattr(type(item), "_fields"):
        if fields := rare_values.fields_of(item):
            return "N", [type(item).__name__, " ".join(fields), *tuple.__iter__(item)]
        return None
    for kind, tag in TAGS.items():
        if isinstance(item, kind):
            return tag, list(kind.__iter__(item))
    return rare_values.parts_of(item)


def is_odd(item: object) -> bool:
    """Return whether a value may be a member of an enumeration, which only looks like a scalar."""
    kind = type(item)
    return type(kind) is not type or kind in rare_values.MEMBERS


def content(item: object) -> object:
    """Return the content of a mutable value, to detect changes later; None if immutable."""
    if isinstance(item, dict):
        return [*dict.keys(item), *dict.values(item)]
    if isinstance(item, (list, set, deque)):
        return list(item)
    if isinstance(item, bytearray):
        return bytes(item)
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None and isinstance(item, numpy.ndarray):
        array: Any = item
        return array.shape, array.dtype.str, array.tobytes()
    return None


def changed(item: object, before: object) -> bool:
    """Return whether `item` has other content than `before`: other items (by identity) or bytes."""
    now = content(item)
    if type(now) is list and type(before) is list:
        return len(now) != len(before) or any(map(operator.is_not, now, before))
    return now != before


# --- reading --------------------------------------------------------------------


def _pairs(parts: list[object]) -> dict[Any, Any]:
    return dict(zip(parts[::2], parts[1::2], strict=True))


def _deque(parts: list[object]) -> deque[object]:
    maxlen, *items = parts
    if maxlen is not None and type(maxlen) is not int:
        raise Malformed("a deque's maxlen is a number or null")
    return deque(items, maxlen)


BUILD: dict[str, Callable[[list[object]], object]] = {
    "[": list, "(": tuple, "{": set, "<": frozenset, ":": _pairs,
    "O": lambda parts: OrderedDict(_pairs(parts)),
    "C": lambda parts: Counter(_pairs(parts)),  # a count may be any value
    "d": _deque, "k": lambda parts: dict.fromkeys(parts).keys(),
    **rare_values.BUILD,
}  # fmt: skip
"""For each tag, the function that makes a container from parts."""


def replace(container: object, parts: list[object]) -> None:
    """Put new content into a container that the tests hold.

    Raises:
        Malformed: the container cannot change, or cannot have this content.
    """
    if isinstance(container, list):
        container[:] = parts
    elif isinstance(container, dict):
        container.clear()
        container.update(_pairs(parts))
    elif isinstance(container, set):
        container.clear()
        container.update(parts)
    elif isinstance(container, deque):
        container.clear()
        container.extend(parts[1:])
    else:
        _replace_buffer(container, *parts)


def _replace_buffer(old: Any, new: Any) -> None:
    if isinstance(old, bytearray) and type(new) is bytearray:
        old[:] = new
        return
    numpy: Any = sys.modules.get("numpy")
    if numpy is None or type(new) is not numpy.ndarray or not isinstance(old, numpy.ndarray):
        raise Malformed("an update of something that cannot change")
    array: Any = old
    if array.shape != new.shape:
        array.resize(new.shape, refcheck=False)
    array[...] = new.astype(array.dtype, casting="no")


class OpaqueClass:
    """Stands for a class that the solution sent: equal to that class, and nothing to call.

    A genuine class would be a function of the solution's choice where tests call an attribute.
    """

    __slots__ = ("_kind",)

    def __init__(self, kind: type) -> None:
        self._kind = kind

    @property
    def kind(self) -> type:
        """The class of this side."""
        return self._kind

    def __eq__(self, other: object) -> bool:
        return self._kind is (other._kind if type(other) is OpaqueClass else other)

    def __hash__(self) -> int:
        return hash(self._kind)

    def __repr__(self) -> str:
        return repr(self._kind)

    def __instancecheck__(self, instance: object) -> bool:
        return isinstance(instance, self._kind)

    def __getattr__(self, name: str) -> object:
        if name not in ("__name__", "__qualname__"):
            raise AttributeError(f"a class that the solution sent has no {name!r} here")
        return self._kind.__name__


def _class(name: str) -> object:
    """Return the class itself to the solution, and what stands for it to the tests."""
    kind = PLAIN_TYPES[name]
    return kind if failures.own_module == "solution" else OpaqueClass(kind)


def _time(text: str) -> object:
    kind, _, value = text.partition(" ")
    if kind == "d":
        days, seconds, microseconds = map(int, value.split(" "))
        return datetime.timedelta(days, seconds, microseconds)
    kinds = {kind.__name__: kind for kind in _TIMES}
    return kinds[kind].fromisoformat(value)


def _array(text: str) -> Any:
    import numpy

    dtype, shape, data = text.split(" ")
    if not _DTYPE.fullmatch(dtype):
        raise Malformed("an array of something that is not plain")
    flat = numpy.frombuffer(base64.b64decode(data), dtype=numpy.dtype(dtype))
    return flat.reshape([int(size) for size in shape.split("x")] if shape else []).copy()


READ: dict[str, Callable[[str], object]] = {
    "i": lambda text: int(text, 16),
    "b": base64.b64decode,
    "c": lambda text: complex(*map(float.fromhex, text.split(" "))),
    "D": rare_values.lazily("decimal", "Decimal"),
    "F": rare_values.lazily("fractions", "Fraction"),
    "t": _time,
    "r": lambda text: range(*(int(part, 16) for part in text.split(" "))),
    "e": lambda _: Ellipsis,
    "T": _class,
    "n": lambda text: _array(text)[()],
}
"""For each tag, the function that reads a scalar."""

READ_BUFFER: dict[str, Callable[[str], object]] = {
    "B": lambda text: bytearray(base64.b64decode(text)),
    "a": _array,
}
"""For each tag, the function that reads a bytearray or an array."""
