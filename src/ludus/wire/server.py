"""The HTTP server: services behind one address, with the properties a trainer leans on.

    server = HttpServer([EnvService(["ludus/arithmetic-v0"]), ScoreService(["maths"])])
    async with server:
        print(server.url)

Everything lives in the object: two of them run side by side in one test. A request is parsed once,
handed to the route's typed function, and its answer encoded; every error becomes a `Fault` at this
one boundary.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import math
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Self

import msgspec
from aiohttp import web

from ludus.errors import ConfigError, LudusError

from .address import BACKLOG, check_host, is_loopback, listen
from .chaos import Chaos
from .codec import Format, accepted, convert_query, decode, encode, format_of
from .faults import Fault, FaultReply, QueueFull, Refused, fault_of, status_of
from .in_flight import InFlight
from .metrics import CONTENT_TYPE, ServerMetrics
from .openapi import describe
from .routes import Begin, Context, Load, Route, Service, StreamedService
from .stream import PATH
from .stream_server import Streams
from .tasks import end_task

logger = logging.getLogger(__name__)

DEFAULT_PORT = 8765
MAX_BODY_BYTES = 16 << 20
MAX_REQUESTS = 2048
BODY_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 5.0
LAG_EVERY_S = 0.25
INSTANCE_HEADER = "Ludus-Instance"


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `/healthz` and `/readyz`."""

    status: str
    instance: str
    services: dict[str, Load] = {}


class HttpServer:
    """Serves `services` at one address.

    Args:
        services: what to serve.
        host: address to bind; off loopback a token is required.
        port: 0 picks a free one; `url` tells which.
        token: bearer token every request must carry, but for `/healthz` and `/readyz`.
        max_body_bytes: larger request bodies are refused (413).
        max_requests: requests in flight; past it 429.
        chaos: faults on purpose.

    Raises:
        ConfigError: no token off loopback.
    """

    def __init__(
        self,
        services: Sequence[Service],
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        token: str = "",
        max_body_bytes: int = MAX_BODY_BYTES,
        max_requests: int = MAX_REQUESTS,
        chaos: Chaos | None = None,
    ) -> None:
        if not token and not is_loopback(host):
            raise ConfigError(
                f"refusing to serve on {host} without a token: anyone who reaches it could run "
                "your environments; give --token or LUDUS_TOKEN, or bind 127.0.0.1"
            )
        self.services = list(services)
        self.host = host
        self.port = port
        self.instance = secrets.token_hex(8)
        self.metrics = ServerMetrics()
        self._token = token.encode()
        self._max_body_bytes = max_body_bytes
        self._max_requests = max_requests
        self._chaos = chaos or Chaos()
        self._in_flight = InFlight()
        self._streams: Streams | None = None
        self._runner: web.AppRunner | None = None
        self._lag: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """Where it listens."""
        host = "127.0.0.1" if self.host in ("0.0.0.0", "") else self.host
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    async def start(self) -> None:
        """Start the services, then listen.

        Raises:
            OSError: the port is taken.
        """
        listener = listen(self.host, self.port)
        self.port = listener.getsockname()[1]
        try:
            context = Context(self.instance, self.metrics)
            for service in self.services:
                await service.start(context)
                self._watch(service)
            self._streams = self._build_streams()
            self._runner = web.AppRunner(
                self._application(),
                access_log=None,
                handle_signals=False,
                keepalive_timeout=75.0,
                shutdown_timeout=STOP_TIMEOUT_S,
            )
            await self._runner.setup()
            await web.SockSite(self._runner, listener, backlog=BACKLOG).start()
        except BaseException:
            await self.stop()
            listener.close()
            raise
        self._lag = asyncio.create_task(self._measure_lag(), name="ludus-lag")

    async def stop(self) -> None:
        """Refuse new work, finish what is in flight, release everything."""
        self._in_flight.stopping = True
        await end_task(self._lag)
        await self._drain()
        if self._streams is not None:
            await self._streams.close()
        for service in self.services:
            await service.stop()
        if self._runner is not None:
            await self._runner.cleanup()

    async def _drain(self) -> None:
        """Let the requests that are in flight be answered, if that does not take long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await self._in_flight.idle()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    # --- requests -----------------------------------------------------------------------------

    def _application(self) -> web.Application:
        application = web.Application(
            client_max_size=self._max_body_bytes, middlewares=[self._unrouted]
        )
        router = application.router
        for route in self._routes():
            router.add_route(route.method, route.path, self._endpoint(route))
            if route.token_in_path and self._token:
                router.add_route(route.method, "/{token}" + route.path, self._endpoint(route))
        router.add_get(PATH, self._stream)
        router.add_get("/healthz", self._healthz)
        router.add_get("/readyz", self._readyz)
        router.add_get("/metrics", self._metrics)
        router.add_get("/openapi.json", self._openapi)
        return application

    def _build_streams(self) -> Streams | None:
        handlers: dict[type[msgspec.Struct], Begin] = {}
        for service in self.services:
            if isinstance(service, StreamedService):
                handlers.update(service.operations())
        if not handlers:
            return None
        streams = Streams(
            handlers,
            self._in_flight,
            instance=self.instance,
            max_bytes=self._max_body_bytes,
            chaos=self._chaos,
        )
        self.metrics.watch("streams", "Open streams", lambda: float(len(streams)))
        return streams

    def _routes(self) -> list[Route]:
        return [route for service in self.services for route in service.routes()]

    def _endpoint(self, route: Route) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def endpoint(request: web.Request) -> web.StreamResponse:
            self._in_flight.enter()
            try:
                return await self._answer(route, request)
            finally:
                self._in_flight.leave()

        return endpoint

    async def _answer(self, route: Route, request: web.Request) -> web.StreamResponse:
        """Parse, call, encode; whatever goes wrong becomes a fault here."""
        format = Format.JSON
        try:
            self._admit(request)
            format = _reply_format(request)
            if await self._strikes_before(request):
                return _cut(request)
            payload = await self._payload(route, request)
            reply = await route.handler(request.match_info, payload)
            if isinstance(reply, Fault):
                response = self._respond_fault(route, reply, format)
            else:
                response = self._respond(route, 200, reply, format)
        except Exception as error:
            response = self._respond_fault(route, _read_error(error), format)
        return _cut(request) if self._strikes_after(request) else response

    def _admit(self, request: web.Request) -> None:
        self._authorize(request)
        if self._in_flight.stopping:
            raise Refused("the server is stopping; sessions end with it", "stopping")
        if self._in_flight.count > self._max_requests:
            raise QueueFull(
                f"{self._max_requests} requests are in flight",
                depth=self._in_flight.count,
                limit=self._max_requests,
            )

    def _authorize(self, request: web.Request) -> None:
        if not self._token:
            check_host(request.host)
            return
        given = _given_token(request).encode("utf-8", "surrogateescape")
        if not hmac.compare_digest(given, self._token):
            raise Refused(
                "the bearer token is missing or wrong; send 'Authorization: Bearer TOKEN'",
                "unauthorized",
            )

    async def _payload(self, route: Route, request: web.Request) -> msgspec.Struct:
        if not route.in_body:
            return convert_query(dict(request.query), route.payload)
        format = _body_format(request)
        length = request.content_length
        if length is not None and length > self._max_body_bytes:
            raise _too_large(length, self._max_body_bytes)
        try:
            async with asyncio.timeout(BODY_TIMEOUT_S):
                body = await request.read()
        except TimeoutError:
            raise Refused(
                f"the body did not arrive within {BODY_TIMEOUT_S:g} s", "slow_body"
            ) from None
        except web.HTTPRequestEntityTooLarge:
            raise _too_large(length, self._max_body_bytes) from None
        except (ConnectionError, web.RequestPayloadError):
            raise Refused("the connection ended within the body", "malformed") from None
        return decode(body, route.payload, format)

    def _respond(
        self, route: Route | None, status: int, reply: object, format: Format
    ) -> web.Response:
        body, became = encode(reply, format)
        self.metrics.requests.labels(route.path if route else "-", str(status)).inc()
        headers = {"Content-Type": became.value, INSTANCE_HEADER: self.instance}
        return web.Response(status=status, body=body, headers=headers)

    def _respond_fault(self, route: Route | None, fault: Fault, format: Format) -> web.Response:
        status = status_of(fault)
        if route is not None and route.retry_status and fault.retryable:
            status = route.retry_status
        response = self._respond(route, status, FaultReply(error=fault), format)
        if fault.retry_after_s is not None:
            response.headers["Retry-After"] = str(math.ceil(fault.retry_after_s))
        if fault.code == "unauthorized":
            response.headers["WWW-Authenticate"] = "Bearer"
        return response

    @web.middleware
    async def _unrouted(
        self,
        request: web.Request,
        handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
    ) -> web.StreamResponse:
        """Answer unknown paths and methods in our own words."""
        try:
            return await handler(request)
        except web.HTTPNotFound:
            served = " and ".join(service.name for service in self.services) or "nothing"
            said = f"no route {request.path!r}; served here: {served} (/openapi.json)"
            fault = Fault(code="not_found", message=said)
        except web.HTTPMethodNotAllowed as error:
            allowed = ", ".join(sorted(error.allowed_methods))
            message = f"{request.path} takes {allowed}, not {request.method}"
            fault = Fault(code="method_not_allowed", message=message)
        return self._respond_fault(None, fault, Format.JSON)

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        """`/v1/stream`."""
        try:
            self._admit(request)
            if await self._strikes_before(request):
                return _cut(request)
            if self._streams is None:
                raise Refused("nothing served here has operations for a stream", "not_found")
            if not web.WebSocketResponse().can_prepare(request):
                raise Refused("a stream is a WebSocket; ask for an upgrade", "upgrade_required")
        except LudusError as error:
            return self._respond_fault(None, fault_of(error), Format.JSON)
        self.metrics.requests.labels(PATH, "101").inc()
        return await self._streams.serve(request)

    # --- operations ---------------------------------------------------------------------------

    async def _healthz(self, request: web.Request) -> web.Response:
        return self._respond(None, 200, Health(status="ok", instance=self.instance), Format.JSON)

    async def _readyz(self, request: web.Request) -> web.Response:
        services = {service.name: service.load() for service in self.services}
        problems = [load.problem for load in services.values() if load.problem]
        problems += ["stopping"] if self._in_flight.stopping else []
        status = "; ".join(problems) or "ready"
        health = Health(status=status, instance=self.instance, services=services)
        return self._respond(None, 503 if problems else 200, health, Format.JSON)

    async def _metrics(self, request: web.Request) -> web.Response:
        try:
            self._authorize(request)
        except Refused as error:
            return self._respond_fault(None, fault_of(error), Format.JSON)
        return web.Response(body=self.metrics.text(), headers={"Content-Type": CONTENT_TYPE})

    async def _openapi(self, request: web.Request) -> web.Response:
        try:
            self._authorize(request)
        except Refused as error:
            return self._respond_fault(None, fault_of(error), Format.JSON)
        body = msgspec.json.encode(describe(self._routes(), secured=bool(self._token)))
        return web.Response(body=body, content_type="application/json")

    def _watch(self, service: Service) -> None:
        self.metrics.watch(
            "queue_depth",
            "Operations in flight",
            lambda: service.load().queue_depth,
            service=service.name,
        )

    async def _measure_lag(self) -> None:
        while True:
            before = time.perf_counter()
            await asyncio.sleep(LAG_EVERY_S)
            self.metrics.lag_seconds.observe(max(0.0, time.perf_counter() - before - LAG_EVERY_S))

    # --- chaos --------------------------------------------------------------------------------

    async def _strikes_before(self, request: web.Request) -> bool:
        """Delay, fail, or say that the connection is to be cut before the work is done."""
        chaos = self._chaos
        if chaos.strikes(chaos.delay):
            self.metrics.chaos.labels("delay").inc()
            await asyncio.sleep(chaos.delay_s)
        if chaos.strikes(chaos.error):
            self.metrics.chaos.labels("error").inc()
            raise Refused("an error on purpose (--chaos)", "chaos")
        return chaos.strikes(chaos.drop / 2)

    def _strikes_after(self, request: web.Request) -> bool:
        half = self._chaos.drop / 2  # of all requests; those cut before do not come here
        return self._chaos.strikes(half / (1 - half))


def _given_token(request: web.Request) -> str:
    """The token of a request: in its path where the route takes it there, else of its header."""
    if "token" in request.match_info:
        return request.match_info["token"]
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    return given.strip() if scheme.lower() == "bearer" else ""


def _body_format(request: web.Request) -> Format:
    content_type = request.headers.get("Content-Type", "")
    format = format_of(content_type)
    if format is None:
        raise Refused(
            f"Content-Type is {content_type or 'missing'!r}; send application/json or "
            "application/msgpack (curl: -H 'Content-Type: application/json')",
            "unsupported_media",
        )
    return format


def _reply_format(request: web.Request) -> Format:
    sent = format_of(request.headers.get("Content-Type", "")) or Format.JSON
    return accepted(request.headers.get("Accept", ""), sent)


def _too_large(size: int | None, limit: int) -> Refused:
    shown = f" ({size} bytes)" if size is not None else ""
    message = f"the body is too large{shown}: this server takes at most {limit} bytes"
    return Refused(message, "too_large")


def _read_error(error: Exception) -> Fault:
    fault = fault_of(error)
    if fault.code == "internal":
        logger.error("request failed", exc_info=error)
    return fault


def _cut(request: web.Request) -> web.StreamResponse:
    """Close the connection without a reply."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=500)
