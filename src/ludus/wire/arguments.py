"""What is served, as one word: `name?argument=value&other=value`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any
from urllib.parse import unquote

import msgspec

from ludus.errors import ConfigError


def parse_served(text: str) -> tuple[str, dict[str, Any]]:
    """Split into name and constructor arguments; a value is JSON, or else text.

    >>> parse_served("me/echo-v0?n=2&word=vale")
    ('me/echo-v0', {'n': 2, 'word': 'vale'})

    Raises:
        ConfigError: an argument without a value.
    """
    name, _, query = text.partition("?")
    arguments: dict[str, Any] = {}
    for item in filter(None, query.split("&")):
        key, equals, value = item.partition("=")
        if not equals or not key:
            raise ConfigError(
                f"cannot read {item!r} of {text!r}; write 'name?argument=value&other=value'"
            )
        arguments[unquote(key)] = _literal(unquote(value))
    return name, arguments


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


def _literal(text: str) -> Any:
    try:
        return msgspec.json.decode(text.encode())
    except (msgspec.DecodeError, UnicodeEncodeError):
        return text
