"""One life of an engine process, from its start to its end, as the trainer sees it."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, TypeVar

from ludus.errors import (
    BrokenGeneration,
    ConfigError,
    EngineLost,
    LudusError,
    RequestTimeout,
    ServerFault,
    StaleWeights,
)

from ...models.weights import WeightsRefused
from ..local import EngineClosed
from .messages import (
    REPLIES,
    AnsweredCall,
    CancelCall,
    EngineSpec,
    FailedReply,
    Ping,
    Pong,
    ReadyReply,
    Reply,
    read_message,
    write_message,
)

T = TypeVar("T")

BEAT_S = 1.0
SILENT_BEATS = 60
"""How many heartbeats in a row may stay without any answer. Beats are counted rather than seconds,
since a trainer that was itself stopped for a while has heard nothing either.
"""
STUCK_BEATS = 600
"""How many heartbeats a busy engine may go without finishing a forward pass."""
END_S = 5.0
"""How long a process may take to end by itself before it is killed."""
LOG_TAIL_BYTES = 4_000
"""How much of the end of the log is read to find its last line."""
KINDS: dict[str, type[LudusError]] = {
    kind.__name__: kind
    for kind in (BrokenGeneration, ConfigError, EngineClosed, StaleWeights, WeightsRefused)
}
"""Errors that keep their type on the way; any other becomes a `ServerFault`."""


class EngineLife:
    """A running engine process: calls, heartbeat, and the end.

    Made by `begin`. When the process is gone or silent, every waiting call raises `EngineLost` at
    once, and so does every later call.
    """

    def __init__(
        self,
        name: str,
        log: Path,
        process: subprocess.Popen[bytes],
        streams: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        self.name = name
        self.log = log
        self.process = process
        self.lost: EngineLost | None = None
        self.max_length = 0
        self._reader, self._writer = streams
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        """Futures of replies: 0 is the message that the model is built, positive numbers are those
        of calls, and negative numbers are pings.
        """
        self._heard = 0
        """How many replies have arrived, pongs included; the heartbeat looks whether it grows."""
        self._pong = Pong(0, busy=False)
        """The last pong, which says whether the engine works and how many passes it has made."""
        self._tasks: list[asyncio.Task[None]] = []

    @classmethod
    async def begin(cls, spec: EngineSpec, *, name: str, log: Path, timeout_s: float) -> EngineLife:
        """Start a process and wait until its model is built.

        Raises:
            ConfigError: the model cannot be built as asked.
            EngineLost: the process ended.
            RequestTimeout: the model was not built in time.
        """
        process, our_end = _spawned(log, spec.threads)
        streams = await asyncio.open_connection(sock=our_end)
        life = cls(name, log, process, streams)
        try:
            ready = asyncio.get_running_loop().create_future()
            life._waiting[0] = ready
            life._tasks = [asyncio.create_task(life._listen()), asyncio.create_task(life._beat())]
            write_message(streams[1], spec)
            async with asyncio.timeout(timeout_s):
                life.max_length = (await ready).max_length
        except BaseException as error:
            await life.end()
            if isinstance(error, TimeoutError):
                raise RequestTimeout(
                    f"{name} was not ready within {timeout_s:g} s; its log is {log}"
                ) from error
            raise
        return life

    async def ask(self, message: AnsweredCall, as_type: type[T]) -> T:
        """Send a call, whose number is filled in, and return the reply.

        Raises:
            EngineLost: the process is gone.
            LudusError: what the engine raised.
        """
        if self.lost is not None:
            raise EngineLost(str(self.lost))
        message.call = next(self._numbers)
        reply: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting[message.call] = reply
        write_message(self._writer, message)
        try:
            return await reply
        except asyncio.CancelledError:
            if self.lost is None:  # the process would otherwise sample on for nobody
                write_message(self._writer, CancelCall(message.call))
            raise
        finally:
            self._waiting.pop(message.call, None)

    async def ping(self) -> None:
        """Return at the next answer to a ping.

        Raises:
            EngineLost: the process is gone.
        """
        if self.lost is not None:
            raise EngineLost(str(self.lost))
        # A pong names no ping, so any pong answers all pings that wait. The negative number is only
        # a key in `_waiting` that no call has.
        number = -next(self._numbers)
        pong = self._waiting[number] = asyncio.get_running_loop().create_future()
        write_message(self._writer, Ping())
        try:
            await pong
        finally:
            self._waiting.pop(number, None)

    async def end(self) -> None:
        """End the process, and wait until it is gone."""
        for task in self._tasks:
            task.cancel()
        self._lose(EngineLost(f"{self.name} was closed"))
        self._writer.close()  # the process ends when its socket closes
        try:
            await asyncio.to_thread(self.process.wait, END_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            await asyncio.to_thread(self.process.wait)

    async def _listen(self) -> None:
        try:
            while True:
                self._hear(await read_message(self._reader, REPLIES))
        except (asyncio.IncompleteReadError, ConnectionError):
            # The socket closes a moment before the exit code can be read, and the error should name
            # the exit code or the signal: wait for at most 0.1 s.
            for _ in range(50):
                if self.process.poll() is not None:
                    break
                await asyncio.sleep(0.002)
            self._lose(EngineLost(self._epitaph()))

    def _hear(self, reply: Reply) -> None:
        self._heard += 1
        if isinstance(reply, Pong):
            self._pong = reply
            for number, ping in self._waiting.items():
                if number < 0 and not ping.done():
                    ping.set_result(None)
            return
        number = 0 if isinstance(reply, ReadyReply) else reply.call
        future = self._waiting.get(number)
        if future is None or future.done():  # cancelled meanwhile
            return
        if isinstance(reply, FailedReply):
            error: LudusError = (
                KINDS[reply.kind](reply.message)
                if reply.kind in KINDS
                else ServerFault(
                    f"{self.name} failed: {reply.kind}: {reply.message} (log: {self.log})"
                )
            )
            future.set_exception(error)
        else:
            future.set_result(reply)

    async def _beat(self) -> None:
        silent = stuck = 0
        heard, passes = self._heard, self._pong.passes
        while True:
            write_message(self._writer, Ping())
            await asyncio.sleep(BEAT_S)
            # `max_length` is 0 until the model is built. Before that the process may be importing
            # torch, when it answers nothing, and `begin` has a time limit of its own.
            silent = 0 if self._heard != heard or not self.max_length else silent + 1
            moving = self._pong.passes != passes or not self._pong.busy
            stuck = 0 if moving else stuck + 1
            heard, passes = self._heard, self._pong.passes
            why = ""
            if silent >= SILENT_BEATS:
                why = f"has said nothing for {silent * BEAT_S:g} s"
            elif stuck >= STUCK_BEATS:
                why = f"has made no forward pass for {stuck * BEAT_S:g} s"
            if why:
                self.process.kill()
                self._lose(EngineLost(f"{self.name} {why} and was killed; its log is {self.log}"))
                return

    def _lose(self, error: EngineLost) -> None:
        if self.lost is not None:
            return
        self.lost = error
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(EngineLost(str(error)))

    def _epitaph(self) -> str:
        code = self.process.poll()
        if code is None:
            how = "closed its socket"
        elif code < 0:
            how = f"was killed by {signal.Signals(-code).name}"
        else:
            how = f"ended with exit code {code}"
        with self.log.open("rb") as file:
            file.seek(max(0, self.log.stat().st_size - LOG_TAIL_BYTES))
            lines = file.read().decode(errors="replace").strip().splitlines()
        ending = f", which ends with {lines[-1][:300]!r}" if lines else ""
        return (
            f"{self.name} {how} with {sum(number > 0 for number in self._waiting)} requests under "
            f"way; its log is {self.log}{ending}"
        )


def _spawned(log: Path, threads: int) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Start a process, and return the process with the trainer's end of the socket."""
    our_end, engine_end = socket.socketpair()
    # This closes the trainer's copy of the engine's end. With the copy open, the trainer would not
    # see the socket close when the process ends.
    with engine_end, log.open("ab") as output:
        # -P keeps the working directory off the import path, where a file could hide a module.
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", f"{__package__}.worker", str(engine_end.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            pass_fds=[engine_end.fileno()],
            env={**os.environ, "OMP_NUM_THREADS": str(threads)},
            process_group=0,  # Ctrl-C goes to the trainer alone, which ends its engines
        )
    return process, our_end
