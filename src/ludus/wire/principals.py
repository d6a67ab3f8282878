"""Who asks: the principals of a server, with what each may do and how much at a time.

    [researchers]
    token = "env:RESEARCHERS_TOKEN"
    scopes = ["env:ludus/*", "score:maths"]

    [grader]
    sha256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
    scopes = ["execute"]
    rate = 50

Each table of the file is a principal. What a client makes (sessions, REPLs, snapshots) belongs to
its principal: to all others the name does not exist.
"""

from __future__ import annotations

import hashlib
import logging
import re
import time
import tomllib
from collections.abc import Mapping
from contextvars import ContextVar
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated

import msgspec

from ludus.errors import ConfigError
from ludus.secret import Secret

from .faults import QueueFull, Refused

logger = logging.getLogger(__name__)
NAMED_SCOPES, PLAIN_SCOPES = ("env", "score", "train"), ("execute", "admin", "*")
"""The scopes that need a name or pattern behind a colon, and the scopes that take none."""
BURST_S = 1.0
"""A principal may spend the operations of so many seconds at once."""
_Count = Annotated[int, msgspec.Meta(ge=0)]


class Grant(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the file: how a principal is recognised, and what the principal may do."""

    token: str = ""
    """The bearer token, best as `env:NAME`; or else `sha256`."""
    sha256: str = ""
    """The SHA-256 of the token, in hexadecimal digits."""
    scopes: list[str]
    """What the principal may do: `env:`, `score:` and `train:` with a name or a pattern
    (`env:ludus/*`), `execute` (programs, gradings, REPLs), `admin` (metrics and the page), `*`
    (everything).
    """
    rate: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    """Operations a second; 0 for no limit."""
    sessions: _Count = 0
    """The most sessions, REPLs, snapshots and models in training at a time, of each kind; 0 for no
    limit.
    """
    bytes_in_flight: _Count = 0
    """The most bytes of its requests' bodies at a time; 0 for no limit."""
    weight: Annotated[float, msgspec.Meta(gt=0)] = 1.0
    """Its share where a queue is full, beside that of others."""


class Principal:
    """Somebody who may use a server.

    Args:
        name: the name, in logs and metrics.
        grant: what the principal may do.
    """

    def __init__(self, name: str, grant: Grant) -> None:
        self.name = name
        self.grant = grant
        self.has_rate = grant.rate > 0
        self.may_all = "*" in grant.scopes
        """Whether it has every scope."""
        self.held_bytes = 0
        """The bytes of its requests' bodies that the server holds."""
        self._left = grant.rate * BURST_S
        """The operations that may begin at once; negative after a large batch."""
        self._counted = time.monotonic()

    def may(self, scope: str) -> bool:
        """Return whether the principal may do what `scope` names."""
        return any(fnmatchcase(scope, pattern) for pattern in self.grant.scopes)

    def require(self, scope: str) -> None:
        """Check that the principal may do what `scope` names.

        Raises:
            Refused: it may not (403).
        """
        if not self.may(scope):
            raise Refused(f"{self.name!r} has no scope for {scope}", "forbidden")

    def spend(self, number: int = 1) -> None:
        """Count `number` operations.

        Raises:
            QueueFull: the principal has used up its rate.
        """
        rate = self.grant.rate
        if not rate:
            return
        now = time.monotonic()
        self._left = min(rate * BURST_S, self._left + rate * (now - self._counted))
        self._counted = now
        if self._left < 0:
            raise QueueFull(
                f"{self.name!r} may do {rate:g} operations a second",
                -self._left / rate + 0.05,
                cause="rate",
            )
        self._left -= number

    def hold(self, number: int) -> None:
        """Add to the bytes of bodies held; a negative number subtracts.

        Raises:
            QueueFull: the principal's bodies hold too many bytes.
        """
        most = self.grant.bytes_in_flight
        if most and number > 0 and self.held_bytes + number > most:
            message = f"the bodies of {self.name!r} hold {self.held_bytes} of {most} bytes"
            raise QueueFull(message, depth=self.held_bytes, limit=most, cause="principal_bytes")
        self.held_bytes += number


ANYONE = Principal("", Grant(scopes=["*"]))
"""Whoever asks a server without tokens, and a server's own work."""
OPERATOR = "operator"
"""The principal of the server's own token (`--token`, LUDUS_TOKEN), with every scope."""
asked_by: ContextVar[Principal] = ContextVar("ludus_asked_by", default=ANYONE)
"""Who sent the request that is being answered."""


class Principals:
    """Finds the principal of a token. False without principals, where everybody may do everything.

    Args:
        token: the server's own token, whose principal has every scope; empty for none.
        file: a file of principals; None for none.

    Raises:
        ConfigError: the file cannot be read, names nobody or has a mistake.
    """

    def __init__(self, token: str | Secret = "", file: Path | None = None) -> None:
        self.file = file
        self._own = Secret.of(token).reveal()
        self._by_digest = self._read()
        self._shown: dict[str, Principal] = {}
        """By tokens that were shown: to digest each anew would add 5 % to the cost of a step."""

    def __bool__(self) -> bool:
        return bool(self._by_digest)

    def of(self, token: str) -> Principal | None:
        """Return the principal with this token; None for an unknown token."""
        # Only hashes of whole tokens are compared, which tell nobody how much of one was right.
        principal = self._shown.get(token)
        if principal is None:
            principal = self._by_digest.get(_digest(token))
            if principal is not None:
                self._shown[token] = principal
        return principal

    def read_again(self) -> None:
        """Read the file again; a file with a mistake changes nothing."""
        try:
            self._by_digest, self._shown = self._read(), {}
        except ConfigError as error:
            logger.error("the tokens stay as they are: %s", error)

    def _read(self) -> dict[str, Principal]:
        by_digest: dict[str, Principal] = {}
        if self._own:
            by_digest[_digest(self._own)] = Principal(OPERATOR, Grant(scopes=["*"]))
        for name, grant in _grants(self.file).items() if self.file is not None else ():
            digest = _digest(Secret.of(grant.token).reveal()) if grant.token else grant.sha256
            digest = digest.lower()
            if digest == _NO_TOKEN:  # a request without a token would be this principal's
                raise ConfigError(f"{self.file}: sha256 of {name!r} is that of an empty token")
            if digest in by_digest:
                raise ConfigError(f"{self.file}: {name!r} has the token of another principal")
            by_digest[digest] = Principal(name, grant)
        if self.file is not None and not by_digest:  # a server without principals lets everybody in
            raise ConfigError(f"{self.file} names no principal; add a table for each")
        return by_digest


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


_NO_TOKEN = _digest("")


def _grants(file: Path) -> Mapping[str, Grant]:
    try:
        grants = msgspec.convert(tomllib.loads(file.read_text("utf-8")), dict[str, Grant])
    except (OSError, ValueError) as error:  # TOML and validation errors are ValueErrors
        raise ConfigError(f"cannot read the tokens in {file}: {error}") from error
    for name, grant in grants.items():
        if bool(grant.token) == bool(grant.sha256):
            raise ConfigError(f"{file}: {name!r} needs either token or sha256")
        if grant.sha256 and not re.fullmatch("[0-9a-fA-F]{64}", grant.sha256):
            raise ConfigError(f"{file}: sha256 of {name!r} is not 64 hexadecimal digits")
        if name == OPERATOR:
            raise ConfigError(f"{file}: {OPERATOR!r} is the name of the server's own token")
        if not grant.scopes:
            raise ConfigError(f"{file}: {name!r} has no scopes; give at least one, such as 'env:*'")
        for scope in grant.scopes:
            kind, colon, _ = scope.partition(":")
            if scope not in PLAIN_SCOPES and not (colon and kind in NAMED_SCOPES):
                raise ConfigError(
                    f"{file}: {name!r} has the scope {scope!r}; scopes are env:NAME, score:NAME, "
                    "train:MODEL, execute, admin and *"
                )
    return grants
