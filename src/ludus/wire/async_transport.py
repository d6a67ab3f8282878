"""The async transport, on aiohttp: the hot path of rollouts."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Mapping

import aiohttp

from ludus.errors import ConfigError, RequestTimeout
from ludus.secret import without_credentials

from .client import HttpRequest, HttpResponse, unreachable

MAX_CONNECTIONS = 256
LARGE_BYTES = 1 << 19
CLOSE_S = 1.0


class AsyncTransport:
    """Carries requests over a pool of aiohttp connections, bound to the event loop that first uses
    it.

    Redirects are not followed, cookies are not kept, and proxies of the environment are not
    used.

    Args:
        connect_timeout_s: the longest time to establish a connection, in seconds.
    """

    def __init__(self, *, connect_timeout_s: float = 10.0) -> None:
        self._connect_timeout_s = connect_timeout_s
        self._session: aiohttp.ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def send(self, request: HttpRequest, timeout_s: float) -> HttpResponse:
        """Send a request and return the reply, of any status.

        Raises:
            RequestTimeout: no complete reply arrived within `timeout_s` seconds.
            ServerUnreachable: the connection could not be made, or broke.
            ConfigError: the pool belongs to another event loop.
        """
        timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=self._connect_timeout_s)
        try:
            # Wrap a large body so that aiohttp writes pieces, and the event loop serves others in
            # between.
            async with self._pool().request(
                request.method,
                request.url,
                data=io.BytesIO(request.body)
                if len(request.body) > LARGE_BYTES
                else request.body or None,
                headers=request.headers,
                timeout=timeout,
                allow_redirects=False,
            ) as response:
                body = await response.read()
        except TimeoutError as error:
            raise RequestTimeout(
                f"{without_credentials(request.url)} did not answer within {timeout_s:.3g} s"
            ) from error
        except (aiohttp.ClientError, OSError) as error:
            raise unreachable(request.url, error) from error
        return HttpResponse(response.status, response.headers, body)

    async def stream(self, url: str, headers: Mapping[str, str]) -> aiohttp.ClientWebSocketResponse:
        """Open a WebSocket to `url`; messages may have any size.

        Raises:
            aiohttp.ClientError, OSError: the server cannot be reached or refuses the upgrade.
            ConfigError: the pool belongs to another event loop.
        """
        return await self._pool().ws_connect(
            url,
            headers=headers,
            max_msg_size=0,
            timeout=aiohttp.ClientWSTimeout(ws_close=CLOSE_S),  # pyright: ignore[reportCallIssue]
        )

    async def sleep(self, seconds: float) -> None:
        """Wait for `seconds` while the event loop runs on."""
        await asyncio.sleep(seconds)

    async def close(self) -> None:
        """Close every connection; the next request opens a new pool."""
        session, self._session, self._loop = self._session, None, None
        if session is not None:
            await session.close()

    def _pool(self) -> aiohttp.ClientSession:
        loop = asyncio.get_running_loop()
        if self._session is None:
            self._loop = loop
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=MAX_CONNECTIONS, keepalive_timeout=30.0),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=True,
            )
        elif loop is not self._loop:
            raise other_loop()
        return self._session


def other_loop() -> ConfigError:
    """Build the error for a connection used on an event loop that did not open the pool."""
    return ConfigError(
        "this connection belongs to another event loop; close it there with "
        "'await server.aclose()', or connect once per loop"
    )
