"""Admission, affinity, arguments, chaos."""

from __future__ import annotations

from contextlib import suppress

import pytest

from ludus.errors import ConfigError
from ludus.wire.address import parse_served
from ludus.wire.admission import Admission
from ludus.wire.chaos import Chaos
from ludus.wire.faults import QueueFull, Refused
from ludus.wire.principals import ANYONE


def test_admission_bounds_all_and_each_key() -> None:
    admission = Admission(3, per_key=2)
    admission.enter("a")
    admission.enter("a")
    with pytest.raises(QueueFull, match="the queue of a is full: 2 of 2"):
        admission.enter("a")
    admission.leave("a", 0.1, ANYONE)
    admission.enter("a")
    admission.enter("b")
    admission.enter("c")  # every key has its share, though all places are taken
    with pytest.raises(QueueFull, match="the server's queue is full: 4 of 3"):
        admission.enter("c")
    for key in "def":
        with suppress(QueueFull):
            admission.enter(key)
    assert admission.depth <= 6


def test_the_time_to_come_back_follows_how_long_operations_take() -> None:
    admission = Admission(1)
    for _ in range(100):
        admission.enter("a")
        admission.leave("a", 4.0, ANYONE)
    assert 3.9 < admission.retry_after_s < 4.1


def test_arguments_are_json_or_text() -> None:
    assert parse_served("a/b-v0?n=2&word=vale&ops=+-&deep=[1,2]&flag=true&q=%22x%26y%22") == (
        "a/b-v0",
        {"n": 2, "word": "vale", "ops": "+-", "deep": [1, 2], "flag": True, "q": "x&y"},
    )
    with pytest.raises(ConfigError, match="'n'"):
        parse_served("a/b-v0?n")


def test_chaos_is_read_and_checked() -> None:
    chaos = Chaos.parse("drop=0.1, delay=0.2:0.5,error=1")
    assert (chaos.drop, chaos.delay, chaos.delay_s, chaos.error) == (0.1, 0.2, 0.5, 1.0)
    for wrong in ("drop=2", "drop=x", "dorp=0.1", "delay=0.1:x", "delay=0.1:-1"):
        with pytest.raises(ConfigError):
            Chaos.parse(wrong)


async def test_chaos_strikes_as_often_as_asked() -> None:
    chaos, struck = Chaos.parse("error=0.25", seed=1), list[str]()
    for _ in range(4000):
        with suppress(Refused):
            await chaos.before(struck.append)
    assert set(struck) == {"error"}
    assert 900 < len(struck) < 1100
