"""Calls to a process of ours and the answers, as frames on a stream socket.

Each frame has a mark, the number of its call, and a checksum of its body. Bytes that user code
wrote to the socket by mistake are therefore detected, between frames or inside a frame, and nothing
from such a process is trusted any more. A `FrameReader` splits what an event loop receives; a
`Line` reads and writes on a blocking socket. This file imports the standard library alone, because
the interpreter of a peer loads it by its path.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import select
import socket
import struct
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable, Sequence
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


class LineClosed(ConnectionError):
    """The other side is gone, or sends what cannot be read."""


class BadFrame(LineClosed):
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
        """Split off complete frames, whose bytes come in pieces of any size; called by asyncio."""
        unread = memoryview(data)
        try:
            while len(unread) and not self._ended:
                if self._expected is None:
                    missing = _HEADER.size - len(self._head)
                    self._head += bytes(unread[:missing])
                    unread = unread[missing:]
                    if len(self._head) < _HEADER.size:
                        return
                    mark, call, tag, thread_number, size, checksum = _HEADER.unpack(self._head)
                    if mark != MARK:
                        raise BadFrame(f"{self._head!r} is not the header of a frame")
                    if size > self._max_body:
                        bound = f"at most {self._max_body} are read"
                        raise BadFrame(f"the body of a frame has {size} bytes, and {bound}")
                    self._head, self._missing, self._checksum = b"", size, 0
                    self._expected = (call, tag, thread_number, checksum)
                part = unread[: self._missing]
                unread = unread[len(part) :]
                self._checksum = zlib.crc32(part, self._checksum)
                self._parts.append(bytes(part))
                self._missing -= len(part)
                if not self._missing:
                    call, tag, thread_number, checksum = self._expected
                    body = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
                    self._parts, self._expected = [], None
                    if checksum != self._checksum:
                        raise BadFrame(f"the checksum of a body of {len(body)} bytes is wrong")
                    self._on_frame(Frame(call, tag, thread_number, body))
        except BadFrame as error:
            self.connection_lost(error)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Report the end; called by asyncio."""
        if not self._ended:
            self._ended = True
            if self._transport is not None:
                self._transport.close()
            self._on_end(exc)


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


class Line:
    """Frames on a blocking socket, written by any thread and read by one at a time.

    Args:
        sock: the connected socket.
        max_body: the most bytes of a body; a larger frame ends the connection.
        max_descriptors: how many descriptors may come along with what is received at once.
    """

    def __init__(self, sock: socket.socket, max_body: int, *, max_descriptors: int = 0) -> None:
        # Who reads and who sends wait each for itself; a time limit of the socket would be both's.
        sock.setblocking(True)
        self.sock = sock
        self.descriptors: list[int] = []
        """Descriptors that came along with frames and were not taken yet."""
        self._max_descriptors = max_descriptors
        self._numbers = itertools.count(1)
        self._sending = threading.Lock()
        self._is_torn = False
        """Whether a frame was sent in part, behind which the other side could read no other."""
        self._received: deque[Frame] = deque()
        self._ends: list[BaseException | None] = []
        self._reader = FrameReader(max_body, self._received.append, self._ends.append)

    @property
    def has_frame(self) -> bool:
        """Whether a frame was received already, which `receive` has not returned."""
        return bool(self._received)

    @property
    def is_open(self) -> bool:
        """Whether the other side has not closed the connection, as far as can be seen from here."""
        try:
            poll = select.poll()
            poll.register(self.sock, select.POLLIN)
            if not poll.poll(0):
                return True
            return bool(self.sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
        except (OSError, ValueError):
            return False

    def send(
        self,
        tag: int,
        body: bytes,
        *,
        call: int = 0,
        descriptors: Sequence[int] = (),
        deadline: float | None = None,
    ) -> int:
        """Write a frame, and return the number of the call.

        Args:
            tag: what is asked or answered.
            body: the encoded arguments or the answer.
            call: the number of the call; 0 takes the next one.
            descriptors: descriptors that go along.
            deadline: a value of `time.monotonic()`.

        Raises:
            OSError: the other side is gone.
            LineClosed: an earlier frame was sent in part.
            TimeoutError: the other side did not read in time. Part of the frame may have been
                sent, so nothing more can be.
        """
        number = call or next(self._numbers)
        frame = pack(number, tag, 0, body)
        # A long frame goes out in parts, between which none may come.
        if not self._sending.acquire(timeout=-1 if deadline is None else _left(deadline)):
            raise TimeoutError("the other side did not read an earlier frame in time")
        try:
            if self._is_torn:
                raise LineClosed("an earlier frame was sent in part")
            self._is_torn = True
            unsent, at_once = memoryview(frame), socket.MSG_DONTWAIT
            while unsent:
                try:
                    if descriptors:  # they travel with the first bytes
                        sent = socket.send_fds(self.sock, [unsent], list(descriptors), at_once)
                    else:
                        sent = self.sock.send(unsent, at_once)
                    unsent, descriptors = unsent[sent:], ()
                except BlockingIOError:
                    self._wait(select.POLLOUT, deadline, "the other side did not read in time")
            self._is_torn = False
        finally:
            self._sending.release()
        return number

    def receive(self, *, deadline: float | None = None) -> Frame:
        """Wait for a frame.

        Raises:
            TimeoutError: the deadline, a value of `time.monotonic()`, is over.
            BadFrame: the other side sent what is not a frame.
            LineClosed: the other side closed or died.
        """
        while not self._received:
            if self._ends:
                raise self._ends[0] or LineClosed("the connection was closed")
            self._wait(select.POLLIN, deadline, "no answer in time")
            try:
                if self._max_descriptors:
                    data, came, _, _ = socket.recv_fds(
                        self.sock, 1 << 16, self._max_descriptors, socket.MSG_DONTWAIT
                    )
                    for descriptor in came:  # else every program that is executed has it, too
                        os.set_inheritable(descriptor, False)
                    self.descriptors += came
                else:
                    data = self.sock.recv(1 << 16, socket.MSG_DONTWAIT)
            except BlockingIOError:
                continue
            except ConnectionError as error:
                raise LineClosed(str(error)) from error
            if data:
                self._reader.data_received(data)
            else:
                self._reader.connection_lost(None)
        return self._received.popleft()

    def _wait(self, event: int, deadline: float | None, late: str) -> None:
        """Wait until the socket can be read or written.

        Raises:
            TimeoutError: the deadline is over; with `late` as the message.
            LineClosed: the socket was closed here.
        """
        if self.sock.fileno() < 0:
            raise LineClosed("the connection was closed here")
        poll = select.poll()
        poll.register(self.sock, event)
        remaining_ms = None if deadline is None else 1000 * (deadline - time.monotonic())
        if (remaining_ms is not None and remaining_ms <= 0) or not poll.poll(remaining_ms):
            raise TimeoutError(late)


def _left(deadline: float) -> float:
    return max(1e-3, deadline - time.monotonic())
