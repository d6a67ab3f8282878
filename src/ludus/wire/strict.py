"""Strict reading of requests: a field that the protocol does not know is refused by name.

Structs that travel both ways (messages) stay open, so that a client reads the replies of a newer
server. What is strict is therefore not the struct but the reading of a request: each value is held
against the fields of its type, however deep it lies. What is typed `Any` (`info`, a gold, options)
is the business of whoever reads it.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeVar

from msgspec import inspect

from .codec import Format, convert, decode
from .faults import Refused

T = TypeVar("T")
Check = Callable[[Any, str], None]
"""A function of a plain value and its path that raises `Refused` for a field unknown to its type.
"""


def decode_request(data: bytes, as_type: type[T], format: Format = Format.JSON) -> T:
    """Decode and validate a body, and refuse fields that nobody reads.

    Raises:
        Refused: malformed (400), or of the wrong shape (422): the message names the field, and the
            field that was probably meant.
    """
    check = checker(as_type)
    try:
        decoded = decode(data, as_type, format)
    except Refused as error:
        if error.code == "invalid" and check is not None:
            check(decode(data, object, format), "$")  # says more of an unknown field
        raise
    if check is not None and may_hold_more(data, as_type):
        check(decode(data, object, format), "$")
    return decoded


def read_fields(
    data: bytes, from_path: Mapping[str, str], as_type: type[T], format: Format = Format.JSON
) -> T:
    """Read a body as a struct whose other fields, `from_path`, were read from the request's path.

    Raises:
        Refused: as `decode_request` does; also where the body repeats a field of the path.
    """
    fields = decode(data, dict[str, Any], format)
    return _converted(_together(fields, from_path, as_type), as_type, strict=True)


def may_hold_more(data: bytes, as_type: object) -> bool:
    """Say whether `data`, read as `as_type` before, may hold fields unknown to an open struct.

    The answer is a quick search for words. A false alarm costs a second decoding, nothing else.
    """
    return any(word in data for word in open_words(as_type))


def read_item(item: object, as_type: type[T]) -> T:
    """Validate an item of a batch that was decoded before to plain values.

    Raises:
        Refused: the item has the wrong shape or an unknown field (422); the message names the
            field, and the field that was probably meant.
    """
    return _converted(item, as_type, strict=True)


def read_query(
    query: Mapping[str, str], as_type: type[T], given: Mapping[str, str] | None = None
) -> T:
    """Read a query string as a struct, some of whose fields the path may have `given`.

    Raises:
        Refused: a field has the wrong shape or is unknown (422); the message names the field, and
            the field that was probably meant.
    """
    return _converted(_together(query, given or {}, as_type), as_type, strict=False)


def _together(
    fields: Mapping[str, Any], from_path: Mapping[str, str], as_type: Any
) -> dict[str, Any]:
    for name in from_path:
        if name in fields:
            raise Refused(
                unknown_field(name, set(as_type.__struct_fields__) - set(from_path)), "invalid"
            )
    return {**fields, **from_path}


def _converted(item: object, as_type: type[T], *, strict: bool) -> T:
    check = checker(as_type)
    if check is not None:
        check(item, "$")
    return convert(item, as_type, strict=strict)


def checker(as_type: object) -> Check | None:
    """Return the check for unknown fields in plain values of `as_type`; None where none can
    occur.
    """
    return _checker(as_type)


@cache
def _checker(as_type: Any) -> Check | None:
    return _check_of(inspect.type_info(as_type))


def _check_of(kind: inspect.Type) -> Check | None:
    match kind:
        case inspect.Metadata():
            return _check_of(kind.type)
        case inspect.StructType():
            return _of_struct(kind)
        case inspect.ListType() | inspect.VarTupleType():
            check_item = _check_of(kind.item_type)
            if check_item is None:
                return None

            def check_each(value: object, path: str) -> None:
                if isinstance(value, (list, tuple)):
                    for index, item in enumerate(value):
                        check_item(item, f"{path}[{index}]")

            return check_each
        case inspect.DictType():
            check_value = _check_of(kind.value_type)
            if check_value is None:
                return None

            def check_values(value: object, path: str) -> None:
                if isinstance(value, dict):
                    for name, item in value.items():
                        check_value(item, f"{path}.{name}")

            return check_values
        case inspect.UnionType():
            return _of_union(kind)
        case _:
            return None


def _of_struct(kind: inspect.StructType) -> Check:
    names = {field.encode_name for field in kind.fields}
    allowed = names | ({kind.tag_field} if kind.tag_field else set())
    inside = {field.encode_name: _check_of(field.type) for field in kind.fields}
    nested = {name: check_field for name, check_field in inside.items() if check_field is not None}

    def check(value: object, path: str) -> None:
        if not isinstance(value, dict):
            return
        if not value.keys() <= allowed:
            unknown = next(name for name in value if name not in allowed)
            raise Refused(unknown_field(str(unknown), names, path), "invalid")
        for name, check_field in nested.items():
            if name in value:
                check_field(value[name], f"{path}.{name}")

    return check


def _of_union(kind: inspect.UnionType) -> Check | None:
    structs = [member for member in kind.types if isinstance(member, inspect.StructType)]
    by_tag = {member.tag: _of_struct(member) for member in structs if member.tag_field}
    tag_field = next((member.tag_field for member in structs if member.tag_field), None)
    untagged = next((_of_struct(member) for member in structs if not member.tag_field), None)
    listed = next(
        (_check_of(member) for member in kind.types if isinstance(member, inspect.ListType)), None
    )
    if not structs and listed is None:
        return None

    def check(value: object, path: str) -> None:
        if isinstance(value, list):
            check_value = listed
        elif isinstance(value, dict) and tag_field is not None:
            check_value = by_tag.get(value.get(tag_field))
        else:
            check_value = untagged
        if check_value is not None:
            check_value(value, path)

    return check


@cache
def open_words(as_type: object) -> tuple[bytes, ...]:
    """Return words that mark an open struct: bytes with none of these words hold no open struct.

    An open struct lets unknown fields pass, so its bytes need a check beyond validation; a closed
    struct refuses unknown fields by itself. The word of a struct is its tag field, or a required
    field, since either stands in every encoding; for a struct without both, the empty word matches
    any bytes.
    """
    words: set[bytes] = set()
    _gather_words(inspect.type_info(as_type), words)
    return tuple(words)


def _gather_words(kind: inspect.Type, words: set[bytes]) -> None:
    match kind:
        case inspect.Metadata():
            _gather_words(kind.type, words)
        case inspect.StructType() if not kind.forbid_unknown_fields:
            required = [field.encode_name for field in kind.fields if field.required]
            words.add((kind.tag_field or next(iter(required), "")).encode())
        case inspect.StructType():
            for field in kind.fields:
                _gather_words(field.type, words)
        case inspect.ListType() | inspect.VarTupleType():
            _gather_words(kind.item_type, words)
        case inspect.TupleType():
            for item in kind.item_types:
                _gather_words(item, words)
        case inspect.DictType():
            _gather_words(kind.value_type, words)
        case inspect.UnionType():
            for member in kind.types:
                _gather_words(member, words)
        case _:
            return


def unknown_field(name: str, known: set[str], path: str = "$") -> str:
    """Write the message for an unknown field, with the known field that was probably meant.

    >>> unknown_field("glod", {"gold", "response"}, "$.sample")
    "unknown field 'glod' at $.sample; did you mean 'gold'?"
    """
    near = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.5)
    message = f"unknown field {name!r}" + (f" at {path}" if path != "$" else "")
    if near:
        return f"{message}; did you mean {near[0]!r}?"
    return f"{message}; known: {', '.join(sorted(known)) or 'none'}"
