"""`/ws`: a client's questions, one after another, on a connection of its own."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

import msgspec
from aiohttp import web

from ludus.errors import LudusError, SessionGone
from ludus.wire.faults import Refused

from .game import Game, as_plain
from .json_rpc import answer_json_rpc
from .listening import ListeningSocket
from .shapes import Result, error_data

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
