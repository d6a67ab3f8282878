"""Calls to a worker process and its answers, as frames on a stream socket.

Each frame carries a mark, the number of its call, and a checksum of its body. Bytes that user code
wrote to the socket by mistake are therefore found, whether they stand between frames or inside one,
and nothing of such a worker is believed any more.
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
"""The tag of a frame that asks to give a call up; its body is empty."""
FAILED = 255
"""The tag of an answer that says, in its body, why the call has none."""


class Frame(NamedTuple):
    """One call or one answer."""

    call: int
    """Its number; an answer carries that of its call."""
    tag: int
    """What is asked, or what kind of answer this is; the two sides agree on the numbers."""
    lane: int
    """Which thread of the worker a call belongs to."""
    body: bytes


class BadFrame(ValueError):
    """The bytes that came are no frame."""


def pack(call: int, tag: int, lane: int, body: bytes) -> bytes:
    """The bytes of a frame."""
    return _HEADER.pack(MARK, call, tag, lane, len(body), zlib.crc32(body)) + body


class FrameReader(asyncio.Protocol):
    """Cuts what arrives into frames.

    Args:
        max_body: larger frames are refused.
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
        """Called by asyncio."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Called by asyncio."""
        try:
            rest: memoryview | bytes = data
            while len(rest) and not self._ended:
                rest = self._body(rest) if self._expected else self._header(rest)
        except BadFrame as error:
            self._end(error)

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by asyncio."""
        self._end(exc)

    def _header(self, data: memoryview | bytes) -> memoryview | bytes:
        taken = _HEADER.size - len(self._head)
        self._head += bytes(data[:taken])
        if len(self._head) == _HEADER.size:
            mark, call, tag, lane, size, checksum = _HEADER.unpack(self._head)
            if mark != MARK or size > self._max_body:
                raise BadFrame(f"{self._head!r} is no header of at most {self._max_body} bytes")
            self._head, self._missing, self._checksum = b"", size, 0
            self._expected = (call, tag, lane, checksum)
            if not size:
                self._finish()
        return data[taken:]

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
        call, tag, lane, checksum = self._expected
        body = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts, self._expected = [], None
        if checksum != self._checksum:
            raise BadFrame(f"the checksum of a body of {len(body)} bytes is wrong")
        self._on_frame(Frame(call, tag, lane, body))

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
        """Write one frame.

        Raises:
            OSError: the other side is gone.
        """
        left = memoryview(pack(call, tag, 0, body))
        with self._lock:
            while left:
                try:
                    left = left[os.write(self._descriptor, left) :]
                except BlockingIOError:
                    poll = select.poll()
                    poll.register(self._descriptor, select.POLLOUT)
                    poll.poll()
