"""Addresses: hosts and sockets, and names with arguments."""

from __future__ import annotations

import errno
import ipaddress
import math
import os
import socket
import stat
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import quote, unquote

import msgspec

from ludus.errors import ConfigError

from .faults import Refused

BACKLOG = 1024


def is_loopback(host: str) -> bool:
    """Say whether `host`, a name or an IP address, can be reached from this machine alone."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_host(host: str) -> None:
    """Refuse a request that addresses a server without a token by a name other than localhost.

    This stops DNS rebinding: a web page whose own name is made to resolve to 127.0.0.1 could
    otherwise use a visitor's browser to reach a server that asks for no token.

    Args:
        host: the value of the request's `Host` header, with or without a port.

    Raises:
        Refused: `host` is neither localhost nor a loopback address (421).
    """
    bare = host[1:].partition("]")[0] if host.startswith("[") else host.rpartition(":")[0] or host
    if not is_loopback(bare):
        raise Refused(
            f"this server has no token and answers only to localhost, not to {host!r}; "
            "start it with --token to use another name",
            "misdirected",
        )


def listen(host: str, port: int) -> socket.socket:
    """Bind `host` and `port`, and return a socket that listens without blocking.

    A server listens before its services are built, so that a taken port fails at once and clients
    that connect early wait in the backlog instead of being refused.

    Raises:
        OSError: the port is taken or no port, or the host is not an address of this machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)  # with SO_REUSEADDR, only this makes it ours
    except (OSError, OverflowError, TypeError) as error:
        listener.close()
        if isinstance(error, OSError):
            raise
        raise OSError(errno.EADDRNOTAVAIL, str(error)) from None  # no port, or no host's name
    listener.setblocking(False)
    return listener


def listen_at(path: str) -> socket.socket:
    """Bind a Unix socket for this user alone, and return a socket that listens without blocking. A
    socket that a server has left behind is replaced.

    Raises:
        OSError: a server listens there, or the path cannot be bound.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with suppress(FileNotFoundError), socket.socket(socket.AF_UNIX) as probe:
            probe.setblocking(False)  # a server whose backlog is full would let it wait
            if probe.connect_ex(path) in (0, errno.EAGAIN):
                raise OSError(errno.EADDRINUSE, "a server listens there")
            if stat.S_ISSOCK(os.stat(path).st_mode):
                os.unlink(path)
        before = os.umask(0o177)
        try:
            listener.bind(path)
        finally:
            os.umask(before)
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    listener.setblocking(False)
    return listener


SECRET = ("token", "key", "secret", "password")
"""Words that mark an argument as secret when its name contains one; clients are not told its value.
"""


def parse_served(text: str) -> tuple[str, dict[str, Any]]:
    """Split the notation into a name and constructor arguments; a value is JSON, or else text.

    >>> parse_served("me/echo-v0?n=2&word=vale")
    ('me/echo-v0', {'n': 2, 'word': 'vale'})

    Raises:
        ConfigError: an argument has no name or no `=`, or is given twice.
    """
    name, _, query = text.partition("?")
    arguments: dict[str, Any] = {}
    for item in filter(None, query.split("&")):
        key, equals, value = item.partition("=")
        if not equals or not key:
            raise ConfigError(
                f"cannot read {item!r} of {text!r}; write 'name?argument=value&other=value'"
            )
        if unquote(key) in arguments:
            raise ConfigError(f"{text!r} gives {unquote(key)!r} twice; give it once")
        arguments[unquote(key)] = read_value(unquote(value))
    return name, arguments


def format_served(name: str, arguments: Mapping[str, Any]) -> str:
    """Write a name and arguments in the notation that `parse_served` reads.

    >>> format_served("me/echo-v0", {"n": 2, "word": "a b", "digits": "12"})
    'me/echo-v0?n=2&word=a%20b&digits=%2212%22'
    >>> parse_served(_)
    ('me/echo-v0', {'n': 2, 'word': 'a b', 'digits': '12'})

    Raises:
        ConfigError: a value is no plain data, or a number is not finite: JSON has none, and it
            would be read as no value.
    """
    written: list[str] = []
    for key, value in arguments.items():
        # What would not be read back as the same text is written as JSON.
        is_plain = isinstance(value, str) and read_value(value) == value
        if not is_finite(value):
            raise ConfigError(
                f"{name}: argument {key!r} holds a number that is not finite, got {value!r:.80}"
            )
        try:
            text = value if is_plain else msgspec.json.encode(value).decode()
            written.append(f"{quote(key)}={quote(text, safe='')}")
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"{name}: argument {key!r} must be plain data (texts, numbers, lists, mappings), "
                f"got {value!r:.80}: {error}"
            ) from None
    return f"{name}?{'&'.join(written)}" if written else name


def is_finite(value: object) -> bool:
    """Whether a value of plain data holds no NaN and no infinity, however deep.

    >>> is_finite({"rates": [0.5, float("nan")]})
    False
    """
    if isinstance(value, Mapping):
        return all(map(is_finite, value.values()))
    if isinstance(value, list | tuple):
        return all(map(is_finite, value))
    return not isinstance(value, float) or math.isfinite(value)


def told_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Select the arguments that clients are told: plain data whose name does not mark a secret,
    however deep it stands.

    >>> told_arguments({"n": 2, "api_key": "abc", "model": object(), "judge": [{"key": "abc"}]})
    {'n': 2, 'judge': [{}]}
    """
    plain = (str, int, float, bool, list, dict)
    return {
        name: _told(value)
        for name, value in arguments.items()
        if isinstance(value, plain) and not _is_secret(name)
    }


def _told(value: Any) -> Any:
    if isinstance(value, dict):
        fields: dict[Any, Any] = value
        return {name: _told(inner) for name, inner in fields.items() if not _is_secret(str(name))}
    if isinstance(value, list):
        items: list[Any] = value
        return [_told(item) for item in items]
    return value


def _is_secret(name: str) -> bool:
    return any(word in name.lower() for word in SECRET)


def refuse_repeated(names: Iterable[str]) -> None:
    """Refuse to serve two things under the same name, since a client could not say which was meant.

    Raises:
        ConfigError: a name occurs twice.
    """
    for name, count in Counter(names).items():
        if count > 1:
            raise ConfigError(
                f"{name!r} is named {count} times; one server offers one of a name: use two "
                "ports, or register one under a name of its own"
            )


def read_value(text: str) -> object:
    """Read a value from a command line or a served name: JSON, or else the text itself.

    >>> read_value("2"), read_value("vale")
    (2, 'vale')
    """
    try:
        return msgspec.json.decode(text.encode())
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return text
