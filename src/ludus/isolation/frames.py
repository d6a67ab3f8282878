"""Calls to a worker process and the answers, as frames on a stream socket.

Each frame has a mark, the number of its call, and a checksum of its body. Bytes that user code
wrote to the socket by mistake are therefore detected, between frames or inside a frame, and nothing
from such a worker is trusted any more.
"""

from __future__ import annotations

import asyncio
import os
import select
import struct
import threading
import zlib
from collections.abc import Callable
from typing import NamedTuple

MARK = b"Lw1\n"
_HEADER = struct.Struct("!4sQBHII")
CANCEL = 255
"""The tag of a frame that asks to cancel a call; its body is empty."""
FAILED = 255
"""The tag of an answer whose body says why the call has no result."""


class Frame(NamedTuple):
    """A call or an answer."""

    call: int
    """The number of the call; an answer has the number of its call."""
    tag: int
    """The operation, or the kind of answer; the two sides agree on the numbers."""
    thread_number: int
    """The number of the worker thread on which a call runs."""
    body: bytes


class BadFrame(ValueError):
    """The received bytes are not a frame."""


def pack(call: int, tag: int, thread_number: int, body: bytes) -> bytes:
    """Encode a frame."""
    return _HEADER.pack(MARK, call, tag, thread_number, len(body), zlib.crc32(body)) + body


class FrameReader(asyncio.Protocol):
    """Splits the received bytes into frames.

    Args:
        max_body: the most bytes of a body; larger frames are refused.
        on_frame: called with each frame.
        on_end: called once: with None when the other side closed, or with what was wrong.
    """

    def __init__(
        self,
        max_body: int,
        on_frame: Callable[[Frame], None],
        on_end: Callable[[BaseException | None], None],
    ) -> None:
        self._max_body = max_body
        self._on_frame = on_frame
        self._on_end = on_end
        self._head = b""
        self._parts: list[bytes] = []
        self._missing = 0
        self._checksum = 0
        self._expected: tuple[int, int, int, int] | None = None
        self._ended = False
        self._transport: asyncio.BaseTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport; called by asyncio."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Split off complete frames; called by asyncio."""
        try:
            rest: memoryview | bytes = data
            while len(rest) and not self._ended:
                # Bytes come in pieces of any size: either half may need several, or share one.
                rest = self._body(rest) if self._expected else self._header(rest)
        except BadFrame as error:
            self._end(error)

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the end; called by asyncio."""
        self._end(exc)

    def _header(self, data: memoryview | bytes) -> memoryview | bytes:
        missing = _HEADER.size - len(self._head)
        self._head += bytes(data[:missing])
        if len(self._head) == _HEADER.size:
            mark, call, tag, thread_number, size, checksum = _HEADER.unpack(self._head)
            if mark != MARK or size > self._max_body:
                raise BadFrame(f"{self._head!r} is not a header of at most {self._max_body} bytes")
            self._head, self._missing, self._checksum = b"", size, 0
            self._expected = (call, tag, thread_number, checksum)
            if not size:
                self._finish()
        return data[missing:]

    def _body(self, data: memoryview | bytes) -> memoryview | bytes:
        part = data if len(data) <= self._missing else memoryview(data)[: self._missing]
        self._checksum = zlib.crc32(part, self._checksum)
        self._parts.append(bytes(part))
        self._missing -= len(part)
        if not self._missing:
            self._finish()
        return b"" if len(part) == len(data) else memoryview(data)[len(part) :]

    def _finish(self) -> None:
        assert self._expected is not None
        call, tag, thread_number, checksum = self._expected
        body = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts, self._expected = [], None
        if checksum != self._checksum:
            raise BadFrame(f"the checksum of a body of {len(body)} bytes is wrong")
        self._on_frame(Frame(call, tag, thread_number, body))

    def _end(self, error: BaseException | None) -> None:
        if not self._ended:
            self._ended = True
            if self._transport is not None:
                self._transport.close()
            self._on_end(error)


class FrameWriter:
    """Writes whole frames from any thread; waits while the other side does not read."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()

    def write(self, call: int, tag: int, body: bytes) -> None:
        """Write a frame.

        Raises:
            OSError: the other side is gone.
        """
        unsent = memoryview(pack(call, tag, 0, body))
        with self._lock:
            while unsent:
                try:
                    unsent = unsent[os.write(self._descriptor, unsent) :]
                except BlockingIOError:
                    poll = select.poll()
                    poll.register(self._descriptor, select.POLLOUT)
                    poll.poll()
