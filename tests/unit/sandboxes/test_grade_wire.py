"""The plain-value wire: exact round trips, aliases, and refusal of everything that is not a
value.
"""

# ruff: noqa: E501 - programs and values, one to a line
from __future__ import annotations

import array
import datetime
import http
import ipaddress
import math
import pathlib
import re
import uuid
from collections import Counter, OrderedDict, deque
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from ludus.sandboxes.guest.testing import value_wire
from ludus.sandboxes.guest.testing.harness import plain
from ludus.sandboxes.guest.testing.values import made_again


def no_handle(item: object) -> str:
    raise TypeError(f"{item!r} is not plain")


def send(*values: object) -> list[object]:
    encoder = value_wire.Encoder(no_handle)
    for value in values:
        encoder.add(value)
    return list(
        value_wire.Decoder(no_find).values(value_wire.loads(value_wire.dumps(encoder.tokens)))
    )


def no_find(token: str) -> object:
    raise value_wire.Malformed(token)


VALUES: list[object] = [
    None, True, 0, -1, 2**53, -(2**200), 0.1, -0.0, 1e308, math.inf, "", "ä\ud800\0", "\ud83d" "\ude00", ["\ud83d" "\ude00", "😀\u2028"], b"\xff", 2 + 3j, (), [], {}, set(),
    frozenset({1}), [1, [2, (3,)]], {"a": [1], 2: None}, {(1, 2): {3}}, range(3, 9, 2), Decimal("1.10"), Fraction(1, 3),
    datetime.datetime(2024, 2, 29, 1, 2, 3, 4), datetime.date(2024, 2, 29), datetime.time(1), datetime.timedelta(1, 2, 3),
    deque([1, 2], 5), Counter("aab"), OrderedDict(a=1), Ellipsis, slice(1, None, 2),
    datetime.timezone(datetime.timedelta(hours=2)), uuid.UUID(int=7), array.array("i", [1, 2]),
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_plain_value_arrives_as_it_was(value: object) -> None:
    (arrived,) = send(value)
    assert arrived == value
    assert type(arrived) is type(value)
    assert repr(arrived) == repr(value)


def test_a_class_arrives_as_what_is_equal_to_it_and_cannot_be_called() -> None:
    (arrived, pairs) = send(int, {int: [str]})
    assert [arrived] == [int]
    assert [arrived] != [str]
    assert pairs == {int: [str]}
    assert not callable(arrived)
    assert not hasattr(arrived, "kind")  # which tests may call as a method
    assert send(arrived) == [int]


def test_nan_arrives_as_nan() -> None:
    (arrived,) = send(math.nan)
    assert isinstance(arrived, float)
    assert math.isnan(arrived)


def test_numpy_arrays_and_scalars_arrive_with_type_and_shape() -> None:
    numpy = pytest.importorskip("numpy")
    sent = numpy.arange(6, dtype="int16").reshape(2, 3), numpy.float32(0.5)
    arrived: list[Any] = send(*sent)
    assert arrived[0].dtype == sent[0].dtype
    assert arrived[0].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert type(arrived[1]) is numpy.float32


def test_subclasses_arrive_as_their_base_type() -> None:
    class Sly(list):  # type: ignore[type-arg]
        def __eq__(self, other: object) -> bool:
            return True

    class Number(int):
        def __eq__(self, other: object) -> bool:
            return True

    arrived = send(Sly([1]), Number(3))
    assert [type(value) for value in arrived] == [list, int]


LIBRARY: list[object] = [
    2 + 3j, Decimal("1.10"), Fraction(1, 3), uuid.UUID(int=7), pathlib.PurePosixPath("/a/b"),
    ipaddress.ip_address("10.0.0.1"), datetime.datetime(2024, 2, 29, 1), datetime.date(2024, 2, 29),
    datetime.time(1), datetime.timedelta(1, 2, 3),
]  # fmt: skip


@pytest.mark.parametrize("value", LIBRARY, ids=repr)
def test_no_attribute_of_a_subclass_changes_the_value_that_arrives(value: object) -> None:
    def lies(*_: object) -> object:
        return 7

    kind: Any = type(value)
    read = "real imag numerator denominator days seconds microseconds start stop step".split()  # noqa: SIM905
    text = ["__str__", "__repr__", "isoformat", "__eq__"]
    methods = {**dict.fromkeys(read, property(lies)), **dict.fromkeys(text, lies)}
    liar = type("Liar", (kind,), {**methods, "__hash__": kind.__hash__})
    (arrived,) = send(made_again(liar, value))
    assert type(arrived) is kind
    assert arrived == value


def test_a_member_arrives_as_the_member_of_the_library_s_enumeration() -> None:
    assert send(http.HTTPStatus.OK, [re.IGNORECASE]) == [http.HTTPStatus.OK, [re.IGNORECASE]]
    (arrived,) = send(http.HTTPStatus.OK)
    assert arrived is http.HTTPStatus.OK


@pytest.mark.parametrize(
    "name",
    [
        ("unittest.mock", "call"),
        ("unittest.mock", "sentinel"),
        ("enum", "Enum"),
        ("builtins", "eval"),
        ("os", "environ"),
    ],
)
def test_a_name_of_the_library_that_is_no_enumeration_is_never_called(
    name: tuple[str, str],
) -> None:
    """`call` of `unittest.mock` answers every attribute, and every call, with what is true."""
    import unittest.mock  # noqa: F401 - loaded, as where tests use it

    try:
        (arrived,) = value_wire.Decoder(no_find).values([["E", *name, "A", 7]])
    except value_wire.Malformed:
        return
    assert type(arrived) is int
    assert arrived == 7


def test_aliases_stay_aliases() -> None:
    shared: list[int] = []
    outer, again = send([shared, shared], [])
    assert isinstance(outer, list)
    outer[0].append(1)
    assert outer[1] == [1]
    assert again == []


def test_nesting_of_any_depth_neither_recurses_nor_fails() -> None:
    value: list[object] = []
    for _ in range(50_000):
        value = [value]
    (arrived,) = send(value)
    depth = 0
    while isinstance(arrived, list) and arrived:
        arrived, depth = arrived[0], depth + 1
    assert depth == 50_000


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary(),
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text() | st.integers(), inner)
    ),
)


@settings(max_examples=60, deadline=None)
@given(PLAIN)
def test_any_nest_of_plain_values_makes_the_round_trip(value: object) -> None:
    assert send(value) == [value]


def _joined(tag: str, rest: str) -> str:
    return tag + rest


TOKENS = st.lists(
    st.one_of(
        st.none(), st.booleans(), st.integers(-10, 10), st.floats(), st.text(max_size=8),
        st.builds(_joined, st.sampled_from("s@=[({<:OCdkvpMNEXSxVibBeTnahfj"), st.text("0123456789abc ./", max_size=6)),
    ),
    max_size=12,
)  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(TOKENS)
def test_any_tokens_give_values_or_are_refused_and_nothing_else(
    tokens: list[value_wire.Token],
) -> None:
    try:
        list(value_wire.Decoder(no_find).values(tokens))
    except value_wire.Malformed:
        return


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes_give_tokens_or_are_refused(data: bytes) -> None:
    try:
        assert isinstance(value_wire.loads(data), list)
    except value_wire.Malformed:
        return


@pytest.mark.parametrize("data", [b"[" * 100_000, b"{}", b"3", b"[[1]]", b"[" + b"9" * 5000 + b"]"])
def test_nested_foreign_or_oversized_json_is_refused(data: bytes) -> None:
    with pytest.raises(value_wire.Malformed):
        list(value_wire.Decoder(no_find).values(value_wire.loads(data)))


def shape(value: object, seen: dict[int, int]) -> object:
    """Return a tree that is equal for values alike in types, items and aliases."""
    if not isinstance(value, (list, tuple, dict, deque)):
        return value
    if id(value) in seen:
        return "seen", seen[id(value)]
    seen[id(value)] = len(seen)
    items = [x for pair in value.items() for x in pair] if isinstance(value, dict) else value
    return type(value), *(shape(item, seen) for item in items)


@given(st.lists(st.sampled_from("ldqt"), min_size=1, max_size=8), st.data())
@settings(max_examples=200, deadline=None)
def test_containers_that_contain_each_other_keep_their_shape(
    kinds: str, data: st.DataObject
) -> None:
    made: list[Any] = []
    for kind in kinds:
        known = data.draw(st.lists(st.sampled_from(made), max_size=3)) if made else []
        kept: dict[str, Any] = {
            "l": list,
            "d": lambda items: dict(enumerate(items)),
            "q": deque,
            "t": tuple,
        }
        made.append(kept[kind](known))
    for container in made:
        for item in data.draw(st.lists(st.sampled_from(made), max_size=3)):
            if isinstance(container, dict):
                container[len(container)] = item
            elif not isinstance(container, tuple):
                container.append(item)
    arrived = send(*made, [1, made[0]])
    assert shape(arrived, {}) == shape([*made, [1, made[0]]], {})


def test_tuples_become_lists_at_any_depth_and_in_values_that_contain_themselves() -> None:
    deep: object = ()
    for _ in range(100_000):
        deep = (deep,)
    lists = plain(deep)
    depth = 0
    while isinstance(lists, list) and lists:
        (lists,), depth = lists, depth + 1
    assert (depth, lists) == (100_000, [])
    loop: list[Any] = [(1, 2)]
    loop.append({"again": (loop,)})
    copied: Any = plain(loop)
    assert copied[0] == [1, 2]
    assert copied[1]["again"][0] is copied
    many: tuple[Any, ...] = (1,)
    for _ in range(60):  # 2 ** 60 ways to the number
        many = (many, many)
    assert shape(plain(many), {})
