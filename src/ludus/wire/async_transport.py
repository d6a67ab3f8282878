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
    """A connection pool, made on the event loop that first uses it."""

    def __init__(self, *, connect_timeout_s: float = 10.0) -> None:
        self._connect_timeout_s = connect_timeout_s
        self._session: aiohttp.ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def send(self, request: HttpRequest, timeout_s: float) -> HttpResponse:
        """One round trip."""
        timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=self._connect_timeout_s)
        try:
            async with self._pool().request(
                request.method,
                request.url,
                data=_payload(request.body),
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
        """A WebSocket.

        Raises:
            aiohttp.ClientError, OSError: there is none.
        """
        return await self._pool().ws_connect(
            url,
            headers=headers,
            max_msg_size=0,
            timeout=aiohttp.ClientWSTimeout(ws_close=CLOSE_S),  # pyright: ignore[reportCallIssue]
        )

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)

    async def close(self) -> None:
        """Close the pool; the next request makes another."""
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
    """A connection is used on an event loop that did not make it."""
    return ConfigError(
        "this connection belongs to another event loop; close it there with "
        "'await server.aclose()', or connect once per loop"
    )


def _payload(body: bytes) -> bytes | io.BytesIO | None:
    """A large body is written piece by piece, so that it does not hold up the event loop."""
    return io.BytesIO(body) if len(body) > LARGE_BYTES else body or None
