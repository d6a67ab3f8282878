"""How a client's calls travel: over the server's stream, or in batches of plain HTTP where there is
none.

A stream (`/v1/stream`) is opened when first needed, and again after a break.

Calls made in the same turn of the event loop (a batch of generations coming back) leave together.
While several requests are out, later calls gather until a request is answered, for a few
milliseconds at most. An item that the server answers with "still running" goes into the next
request, and a request that is too large for the server is sent again in two halves.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

import aiohttp
import msgspec

from ludus.background import end_task
from ludus.errors import ConfigError, LudusError, RequestRejected, RequestTimeout, ServerUnreachable

from .client import AsyncTransport, Client, other_loop, protocol_error, trace_headers, unreachable
from .codec import MAX_ITEMS, PATH, SEE_OTHER, Format, Hello, decode, encode, trace_parent
from .faults import Fault, error_of, is_too_large

HANDSHAKE_S = 10.0
"""Seconds that opening the WebSocket may take, and then again the server's first frame."""
PAUSE_S = 2.0
"""Seconds for which plain HTTP is used after a server refused a stream for now, or was late."""
MAX_SILENT_LOSSES = 3
"""How many streams in a row may break before any answer came. After more, the client assumes that a
proxy on the way does not carry WebSockets, and uses plain HTTP from then on.
"""
NO_STREAMS = (200, 400, 403, 404, 405, 421, 426, 501)
"""Statuses that a server or a proxy without streams answers to the handshake. Another try would get
the same status, so plain HTTP is used from then on.
"""


class UseHttp(Exception):
    """No stream can carry the operation, which is to be sent over plain HTTP instead."""


@dataclass(slots=True, eq=False)
class _Pending:
    """An operation that is under way, with the future that the caller waits on."""

    operation: msgspec.Struct
    as_type: Any
    future: asyncio.Future[Any]
    since: float
    """The time at which the caller asked, by `time.monotonic`."""
    deadline: float
    """The time at which the operation fails, by `time.monotonic`."""
    trace: str
    """The `traceparent` of what the caller does; empty outside a trace."""
    sent: bool = False
    """Whether the operation went into a frame. One that never did shows nothing about whether the
    connection is alive.
    """


class ClientStream:
    """Carries the operations of a client over a WebSocket to the server.

    All operations asked in one turn of the event loop leave together.

    Args:
        client: the client, whose address, token and format the stream uses.
        transport: makes the connection.
    """

    def __init__(self, client: Client, transport: AsyncTransport) -> None:
        self._client = client
        self._transport = transport
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pending: dict[int, _Pending] = {}
        self._unsent: list[int] = []
        self._next = 0
        self._more = asyncio.Event()
        self._answering = False
        """True while the callers that the reader has just answered run. The reader then decides how
        to send what these submit, so `submit` must not wake the writer.
        """
        self._running: asyncio.Task[None] | None = None
        self._dropped: set[asyncio.Task[None]] = set()
        """Tasks of dead connections, which take a while to close."""
        self._sweep: asyncio.TimerHandle | None = None
        """The single timer of all operations, set for the earliest deadline."""
        self._sweep_at = math.inf
        self.http_until = 0.0
        """The time until which plain HTTP is used, by `time.monotonic`: 0 for no pause, and
        infinity once the server is known to have no streams.
        """
        self._losses = 0
        """How many connections in a row broke without an answer; see `MAX_SILENT_LOSSES`."""
        self._max_bytes = 0
        """The largest frame in bytes that the server takes, as its `Hello` says."""
        self._takes_traces = False
        """Whether the server takes the trace of an operation, as its `Hello` says."""
        self._heard = 0.0
        """The time of the last frame from the server, by `time.monotonic`."""

    def submit(
        self, operation: msgspec.Struct, as_type: object, timeout_s: float
    ) -> asyncio.Future[Any]:
        """Send `operation` with whatever else is sent in this turn of the event loop.

        Args:
            operation: the operation; safe to send twice.
            as_type: the type of the answer.
            timeout_s: the seconds after which the operation fails with `RequestTimeout`.

        Returns:
            A future of the reply, read as `as_type`; it fails with `UseHttp` where no stream can
            carry the operation, else with the error that the server met.

        Raises:
            ConfigError: the stream belongs to another event loop.
        """
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop, self._more = loop, asyncio.Event()
        elif loop is not self._loop:
            raise other_loop()
        number = self._next
        self._next += 1
        now = time.monotonic()
        deadline = now + timeout_s
        future = loop.create_future()
        trace = trace_parent.get()
        if not trace and "opentelemetry.trace" in sys.modules:
            trace = trace_headers().get("traceparent", "")
        self._pending[number] = _Pending(operation, as_type, future, now, deadline, trace)
        self._unsent.append(number)
        if deadline < self._sweep_at:
            self._plan_sweep(deadline)
        if self._running is None:
            self._running = loop.create_task(self._run(), name="ludus-stream")
        if not self._answering:  # otherwise the reader sends it; see `_converse`
            self._more.set()
        return future

    async def close(self) -> None:
        """Close the connection, and cancel the operations under way. The next operation opens
        another connection, on any event loop.
        """
        running, self._running = self._running, None
        if self._sweep is not None:
            self._sweep.cancel()
        self._loop, self._sweep, self._sweep_at = None, None, math.inf
        self.http_until, self._losses = 0.0, 0
        for task in (running, *self._dropped):
            await end_task(task)
        for pending in self._take_all():
            pending.future.cancel()

    # --- the connection -------------------------------------------------------------------------

    async def _run(self) -> None:
        """Connect, and carry until the connection breaks; the next operation connects again."""
        error: Exception | None = None
        try:
            error = await self._carry()
        finally:
            # A connection that was given up as dead is not `_running` any more: by now that may be
            # the task of the next connection.
            if self._running is asyncio.current_task():
                self._running = None
        for pending in self._take_all():
            if not pending.future.done():
                pending.future.set_exception(error)

    async def _carry(self) -> Exception:
        """Connect, exchange frames until the connection ends, and return the error that says
        why.
        """
        url = self._client.url
        try:
            async with asyncio.timeout(HANDSHAKE_S):
                headers = dict(self._client.build("GET", PATH, None).headers)
                # Each operation names its own trace, and has none of whatever opened the stream.
                headers.pop("traceparent", None)
                socket = await self._transport.stream(url + PATH, headers)
        except aiohttp.WSServerHandshakeError as error:
            return self._use_http(math.inf if error.status in NO_STREAMS else PAUSE_S)
        except TimeoutError:  # the same operation over plain HTTP fails with a reason, or succeeds
            return self._use_http(PAUSE_S)
        except (aiohttp.ClientError, OSError) as error:
            return unreachable(url, error)
        try:
            return await self._converse(socket)
        except RequestRejected:  # the first frame was no `Hello` that this client reads
            return self._use_http(math.inf)
        except LudusError as error:
            return error
        finally:
            await socket.close()

    async def _converse(self, socket: aiohttp.ClientWebSocketResponse) -> Exception:
        try:
            hello = await socket.receive(HANDSHAKE_S)
        except TimeoutError:  # a proxy took the upgrade, and passes nothing on
            self._losses += 1
            return self._use_http(math.inf if self._losses > MAX_SILENT_LOSSES else PAUSE_S)
        if hello.type is aiohttp.WSMsgType.TEXT:
            said = decode(hello.data.encode(), Hello, Format.JSON)
            self._max_bytes, self._takes_traces = said.max_bytes, said.takes_traces
            self._client.contact.made, self._client.contact.instance = True, said.instance
            writing = asyncio.create_task(self._write(socket), name="ludus-stream-writer")
            try:
                # Read answers until the connection breaks; return whether any came.
                answered = False
                async for message in socket:
                    if message.type is aiohttp.WSMsgType.BINARY:
                        self._settle(message.data, Format.MSGPACK)
                    elif message.type is aiohttp.WSMsgType.TEXT:
                        self._settle(message.data.encode(), Format.JSON)
                    answered = True
                    # The callers that were answered run now, before the next frame is read. What
                    # they submit is then sent in one frame, without waiting for more (decision
                    # 0201).
                    self._answering = True
                    await asyncio.sleep(0)
                    self._answering = False
                    if len(self._unsent) == len(self._pending) == 1:
                        # Sending here instead of waking the writer saves two turns of the loop. The
                        # reader may wait for the server only now: no other answer is due, so the
                        # server is reading, and the two cannot wait for each other (decision 0201).
                        await self._send_unsent(socket)
                    elif self._unsent:
                        self._more.set()
                if answered:
                    self._losses = 0
            finally:
                self._answering = False
                await end_task(writing)
        self._losses += 1
        if self._losses > MAX_SILENT_LOSSES:
            return self._use_http(math.inf)
        return ServerUnreachable(f"the connection to {self._client.url} broke")

    def _use_http(self, pause_s: float) -> Exception:
        self.http_until = time.monotonic() + pause_s
        return UseHttp()

    # --- what goes out --------------------------------------------------------------------------

    async def _write(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        more = self._more
        while True:
            await more.wait()
            more.clear()
            if more is not self._more:  # this connection was given up, and another took over
                return
            await self._send_unsent(socket)

    async def _send_unsent(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        numbers, self._unsent = self._unsent, []
        # A lost connection needs no handling here: the reader meets it at its next read, and `_run`
        # then fails every pending operation.
        with suppress(ConnectionError):
            for start in range(0, len(numbers), MAX_ITEMS):
                await self._send(socket, numbers[start : start + MAX_ITEMS])

    async def _send(self, socket: aiohttp.ClientWebSocketResponse, numbers: Sequence[int]) -> None:
        """Send the given operations, except where nobody waits for the answer any more."""
        # Checked anew for each half of a frame that was too large: meanwhile operations may have
        # been cancelled or have failed at their deadline.
        waited = [n for n in numbers if n in self._pending and not self._pending[n].future.done()]
        asked = [(number, self._pending[number]) for number in waited]
        frame = [
            (number, pending.operation, pending.trace)
            if pending.trace and self._takes_traces
            else (number, pending.operation)
            for number, pending in asked
        ]
        if not frame:
            return
        try:
            data, format = encode(frame, self._client.format)
        except (TypeError, ValueError, RecursionError):
            # Fail the operation that cannot be encoded, and put the others back.
            for number in waited:
                try:
                    encode(self._pending[number].operation, self._client.format)
                except (TypeError, ValueError, RecursionError) as error:
                    kind = type(self._pending[number].operation).__name__
                    message = f"the {kind} for {self._client.url} cannot be encoded: {error}"
                    self._fail(number, ConfigError(message))
                else:
                    self._unsent.append(number)
                    self._more.set()
            return
        if len(data) > self._max_bytes:
            if len(waited) == 1:  # the operation's own route may accept a larger body
                self._fail(waited[0], UseHttp())
            else:
                # The length of an operation is known only once it is encoded. So the frame is
                # halved until each part fits.
                middle = len(waited) // 2
                await self._send(socket, waited[:middle])
                await self._send(socket, waited[middle:])
            return
        for number in waited:
            self._pending[number].sent = True
        self._client.traffic.requests += 1
        self._client.traffic.bytes_sent += len(data)
        if format is Format.MSGPACK:
            await socket.send_bytes(data)
        else:
            await socket.send_str(data.decode())

    # --- what comes back ------------------------------------------------------------------------

    def _settle(self, data: bytes, format: Format) -> None:
        self._heard = time.monotonic()
        self._client.traffic.bytes_received += len(data)
        try:
            answers = decode(data, list[tuple[int, int, msgspec.Raw]], format)
        except RequestRejected as error:
            raise protocol_error(f"cannot read the server's answers: {error}") from error
        for number, status, body in answers:
            pending = self._pending.pop(number, None)
            if pending is None or pending.future.done():  # timed out or cancelled meanwhile
                continue
            try:
                if status == 200:
                    pending.future.set_result(decode(body, pending.as_type, format))
                elif status == SEE_OTHER:
                    pending.future.set_exception(UseHttp())
                else:
                    pending.future.set_exception(error_of(decode(body, Fault, format), status))
            except RequestRejected as error:
                fault = protocol_error(f"cannot read the server's reply: {error}")
                pending.future.set_exception(fault)

    def _plan_sweep(self, when: float) -> None:
        if self._sweep is not None:
            self._sweep.cancel()
        self._sweep_at = when
        wait_s = max(0.0, when - time.monotonic())
        self._sweep = asyncio.get_running_loop().call_later(wait_s, self._give_up_late)

    def _give_up_late(self) -> None:
        """Fail the operations whose time is over, and close a connection that may be dead.

        A connection on which nothing arrived since a late operation was asked may be dead without
        any sign from the network. It is closed, so that the next attempt opens another.
        """
        now = time.monotonic() + 1e-3  # the loop's timer may fire a little early
        self._sweep, self._sweep_at = None, math.inf
        late = {n: pending for n, pending in self._pending.items() if pending.deadline <= now}
        for number in late:
            self._fail(number, RequestTimeout(f"{self._client.url} did not answer in time"))
        # A late answer alone does not prove a dead connection: if any other answer arrived after
        # the operation was asked, the server is only slow.
        if any(pending.sent and self._heard < pending.since for pending in late.values()):
            self.break_off("seems to be dead")
        if self._pending:
            self._plan_sweep(min(pending.deadline for pending in self._pending.values()))

    def break_off(self, why: str) -> None:
        """Give up the connection and fail every operation under way; the next operation opens
        another connection at once, while the old one is still being closed.
        """
        # The old connection's writer waits for the old event, so it cannot take operations that are
        # meant for the new connection.
        running, self._running = self._running, None
        if running is not None:
            self._dropped.add(running)
            running.add_done_callback(self._dropped.discard)
            running.cancel()
        self._more, self._answering = asyncio.Event(), False
        for pending in self._take_all():
            if not pending.future.done():
                message = f"the connection to {self._client.url} {why}"
                pending.future.set_exception(ServerUnreachable(message))

    def _fail(self, number: int, error: Exception) -> None:
        pending = self._pending.pop(number)
        if not pending.future.done():
            pending.future.set_exception(error)

    def _take_all(self) -> list[_Pending]:
        pending, self._pending, self._unsent = list(self._pending.values()), {}, []
        return pending


Item = TypeVar("Item")
Answer = TypeVar("Answer")

GATHER_S = 0.002
"""The most seconds for which calls gather."""
FREE_REQUESTS = 4
"""How many requests may be under way before later calls gather. With fewer requests there are few
calls to gather, and a single session would wait for nobody (decision 0201).
"""


class Coalescer(Generic[Item, Answer]):
    """Sends items in batches, and hands each caller the matching answer.

    Args:
        send: sends one request; returns an answer for each item in order, None for an item that
            still runs. An exception goes to every caller of the batch.
        max_items: the most items in one request.
    """

    def __init__(
        self,
        send: Callable[[Sequence[Item]], Awaitable[Sequence[Answer | LudusError | None]]],
        *,
        max_items: int = 256,
    ) -> None:
        self._send = send
        self._max_items = max_items
        self._waiting: list[tuple[Item, asyncio.Future[Answer]]] = []
        self._departure: asyncio.Handle | None = None
        self._requests: dict[asyncio.Task[None], Sequence[tuple[Item, asyncio.Future[Answer]]]] = {}

    async def submit(self, item: Item) -> Answer:
        """Send `item` with whatever else is being sent, and return the answer.

        Raises:
            Exception: the error of this item, or of the whole request.
        """
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._enqueue([(item, future)])
        return await future

    async def close(self) -> None:
        """Give up on the requests that are out, and cancel the calls that still wait to be sent."""
        if self._departure is not None:
            self._departure.cancel()
            self._departure = None
        waiting, self._waiting = self._waiting, []
        _fail(waiting, asyncio.CancelledError())
        requests = dict(self._requests)
        for request in requests:
            request.cancel()
        await asyncio.gather(*requests, return_exceptions=True)
        for entries in requests.values():  # one that had not begun has told its callers nothing
            _fail(entries, asyncio.CancelledError())

    def break_off(self, error: LudusError) -> None:
        """Fail every call, sent or not."""
        waiting, self._waiting = self._waiting, []
        _fail(waiting, error)
        for request, entries in list(self._requests.items()):
            _fail(entries, error)
            request.cancel()

    def _enqueue(self, entries: list[tuple[Item, asyncio.Future[Answer]]]) -> None:
        self._waiting.extend(entries)
        if self._departure is not None:
            return
        loop = asyncio.get_running_loop()
        if len(self._requests) < FREE_REQUESTS:
            self._departure = loop.call_soon(self._depart)
        else:
            self._departure = loop.call_later(GATHER_S, self._depart)

    def _depart(self) -> None:
        self._departure = None
        waiting = [entry for entry in self._waiting if not entry[1].done()]
        self._waiting = []
        for start in range(0, len(waiting), self._max_items):
            self._start(waiting[start : start + self._max_items])

    def _start(self, entries: list[tuple[Item, asyncio.Future[Answer]]]) -> None:
        request = asyncio.create_task(self._request(entries))
        self._requests[request] = entries
        request.add_done_callback(lambda ended: self._requests.pop(ended, None))

    async def _request(self, entries: list[tuple[Item, asyncio.Future[Answer]]]) -> None:
        try:
            try:
                answers = await self._send([item for item, _ in entries])
            finally:
                # However the request ended, it counts as answered now and not when this task ends,
                # and the calls that gathered meanwhile are sent at once.
                task = asyncio.current_task()
                assert task is not None
                self._requests.pop(task, None)
                if self._departure is not None and self._waiting:
                    self._departure.cancel()
                    self._departure = asyncio.get_running_loop().call_soon(self._depart)
        except (LudusError, asyncio.CancelledError) as error:
            if len(entries) > 1 and is_too_large(error):
                middle = len(entries) // 2
                self._start(entries[:middle])
                self._start(entries[middle:])
            else:
                _fail(entries, error)
            return
        except Exception as error:
            _fail(entries, error)
            raise
        running: list[tuple[Item, asyncio.Future[Answer]]] = []
        for entry, answer in zip(entries, answers, strict=True):
            _, future = entry
            if answer is None:
                running.append(entry)
            elif future.done():  # the caller has given up
                continue
            elif isinstance(answer, LudusError):
                future.set_exception(answer)
            else:
                future.set_result(answer)
        if running:
            self._enqueue(running)


def _fail(entries: Sequence[tuple[Item, asyncio.Future[Answer]]], error: BaseException) -> None:
    for _, future in entries:
        if future.done():
            continue
        if isinstance(error, asyncio.CancelledError):
            future.cancel()
        else:
            future.set_exception(error)


Asked = TypeVar("Asked", bound=msgspec.Struct)
GRACE_S = 1.0
"""Seconds added to the time limit of an operation in a batch: the request inside it meets its own
limit first, and its error says more than that the time is over.
"""


@dataclass(frozen=True, eq=False)
class OperationKind(Generic[Asked, Answer]):
    """A kind of operations, and how each is sent. Every operation must be safe to send twice."""

    as_type: Any
    """The type of an answer."""
    send: Callable[[Client, Sequence[Asked]], Awaitable[Sequence[Answer | LudusError | None]]]
    """Sends a batch once, over plain HTTP; returns the answer or the error of each operation in
    order, and None for an operation that still runs.
    """
    send_one: Callable[[Client, Asked, float], Awaitable[Answer]]
    """Sends an operation once by itself, for at most so many seconds."""


class Carrier(Generic[Asked, Answer]):
    """Carries operations of a kind to a server, over a stream or in batches of plain HTTP.

    A carrier is used on one event loop.

    Args:
        client: the client of the server.
        stream: the stream to the server; None sends everything over plain HTTP.
        kind: the kind of the operations.
    """

    def __init__(
        self, client: Client, stream: ClientStream | None, kind: OperationKind[Asked, Answer]
    ) -> None:
        self.client = client
        self._stream = stream
        self._as_type = kind.as_type
        self._batches: Coalescer[Asked, Answer] = Coalescer(partial(kind.send, client))

    async def perform(self, operation: Asked) -> Answer:
        """Send an operation, again and again where another attempt may help; return the answer.

        Raises:
            LudusError: what went wrong, the last time.
        """
        self.client.traffic.operations += 1
        started = time.monotonic()
        try:
            return await self.attempt(operation, self.client.policy.attempt_timeout_s)
        except LudusError as error:
            attempt = partial(self.attempt, operation)
            return await self.client.keep_trying(attempt, failed=error, started=started)

    async def attempt(self, operation: Asked, timeout_s: float) -> Answer:
        """Send an operation once, and return the answer.

        Raises:
            LudusError: what went wrong at the server, or why the server could not be asked.
        """
        if self._stream is not None and time.monotonic() >= self._stream.http_until:
            with contextlib.suppress(UseHttp):
                answer: Answer = await self._stream.submit(operation, self._as_type, timeout_s)
                return answer
        try:
            async with asyncio.timeout(timeout_s + GRACE_S):
                return await self._batches.submit(operation)
        except RequestTimeout:  # also a TimeoutError, and says more
            raise
        except TimeoutError:
            said = f"{self.client.url}: no answer within {timeout_s:g} s"
            raise RequestTimeout(said) from None

    def break_off(self, error: LudusError) -> None:
        """Fail every operation that is under way over plain HTTP."""
        self._batches.break_off(error)

    async def close(self) -> None:
        """Give up on the batches under way. The stream stays open for other users."""
        await self._batches.close()
