"""What is served, as one word: `name?argument=value&other=value`."""

from __future__ import annotations

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


def _literal(text: str) -> Any:
    try:
        return msgspec.json.decode(text.encode())
    except (msgspec.DecodeError, UnicodeEncodeError):
        return text
