"""Tokens and keys, which are used and never shown.

A `Secret` is `***` wherever it is printed, formatted or encoded; code that needs the text calls
`reveal()`. A secret written `env:NAME` is the environment variable NAME, read when needed: this
form may stand in files and on command lines.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from .errors import ConfigError

HIDDEN = "***"
_MARK = "env:"
_REFERENCE = re.compile(_MARK + r"([A-Za-z_][A-Za-z0-9_]*)")
_USERINFO = re.compile(r"(?<=://)[^/\s?#]+@")
"""The name and password before the last `@` of an address; a password may hold an `@`, too."""
_PARAMETER = re.compile(
    r"(?i)([?&#](?:[\w.-]*[_.-]|access|api|auth|bearer)?"
    r"(?:token|key|secret|password|passwd|signature|sig)=)"
    rf"(?!(?-i:{_REFERENCE.pattern})(?:[&#\s'\"]|$))[^&#\s'\"]+"
)
"""A parameter whose name ends in one of these words, such as `client_secret=` or
`X-Amz-Signature=`, with the value, unless that is `env:NAME`.
"""
_NAME = re.compile(r"(?i)(?:^|[_.-])(?:token|key|secret|password|passwd)$")
"""The name of an option that is a secret."""
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s'\"]+")


def _refuse_unsendable(text: str, holder: str) -> None:
    """Refuse a secret that no HTTP header can carry, here and not where it is sent, since clients
    show the header that they refuse.
    """
    if not text.isprintable():
        raise ConfigError(
            f"{holder} holds a line end or another character that no HTTP header can carry; give "
            "printable characters alone"
        )


class Secret:
    """A text that is never shown.

    Args:
        text: the secret itself, or `env:NAME`; empty is not a secret.

    Raises:
        ConfigError: the text begins with `env:`, and no variable can have the name behind it; or it
            holds what no header can carry, such as the line end of a file.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str = "") -> None:
        if text.startswith(_MARK) and _REFERENCE.fullmatch(text) is None:
            # Else the text itself, which anybody can guess, would be the secret.
            raise ConfigError(
                "a secret that begins with env: names an environment variable, such as "
                "env:MY_TOKEN; what follows env: here is no name of letters, digits and _"
            )
        _refuse_unsendable(text, "a secret")
        self._text = text

    @classmethod
    def of(cls, given: str | Secret | None) -> Secret:
        """Return a text as a secret, a secret unchanged, and for None the empty secret."""
        return given if isinstance(given, Secret) else cls(given or "")

    @property
    def reference(self) -> str:
        """`env:NAME`, if the secret was given that way; else empty."""
        return self._text if _REFERENCE.fullmatch(self._text) else ""

    def reveal(self) -> str:
        """Return the text itself.

        Raises:
            ConfigError: the secret is `env:NAME`, and that variable is not set, is empty, or holds
                what no header can carry.
        """
        match = _REFERENCE.fullmatch(self._text)
        if match is None:
            return self._text
        text = os.environ.get(match[1])
        if not text:  # an empty token would let everybody in who shows none
            raise ConfigError(
                f"{self._text} is asked for, but the environment variable {match[1]} is "
                f"{'not set' if text is None else 'empty'}; export {match[1]} and try again"
            )
        _refuse_unsendable(text, f"the environment variable {match[1]}")
        return text

    def __bool__(self) -> bool:
        return bool(self._text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __repr__(self) -> str:
        return f"Secret({self.reference or HIDDEN!r})" if self else "Secret('')"

    def __str__(self) -> str:
        return self.reference or (HIDDEN if self else "")

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)


NO_SECRET = Secret()


def without_credentials(text: str) -> str:
    """Return `text` with passwords and tokens in addresses replaced.

    >>> without_credentials("http://me:pw@host/x?token=abc&n=2")
    'http://***@host/x?token=***&n=2'
    """
    hidden = _USERINFO.sub(f"{HIDDEN}@", text)
    return _ADDRESS.sub(lambda match: _PARAMETER.sub(rf"\1{HIDDEN}", match[0]), hidden)


def shown(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options as messages may show them: a key, token or password is `***`, or `env:NAME`.

    >>> shown({"api_key": "sk-1", "auth_token": "env:MY_TOKEN", "turns": 3})
    {'api_key': '***', 'auth_token': 'env:MY_TOKEN', 'turns': 3}
    """
    return {
        name: HIDDEN
        if _NAME.search(name) and isinstance(value, str) and not _REFERENCE.fullmatch(value)
        else value
        for name, value in options.items()
    }


def refuse_credentials(name: str, text: str) -> None:
    """Refuse an address that holds a password or a token, since addresses appear in files and logs.

    Raises:
        ConfigError: the address holds one; the message shows neither.
    """
    hidden = without_credentials(text)
    if hidden != text:
        raise ConfigError(
            f"{name} holds a password or token ({hidden}), and addresses are written into files "
            "and logs; give the secret by its own setting, as env:NAME, or in the environment"
        )


def refuse_credentials_in(table: Mapping[str, Any], path: str = "") -> None:
    """Refuse settings with an address that holds a password or token.

    Args:
        table: the settings, which may hold further tables and lists.
        path: the dotted name of the table itself, with a dot at the end; empty for the whole.

    Raises:
        ConfigError: a setting holds one; the message names the setting.
    """
    for name, value in table.items():
        _refuse_credentials_of(f"{path}{name}", value)


def _refuse_credentials_of(place: str, value: Any) -> None:
    if isinstance(value, str):
        refuse_credentials(f"setting {place!r}", value)
    elif isinstance(value, Mapping):
        refuse_credentials_in(value, f"{place}.")
    elif isinstance(value, (list, tuple)):
        for item in value:
            _refuse_credentials_of(place, item)
