"""The client without I/O: builds requests, reads replies, and decides when to send again.

Transports carry bytes and nothing else (`Transport`), so everything that can go wrong is decided
here once, for the async and the sync client alike. `async def` methods over a blocking transport
never wait on an event loop; `run_blocking` runs them on the caller's thread.
"""

from __future__ import annotations

import asyncio
import importlib
import io
import random
import ssl
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

import aiohttp
import msgspec

from ludus.errors import (
    ConfigError,
    LudusError,
    Overloaded,
    RequestRejected,
    RequestTimeout,
    ServerFault,
    ServerUnreachable,
)
from ludus.secret import NO_SECRET, Secret, refuse_credentials, without_credentials

from .codec import Format, decode, encode, format_of, trace_parent
from .faults import Fault, FaultReply, error_of
from .resolver import SharedResolver

T = TypeVar("T")
INSTANCE_HEADER = "Ludus-Instance"
"""The header of every reply that names the run of the server."""
Body = msgspec.Struct | Mapping[str, Any]
"""A value that a request may carry: anything that encodes to an object."""


@dataclass(slots=True)
class Traffic:
    """Counts what has crossed the wire so far, for progress bars and reports."""

    requests: int = 0
    operations: int = 0
    """Resets, steps, releases and scored samples; many fit in one request."""
    steps: int = 0
    retries: int = 0
    hedges: int = 0
    """Scores that were asked a second time, since the first server was late."""
    replays: int = 0
    """Episodes that were played again, since their server was lost."""
    sessions_opened: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0


@dataclass
class Contact:
    """The last contact with a server, shared by all copies of a client (`Client.within`)."""

    made: bool = False
    """Whether the server has ever answered."""
    instance: str = ""
    """The run of the server that answered last; another name after a restart."""


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """An HTTP request, complete and encoded, ready for a transport."""

    method: str
    url: str
    headers: Mapping[str, str] = field(repr=False)
    """The headers by name; out of the `repr`, since a header holds the token."""
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """An HTTP reply whose body is not yet decoded."""

    status: int
    headers: Mapping[str, str]
    """The headers by name; the mapping ignores case."""
    body: bytes


class Transport(Protocol):
    """Carries requests to a server. Other errors than ServerUnreachable and RequestTimeout are
    bugs.
    """

    async def send(self, request: HttpRequest, timeout_s: float) -> HttpResponse:
        """Send a request and return the reply, of any status.

        Raises:
            ServerUnreachable: the connection could not be made, or broke.
            RequestTimeout: no complete reply arrived within `timeout_s` seconds.
        """
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait for `seconds` before another attempt."""
        ...

    async def close(self) -> None:
        """Close every connection; the transport may be used again afterwards."""
        ...


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The time limits of a call and of each attempt, and the waits between attempts, in seconds.

    Every request of this client is safe to repeat: reads, releases and scores change nothing twice,
    and resets and steps carry a seq.
    """

    timeout_s: float = 120.0
    """The time for one call, all its attempts and waits together."""
    attempt_timeout_s: float = 40.0
    """The time for one attempt; a reply lost on the way is then asked for again."""
    first_contact_s: float = 10.0
    """The time for a call instead of `timeout_s` while the server has never answered: most likely
    the address is wrong, and a person waits to be told.
    """
    first_wait_s: float = 0.1
    max_wait_s: float = 2.0


@dataclass(slots=True)
class Retry:
    """Keeps the time and the number of the attempts of a call."""

    policy: RetryPolicy
    rng: random.Random
    started: float = field(default_factory=time.monotonic)
    """The time when the first attempt began, by `time.monotonic`."""
    attempts: int = 0
    last: LudusError | None = None
    """The error of the last attempt, which says more than that the time is over."""

    @property
    def deadline(self) -> float:
        """The time at which the call is given up, by `time.monotonic`."""
        return self.started + self.policy.timeout_s

    @property
    def attempt_timeout_s(self) -> float:
        """The seconds that the next attempt may take.

        Raises:
            LudusError: the call's time is over: the error of the last attempt, or a RequestTimeout
                if none was made.
        """
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise self.last or RequestTimeout(f"no answer within {self.policy.timeout_s:g} s")
        return min(left, self.policy.attempt_timeout_s)

    def wait_s(self, error: LudusError, *, met: bool = True) -> float:
        """Return the seconds to wait before the next attempt: doubled each time, with jitter.

        An overloaded server's own figure is a lower bound.

        Args:
            error: the error of the last attempt.
            met: whether the server has ever answered.

        Raises:
            LudusError: `error` itself, if sending again would not help or no time is left.
        """
        if not getattr(error, "retryable", False):
            raise error
        self.last = error
        doubled_s = self.policy.first_wait_s * 2.0 ** min(self.attempts, 16)
        self.attempts += 1
        wait_s = min(self.policy.max_wait_s, doubled_s) * self.rng.uniform(0.5, 1.0)
        if isinstance(error, Overloaded):
            wait_s = max(wait_s, error.retry_after_s * self.rng.uniform(1.0, 1.5))
        ends = (
            self.deadline if met else min(self.deadline, self.started + self.policy.first_contact_s)
        )
        if time.monotonic() + wait_s >= ends:
            raise error
        return wait_s


@dataclass
class Client:
    """Calls a server's routes over a transport: typed bodies out, typed replies or errors back."""

    url: str
    transport: Transport
    token: str | Secret = NO_SECRET
    """The bearer token, kept as a `Secret`; empty for a server without one."""
    policy: RetryPolicy = field(default_factory=RetryPolicy)
    format: Format = Format.MSGPACK
    traffic: Traffic = field(default_factory=Traffic)
    rng: random.Random = field(default_factory=random.Random)
    contact: Contact = field(default_factory=Contact)

    def __post_init__(self) -> None:
        self.url = self.url.rstrip("/")
        self.token = Secret.of(self.token)
        refuse_credentials("a server's address", self.url)
        if not self.url.startswith(("http://", "https://")):
            raise ConfigError(
                f"a server's address looks like http://127.0.0.1:8765, got {self.url!r}"
            )

    def within(self, timeout_s: float) -> Client:
        """Return the same client with at most `timeout_s` seconds for a call."""
        limit = min(timeout_s, self.policy.timeout_s)
        return replace(self, policy=replace(self.policy, timeout_s=limit))

    async def get(self, path: str, as_type: type[T]) -> T:
        """Read `path` with GET; see `call`."""
        return await self.call("GET", path, None, as_type)

    async def post(self, path: str, body: Body, as_type: type[T]) -> T:
        """Send `body` to `path` with POST; see `call`. The body must be safe to send twice."""
        return await self.call("POST", path, body, as_type)

    async def delete(self, path: str, as_type: type[T]) -> T:
        """Release what `path` names with DELETE; see `call`."""
        return await self.call("DELETE", path, None, as_type)

    async def call(
        self,
        method: str,
        path: str,
        body: Body | None,
        as_type: type[T],
        *,
        on: type[LudusError] = LudusError,
    ) -> T:
        """Send a request until an answer comes or another attempt would not help.

        Args:
            method: the HTTP method.
            path: the path below the server's address, with its query.
            body: what to send, or None.
            as_type: the type of the reply.
            on: the errors to send again after, where another attempt may help at all.

        Raises:
            LudusError: what went wrong at the server, or why the server could not be asked.
            ConfigError: `body` cannot be encoded.
        """
        request = self.build(method, path, body)

        async def attempt(timeout_s: float) -> T:
            return await self.attempt(request, as_type, timeout_s)

        return await self.keep_trying(attempt, on=on)

    async def once(self, method: str, path: str, body: Body | None, as_type: type[T]) -> T:
        """Send a request a single time; see `call`."""
        limit_s = min(self.policy.timeout_s, self.policy.attempt_timeout_s)
        return await self.attempt(self.build(method, path, body), as_type, limit_s)

    async def attempt(self, request: HttpRequest, as_type: type[T], timeout_s: float) -> T:
        """Send a request once and read the reply as `as_type`.

        Raises:
            LudusError: what went wrong at the server, or why the server could not be asked.
        """
        self.traffic.requests += 1
        self.traffic.bytes_sent += len(request.body)
        response = await self.transport.send(request, timeout_s)
        self.traffic.bytes_received += len(response.body)
        self.contact.made = True
        self.contact.instance = response.headers.get(INSTANCE_HEADER, self.contact.instance)
        return read(response, as_type)

    async def keep_trying(
        self,
        attempt: Callable[[float], Awaitable[T]],
        *,
        on: type[LudusError] = LudusError,
        failed: LudusError | None = None,
        started: float | None = None,
    ) -> T:
        """Call `attempt(timeout_s)` until an attempt succeeds, none can succeed, or the time is
        over.

        Args:
            attempt: makes one attempt, and is told how many seconds it may take.
            on: the errors to try again after, where a retry may help at all.
            failed: the error of a first attempt that the caller made.
            started: the time when that attempt began, by `time.monotonic`.

        Raises:
            LudusError: the error of the last attempt, or that of the one before where the last was
                given less time than that one had taken to fail.
        """
        retry = Retry(self.policy, self.rng)
        began = time.monotonic()
        if started is not None:
            retry.started = began = started
        took_s = time.monotonic() - began
        while True:
            if failed is not None:
                wait_s = retry.wait_s(failed, met=self.contact.made)
                self.traffic.retries += 1
                await self.transport.sleep(wait_s)
            limit_s, began = retry.attempt_timeout_s, time.monotonic()
            try:
                return await attempt(limit_s)
            except on as error:
                if isinstance(error, RequestTimeout) and failed is not None and limit_s < took_s:
                    raise failed from error  # it says more than that the time is over
                failed, took_s = error, time.monotonic() - began

    def build(self, method: str, path: str, body: Body | None) -> HttpRequest:
        """Encode a request with the headers, including the token.

        Raises:
            ConfigError: something in `body` cannot be sent.
        """
        headers = {"Accept": self.format.value, **trace_headers()}
        if self.token:
            headers["Authorization"] = f"Bearer {Secret.of(self.token).reveal()}"
        if body is None:
            return HttpRequest(method, self.url + path, headers)
        try:
            data, format = encode(body, self.format)
        except (TypeError, ValueError, RecursionError) as error:
            raise ConfigError(f"this cannot be sent to {self.url}: {error}") from error
        headers["Content-Type"] = format.value
        return HttpRequest(method, self.url + path, headers, data)


def trace_headers() -> dict[str, str]:
    """Return the `traceparent` of what is being done, as a header; none outside a trace.

    It is that of the request which a server is answering here, or else that of OpenTelemetry's
    current span, where the calling program uses it.
    """
    headers = {"traceparent": parent} if (parent := trace_parent.get()) else dict[str, str]()
    if not headers and "opentelemetry.trace" in sys.modules:
        propagator = importlib.import_module("opentelemetry.propagate")
        propagator.inject(headers)
    return headers


def read(response: HttpResponse, as_type: type[T]) -> T:
    """Read a response as `as_type`.

    Raises:
        LudusError: the error that the server reports, where the status is 400 or more.
        ServerFault: the reply cannot be read as `as_type`; not retryable.
    """
    format = format_of(response.headers.get("Content-Type", "")) or Format.JSON
    if response.status >= 400:
        try:
            fault = decode(response.body, FaultReply, format).error
        except RequestRejected:  # not ours: a proxy, or another kind of server
            text = response.body[:200].decode("utf-8", "replace").strip()
            retry_after_s: float | None = None  # none at all, or a date
            with suppress(ValueError):
                retry_after_s = max(0.0, float(response.headers.get("Retry-After", "")))
            fault = Fault(
                code="",
                message=f"HTTP {response.status}: {text or 'no body'}",
                retryable=response.status in (502, 503, 504),
                retry_after_s=retry_after_s,
            )
        raise error_of(fault, response.status)
    try:
        return decode(response.body, as_type, format)
    except RequestRejected as error:
        raise protocol_error(f"cannot read the server's reply: {error}") from error


def protocol_error(what: str) -> ServerFault:
    """Build the error for a server that does not speak the protocol; asking again would not
    help.
    """
    error = ServerFault(f"{what}; is it a ludus server of the same version?")
    error.retryable = False
    return error


def run_blocking(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine over a blocking transport to the end, on the caller's thread.

    Such a coroutine never waits on an event loop, so a single `send` runs all of it.

    Raises:
        RuntimeError: the coroutine did wait on an event loop.
    """
    try:
        work.send(None)
    except StopIteration as done:
        value: T = done.value
        return value
    work.close()
    raise RuntimeError("a blocking transport waited on an event loop")


def unreachable(url: str, error: BaseException) -> ServerUnreachable:
    """Build the error for a server that does not answer, with the reason and what to look at."""
    reason = str(error) or type(error).__name__
    return ServerUnreachable(
        f"no answer from {without_credentials(url)} ({reason}); is 'ludus serve' running there?"
    )


@dataclass(frozen=True, slots=True)
class Way:
    """How a server is reached, beyond what the address says."""

    tls: ssl.SSLContext | None = None
    """What is trusted and shown; None trusts the system's authorities."""
    server_name: str = ""
    """The name that the certificate has to have, where addresses are numbers."""
    socket: str = ""
    """The path of a Unix socket; empty for TCP."""


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
        way: how a server is reached.
    """

    def __init__(self, *, connect_timeout_s: float = 10.0, way: Way | None = None) -> None:
        self._connect_timeout_s = connect_timeout_s
        self._way = way or Way()
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
                server_hostname=self._way.server_name or None,
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
            server_hostname=self._way.server_name or None,
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
            connector: aiohttp.BaseConnector
            if self._way.socket:
                connector = aiohttp.UnixConnector(self._way.socket, limit=MAX_CONNECTIONS)
            else:
                connector = aiohttp.TCPConnector(
                    limit=MAX_CONNECTIONS,
                    keepalive_timeout=30.0,
                    ssl=self._way.tls or True,
                    resolver=SharedResolver(),
                )
            self._session = aiohttp.ClientSession(
                connector=connector, cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=True
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
