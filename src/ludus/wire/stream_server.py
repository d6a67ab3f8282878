"""The server's side of `/v1/stream`: reads frames of operations, and sends answers in any order."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import struct
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial, reduce
from operator import or_
from types import GenericAlias
from typing import Any

import msgspec
from aiohttp import WSCloseCode, WSMsgType, web

from ludus.background import end_task
from ludus.errors import LudusError

from .access import AccessLine, AccessLog, cause_in, operation_in, session_in
from .chaos import Chaos
from .codec import (
    FRAME_BYTES,
    LARGE_BYTES,
    MAX_ITEMS,
    SEE_OTHER,
    Encoded,
    Format,
    Hello,
    Sent,
    Unkept,
    asked_format,
    decode,
    encode,
    request_id,
    trace_parent,
)
from .faults import Fault, Refused, fault_of, status_of
from .principals import asked_by
from .requests import REQUEST_ID, TRACE_PARENT
from .routes import Begin, StreamedService
from .strict import open_words, read_item

logger = logging.getLogger(__name__)

Answer = tuple[int, int, msgspec.Raw]
MAX_BYTES = 4 << 20
"""The largest frame of a client, in bytes (decision 0205)."""
MAX_UNSENT_BYTES = 1 << 20
"""The most bytes of answers that wait to be sent; past that nothing more is read until the client
takes some.
"""
CLOSE_S = 2.0
"""Seconds that closing a connection in good order may take."""
_LAST_FRAGMENT = 0x80
"""The bit of a WebSocket frame that ends a message (FIN); every message here is one frame."""
_NOTHING = {Format.MSGPACK: b"\xc0", Format.JSON: b"null"}


class ServerStreams:
    """Keeps all streams of a server, and what the streams share.

    Args:
        handlers: the function that begins an operation, by the operation's type; tags tell the
            types apart.
        instance: the random name of this run of the server.
        max_bytes: the largest frame of a client in bytes, at most `MAX_BYTES`.
        chaos: the faults to inject on purpose.
        struck: is called with the name of each fault injected.
        refused: is called with each fault that is answered.
        access_log: is given a line for each operation; None writes none.
    """

    def __init__(
        self,
        handlers: Mapping[type[msgspec.Struct], Begin],
        *,
        instance: str,
        max_bytes: int,
        chaos: Chaos,
        struck: Callable[[str], None],
        refused: Callable[[Fault], None],
        access_log: AccessLog | None,
    ) -> None:
        self.handlers = dict(handlers)
        self.refused = refused
        self.access_log = access_log
        most = min(MAX_BYTES, max_bytes)
        self.hello = Hello(instance=instance, max_bytes=most, takes_traces=True)
        self.chaos = chaos
        self.has_chaos = chaos.any
        self.struck = struck
        self.stopping = False
        """Set by the server once it takes nothing new."""
        # A union of all types of operations, for the decoder: its members are known only now.
        operation: Any = reduce(or_, handlers)
        self.operation = operation
        self.frame: Any = GenericAlias(list, (GenericAlias(Sent, (operation,)),))
        self.open_words = open_words(self.frame)
        self._open: set[_Stream] = set()

    def __len__(self) -> int:
        return len(self._open)

    @property
    def unanswered(self) -> int:
        """The number of operations that were begun and whose answers are not sent yet."""
        return sum(stream.unanswered for stream in self._open)

    async def serve(self, request: web.Request) -> web.WebSocketResponse:
        """Turn the connection of `request` into a stream, and serve until either side closes."""
        socket = web.WebSocketResponse(
            compress=False, max_msg_size=self.hello.max_bytes, timeout=CLOSE_S
        )
        socket.headers[REQUEST_ID] = request_id.get()
        await socket.prepare(request)
        stream = (_Stream if self.access_log is None else _LoggedStream)(self, socket, request)
        self._open.add(stream)
        try:
            await stream.run()
        except ConnectionError:
            # The client has gone. Its operations go on, and their replies are kept for when the
            # client sends them again (decision 0200).
            pass
        finally:
            self._open.discard(stream)
        return socket

    async def close(self) -> None:
        """Tell every client that the server goes away."""
        for stream in list(self._open):
            await stream.close()


class _Stream:
    """A connection of a client: the operations begun, and the answers that wait to be sent."""

    def __init__(
        self, streams: ServerStreams, socket: web.WebSocketResponse, request: web.Request
    ) -> None:
        self.unanswered = 0
        self._streams = streams
        self._socket = socket
        self._request = request
        self._principal = asked_by.get()
        self._id = request_id.get()
        self._trace = trace_parent.get()
        """The trace of operations that name none."""
        self._format = Format.MSGPACK
        self._answers: deque[tuple[Format, Answer]] = deque()
        self._unsent_bytes = 0
        self._more = asyncio.Event()
        self._faulty: set[asyncio.Task[None]] = set()
        self._unkept: set[asyncio.Future[object]] = set()
        """Work whose outcome nobody can ask for later, unlike that of a session."""

    async def run(self) -> None:
        """Read and answer until the connection closes."""
        writer = asyncio.create_task(self._write(), name="ludus-stream-writer")
        try:
            hello, _ = encode(self._streams.hello, Format.JSON)
            await self._socket.send_str(hello.decode())
            async for message in self._socket:
                if message.type not in (WSMsgType.BINARY, WSMsgType.TEXT):
                    break
                await self._hear(message.data)
                # The operations that were begun run before the next frame is read (decision 0201).
                await asyncio.sleep(0)
        finally:
            for task in list(self._faulty):
                task.cancel()
            for work in list(self._unkept):
                work.cancel()
            await end_task(writer)

    async def close(self) -> None:
        """Close in good order, at most for `CLOSE_S`."""
        await self._socket.close(code=WSCloseCode.GOING_AWAY, message=b"the server is stopping")

    async def _hear(self, data: bytes | str) -> None:
        self._format = Format.MSGPACK if isinstance(data, bytes) else Format.JSON
        asked_format.set(self._format)
        asked_by.set(self._principal)
        try:
            frame = self._read(data if isinstance(data, bytes) else data.encode())
        except Refused as error:
            reason = str(error).encode()[:120]
            await self._socket.close(code=WSCloseCode.INVALID_TEXT, message=reason)
            return
        self.unanswered += len(frame)
        # A task, so that an injected delay does not hold up the reading of later frames.
        if self._streams.has_chaos:
            task = asyncio.create_task(self._begin_with_faults(frame))
            self._faulty.add(task)
            task.add_done_callback(self._faulty.discard)
            return
        self._begin(frame)
        # Sending here keeps the reader from reading: a client that takes no answers can begin no
        # more operations.
        if self._unsent_bytes > MAX_UNSENT_BYTES:
            await self._flush()

    def _read(self, data: bytes) -> list[Sent[object]]:
        """Decode a frame into numbered operations.

        Where some operation is wrong, all stay plain values: `_start` then validates each by
        itself, so that one wrong operation does not fail the others.

        Raises:
            Refused: the frame as a whole cannot be read.
        """
        try:
            items: list[Sent[object]] = decode(data, self._streams.frame, self._format)
            # The decoder lets unknown fields of open structs pass. Only a frame with a word of such
            # a struct needs the stricter check of each operation; see `open_words`.
            if not any(word in data for word in self._streams.open_words):
                return items
        except Refused as error:
            if error.code != "invalid":
                raise
        return decode(data, list[Sent[object]], self._format)

    def _begin(self, frame: list[Sent[object]]) -> None:
        for sent in frame:
            number, trace = sent.number, sent.trace
            # Set for each: the span of an operation becomes the parent of what follows.
            is_own = trace and TRACE_PARENT.fullmatch(trace)
            trace_parent.set(trace if is_own else self._trace)
            try:
                begun = self._start(sent.operation)
            except LudusError as error:
                begun = fault_of(error)
            except Exception as error:
                logger.exception("beginning an operation of a stream failed")
                begun = fault_of(error)
            if isinstance(begun, asyncio.Future):
                if isinstance(begun, (Unkept, asyncio.Task)):
                    self._unkept.add(begun)
                begun.add_done_callback(partial(self._ended, number))
            else:
                self._answer(number, begun)

    def _start(self, item: object) -> object:
        if not isinstance(item, msgspec.Struct):  # `_read` left the frame as plain values
            item = read_item(item, self._streams.operation)
        assert isinstance(item, msgspec.Struct)
        if self._streams.stopping:
            raise Refused("the server is stopping; sessions end with it", "stopping")
        return self._streams.handlers[type(item)](item)

    def _ended(self, number: int, future: asyncio.Future[object]) -> None:
        self._unkept.discard(future)
        outcome: object
        error = None if future.cancelled() else future.exception()
        if future.cancelled():
            outcome = fault_of(Refused("the operation was given up", "stopping"))
        elif error is None:
            outcome = future.result()
        else:
            if not isinstance(error, LudusError):
                logger.error("an operation of a stream failed", exc_info=error)
            outcome = fault_of(error)
        self._answer(number, outcome)

    # --- writing --------------------------------------------------------------------------------

    def _answer(self, number: int, outcome: object) -> None:
        """Encode an answer at once, for the writer to send.

        An answer that would hold up the others, or that cannot be encoded in this stream's format,
        becomes `SEE_OTHER`: the client fetches it from the operation's own route.
        """
        format = self._format
        status = 200
        if isinstance(outcome, Fault):
            status = status_of(outcome)
            self._streams.refused(outcome)
            outcome.stamp(f"{self._id}/{number}")
        body, became = encode(outcome, format)
        if became is not format or len(body) > LARGE_BYTES:
            status, body = SEE_OTHER, _NOTHING[format]
        answer = (number, status, msgspec.Raw(body))
        if self.unanswered == 1 and not self._answers:
            # No other answer can join this frame, so waking the writer's task would only cost time.
            # Not so while earlier bytes wait for the client: then the answer has to be queued,
            # since the length of the queue is what keeps the reader from reading.
            transport = self._request.transport
            if transport is not None and not transport.get_write_buffer_size():
                with contextlib.suppress(ConnectionError):  # the reader ends the stream then
                    self._send(format, encode([answer], format)[0])
                self.unanswered = 0
                return
        self._answers.append((format, answer))
        self._unsent_bytes += len(body)
        self._more.set()

    async def _write(self) -> None:
        try:
            while True:
                await self._more.wait()
                self._more.clear()
                await self._flush()
        except ConnectionError:  # the reader meets it and ends the stream
            return

    async def _flush(self) -> None:
        while self._answers:
            format, size, frame = self._answers[0][0], 0, list[Answer]()
            while len(frame) < MAX_ITEMS and size < FRAME_BYTES:
                if not self._answers or self._answers[0][0] is not format:
                    break
                _, answer = self._answers.popleft()
                size += len(answer[2])
                frame.append(answer)
            self._unsent_bytes -= size
            data, _ = encode(frame, format)
            self._send(format, data)
            await self._request.writer.drain()
            self.unanswered -= len(frame)

    def _send(self, format: Format, data: bytes) -> None:
        """Give a WebSocket frame to the transport.

        aiohttp writes the head of a long frame by itself, which wakes the client twice; here head
        and data leave together.

        Raises:
            ConnectionError: the connection is closing.
        """
        transport = self._request.transport
        if transport is None or transport.is_closing() or self._socket.closed:
            raise ConnectionResetError("the stream is closing")
        first = _LAST_FRAGMENT | (WSMsgType.BINARY if format is Format.MSGPACK else WSMsgType.TEXT)
        # The head of a server's frame, which is not masked (RFC 6455, section 5.2).
        if len(data) < 126:
            head = bytes((first, len(data)))
        elif len(data) < 1 << 16:
            head = struct.pack("!BBH", first, 126, len(data))
        else:
            head = struct.pack("!BBQ", first, 127, len(data))
        transport.write(head + data)

    # --- chaos ----------------------------------------------------------------------------------

    async def _begin_with_faults(self, frame: list[Sent[object]]) -> None:
        """Begin the operations of a frame, or delay, fail or cut the connection as `chaos` says."""
        chaos = self._streams.chaos
        try:
            before = await chaos.before(self._streams.struck)
        except Refused as error:
            fault = fault_of(error)
            for sent in frame:
                self._answer(sent.number, fault)
            return
        if not before:
            self._begin(frame)
        if (before or chaos.after()) and self._request.transport is not None:
            self._request.transport.abort()


class _LoggedStream(_Stream):
    """A stream whose operations each have a line in the access log."""

    def __init__(
        self, streams: ServerStreams, socket: web.WebSocketResponse, request: web.Request
    ) -> None:
        super().__init__(streams, socket, request)
        self._begun: dict[int, tuple[float, object]] = {}

    def _begin(self, frame: list[Sent[object]]) -> None:
        now = time.perf_counter()
        self._begun.update({sent.number: (now, sent.operation) for sent in frame})
        super()._begin(frame)

    def _answer(self, number: int, outcome: object) -> None:
        super()._answer(number, outcome)
        began, item = self._begun.pop(number, (time.perf_counter(), None))
        assert self._streams.access_log is not None
        self._streams.access_log.write(
            AccessLine(
                request_id=f"{self._id}/{number}",
                principal=self._principal.name,
                session=session_in(item),
                method="STREAM",
                route=operation_in(item),
                status=status_of(outcome) if isinstance(outcome, Fault) else 200,
                ms=(time.perf_counter() - began) * 1000,
                bytes=len(outcome.data) if isinstance(outcome, Encoded) else 0,
                cause=cause_in(outcome) if isinstance(outcome, Fault) else "",
                trace=trace_parent.get()[3:35],
            )
        )


def streams_of(
    services: Iterable[object],
    *,
    instance: str,
    max_bytes: int,
    chaos: Chaos,
    struck: Callable[[str], None],
    refused: Callable[[Fault], None],
    access_log: AccessLog | None,
) -> ServerStreams | None:
    """Build the streams of a server of `services`; None if no service has operations for a
    stream.
    """
    handlers: dict[type[msgspec.Struct], Begin] = {}
    for service in services:
        if isinstance(service, StreamedService):
            handlers.update(service.operations())
    if not handlers:
        return None
    return ServerStreams(
        handlers,
        instance=instance,
        max_bytes=max_bytes,
        chaos=chaos,
        struck=struck,
        refused=refused,
        access_log=access_log,
    )
