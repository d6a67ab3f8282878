"""Encoding of bodies: JSON, or msgpack where both sides ask for msgpack.

Structs are validated here, once. Two errors are told apart: bytes that are not in the format at all
(400), and a value of the wrong shape (422, naming the field).

A stream is a WebSocket. A frame of a client is a list of `[number, operation]`, or of `[number,
operation, traceparent]` where an operation belongs to a trace. A frame of the server is a list of
`[number, status, body]`; an operation is answered as soon as it is done, and no answer waits for
another. Binary frames are msgpack, text frames are JSON. The first frame of the server is a
`Hello`.

A stream holds no state. Sessions are named and operations numbered as over plain HTTP, so whatever
was under way when a connection broke is sent again on the next connection, or by another route.
"""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from enum import StrEnum
from functools import lru_cache, partial
from typing import Any, Generic, TypeVar

import msgspec
import numpy

from .faults import Refused

T = TypeVar("T")


class Format(StrEnum):
    """A content type that servers and clients speak."""

    JSON = "application/json"
    MSGPACK = "application/msgpack"


asked_format: ContextVar[Format] = ContextVar("ludus_asked_format", default=Format.MSGPACK)
"""The format that the reply to the current request will have. Code that builds a large reply may
encode straight into it, so that the reply is encoded once.
"""


request_id: ContextVar[str] = ContextVar("ludus_request_id", default="")
"""The id of the request that is being answered, which its reply and its errors carry."""
trace_parent: ContextVar[str] = ContextVar("ludus_trace_parent", default="")
"""The `traceparent` (W3C Trace Context, level 1) of what is being done; our clients send it on."""


class Unkept(asyncio.Future[T]):
    """A future of work whose outcome nobody can ask for later, so that it is cancelled with the
    stream that asked; tasks are, too. The outcome of a session's operation is kept.
    """


class Encoded:
    """A reply that somebody else has encoded already, a worker process for example.

    It may be a whole body or stand anywhere inside one. In a body of its own format its bytes are
    copied as they are; in one of the other format they are decoded and encoded again.

    Args:
        data: the bytes; they must be one valid value of `format`, which nobody checks again.
        format: the format of the bytes.
    """

    __slots__ = ("data", "format")  # no dataclass: msgspec would encode one by itself

    def __init__(self, data: bytes, format: Format = Format.MSGPACK) -> None:
        self.data = data
        self.format = format

    def __repr__(self) -> str:
        return f"Encoded({len(self.data)} bytes of {self.format.value})"

    @classmethod
    def of(cls, value: object) -> Encoded:
        """Encode `value` as msgpack, or as JSON if some integer inside is beyond 64 bits.

        Raises:
            TypeError, ValueError: something inside cannot be sent.
        """
        return cls(*encode(value, Format.MSGPACK))

    def decoded(self) -> object:
        """Return the value as plain dictionaries, lists, texts and numbers."""
        decoder = _plain_msgpack if self.format is Format.MSGPACK else _plain_json
        return decoder.decode(self.data)

    def inside(self, format: Format) -> object:
        """Return an object that an encoder of `format` writes as this value."""
        return msgspec.Raw(self.data) if format is self.format else self.decoded()


def encode(value: object, format: Format = Format.JSON) -> tuple[bytes, Format]:
    """Encode `value`, and return the bytes with the format that was used.

    msgpack has no integers beyond 64 bits, so a value with such an integer is sent as JSON.

    Raises:
        TypeError, ValueError: something inside cannot be sent.
    """
    if isinstance(value, Encoded) and value.format is format:
        return value.data, format
    if format is Format.MSGPACK:
        try:
            return _msgpack_encoder.encode(value), format
        except OverflowError:
            pass
    return _json_encoder.encode(value), Format.JSON


def decode(data: bytes | msgspec.Raw, as_type: type[T], format: Format = Format.JSON) -> T:
    """Decode `data` and validate the value as `as_type`.

    Raises:
        Refused: `data` is not in the format (400), or the value has the wrong shape (422).
    """
    try:
        key = (as_type, format)
        if key not in _decoders:
            decoder_type = (
                msgspec.msgpack.Decoder if format is Format.MSGPACK else msgspec.json.Decoder
            )
            _decoders[key] = decoder_type(as_type)
        decoded: T = _decoders[key].decode(data)
    except msgspec.ValidationError as error:
        raise Refused(str(error), "invalid") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        if not bytes(data):
            raise Refused(f"the body is empty, not {_SPOKEN[format]}", "malformed") from None
        raise Refused(f"the body is not {_SPOKEN[format]}: {error}", "malformed") from None
    except RecursionError:
        raise Refused("the body is nested too deeply", "malformed") from None
    return decoded


def convert(value: object, as_type: type[T], *, strict: bool = True) -> T:
    """Validate a value that was decoded before to plain dictionaries, lists, texts and numbers.

    Args:
        value: the plain value.
        as_type: the type to validate as.
        strict: False also reads texts as numbers where numbers are asked for (query strings).

    Raises:
        Refused: the value has the wrong shape (422, naming the field).
    """
    try:
        return msgspec.convert(value, as_type, strict=strict)
    except msgspec.ValidationError as error:
        raise Refused(str(error), "invalid") from None


@lru_cache(64)  # few are ever sent
def format_of(content_type: str) -> Format | None:
    """Return the format that a `Content-Type` names, or None for any other type.

    >>> format_of("application/json; charset=utf-8").name
    'JSON'
    """
    bare = content_type.partition(";")[0].strip().lower()
    return _BY_NAME.get(bare)


def accepted(accept: str, otherwise: Format) -> Format:
    """Choose the format of a reply: the first known format in `Accept`, or else `otherwise`."""
    for name in accept.split(","):
        format = format_of(name)
        if format is not None:
            return format
    return otherwise


def _sendable(format: Format, value: object) -> object:
    """Convert what msgspec cannot encode by itself to what an encoder of `format` writes: encoded
    replies, and the numpy numbers and arrays that environments put into `info`.
    """
    if isinstance(value, Encoded):
        return value.inside(format)
    if isinstance(value, numpy.longdouble):
        return float(value)
    # `tolist` leaves numbers of more than 64 bits as they are.
    if isinstance(value, (numpy.generic, numpy.ndarray)) and not isinstance(
        value, numpy.clongdouble
    ):
        return value.tolist()
    raise TypeError(f"a {type(value).__name__} cannot be sent: {value!r:.80}")


_SPOKEN = {Format.JSON: "JSON", Format.MSGPACK: "msgpack"}
_BY_NAME: dict[str, Format] = {
    **{member.value: member for member in Format},
    "application/x-msgpack": Format.MSGPACK,
    "application/vnd.msgpack": Format.MSGPACK,
}


_json_encoder = msgspec.json.Encoder(enc_hook=partial(_sendable, Format.JSON))
_msgpack_encoder = msgspec.msgpack.Encoder(enc_hook=partial(_sendable, Format.MSGPACK))
_plain_json = msgspec.json.Decoder()
_plain_msgpack = msgspec.msgpack.Decoder()

_decoders: dict[tuple[object, Format], Any] = {}


PROTOCOL = 1
"""The version of the protocol; a client refuses a server of another one."""
PATH = "/v1/stream"
SEE_OTHER = 303
"""The status of an answer that cannot travel over the stream, most often because it is too large;
the operation sent again to its own route is answered there.
"""
MAX_ITEMS = 32
"""The most operations or answers in one frame: few enough that client and server work at the same
time, each on frames that the other has done with.
"""
FRAME_BYTES = 1 << 17
"""A frame that has reached so many bytes takes no more answers."""
LARGE_BYTES = 1 << 19
"""The largest answer in bytes; a larger one would hold up the other answers of its connection."""


class Hello(msgspec.Struct, frozen=True, kw_only=True):
    """The first message of a server on a stream."""

    instance: str
    max_bytes: int
    """The largest frame in bytes that the client may send."""
    protocol: int = PROTOCOL
    takes_traces: bool = False
    """Whether an operation may have a `traceparent` behind it; an older server refuses one."""


class Sent(
    msgspec.Struct, Generic[T], frozen=True, array_like=True, forbid_unknown_fields=True, gc=False
):
    """An operation in a frame of a client."""

    number: int
    """Chosen by the client, and sent back with the answer."""
    operation: T
    trace: str = ""
    """The `traceparent` of the operation; empty for that of the request which opened the stream."""
