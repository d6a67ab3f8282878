"""Requests to servers of other projects: bounded in time, and with failures that are told apart."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import msgspec

from ludus.errors import ConfigError, RewardUnavailable
from ludus.secret import without_credentials
from ludus.verdict import Verdict
from ludus.wire.resolver import SharedResolver

MAX_BYTES = 64 << 20
CONNECT_TIMEOUT_S = 10.0


class PeerServer:
    """The address of a server, and a connection that lasts for an episode.

    Args:
        kind: the project, for messages.
        url: `http://host:port`, or https, with a path if the server has one.
        timeout_s: the limit of an answer, in seconds.

    Raises:
        ConfigError: the address is none.
    """

    def __init__(self, kind: str, url: str, timeout_s: float) -> None:
        refusal = f"{kind}/{url}: name the server's address, {kind}/http://host:port"
        try:
            parts = urlsplit(url)
        except ValueError:  # an unclosed bracket
            raise ConfigError(refusal) from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(refusal)
        if not 0 < timeout_s <= 86_400:
            raise ConfigError(f"{kind}: timeout_s must be from 0 to 86400, got {timeout_s!r}")
        self.url, self.timeout_s = url.rstrip("/"), timeout_s
        self.label = f"{kind}/{without_credentials(self.url)}"
        self._session: aiohttp.ClientSession | None = None

    def session(self) -> aiohttp.ClientSession:
        """Return the connections of this episode; cookies are kept until `close`."""
        if self._session is None:
            clock = aiohttp.ClientTimeout(
                total=self.timeout_s, sock_connect=min(CONNECT_TIMEOUT_S, self.timeout_s)
            )
            # a cookie of a server that has an address and no name is kept too
            jar = aiohttp.CookieJar(unsafe=True)
            connector = aiohttp.TCPConnector(resolver=SharedResolver())
            self._session = aiohttp.ClientSession(
                timeout=clock, cookie_jar=jar, connector=connector
            )
        return self._session

    async def ask(
        self, method: str, path: str, body: object = None, *, headers: dict[str, str] | None = None
    ) -> tuple[int, Any]:
        """Send a request; return the status and the decoded answer, None if that is not JSON.

        Raises:
            RewardUnavailable: the server is down or late, or its answer is too long or, with status
                200, not JSON.
        """
        try:
            async with self.session().request(
                method, self.url + path, json=body, headers=headers, allow_redirects=False
            ) as response:
                content = bytearray()
                async for piece in response.content.iter_any():  # an answer comes in any pieces
                    content += piece
                    if len(content) > MAX_BYTES:
                        break
        except TimeoutError:
            raise self.unavailable(f"no answer to {path} within {self.timeout_s:g} s") from None
        except (aiohttp.ClientError, OSError) as error:
            raise self.unavailable(f"{path}: {str(error) or type(error).__name__}") from error
        if len(content) > MAX_BYTES:
            raise self.failed(f"the answer to {path} is longer than {MAX_BYTES} bytes")
        try:
            return response.status, msgspec.json.decode(content)
        except msgspec.DecodeError:
            if response.status == 200:
                raise self.failed(
                    f"the answer to {path} is not JSON: {bytes(content[:80])!r}"
                ) from None
            return response.status, None

    async def close(self) -> None:
        """Close the connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()
            await asyncio.sleep(0)

    def unavailable(self, why: str) -> RewardUnavailable:
        """Return the error of an episode that may go well another time."""
        return RewardUnavailable(Verdict.unavailable(f"{self.label}: {why}"))

    def failed(self, why: str) -> RewardUnavailable:
        """Return the error of an episode that the server spoilt."""
        return RewardUnavailable(Verdict.error(f"{self.label}: {why}"))
