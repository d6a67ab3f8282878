"""A WebSocket on which a late answer reaches only a client that still waits for it.

OpenEnv's client asks and then waits, and messages carry no number. When its time limit passes, the
client keeps the connection, and would take an answer that arrives later for the answer to its next
question: a reward of another action. The server cannot see the limit, but it can see whether the
client is reading, because its WebSocket library stops reading from the network once 16 frames lie
unread.

So an answer that took long begins with empty fragments (a message may have any number), then a
ping. A client that waits takes the fragments as they come and answers pings. One that has stopped
waiting lets them lie, and the second ping is never answered. The last fragment, which has the
payload, is sent only after both. If a new question comes first, the open message gets the answer to
that question instead. A library that reads without bound answers both pings, and is then served as
by any other server.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator

from aiohttp import WSMsgType, web

FRAGMENTS = 24
"""More than the 16 unread frames at which the client's library stops reading."""
PROMPT_S = 0.05
"""Seconds within which an answer is sent without asking whether the client still waits."""
_TEXT, _CONTINUATION, _PING = 0x1, 0x0, 0x9
_FINAL = 0x80


class ListeningSocket:
    """A WebSocket connection that tells questions in order, and answers only who listens.

    Args:
        max_bytes: the largest message of the client.
        idle_s: seconds without any message after which the connection is closed.
    """

    def __init__(self, *, max_bytes: int, idle_s: float) -> None:
        self._socket = web.WebSocketResponse(
            compress=False, max_msg_size=max_bytes, autoping=False, timeout=2.0
        )
        self._idle_s = idle_s
        self._transport: asyncio.BaseTransport | None = None
        self._questions: asyncio.Queue[str | None] = asyncio.Queue()
        self._last: str | None = None
        self._newer = asyncio.Event()
        self._pong = asyncio.Event()
        self._pings = 0
        self._is_begun = False
        """Whether a message of ours is on the wire whose last fragment was not sent yet."""

    async def serve(self, request: web.Request) -> AsyncIterator[str]:
        """Open the WebSocket that `request` asks for, and yield questions until it closes."""
        await self._socket.prepare(request)
        self._transport = request.transport
        reader = asyncio.create_task(self._read(), name="ludus-openenv-reader")
        try:
            while (question := await self._questions.get()) is not None:
                if self._questions.empty():
                    self._newer.clear()
                yield question
        finally:
            reader.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reader
            await self.close()

    @property
    def response(self) -> web.StreamResponse:
        """The response that the request's handler returns."""
        return self._socket

    @property
    def upcoming(self) -> str | None:
        """The question that was asked last; None where the client has gone."""
        return self._last

    @property
    def is_given_up(self) -> bool:
        """Whether a newer question has come, or the client has gone: nobody waits any more."""
        return self._newer.is_set()

    async def given_up(self) -> None:
        """Wait until nobody waits for the answer any more."""
        await self._newer.wait()

    async def answer(self, text: str, *, took_s: float) -> bool:
        """Send the answer to the last question that was yielded.

        Args:
            text: the answer.
            took_s: how long it took; past `PROMPT_S` the client is first asked whether it waits.

        Returns:
            whether the answer was sent; false where the client had stopped waiting.
        """
        if self.is_given_up:
            return False
        if took_s > PROMPT_S:
            for _ in range(FRAGMENTS):
                self._write(_CONTINUATION if self._is_begun else _TEXT, b"")
                self._is_begun = True
            # The first ping may be read together with the fragments. The second is sent only when
            # these have been read, by a client that has not stopped reading.
            if not (await self._ping() and await self._ping()):
                return False
        if self._is_begun:
            self._write(_FINAL | _CONTINUATION, text.encode())
            self._is_begun = False
        else:
            await self._socket.send_str(text)
        return True

    async def close(self) -> None:
        """Close the connection."""
        with contextlib.suppress(ConnectionError):
            await self._socket.close(code=1000)

    async def _ping(self) -> bool:
        self._pings += 1
        self._pong.clear()
        self._write(_FINAL | _PING, self._pings.to_bytes(8))
        waits = [asyncio.ensure_future(event.wait()) for event in (self._pong, self._newer)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        return not self._newer.is_set()

    async def _read(self) -> None:
        try:
            while True:
                message = await self._socket.receive(timeout=self._idle_s)
                if message.type is WSMsgType.PING:
                    await self._socket.pong(message.data)
                elif message.type is WSMsgType.PONG:
                    if message.data == self._pings.to_bytes(8):
                        self._pong.set()
                elif message.type is WSMsgType.TEXT:
                    self._newer.set()
                    self._last = message.data
                    self._questions.put_nowait(message.data)
                else:
                    return
        except (TimeoutError, ConnectionError):
            return
        finally:
            self._newer.set()
            self._last = None
            self._questions.put_nowait(None)

    def _write(self, first: int, payload: bytes) -> None:
        """Write a frame, unmasked as a server's are; aiohttp itself sends whole messages only."""
        if not isinstance(self._transport, asyncio.WriteTransport) or self._transport.is_closing():
            raise ConnectionResetError("the client has gone")
        size = len(payload)
        if size < 126:
            head = struct.pack("!BB", first, size)
        elif size < 1 << 16:
            head = struct.pack("!BBH", first, 126, size)
        else:
            head = struct.pack("!BBQ", first, 127, size)
        self._transport.write(head + payload)
