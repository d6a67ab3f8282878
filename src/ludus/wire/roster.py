"""Where a fleet's addresses come from: a list, a DNS name, or a file that is read again."""

from __future__ import annotations

import logging
import socket
import time
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from ludus.errors import ConfigError
from ludus.secret import without_credentials

logger = logging.getLogger(__name__)
DNS, FILE = "dns+", "file:"
READ_AGAIN_S = 5.0
"""Seconds between two readings of a file or a DNS name."""


class Roster:
    """The addresses of the servers that share the sessions.

    Args:
        given: addresses separated by commas (`http://a:8765,http://b:8765`); a name that resolves
            to several servers (`dns+http://ludus:8765`); or a file with an address a line
            (`file:/etc/ludus/servers`), where `#` begins a comment.

    Raises:
        ConfigError: no address is given, one is repeated or malformed, the name does not resolve,
            or the file cannot be read.
    """

    def __init__(self, given: str) -> None:
        self.given = given.strip()
        self.urls = self._read()
        self._read_at = time.monotonic()

    @property
    def is_fixed(self) -> bool:
        """Whether the addresses never change."""
        return not self.given.startswith((DNS, FILE))

    @property
    def server_name(self) -> str:
        """The name that all servers share and resolve from; empty for addresses by themselves."""
        if not self.given.startswith(DNS):
            return ""
        return _split(self.given.removeprefix(DNS), self.given)[1]

    @property
    def is_due(self) -> bool:
        """Whether the addresses may have changed since the last reading."""
        return not self.is_fixed and time.monotonic() >= self._read_at + READ_AGAIN_S

    def read_again(self) -> None:
        """Read the addresses again; if that fails, the known addresses stay."""
        self._read_at = time.monotonic()
        try:
            self.urls = self._read()
        except ConfigError as error:
            logger.warning("the servers stay as they are: %s", error)

    def _read(self) -> list[str]:
        if self.given.startswith(DNS):
            url = self.given.removeprefix(DNS)
            scheme, host, port = _split(url.rstrip("/"), f"{DNS}{url}")
            try:
                resolved = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            except (OSError, UnicodeError) as error:  # the latter of a name that cannot be
                raise ConfigError(f"{host!r} in {DNS}{url} does not resolve: {error}") from error
            hosts = sorted({str(address[0]) for *_, address in resolved})
            below = urlsplit(url.rstrip("/")).path
            bracketed = (f"[{address}]" if ":" in address else address for address in hosts)
            return [f"{scheme}://{address}:{port}{below}" for address in bracketed]
        if not self.given.startswith(FILE):
            return _checked(self.given.split(","), "connect()")
        path = Path(self.given.removeprefix(FILE))
        try:
            lines = path.read_text().splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot read the servers' addresses in {path}: {error}") from error
        return _checked([line.partition("#")[0] for line in lines], str(path))


def _checked(texts: list[str], origin: str) -> list[str]:
    urls = [text.strip().rstrip("/") for text in texts if text.strip()]
    if not urls or len(set(urls)) != len(urls):
        raise ConfigError(
            f"{origin}: give one or more different addresses, each once, got {','.join(texts)!r}"
        )
    for url in urls:
        _split(url, origin)
    return urls


def _split(url: str, origin: str) -> tuple[str, str, int]:
    """Return scheme, host and port of an address."""
    with suppress(ValueError):  # no number is the port, or a bracket is missing
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        if parts.scheme in ("http", "https") and parts.hostname:
            return parts.scheme, parts.hostname, port
    raise ConfigError(
        f"{origin}: a server's address looks like http://127.0.0.1:8765, got "
        f"{without_credentials(url)!r}"
    )
