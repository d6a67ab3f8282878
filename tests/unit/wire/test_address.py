"""Names with arguments, and who is told of them; which hosts are this machine."""

from __future__ import annotations

import math
import socket
from contextlib import ExitStack
from pathlib import Path

import pytest

from ludus.errors import ConfigError
from ludus.wire.address import (
    check_host,
    format_served,
    listen,
    listen_at,
    parse_served,
    read_value,
    told_arguments,
)
from ludus.wire.faults import Refused


def test_a_secret_is_told_to_nobody_however_deep_it_stands() -> None:
    judge = {"url": "http://a", "api_key": "abc", "more": [{"token": "t", "n": 1}, ["password"]]}
    told = told_arguments({"n": 2, "my_secret": "s", "model": object(), "judge": judge})
    assert told == {"n": 2, "judge": {"url": "http://a", "more": [{"n": 1}, ["password"]]}}
    assert judge["api_key"] == "abc"


def test_a_value_that_json_cannot_read_is_text() -> None:
    deep = "[" * 100_000
    for text in (deep, "NaN", "1e999", "\ud800"):
        assert read_value(text) == text
    assert parse_served(f"me/env-v0?x={deep}") == ("me/env-v0", {"x": deep})


@pytest.mark.parametrize("value", [math.nan, math.inf, [1.0, -math.inf], {"a": [math.nan]}])
def test_a_number_that_no_address_can_hold_is_refused(value: object) -> None:
    with pytest.raises(ConfigError, match=r"me/env-v0: argument 'rate' holds a number that is not"):
        format_served("me/env-v0", {"n": 2.5, "rate": value})


@pytest.mark.parametrize("value", [object(), ["a", {1, object()}], "\ud800", ["\ud800"]])
def test_a_value_that_is_no_plain_data_is_refused_by_its_name(value: object) -> None:
    with pytest.raises(ConfigError, match=r"me/env-v0: argument 'model' must be plain data"):
        format_served("me/env-v0", {"n": 2.5, "model": value})


@pytest.mark.parametrize("host", ["localhost", "LocalHost:80", "127.0.0.2:1", "[::1]:80"])
def test_a_host_of_this_machine_is_let_in(host: str) -> None:
    check_host(host)


@pytest.mark.parametrize("host", ["", "localhost.evil.com", "127.0.0.1.evil.com:80", "10.0.0.1"])
def test_another_host_is_refused(host: str) -> None:
    with pytest.raises(Refused):
        check_host(host)


@pytest.mark.parametrize(
    ("host", "port", "reason"),
    [("127.0.0.1", 70_000, "0-65535"), ("127.0.0.1", -1, "0-65535"), ("é..x", 0, "hostname")],
)
def test_what_cannot_be_bound_is_an_error_of_the_system(host: str, port: int, reason: str) -> None:
    with pytest.raises(OSError, match=reason):
        listen(host, port)


def test_a_server_that_accepts_nobody_still_holds_its_socket(tmp_path: Path) -> None:
    path = str(tmp_path / "socket")
    with ExitStack() as opened:
        server = opened.enter_context(socket.socket(socket.AF_UNIX))
        server.bind(path)
        server.listen(0)
        for _ in range(2):  # the first waits to be accepted, and fills the backlog
            client = opened.enter_context(socket.socket(socket.AF_UNIX))
            client.setblocking(False)
            client.connect_ex(path)
        with pytest.raises(OSError, match="a server listens there"):
            listen_at(path)
    listen_at(path).close()
