"""HTTP client of a vLLM server: every call has a time limit, and every failure is a typed error."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

import aiohttp
import msgspec

from ludus.errors import (
    ConfigError,
    Overloaded,
    RemoteError,
    RequestRejected,
    RequestTimeout,
    ServerFault,
    ServerUnreachable,
    Unauthorized,
)
from ludus.secret import Secret
from ludus.wire.resolver import SharedResolver

T = TypeVar("T")

CONNECT_TIMEOUT_S = 10.0
CONTROL_TIMEOUT_S = 60.0
"""Time limit of calls that compute nothing; pausing waits for a step of the engine."""
IDLE_CONNECTION_S = 2.0
"""The server closes connections that were idle for 5 s. The client closes them earlier, since a
request that is sent on a closed connection is lost.
"""


class VllmClient:
    """Calls the routes of a server.

    Args:
        url: the server's address.
        api_key: as given to the server's `--api-key`.
        hint: returns further text for errors that the server is to blame for.
    """

    def __init__(
        self, url: str, *, api_key: str | Secret = "", hint: Callable[[], str] | None = None
    ) -> None:
        self.move(url)
        self.hint = hint or (lambda: "")
        self._headers = {"Content-Type": "application/json"}
        if api_key:
            self._headers["Authorization"] = f"Bearer {Secret.of(api_key).reveal()}"
        self._session: aiohttp.ClientSession | None = None

    def move(self, url: str) -> None:
        """Go on with a server at another address.

        Raises:
            ConfigError: it is none.
        """
        self.url = url.rstrip("/")
        if not self.url.startswith(("http://", "https://")):
            raise ConfigError(
                f"vllm.url must be an address such as http://127.0.0.1:8000, got {url!r}"
            )

    async def get(self, path: str, as_type: type[T], *, timeout_s: float = CONTROL_TIMEOUT_S) -> T:
        """Send a GET request and decode the reply."""
        return _read(await self._send("GET", path, b"", {}, timeout_s), as_type, path)

    async def post(
        self,
        path: str,
        body: object,
        as_type: type[T],
        *,
        params: Mapping[str, str] | None = None,
        timeout_s: float = CONTROL_TIMEOUT_S,
    ) -> T:
        """Send a POST request with a JSON body and decode the reply."""
        data = await self._send("POST", path, msgspec.json.encode(body), params or {}, timeout_s)
        return _read(data, as_type, path)

    async def healthy(self, *, timeout_s: float = CONNECT_TIMEOUT_S) -> None:
        """Return if the server is ready to serve.

        Raises:
            RemoteError: the server is not ready.
        """
        await self._send("GET", "/health", b"", {}, timeout_s)

    async def close(self) -> None:
        """Close every connection to the server; the next request opens a new one."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _send(
        self, method: str, path: str, data: bytes, params: Mapping[str, str], timeout_s: float
    ) -> bytes:
        if self._session is None:  # opened here, since a session belongs to the running loop
            connector = aiohttp.TCPConnector(
                limit=0, keepalive_timeout=IDLE_CONNECTION_S, resolver=SharedResolver()
            )
            self._session = aiohttp.ClientSession(connector=connector, headers=self._headers)
        limits = aiohttp.ClientTimeout(total=timeout_s, sock_connect=CONNECT_TIMEOUT_S)
        try:
            async with self._session.request(
                method, self.url + path, data=data or None, params=params, timeout=limits
            ) as response:
                body = await response.read()
                status = response.status
        except aiohttp.ServerTimeoutError as error:  # no connection within CONNECT_TIMEOUT_S
            raise self._blamed(ServerUnreachable, f"{self.url} does not answer") from error
        except TimeoutError as error:
            raise self._blamed(
                RequestTimeout, f"{path} of {self.url} did not answer within {timeout_s:g} s"
            ) from error
        except aiohttp.ClientConnectorError as error:
            raise self._blamed(ServerUnreachable, f"nothing answers at {self.url}") from error
        except aiohttp.ClientError as error:
            raise self._blamed(
                ServerUnreachable,
                f"{path} of {self.url} was cut off: {str(error) or type(error).__name__}",
            ) from error
        if status >= 400:
            message = f"{path} of {self.url} answered {status}: {_message(body)}"
            if status in (401, 403):
                raise Unauthorized(message)
            if status == 429:
                raise Overloaded(message)
            raise (RequestRejected(message) if status < 500 else self._blamed(ServerFault, message))
        return body

    def _blamed(self, kind: type[RemoteError], message: str) -> RemoteError:
        hint = self.hint()
        return kind(f"{message}; {hint}" if hint else message)


def _read(data: bytes, as_type: type[T], path: str) -> T:
    try:
        return msgspec.json.decode(data or b"null", type=as_type)
    except msgspec.MsgspecError as error:
        raise ServerFault(f"the reply to {path} is not what vLLM documents: {error}") from error


def _message(body: bytes) -> str:
    """Return the message in an error body of the API or of FastAPI, or else the body itself."""
    try:
        decoded = msgspec.json.decode(body)
    except msgspec.MsgspecError:
        return body.decode(errors="replace")[:500]
    if isinstance(decoded, dict):
        decoded = decoded.get("error", decoded.get("detail", decoded))
    if isinstance(decoded, dict):
        decoded = decoded.get("message", decoded)
    return str(decoded)[:500]
