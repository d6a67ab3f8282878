"""The HTTP server: several services behind a single address.

    server = HttpServer([EnvService(["ludus/arithmetic-v0"]), ScoreService(["maths"])])
    async with server:
        print(server.url)

All state lives in the object, so two servers run side by side in one test. A request is parsed
once, handed to the route's typed function, and its answer encoded; every error becomes a `Fault` at
this one boundary.

    with BackgroundServer(HttpServer([EnvService(["me/echo-v0"])])) as url:
        env = ludus.connect(url).make("me/echo-v0")

The server listens when the block begins, and is stopped when the block ends.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from functools import partial
from typing import Self

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from ludus.background import end_task
from ludus.errors import ConfigError, LudusError
from ludus.secret import Secret

from .access import AccessLog, asked, logged
from .address import BACKLOG, is_loopback, listen, listen_at
from .admission import MAX_CONNECTIONS, STRANGER_S, Door
from .asgi import AsgiApp, call_asgi
from .chaos import Chaos
from .codec import PATH, Format, asked_format
from .faults import Fault, QueueFull, Refused, fault_of
from .page import show
from .plain import PlainRoutes
from .principals import Principal, Principals, asked_by
from .prometheus import CONTENT_TYPE, ServerMetrics
from .replies import Replies, no_route
from .requests import (
    REQUEST_ID,
    Bytes,
    Held,
    authorize,
    cut,
    discard_body,
    expect_later,
    identify,
    read_body,
    read_payload,
    reply_format,
)
from .routes import (
    Context,
    DrainedService,
    Endpoint,
    Health,
    Path,
    Route,
    Service,
    describe,
    documented,
    endpoints_of,
    readiness,
    tables_of,
)
from .stream_server import ServerStreams, streams_of
from .tls import ServerTls
from .tracing import Tracer

DEFAULT_PORT = 8765
MAX_BODY_BYTES = 16 << 20
"""The default limit on a request's body, inflated."""
MAX_REQUESTS = 2048
"""The default limit on requests in flight."""
MAX_BYTES_IN_FLIGHT = 256 << 20
"""The default limit on the bytes of all bodies in flight (decision 0205)."""
STOP_TIMEOUT_S = 5.0
"""Seconds for which a server that does not drain waits for what is in flight."""
CLOSE_TIMEOUT_S = 5.0
"""Seconds for which aiohttp waits for open connections, once nothing is in flight any more."""
STOP_EVERY_S = 0.01
"""Seconds between two looks of a stopping server at whether every request is answered."""
ACCEPTS = 8
"""How many connections are accepted before those that find no place are closed."""
LAG_EVERY_S = 0.25
"""Seconds between two measurements of the event loop's delay."""


def refuse_strangers(host: str, principals: Principals) -> None:
    """Refuse an address that others reach, where no token was given.

    Raises:
        ConfigError: with what to do.
    """
    if not principals and not is_loopback(host):
        raise ConfigError(
            f"refusing to serve on {host} without a token: anyone who reaches it could run "
            "your environments; give --token or LUDUS_TOKEN, or bind 127.0.0.1"
        )


class HttpServer:
    """Serves `services` at a single address.

    Args:
        services: the services to offer.
        host: the address to bind; off loopback a token is required.
        port: the port to bind; 0 picks a free one, which `url` tells.
        socket_path: the path of a Unix socket to bind instead, which only this user may use.
        tls: the certificate; None serves plain HTTP.
        token: the bearer token that every request must carry, except to `/healthz` and `/readyz`.
        principals: those who may ask, each with a token and scopes, instead of `token`.
        max_body_bytes: the largest request body, inflated; a larger body is refused (413).
        max_requests: the most requests in flight; a further one is refused (429).
        max_bytes_in_flight: the most bytes of all their bodies together, inflated; past that a
            request is refused (429).
        max_connections: the most connections at once; past that a connection that has shown no
            token makes room, or the new one is told to come back (503).
        stranger_s: the seconds that a connection may last on which no request has shown the token.
        drain_s: the seconds for which a server that is to stop goes on with the sessions that it
            has, and begins nothing new; None ends sessions at once, and waits up to five seconds
            for what is in flight.
        chaos: the faults to inject on purpose; none by default.
        access_log: is given a line for each request and operation; None writes none.
        tracer: is given a span for each step and verdict; None makes none.
        mounted: ASGI applications of other projects, by path.

    Raises:
        ConfigError: the host is not loopback, and there is no token; or nothing could be sent.
    """

    def __init__(
        self,
        services: Sequence[Service],
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        socket_path: str = "",
        tls: ServerTls | None = None,
        token: str | Secret = "",
        principals: Principals | None = None,
        max_body_bytes: int = MAX_BODY_BYTES,
        max_requests: int = MAX_REQUESTS,
        max_bytes_in_flight: int = MAX_BYTES_IN_FLIGHT,
        max_connections: int = MAX_CONNECTIONS,
        stranger_s: float = STRANGER_S,
        drain_s: float | None = None,
        chaos: Chaos | None = None,
        access_log: AccessLog | None = None,
        tracer: Tracer | None = None,
        mounted: Mapping[str, AsgiApp] | None = None,
    ) -> None:
        if max_body_bytes < 1:  # to a WebSocket 0 means no limit
            raise ConfigError(f"max_body_bytes must be at least 1, got {max_body_bytes}")
        self._principals = principals if principals is not None else Principals(token)
        if not socket_path:
            refuse_strangers(host, self._principals)
        self.services = list(services)
        self.host = host
        self.port = port
        self._socket_path = socket_path
        self._tls = tls
        self.instance = secrets.token_hex(8)
        self.metrics = ServerMetrics()
        self._replies = Replies(self.metrics, self.instance)
        self._max_body_bytes = max_body_bytes
        self._max_requests = max_requests
        self._chaos = chaos or Chaos()
        self._has_chaos = self._chaos.any
        self._mounted = [
            Endpoint("*", path, partial(call_asgi, app)) for path, app in (mounted or {}).items()
        ]
        self._access_log = access_log
        self._tracer = tracer
        self._request_numbers = itertools.count(1)
        self._requests = 0
        self._drain_s = drain_s
        self._draining = self._stopping = self._hurried = False
        self._streams: ServerStreams | None = None
        self._bytes = Bytes(max_bytes_in_flight)
        self._stranger_s = stranger_s
        self._max_connections = max_connections
        self._door: Door | None = None
        self._listening: asyncio.Server | None = None
        self._runner: web.AppRunner | None = None
        self._lag: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """The address at which the server listens; the port is right only after `start`."""
        if self._socket_path:
            return f"unix:{self._socket_path}"
        host = "127.0.0.1" if self.host in ("0.0.0.0", "") else self.host
        scheme = "http" if self._tls is None else "https"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{self.port}"

    @property
    def bytes_held(self) -> int:
        """The number of bytes in the bodies of requests in flight."""
        return self._bytes.held

    @property
    def turned_away(self) -> int:
        """The number of connections closed on strangers, or that found no place."""
        return self._door.turned_away if self._door is not None else 0

    async def start(self) -> None:
        """Start the services, then accept connections.

        Raises:
            OSError: the port is taken.
            Exception: a service could not start; what had started is stopped.
        """
        if self._socket_path:
            listener = listen_at(self._socket_path)
        else:
            listener = listen(self.host, self.port)
            self.port = listener.getsockname()[1]
        try:
            context = Context(self.instance, self.metrics, self._tracer)
            if self._access_log is not None:
                self._access_log.start(self.metrics)
            if self._tracer is not None:
                self._tracer.start()
            for service in self.services:
                await service.start(context)
                self._watch(service)
            streams = streams_of(
                self.services,
                instance=self.instance,
                max_bytes=self._max_body_bytes,
                chaos=self._chaos,
                struck=self._struck,
                refused=self.metrics.refuse,
                access_log=self._access_log,
            )
            if streams is not None:
                self.metrics.watch("streams", "Open streams", lambda: float(len(streams)))
            self._streams = streams
            await self._open(listener)
        except BaseException:
            # A service that did not start may have nothing that it could stop.
            with closing(listener), suppress(Exception):
                await self.stop()
            raise
        self._lag = asyncio.create_task(self._measure_lag(), name="ludus-lag")

    async def _open(self, listener: socket.socket) -> None:
        """Mount every route, and accept connections."""
        log: list[Middleware] = [logged(self._access_log)] if self._access_log is not None else []
        application = web.Application(
            client_max_size=self._max_body_bytes, middlewares=[*log, self._unrouted]
        )
        router = application.router
        routes = [route for service in self.services for route in service.routes()]
        for route in routes:
            self._add(router, route, partial(self._answer, route))
        for endpoint in [*endpoints_of(self.services), *self._mounted]:
            self._add(router, endpoint, partial(self._at_endpoint, endpoint))
        router.add_get(PATH, self._stream)
        router.add_get("/healthz", self._healthz)
        router.add_get("/readyz", self._readyz)
        router.add_get("/metrics", self._metrics)
        router.add_get("/", self._page)
        router.add_get("/openapi.json", self._openapi)
        self._runner = web.AppRunner(
            application,
            access_log=None,
            handle_signals=False,
            keepalive_timeout=75.0,
            shutdown_timeout=CLOSE_TIMEOUT_S,
            # By itself aiohttp inflates a body before any handler has looked at the token, and goes
            # on reading a body that was refused (decision 0205).
            auto_decompress=False,
            lingering_time=0.0,
            # Work ends with the connection that asked for it; a session's operations are kept.
            handler_cancellation=True,
        )
        await self._runner.setup()
        assert self._runner.server is not None
        self._runner.server.request_handler = PlainRoutes(
            routes,
            identify=self._identify,
            answer=self._answer,
            otherwise=self._runner.server.request_handler,
            access_log=self._access_log,
        )
        self._door = Door(
            self._runner.server, max_connections=self._max_connections, stranger_s=self._stranger_s
        )
        loop = asyncio.get_running_loop()
        context = self._tls.context if self._tls is not None else None
        listen_on = loop.create_unix_server if self._socket_path else loop.create_server
        self._listening = await listen_on(self._door, sock=listener, ssl=context, backlog=ACCEPTS)
        listener.listen(BACKLOG)  # the event loop has set it to the number that it accepts at once

    async def stop(self) -> None:
        """Begin nothing new, wait for what has begun (see `drain_s`), and release everything.

        A second call is harmless.

        Raises:
            Exception: a service could not stop; everything else is released all the same.
        """
        self._draining = True
        streams = self._streams
        drained = [service for service in self.services if isinstance(service, DrainedService)]
        if self._drain_s is None:
            self._refuse_all()
        else:
            for holder in drained:
                holder.drain()
        patience_s = STOP_TIMEOUT_S if self._drain_s is None else self._drain_s
        deadline = time.monotonic() + patience_s
        # Polled, since an event that tells the end of the last operation would cost every
        # operation.
        while time.monotonic() < deadline and not self._hurried:
            in_flight = self._requests or (streams and streams.unanswered)
            is_held = self._drain_s is not None and any(holder.held() for holder in drained)
            if not in_flight and not is_held:
                break
            await asyncio.sleep(STOP_EVERY_S)
        self._refuse_all()
        await end_task(self._lag)
        if streams is not None:
            await streams.close()
        failures: list[Exception] = []
        for service in self.services:
            try:
                await service.stop()
            except Exception as error:
                failures.append(error)
        # Until here new requests were accepted and answered with the reason why they are refused.
        if self._listening is not None:
            self._listening.close()
        # Taken out first: a second `stop` may run while this one waits.
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()
        if self._access_log is not None:
            await asyncio.to_thread(self._access_log.close)
        if self._tracer is not None:
            await asyncio.to_thread(self._tracer.close)
        if failures:
            for later in failures[1:]:
                failures[0].add_note(f"another service could not stop either: {later!r}")
            raise failures[0]

    def reload(self) -> None:
        """Read tokens and certificate anew (with a mistake, the old stays); reopen the log."""
        self._principals.read_again()
        if self._tls is not None:
            self._tls.read_again()
        if self._access_log is not None:
            self._access_log.reopen()

    def limit(self, *, max_body_bytes: int, drain_s: float) -> None:
        """Replace the bounds given at the start, from now on."""
        self._max_body_bytes, self._drain_s = max_body_bytes, drain_s

    def hurry(self) -> None:
        """Let a `stop` that waits for sessions wait no longer."""
        self._hurried = True

    def _refuse_all(self) -> None:
        self._stopping = True
        if self._streams is not None:
            self._streams.stopping = True

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def _ending(self) -> str:
        """The progress of the shutdown; empty while the server takes work."""
        return "stopping" if self._stopping else "draining" if self._draining else ""

    # --- requests -----------------------------------------------------------------------------

    def _add(self, router: web.UrlDispatcher, at: Route | Endpoint, handler: Handler) -> None:
        prefixes = ["", "/{token}"] if at.token_in_path and self._principals else [""]
        for prefix in prefixes:
            router.add_route(at.method, prefix + at.path, handler, expect_handler=expect_later)

    async def _at_endpoint(self, endpoint: Endpoint, request: web.Request) -> web.StreamResponse:
        """Check a request as any other, read the body, and let the endpoint answer."""
        held = Held(self._bytes)
        # A GET may be a WebSocket or a stream of events, which lasts as long as its client: none is
        # in flight as a call is, and none holds up the end of the server.
        counted = request.method != "GET"
        self._requests += counted
        try:
            held.belongs_to(self._admit(request))
            if await self._chaos.before(self._struck):
                return cut(request)
            body = await read_body(request, self._max_body_bytes, held)
            self.metrics.requests.labels(endpoint.path, "-").inc()
            response = await endpoint.handler(request, body)
            # A WebSocket has answered long ago; of a plain answer the reply may be lost.
            plain = isinstance(response, web.Response)
            return cut(request) if plain and self._chaos.after() else response
        except Exception as error:
            failure = self._replies.failure(error, Format.JSON)
            await discard_body(request, failure, is_known=held.is_known)
            return failure
        finally:
            held.release()
            self._requests -= counted

    async def _answer(
        self, route: Route, request: web.Request, plain: Path | None = None
    ) -> web.StreamResponse:
        """Parse a request, call the route's handler and encode the reply; every error becomes a
        fault.

        Args:
            route: the route.
            request: what was asked.
            plain: the parameters in the path of a plain request; None of one that was routed.
        """
        response: web.StreamResponse
        format = Format.JSON
        held = Held(self._bytes)
        self._requests += 1
        try:
            principal = self._admit(request, plain)
            held.belongs_to(principal)
            if route.scope:
                principal.require(route.scope)
                principal.spend()
            format = reply_format(request)
            asked_format.set(format)
            if self._has_chaos and await self._chaos.before(self._struck):
                return cut(request)
            path = request.match_info if plain is None else plain
            payload = await read_payload(route, request, path, self._max_body_bytes, held)
            asked.set(payload)
            reply = await route.handler(path, payload)
            if isinstance(reply, Fault):
                response = self._replies.fault(reply, format, route=route)
            elif plain is not None:
                response = self._replies.plain(reply, format, route)
            else:
                response = self._replies.answer(reply, format, route=route)
        except Exception as error:
            response = self._replies.failure(error, format, route=route)
            await discard_body(request, response, is_known=held.is_known)
        finally:
            held.release()
            self._requests -= 1
        return cut(request) if self._has_chaos and self._chaos.after() else response

    def _admit(self, request: web.Request, path: Path | None = None) -> Principal:
        # The token comes first: nothing else that a stranger sends is looked at (decision 0205).
        principal = authorize(request, self._principals, path=path)
        asked_by.set(principal)
        if self._door is not None:
            self._door.vouch(request.protocol)
        if self._stopping:
            raise Refused("the server is stopping; sessions end with it", "stopping")
        if self._requests > self._max_requests:  # the count includes this request
            raise QueueFull(
                f"{self._max_requests} requests are in flight",
                cause="requests",
                depth=self._requests,
                limit=self._max_requests,
            )
        return principal

    @web.middleware
    async def _unrouted(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Give each request an id, and answer what no route takes with faults of our own."""
        name = self._identify(request)
        try:
            response = await handler(request)
        except (Refused, web.HTTPNotFound, web.HTTPMethodNotAllowed) as error:
            served = [service.name for service in self.services]
            fault = (
                fault_of(error)
                if isinstance(error, Refused)
                else no_route(request, error, self._principals, served)
            )
            response = self._replies.fault(fault, Format.JSON)
            await discard_body(request, response, is_known=False)
        if not response.prepared:  # else it is a stream
            response.headers[REQUEST_ID] = name
        return response

    def _identify(self, request: web.BaseRequest) -> str:
        return identify(request, self.instance, next(self._request_numbers))

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        """Answer `/v1/stream`: check the request as any other, then turn the connection into a
        stream.
        """
        try:
            self._admit(request)
            if await self._chaos.before(self._struck):
                return cut(request)
            if self._streams is None:
                raise Refused("nothing served here has operations for a stream", "not_found")
            if not web.WebSocketResponse().can_prepare(request):
                raise Refused("a stream is a WebSocket; ask for an upgrade", "upgrade_required")
        except LudusError as error:
            return self._replies.fault(fault_of(error), Format.JSON)
        self.metrics.requests.labels(PATH, "101").inc()
        return await self._streams.serve(request)

    # --- operations ---------------------------------------------------------------------------

    async def _healthz(self, request: web.Request) -> web.Response:
        return self._replies.answer(Health(status="ok", instance=self.instance), Format.JSON)

    async def _readyz(self, request: web.Request) -> web.Response:
        is_stranger = False
        try:
            authorize(request, self._principals)
        except Refused:
            is_stranger = bool(self._principals)
        ready, health = readiness(
            self.services, self.instance, ending=self._ending, is_stranger=is_stranger
        )
        return self._replies.answer(health, Format.JSON, status=200 if ready else 503)

    async def _metrics(self, request: web.Request) -> web.Response:
        authorize(request, self._principals).require("admin")
        return web.Response(body=self.metrics.text(), headers={"Content-Type": CONTENT_TYPE})

    async def _page(self, request: web.Request) -> web.Response:
        try:
            authorize(request, self._principals, is_page=True).require("admin")
        except Refused as error:
            return self._replies.ask_password(fault_of(error))
        tables = tables_of(self.services, self.metrics)
        _, health = readiness(self.services, self.instance, ending=self._ending, is_stranger=False)
        return show(tables, instance=self.instance, status=health.status)

    async def _openapi(self, request: web.Request) -> web.Response:
        authorize(request, self._principals)
        body = msgspec.json.encode(
            describe(documented(self.services), secured=bool(self._principals))
        )
        return web.Response(body=body, content_type="application/json")

    def _struck(self, fault: str) -> None:
        self.metrics.chaos.labels(fault).inc()

    def _watch(self, service: Service) -> None:
        # A method, not a lambda in a loop, so that each gauge keeps the service that it measures.
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
            # The same loop closes connections that have not shown a token in time.
            if self._door is not None:
                self._door.sweep()


THREAD_START_TIMEOUT_S = 600.0
THREAD_STOP_TIMEOUT_S = 60.0


class BackgroundServer:
    """Runs an `HttpServer` on a new thread and event loop while the `with` block lasts.

    Args:
        server: the server, not started.
    """

    def __init__(self, server: HttpServer) -> None:
        self.server = server
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="ludus-server", daemon=True)

    def __enter__(self) -> str:
        """Start the server, wait until connections are accepted, and return the address.

        Raises:
            TimeoutError: the server did not start within ten minutes.
            BaseException: whatever the start of the server raised.
        """
        self._thread.start()
        if not self._ready.wait(THREAD_START_TIMEOUT_S):
            raise TimeoutError(f"the server did not start within {THREAD_START_TIMEOUT_S:g} s")
        if self._failure is not None:
            raise self._failure
        return self.server.url

    def __exit__(self, kind: object, *_: object) -> None:
        """Stop the server, and wait at most a minute for the thread to end.

        Raises:
            BaseException: whatever ended the server early or its stop raised, where the block
                raised nothing.
        """
        if self._loop is not None and self._stop is not None:
            with suppress(RuntimeError):  # the loop has ended by itself
                self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(THREAD_STOP_TIMEOUT_S)
        if self._failure is not None and kind is None:
            raise self._failure

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self._failure = error
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        async with self.server:
            self._ready.set()
            await self._stop.wait()
