"""The notation of a name with constructor arguments: `name?argument=value&other=value`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote, unquote

import msgspec

from ludus.errors import ConfigError

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
    """
    written: list[str] = []
    for key, value in arguments.items():
        # What would not be read back as the same text is written as JSON.
        is_plain = isinstance(value, str) and read_value(value) == value
        text = value if is_plain else msgspec.json.encode(value).decode()
        written.append(f"{quote(key)}={quote(text, safe='')}")
    return f"{name}?{'&'.join(written)}" if written else name


def told_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Select the arguments that clients are told: plain data whose name does not mark a secret.

    >>> told_arguments({"n": 2, "api_key": "abc", "model": object()})
    {'n': 2}
    """
    plain = (str, int, float, bool, list, dict)
    return {
        name: value
        for name, value in arguments.items()
        if isinstance(value, plain) and not any(word in name.lower() for word in SECRET)
    }


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
    except (msgspec.DecodeError, UnicodeEncodeError):
        return text
