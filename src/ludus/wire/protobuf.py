"""The encoding of Protocol Buffers, as far as needed for messages of other projects.

A message is a sequence of fields, each a key (number and wire type) and a value. The meaning of a
field is not in the bytes: whoever reads knows the message. Unknown fields are skipped, as the
format asks for.

    data = ProtoWriter().text(1, "model").integer(2, 7).done()
    for number, value in fields(data): ...

Source: protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Self

from .faults import Refused

Value = int | bytes
"""A number of a varint, or the bytes of any other field."""
VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
"""The wire types; groups (3 and 4) are obsolete and refused."""
MAX_VARINT = 10
"""The most bytes of a number of 64 bits."""


class ProtoWriter:
    """A message that is written field by field; values that are the default of proto3 (0, "", no
    bytes) are left out.
    """

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def integer(self, number: int, value: int) -> Self:
        """Write an int32, int64, enum or bool."""
        if value:
            self._parts += [_varint(number << 3 | VARINT), _varint(value & (1 << 64) - 1)]
        return self

    def integers(self, number: int, values: Iterable[int]) -> Self:
        """Write a repeated int64, packed."""
        return self.data(number, b"".join(_varint(value & (1 << 64) - 1) for value in values))

    def double(self, number: int, value: float) -> Self:
        """Write a double, even 0."""
        self._parts += [_varint(number << 3 | FIXED64), struct.pack("<d", value)]
        return self

    def text(self, number: int, value: str) -> Self:
        """Write a string."""
        return self.data(number, value.encode())

    def data(self, number: int, value: bytes, *, always: bool = False) -> Self:
        """Write bytes."""
        if value or always:
            self._parts += [_varint(number << 3 | LENGTH), _varint(len(value)), value]
        return self

    def message(self, number: int, value: ProtoWriter) -> Self:
        """Write a message within this message."""
        return self.data(number, value.done(), always=True)

    def done(self) -> bytes:
        """Return the encoded message."""
        return b"".join(self._parts)


def fields(data: bytes) -> Iterator[tuple[int, Value]]:
    """Yield the number and value of each field in order.

    Raises:
        Refused: the bytes are no message (400).
    """
    place = 0
    while place < len(data):
        key, place = _read_varint(data, place)
        kind = key & 7
        if kind == VARINT:
            value, place = _read_varint(data, place)
            yield key >> 3, value
            continue
        if kind == LENGTH:
            size, place = _read_varint(data, place)
        elif kind in (FIXED64, FIXED32):
            size = 8 if kind == FIXED64 else 4
        else:
            raise Refused(f"the body is no protobuf message: wire type {kind}", "malformed")
        if place + size > len(data):
            raise Refused("the body is no protobuf message: it ends within a field", "malformed")
        yield key >> 3, data[place : place + size]
        place += size


def as_bytes(value: Value) -> bytes:
    """Return the bytes of a field that has a length.

    Raises:
        Refused: the field is a number (400).
    """
    if isinstance(value, int):
        raise Refused("the body is no such message: a number where bytes belong", "malformed")
    return value


def as_text(value: Value) -> str:
    """Return a string field.

    Raises:
        Refused: the field is a number, or no UTF-8 (400).
    """
    try:
        return as_bytes(value).decode()
    except UnicodeDecodeError:
        raise Refused("the body is no such message: a text is not UTF-8", "malformed") from None


def as_integer(value: Value) -> int:
    """Return a signed integer field.

    Raises:
        Refused: the field is no varint (400).
    """
    if isinstance(value, bytes):
        raise Refused("the body is no such message: bytes where a number belongs", "malformed")
    return value - (1 << 64) if value >> 63 else value


def as_integers(value: Value) -> list[int]:
    """Return the numbers of a repeated integer field: a packed list or a single number."""
    if isinstance(value, int):
        return [as_integer(value)]
    place, numbers = 0, list[int]()
    while place < len(value):
        number, place = _read_varint(value, place)
        numbers.append(as_integer(number))
    return numbers


def as_double(value: Value) -> float:
    """Return a double field.

    Raises:
        Refused: the field has not eight bytes (400).
    """
    if isinstance(value, int) or len(value) != 8:
        raise Refused("the body is no such message: a double has eight bytes", "malformed")
    number: float = struct.unpack("<d", value)[0]
    return number


def _varint(value: int) -> bytes:
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def _read_varint(data: bytes, place: int) -> tuple[int, int]:
    value = 0
    for index in range(MAX_VARINT):
        if place + index >= len(data):
            raise Refused("the body is no protobuf message: it ends within a number", "malformed")
        byte = data[place + index]
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return value & (1 << 64) - 1, place + index + 1
    raise Refused("the body is no protobuf message: a number has no end", "malformed")
