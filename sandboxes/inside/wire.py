"""Plain values between the solution's process and the tests': tagged, exact, bounded, never
pickled.

A value is a flat JSON list of tokens, worked off on a stack, so that neither side recurses and
nesting costs nothing:

    [1, (2.5, "a")]   ->   [1, 2.5, "sa", "(2", "[2"]

A bare number, bool or null is itself; a string's first letter is its tag. Subclasses are sent as
their base type, so that no method of theirs travels. What is not plain stays where it is and is
named by a handle. Containers are numbered in the order they are completed; `@3` is the fourth
again, which keeps aliases.
"""

from __future__ import annotations

import base64
import datetime
import json
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

MAX_BYTES = 16 << 20
"""A longer message is refused."""
MAX_TOKENS = 4_000_000

Token = None | bool | int | float | str
Name = Callable[[object], str]
"""Gives the handle token of an object that stays here."""
Find = Callable[[str], object]
"""Gives the object (or proxy) of a handle token."""

MUTABLE = (list, dict, set, bytearray, deque)
_SMALL = 1 << 53
_OPEN: dict[Any, str] = {list: "[", tuple: "(", set: "{", frozenset: "<"}
_TIMES = (datetime.datetime, datetime.date, datetime.time)
PLAIN_TYPES: dict[str, type] = {
    kind.__name__: kind
    for kind in (
        int,
        float,
        str,
        bytes,
        bool,
        list,
        tuple,
        dict,
        set,
        frozenset,
        complex,
        type(None),
        object,
        type,
    )
}


class Malformed(Exception):
    """The other side sent something that is not a value, or too much."""


class Encoder:
    """Turns values into tokens, remembering the containers it has met.

    Args:
        name: gives the token of what is not plain.
        known: containers both sides already have, by number.
    """

    def __init__(self, name: Name, known: Iterable[object] = ()) -> None:
        self.tokens: list[Token] = []
        self.containers: list[object] = list(known)
        self._numbers = {id(container): number for number, container in enumerate(self.containers)}
        self._open: set[int] = set()
        self._name = name

    def add(self, value: object) -> None:
        """Append the tokens of `value`."""
        work: list[tuple[bool, object, object]] = [(False, value, None)]
        while work:
            complete, item, closing = work.pop()
            if complete:
                self._close(item, closing)
                continue
            if len(self.tokens) > MAX_TOKENS:
                raise Malformed(f"the value has more than {MAX_TOKENS} parts")
            number = self._numbers.get(id(item))
            if number is not None:
                self.tokens.append(f"@{number}")
                continue
            scalar = _scalar(item)
            if scalar is not _NOT_SCALAR:
                self.tokens.append(scalar)  # type: ignore[arg-type]
                continue
            self._open_container(item, work)

    def _open_container(self, item: object, work: list[tuple[bool, object, object]]) -> None:
        opened = _parts(item)
        if opened is None or id(item) in self._open:
            self.tokens.append(self._name(item))
            return
        tag, parts = opened
        self._open.add(id(item))
        work.append((True, item, f"{tag}{len(parts)}"))
        work.extend((False, part, None) for part in reversed(parts))

    def _close(self, item: object, closing: object) -> None:
        self.tokens.append(closing)  # type: ignore[arg-type]
        self._open.discard(id(item))
        self._numbers[id(item)] = len(self.containers)
        self.containers.append(item)  # also keeps it alive, so that its id stays its own

    def update(self, number: int) -> None:
        """Append the present content of container `number`, to replace what the other side has in
        it.
        """
        opened = _parts(self.containers[number])
        if opened is not None:
            for part in opened[1]:
                self.add(part)
            self.tokens.append(f"={number} {len(opened[1])}")


_NOT_SCALAR = object()


def _scalar(item: object) -> object:
    """The one token of a value without parts, or `_NOT_SCALAR`."""
    kind = type(item)
    if item is None or kind is bool or kind is float:
        return item
    if isinstance(item, int):
        whole = int.__add__(item, 0)
        return whole if -_SMALL < whole < _SMALL else f"i{whole:x}"
    if isinstance(item, str):
        return "s" + str.__str__(item)
    if isinstance(item, float):
        return float.__float__(item)
    if isinstance(item, (bytes, bytearray)):
        tag = "b" if isinstance(item, bytes) else "B"
        return tag + base64.b64encode(bytes(item)).decode()
    return _rare_scalar(item)


def _rare_scalar(item: object) -> object:
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
    if isinstance(item, type) and PLAIN_TYPES.get(item.__name__) is item:
        return "T" + item.__name__
    return _array(item)


def _array(item: object) -> object:
    kind = type(item)
    if kind.__module__ != "numpy" or not hasattr(item, "dtype"):
        return _NOT_SCALAR
    array: Any = item  # numpy is loaded only where a program uses it
    if array.dtype.hasobject or array.dtype.names:
        return _NOT_SCALAR
    shape = "x".join(map(str, array.shape)) if kind.__name__ == "ndarray" else "-"
    return f"n{array.dtype.str} {shape} {base64.b64encode(array.tobytes()).decode()}"


def _parts(item: object) -> tuple[str, list[object]] | None:
    """The tag of a container and what is in it."""
    if isinstance(item, Counter):
        return "C", [part for pair in dict.items(item) for part in pair]
    if isinstance(item, dict):
        return "O" if isinstance(item, OrderedDict) else ":", [
            part for pair in dict.items(item) for part in pair
        ]
    if isinstance(item, deque):
        return "d", [item.maxlen, *deque.__iter__(item)]
    if isinstance(item, type({}.keys())):
        return "k", list(item)
    for kind, tag in _OPEN.items():
        if isinstance(item, kind):
            return tag, list(kind.__iter__(item))
    return None


def dumps(tokens: list[Token]) -> bytes:
    """The message."""
    data = json.dumps(tokens, separators=(",", ":")).encode()
    if len(data) > MAX_BYTES:
        raise Malformed(f"the value takes {len(data)} bytes; at most {MAX_BYTES}")
    return data


def loads(data: bytes) -> list[Token]:
    """The tokens of a message; anything but a flat list of scalars is refused.

    Raises:
        Malformed: it is not one.
    """
    if len(data) > MAX_BYTES:
        raise Malformed("the message is too long")
    try:
        tokens = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Malformed("the message is not JSON") from error
    if type(tokens) is not list or len(tokens) > MAX_TOKENS:
        raise Malformed("the message is not a list of tokens")
    return tokens


class Decoder:
    """Builds values from tokens; `containers` numbers them as the encoder did."""

    def __init__(self, find: Find, known: Iterable[object] = ()) -> None:
        self.containers: list[object] = list(known)
        self._find = find

    def values(self, tokens: Iterable[Token]) -> Iterator[object]:
        """Every value of a message, in order.

        Raises:
            Malformed: the tokens are no values.
        """
        stack: list[object] = []
        for token in tokens:
            if type(token) is not str:
                if token is not None and type(token) not in (bool, int, float):
                    raise Malformed(f"a token of type {type(token).__name__}")
                stack.append(token)
                continue
            try:
                self._word(token, stack)
            except Malformed:
                raise
            except Exception as error:
                raise Malformed(f"bad token {token[:40]!r}: {type(error).__name__}") from error
        return iter(stack)

    def _word(self, token: str, stack: list[object]) -> None:
        tag, rest = token[:1], token[1:]
        if tag == "s":
            stack.append(rest)
        elif tag == "@":
            stack.append(self.containers[_number(rest)])
        elif tag == "=":
            number, count = rest.split(" ")
            _replace(self.containers[_number(number)], _pop(stack, _number(count)))
        elif tag in _BUILD:
            built = _BUILD[tag](_pop(stack, _number(rest)))
            self.containers.append(built)
            stack.append(built)
        elif tag in _READ:
            stack.append(_READ[tag](rest))
        elif tag in ("h", "f", "j"):
            stack.append(self._find(token))
        else:
            raise Malformed(f"unknown tag {tag!r}")


def _number(text: str) -> int:
    if not text.isdecimal() or len(text) > 9:
        raise Malformed(f"not a count: {text[:20]!r}")
    return int(text)


def _pop(stack: list[object], count: int) -> list[object]:
    if count > len(stack):
        raise Malformed("a container with more parts than there are")
    if count == 0:
        return []
    parts = stack[-count:]
    del stack[-count:]
    return parts


def _pairs(parts: list[object]) -> dict[object, object]:
    return dict(zip(parts[::2], parts[1::2], strict=True))


def _deque(parts: list[object]) -> deque[object]:
    maxlen, *items = parts
    if maxlen is not None and type(maxlen) is not int:
        raise Malformed("a deque's maxlen is a number or null")
    return deque(items, maxlen)


def _counter(parts: list[object]) -> Counter[object]:
    counted: Counter[object] = Counter()
    values: Any = _pairs(parts)  # a count may be any value
    dict.update(counted, values)
    return counted


_BUILD: dict[str, Callable[[list[object]], object]] = {
    "[": list, "(": tuple, "{": set, "<": frozenset, ":": _pairs, 
    "O": lambda parts: OrderedDict(_pairs(parts)),
    "C": _counter, "d": _deque, "k": lambda parts: dict.fromkeys(parts).keys(),
}  # fmt: skip


def _replace(container: object, parts: list[object]) -> None:
    """Put new content into a container the tests hold."""
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
        raise Malformed("an update of something that cannot change")


def _time(text: str) -> object:
    kind, _, value = text.partition(" ")
    if kind == "d":
        days, seconds, microseconds = map(int, value.split(" "))
        return datetime.timedelta(days, seconds, microseconds)
    kinds = {kind.__name__: kind for kind in _TIMES}
    return kinds[kind].fromisoformat(value)


def _complex(text: str) -> complex:
    real, imaginary = text.split(" ")
    return complex(float.fromhex(real), float.fromhex(imaginary))


def _big(text: str) -> int:
    return int(text, 16)


def _range(text: str) -> range:
    return range(*(int(part, 16) for part in text.split(" ")))


def _read_array(text: str) -> object:
    import numpy

    dtype, shape, data = text.split(" ")
    if "O" in dtype or "V" in dtype:
        raise Malformed("an array of objects")
    flat = numpy.frombuffer(base64.b64decode(data), dtype=numpy.dtype(dtype))
    if shape == "-":
        return flat[0]
    return flat.reshape([int(size) for size in shape.split("x")] if shape else []).copy()


def _decimal(text: str) -> object:
    import decimal  # here and below: only the children that need them load these

    return decimal.Decimal(text)


def _fraction(text: str) -> object:
    import fractions

    return fractions.Fraction(text)


_READ: dict[str, Callable[[str], object]] = {
    "i": _big, "b": base64.b64decode, "c": _complex,
    "B": lambda text: bytearray(base64.b64decode(text)),
    "D": _decimal, "F": _fraction, "t": _time, "r": _range, "e": lambda _: Ellipsis,
    "T": PLAIN_TYPES.__getitem__, "n": _read_array,
}  # fmt: skip
