"""A WebSocket on which a late answer reaches only a client that still waits.

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
import logging
import struct
import time
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from aiohttp import WSCloseCode, WSMsgType, web

from ludus.errors import LudusError, SessionGone
from ludus.wire.faults import Refused

from .protocol import Game, Result, answer_json_rpc, as_plain, error_data

FRAGMENTS = 24
"""More than the 16 unread frames at which the client's library stops reading."""
PROMPT_S = 0.05
"""Seconds within which an answer is sent without asking whether the client still waits."""
_TEXT, _CONTINUATION, _PING = 0x1, 0x0, 0x9
_FINAL = 0x80


class ListeningSocket:
    """A WebSocket connection that tells questions in order, and answers only who listens.

    Args:
        max_bytes: the largest message of the client, and the most that wait for their turn
            together; a client that sends more before it is answered is cut off.
        idle_s: seconds without any message after which the connection is closed.
    """

    def __init__(self, *, max_bytes: int, idle_s: float) -> None:
        self._socket = web.WebSocketResponse(
            compress=False, max_msg_size=max_bytes, autoping=False, timeout=2.0
        )
        self._idle_s, self._max_bytes = idle_s, max_bytes
        self._waiting = 0
        """The characters of the questions that wait, and one more for each."""
        self._transport: asyncio.BaseTransport | None = None
        self._questions: asyncio.Queue[str | None] = asyncio.Queue()
        self._last: str | None = None
        self._newer = asyncio.Event()
        self._pong = asyncio.Event()
        self._pings = 0
        self._is_begun = False
        """Whether a message of ours is on the wire whose last fragment was not sent yet."""

    async def serve(self, request: web.Request) -> AsyncIterator[str]:
        """Open the WebSocket of `request`, and yield questions until the socket closes."""
        await self._socket.prepare(request)
        self._transport = request.transport
        reader = asyncio.create_task(self._read(), name="ludus-openenv-reader")
        try:
            while (question := await self._questions.get()) is not None:
                self._waiting -= len(question) + 1
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
                    if self._waiting and self._waiting + len(message.data) > self._max_bytes:
                        code = WSCloseCode.POLICY_VIOLATION
                        await self._socket.close(code=code, message=b"too much waits for an answer")
                        return
                    self._waiting += len(message.data) + 1
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


logger = logging.getLogger(__name__)


async def play_over_socket(game: Game, socket: ListeningSocket, request: web.Request) -> None:
    """Answer the messages of a client until the client disconnects.

    Args:
        game: the client's game; released at the end.
        socket: the connection, not opened yet.
        request: the request that asks for the connection.
    """
    seat = _Seat(game, socket)
    try:
        async for question in socket.serve(request):
            started = time.monotonic()
            answer = await seat.answer(question)
            if answer is None:
                return
            sent = await socket.answer(
                msgspec.json.encode(answer).decode(), took_s=time.monotonic() - started
            )
            if not sent:
                seat.keep(answer)
    except ConnectionError:  # the client has gone
        return
    finally:
        await seat.game.close()


class _Seat:
    """Keeps a client's game, and the answers that the client stopped waiting for."""

    def __init__(self, game: Game, socket: ListeningSocket) -> None:
        self.game = game
        self._socket = socket
        self._missed: list[dict[str, Any]] = []

    def keep(self, answer: dict[str, Any]) -> None:
        """Keep the answer to a step that was not sent; the answer to the next step includes it."""
        if answer["type"] in ("observation", "error"):
            self._missed.append(answer["data"])

    async def answer(self, question: str) -> dict[str, Any] | None:
        """Carry out a question, and return the frame to send; None if the client says good-bye."""
        try:
            kind, data = _read(question)
            match kind:
                case "reset":
                    self._missed.clear()
                    return _frame(await self.game.reset(data))
                case "step":
                    return await self._step(data)
                case "state":
                    return {"type": "state", "data": as_plain(self.game.state())}
                case "mcp":
                    return {"type": "mcp", "data": await answer_json_rpc(self.game, data)}
                case _:
                    return None
        except _Unreadable as error:
            return {"type": "error", "data": error.data}
        except Exception as error:
            if not isinstance(error, LudusError):
                logger.error("an OpenEnv client's question failed", exc_info=error)
            return {"type": "error", "data": error_data(error)}

    async def _step(self, data: dict[str, Any]) -> dict[str, Any]:
        """Play a step.

        If the client gives up on the step and begins another episode, the new episode gets a game
        of its own, and the old game is released once the step is over.
        """
        game = self.game
        playing = asyncio.ensure_future(game.step(data))
        leaving = asyncio.ensure_future(self._socket.given_up())
        try:
            await asyncio.wait([playing, leaving], return_when=asyncio.FIRST_COMPLETED)
            if not playing.done() and _begins_anew(self._socket.upcoming):
                self.game = game.another()
                await game.close()
                # Nobody waits for the step any more; asyncio complains of an outcome never read.
                playing.add_done_callback(lambda played: played.cancelled() or played.exception())
                raise SessionGone("the client has left this episode")
            result = await playing
        finally:
            leaving.cancel()
        missed, self._missed = self._missed, []
        if missed:
            result.observation["missed"] = missed
        return _frame(result)


class _Unreadable(Exception):
    """The client sent a message that the protocol does not have."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.data = {"message": message, "code": code}


KINDS = ("reset", "step", "state", "mcp", "close")


def _read(question: str) -> tuple[str, dict[str, Any]]:
    try:
        message = msgspec.json.decode(question)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _Unreadable(f"not JSON: {error}", "INVALID_JSON") from None
    kind = message.get("type") if isinstance(message, dict) else None
    if kind not in KINDS:
        raise _Unreadable(f"no message of type {kind!r}; known: {', '.join(KINDS)}", "UNKNOWN_TYPE")
    data = message.get("data", {})
    if set(message) - {"type", "data"} or not isinstance(data, dict):
        raise Refused("a message is an object with 'type' and an object 'data'", "invalid")
    return kind, data


def _begins_anew(question: str | None) -> bool:
    """Return whether the client's next message, a reset or a close, leaves the episode; None means
    that the client has disconnected.
    """
    if question is None:
        return True
    try:
        return _read(question)[0] in ("reset", "close")
    except (_Unreadable, Refused):
        return False


def _frame(result: Result) -> dict[str, Any]:
    return {"type": "observation", "data": as_plain(result)}
