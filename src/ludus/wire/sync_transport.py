"""The blocking transport, on httpx: for scripts, notebooks and `gymnasium.Env`."""

from __future__ import annotations

import ssl
import time

import httpx

from ludus.errors import RequestTimeout
from ludus.secret import without_credentials

from .client import HttpRequest, HttpResponse, Way, unreachable


class SyncTransport:
    """Carries requests over a pool of httpx connections, which threads may share.

    The methods are coroutines for the sake of `Transport`, but block and never wait on an event
    loop.

    Args:
        connect_timeout_s: the longest time to establish a connection, in seconds.
        way: how a server is reached.
    """

    def __init__(self, *, connect_timeout_s: float = 10.0, way: Way | None = None) -> None:
        self._way = way or Way()
        self._connect_timeout_s = connect_timeout_s
        self._pool: httpx.Client | None = None

    async def send(self, request: HttpRequest, timeout_s: float) -> HttpResponse:
        """Send a request and return the reply, of any status.

        Raises:
            RequestTimeout: the server was silent for `timeout_s` seconds.
            ServerUnreachable: the connection could not be made, or broke.
        """
        timeout = httpx.Timeout(timeout_s, connect=min(timeout_s, self._connect_timeout_s))
        server_name = self._way.server_name
        if self._pool is None:
            way = self._way
            # Without a context of its own httpx would trust other authorities than aiohttp.
            context = way.tls or ssl.create_default_context()
            self._pool = httpx.Client(
                trust_env=False,
                follow_redirects=False,
                transport=httpx.HTTPTransport(verify=context, uds=way.socket or None),
            )
        try:
            response = self._pool.request(
                request.method,
                request.url,
                content=request.body,
                headers=dict(request.headers),
                timeout=timeout,
                extensions={"sni_hostname": server_name} if server_name else {},
            )
        except httpx.TimeoutException as error:
            raise RequestTimeout(
                f"{without_credentials(request.url)} did not answer within {timeout_s:.3g} s"
            ) from error
        except httpx.HTTPError as error:
            raise unreachable(request.url, error) from error
        return HttpResponse(response.status_code, response.headers, response.content)

    async def sleep(self, seconds: float) -> None:
        """Block the thread for `seconds`."""
        time.sleep(seconds)  # noqa: ASYNC251 (blocking is what this transport is for)

    async def close(self) -> None:
        """Close every connection; the next request opens a new pool."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()
