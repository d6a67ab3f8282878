"""Bytes on the wire."""

from __future__ import annotations

import msgspec
import numpy
import pytest

from ludus.wire.codec import Encoded, Format, accepted, decode, encode, format_of
from ludus.wire.faults import Refused


class Point(msgspec.Struct, forbid_unknown_fields=True):
    x: int
    label: str = ""


@pytest.mark.parametrize("format", list(Format))
def test_what_is_encoded_decodes_to_the_same(format: Format) -> None:
    data, became = encode(Point(3, "ä\n🙂"), format)
    assert became is format
    assert decode(data, Point, format) == Point(3, "ä\n🙂")


def test_integers_beyond_64_bits_go_as_json_where_msgpack_has_none() -> None:
    data, became = encode({"big": 10**30}, Format.MSGPACK)
    assert became is Format.JSON
    assert decode(data, dict[str, int]) == {"big": 10**30}


@pytest.mark.parametrize("format", list(Format))
def test_numpy_numbers_and_arrays_are_sent_as_plain_ones(format: Format) -> None:
    value = {"a": numpy.float32(0.5), "b": numpy.arange(3), "c": numpy.bool_(True)}
    long = {"d": numpy.longdouble(0.25), "e": numpy.ones((1, 2), dtype=numpy.longdouble)}
    data, _ = encode(value | long, format)
    plain = {"a": 0.5, "b": [0, 1, 2], "c": True, "d": 0.25, "e": [[1.0, 1.0]]}
    assert decode(data, dict[str, object], format) == plain


@pytest.mark.parametrize("value", [object(), {"x": {1, object()}}, "\ud800", numpy.clongdouble(1)])
def test_what_cannot_be_sent_is_refused_when_encoded(value: object) -> None:
    for format in Format:
        with pytest.raises((TypeError, ValueError)):
            encode(value, format)


@pytest.mark.parametrize(
    ("data", "code"), [(b"{", "malformed"), (b'{"x": "1"}', "invalid"), (b'{"y": 1}', "invalid")]
)
def test_malformed_bytes_are_told_from_a_wrong_shape(data: bytes, code: str) -> None:
    with pytest.raises(Refused) as caught:
        decode(data, Point)
    assert caught.value.code == code


@pytest.mark.parametrize("format", Format)
def test_an_empty_body_is_called_empty(format: Format) -> None:
    with pytest.raises(Refused, match="the body is empty"):
        decode(b"", Point, format)


def test_formats_are_read_from_headers() -> None:
    assert format_of("application/json; charset=utf-8") is Format.JSON
    assert format_of("application/x-msgpack") is Format.MSGPACK
    assert format_of("text/html") is None
    assert accepted("text/html, application/msgpack", Format.JSON) is Format.MSGPACK
    assert accepted("*/*", Format.MSGPACK) is Format.MSGPACK


def test_bytes_that_are_encoded_already_pass_through_unchanged() -> None:
    made = Encoded.of({"observation": "x" * 1000, "image": b"png"})
    whole, _ = encode(made, Format.MSGPACK)
    assert whole is made.data
    inside, _ = encode({"items": [made, None]}, Format.MSGPACK)
    assert inside.endswith(made.data + b"\xc0")


def test_encoded_bytes_of_the_other_format_are_encoded_again() -> None:
    made = Encoded.of({"x": 1.5, "image": b"hi", "list": [1, None]})
    body, became = encode({"items": [made]}, Format.JSON)
    assert became is Format.JSON
    assert body == b'{"items":[{"x":1.5,"image":"aGk=","list":[1,null]}]}'


def test_encoded_bytes_that_msgpack_cannot_hold_make_the_whole_reply_json() -> None:
    made = Encoded.of({"big": 10**30})
    assert made.format is Format.JSON
    body, became = encode({"items": [made]}, Format.MSGPACK)
    assert became is Format.JSON
    assert decode(body, dict[str, object]) == {"items": [{"big": 10**30}]}
