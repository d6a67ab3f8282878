"""Encodes less usual values of the standard library that are plain data.

These are named tuples, members of mixed enumerations, exceptions, views, namespaces, identifiers
and paths. Each is encoded as a tag and plain parts, and rebuilt with the classes of this side, so
that no code of the other side comes along. On the solution's side, a class of the solution with
that name is used.
"""

from __future__ import annotations

import collections
import datetime
import sys
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType, SimpleNamespace
from typing import Any

from . import failures

_MAX_FIELDS = 64

own_names: Mapping[str, object] = {}
"""The names of the module whose classes are meant, on the solution's side."""

_KINDS: dict[tuple[str, ...], Any] = {}
"""Rebuilt classes of named tuples and members of enumerations, kept for reuse."""


class Member:
    """Stands for a member of an enumeration that is also a number or a text."""

    name: str
    value: object
    kind: str


class _IntMember(int, Member):
    pass


class _StrMember(str, Member):
    pass


class _FloatMember(float, Member):
    pass


_MEMBERS: dict[type, Any] = {int: _IntMember, str: _StrMember, float: _FloatMember}
MEMBERS = frozenset(_MEMBERS.values())
"""The classes of members that came from the other side."""


def forget() -> None:
    """Drop every class that was rebuilt."""
    _KINDS.clear()
    failures.forget()
    if derived_values := sys.modules.get(f"{__package__}.derived_values"):
        derived_values.forget()


def is_member(item: object) -> bool:
    """Return whether a value is a member of an enumeration, or stands for a member."""
    enum: Any = sys.modules.get("enum")
    return isinstance(item, Member) or (enum is not None and isinstance(item, enum.Enum))


def member_parts(item: object) -> tuple[str, list[object]] | None:
    """Return the tag and parts of a member that is a number or a text; None for other values."""
    member: Any = item
    for kind in _MEMBERS:
        if isinstance(item, kind):
            name = member.kind if isinstance(item, Member) else type(item).__name__
            return "E", [name, str(member.name), kind(member.value)]
    return None


def stand_in(item: object) -> object | None:
    """Return a member that is a number or a text, without the enumeration; None for other
    values.
    """
    parts = member_parts(item)
    if parts is None:
        return None
    name, member, value = parts[1]
    make: Any = next(twin for kind, twin in _MEMBERS.items() if type(value) is kind)
    twin = make(value)
    twin.kind, twin.name, twin.value = name, member, value
    result: object = twin
    return result


def parts_of(item: object) -> tuple[str, list[object]] | None:
    """Return the tag and the parts of a value of these kinds; None for other values."""
    if isinstance(item, BaseException):
        return "X", failures.parts_of(item, all_plain)
    if type(item) is SimpleNamespace and all_plain(vars(item).values()):
        return "S", [part for pair in vars(item).items() for part in pair]
    if type(item) is MappingProxyType:
        return "M", [part for pair in item.items() for part in pair]
    if isinstance(item, type({}.values())):
        return "v", list(item)
    if isinstance(item, type({}.items())):
        pairs: Any = item
        return "p", [part for pair in pairs for part in pair]
    plain: Any = item
    kind = type(plain)
    qualified_name = f"{kind.__module__}.{kind.__name__}"
    if qualified_name == "array.array":
        return "A", [plain.typecode, plain.tolist()]
    if qualified_name in _TEXTUAL:
        return "x", [qualified_name, str(plain)]
    if qualified_name == "builtins.slice":
        return "x", [qualified_name, [plain.start, plain.stop, plain.step]]
    if qualified_name == "datetime.timezone":
        return "x", [qualified_name, plain.utcoffset(None)]
    return None


def fields_of(item: object) -> list[str] | None:
    """Return the fields of a named tuple; None for other values."""
    fields = getattr(type(item), "_fields", None)
    if type(fields) is not tuple or not 0 < len(fields) <= _MAX_FIELDS:
        return None
    names: list[str] = [name for name in fields if type(name) is str and name.isidentifier()]
    plain = len(names) == len(fields) == tuple.__len__(item)  # type: ignore[arg-type]
    plain = plain and all_plain(tuple.__iter__(item))  # type: ignore[arg-type]
    return names if plain and not any(name.startswith("_") for name in names) else None


def lazily(module: str, kind: str) -> Callable[[str], object]:
    """Return a function that builds an object of a class of the standard library from a text.

    The module is imported at the call: only the children that meet such values load it.
    """

    def build(text: str) -> object:
        return getattr(__import__(module), kind)(text)

    return build


_PATHS = ("PurePosixPath", "PureWindowsPath", "PosixPath")
_ADDRESSES = ("IPv4Address", "IPv6Address", "IPv4Network", "IPv6Network")
_TEXTUAL: dict[str, Callable[[str], object]] = {
    "uuid.UUID": lazily("uuid", "UUID"),
    **{f"pathlib.{kind}": lazily("pathlib", kind) for kind in _PATHS},
    **{f"ipaddress.{kind}": lazily("ipaddress", kind) for kind in _ADDRESSES},
}
"""Classes whose objects are rebuilt from their text."""


# --- reading --------------------------------------------------------------------


def check_attributes(values: Iterable[object]) -> None:
    """Check that the attributes of a value are plain at every depth, so that no function crosses.

    Raises:
        TypeError: an attribute is not plain data.
    """
    if failures.own_module != "solution" and not all_plain(values):
        raise TypeError("a value whose attributes are objects of the solution")


def all_plain(items: Iterable[object]) -> bool:
    """Return whether values are plain data at every depth."""
    from . import values  # imported late, because `values` imports this module

    waiting, seen = list(items), set[int]()
    while waiting:
        item = waiting.pop()
        if type(item) in values.BARE or id(item) in seen:
            continue
        seen.add(id(item))
        if values.scalar(item) is not values.NOT_SCALAR:
            continue
        parts = values.parts_of(item)
        if parts is None and values.buffer(item) is values.NOT_SCALAR:
            return False
        waiting += parts[1] if parts else []
    return True


def _pairs(parts: list[object]) -> dict[object, object]:
    return dict(zip(parts[::2], parts[1::2], strict=True))


def _named_tuple(parts: list[object]) -> object:
    name, fields, *values = parts
    if type(name) is not str or type(fields) is not str:
        raise TypeError("a named tuple without names")
    check_attributes(values)
    own_class: Any = own_names.get(name)
    if isinstance(own_class, type) and issubclass(own_class, tuple):
        kind: Any = own_class
    else:
        if (name, fields) not in _KINDS:
            # mypy wants a literal name, which a value of the solution has not
            tuple_class: Any = collections.namedtuple(name, fields)  # type: ignore[misc] # pyright: ignore
            _KINDS[name, fields] = tuple_class
        kind = _KINDS[name, fields]
    return kind(*values)


def _member(parts: list[object]) -> object:
    kind, name, value = parts
    if type(kind) is not str or type(name) is not str:
        raise TypeError("a member without names")
    own_class: Any = own_names.get(kind)
    if isinstance(own_class, type) and hasattr(own_class, "_member_map_"):
        return own_class(value)
    key = (kind, name, repr(value))
    if key not in _KINDS:
        member: Any = _MEMBERS[type(value)](value)
        member.kind, member.name, member.value = kind, name, value
        _KINDS[key] = member
    return _KINDS[key]


def _exception(parts: list[object]) -> object:
    check_attributes(parts[2:4])
    return failures.build(parts)


def _array(parts: list[object]) -> object:
    import array

    code, items = parts
    buffer: Any = array.array
    return buffer(code, items)


def _textual(parts: list[object]) -> object:
    class_name, text = parts
    if class_name == "builtins.slice":
        text_value: Any = text
        return slice(*text_value)
    if class_name == "datetime.timezone":
        offset: Any = text
        return datetime.timezone(offset)
    if type(class_name) is not str or type(text) is not str:
        raise TypeError("a value without its text")
    return _TEXTUAL[class_name](text)


def _namespace(parts: list[object]) -> object:
    attributes: Any = _pairs(parts)
    check_attributes(attributes.values())
    return SimpleNamespace(**attributes)


def _derived(parts: list[object]) -> object:
    from . import derived_values  # imported late: only the tests' side needs it, and seldom

    return derived_values.build(parts)


BUILD: dict[str, Callable[[list[object]], object]] = {
    "N": _named_tuple, "E": _member, "X": _exception, "S": _namespace, "A": _array,
    "M": lambda parts: MappingProxyType(_pairs(parts)),
    "v": lambda parts: dict(enumerate(parts)).values(),
    "p": lambda parts: _pairs(parts).items(),
    "x": _textual, "V": _derived,
}  # fmt: skip
"""For each tag, the function that rebuilds a value from parts."""
