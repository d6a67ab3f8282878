"""What is served, as one word: `name?argument=value&other=value`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote, unquote

import msgspec

from ludus.errors import ConfigError

SECRET = ("token", "key", "secret", "password")
"""Words in the name of an argument whose value is not told."""


def parse_served(text: str) -> tuple[str, dict[str, Any]]:
    """Split into name and constructor arguments; a value is JSON, or else text.

    >>> parse_served("me/echo-v0?n=2&word=vale")
    ('me/echo-v0', {'n': 2, 'word': 'vale'})

    Raises:
        ConfigError: an argument without a value, or given twice.
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
    """The inverse of `parse_served`.

    >>> format_served("me/echo-v0", {"n": 2, "word": "a b", "digits": "12"})
    'me/echo-v0?n=2&word=a%20b&digits=%2212%22'
    >>> parse_served(_)
    ('me/echo-v0', {'n': 2, 'word': 'a b', 'digits': '12'})
    """
    said = "&".join(f"{quote(key)}={_written(value)}" for key, value in arguments.items())
    return f"{name}?{said}" if said else name


def told_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Those that clients are told: plain data, and no secret by its name.

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
    """Refuse two things under one name: a client could not say which it means.

    Raises:
        ConfigError: a name is there twice.
    """
    for name, count in Counter(names).items():
        if count > 1:
            raise ConfigError(
                f"{name!r} is named {count} times; one server offers one of a name: use two "
                "ports, or register one under a name of its own"
            )


def _written(value: Any) -> str:
    plain = isinstance(value, str) and read_value(value) == value
    return quote(value if plain else msgspec.json.encode(value).decode(), safe="")


def read_value(text: str) -> Any:
    """A value on a command line or in a name: JSON, or else the text itself.

    >>> read_value("2"), read_value("vale")
    (2, 'vale')
    """
    try:
        return msgspec.json.decode(text.encode())
    except (msgspec.DecodeError, UnicodeEncodeError):
        return text
