"""The trainer's view of an engine process, from start to end."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import signal
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from ludus.errors import (
    BrokenGeneration,
    ConfigError,
    EngineLost,
    LudusError,
    RequestTimeout,
    ServerFault,
    StaleWeights,
)
from ludus.isolation.part import Answer, WorkerSpec
from ludus.isolation.process import CallFailed, WorkerEnd, WorkerLost, WorkerProcess, blocking
from ludus.isolation.spawning import start_worker

from ...models.weights import WeightsRefused
from ..local import EngineClosed
from .messages import REPLIES, BuildCall, Call, EngineSpec, FailedReply, Ping, Pong, ReadyReply
from .worker import EnginePart

T = TypeVar("T")

BEAT_S = 1.0
SILENT_BEATS = 60
"""How many heartbeats in a row may stay without any answer. Beats are counted rather than seconds,
since a trainer that was itself stopped for a while has heard nothing either.
"""
STUCK_BEATS = 600
"""How many heartbeats a busy engine may go without finishing a forward pass."""
MAX_BODY = (1 << 32) - 1
"""The most bytes of a call or answer."""
CALL = 1
"""The tag of every call and answer: what a message is, it says itself."""
LOG_TAIL_BYTES = 4_000
"""How much of the end of the log is read to find its last line."""
KINDS: dict[str, type[LudusError]] = {
    kind.__name__: kind
    for kind in (BrokenGeneration, ConfigError, EngineClosed, StaleWeights, WeightsRefused)
}
"""Errors that keep their type on the way; any other becomes a `ServerFault`."""


class EngineCalls(Protocol):
    """The calls of an engine in another process, from start to end."""

    max_length: int

    async def ask(self, message: Call, as_type: type[T]) -> T:
        """Send a call and return the reply.

        Raises:
            EngineLost: the engine is gone.
            LudusError: what the engine raised.
        """
        ...

    async def ping(self) -> None:
        """Return at the answer to a ping.

        Raises:
            EngineLost: the engine is gone.
        """
        ...

    async def end(self) -> None:
        """End the engine; waiting calls raise `EngineLost`."""
        ...


def failure_of(reply: FailedReply, name: str, log: str) -> LudusError:
    """Return an engine's error as the exception to raise here.

    Args:
        reply: the engine's answer.
        name: of the engine.
        log: where more is to be read.
    """
    if reply.kind in KINDS:
        return KINDS[reply.kind](reply.message)
    return ServerFault(f"{name} failed: {reply.kind}: {reply.message} (log: {log})")


class EngineLife:
    """A running engine process: calls, heartbeat, and the end.

    Made by `begin`. When the process is gone or silent, every waiting call raises `EngineLost` at
    once, and so does every later call.
    """

    def __init__(self, spec: EngineSpec, name: str, log: Path) -> None:
        self.name = name
        self.log = log
        self.max_length = 0
        self.worker = WorkerProcess(name, is_async=True, max_body=MAX_BODY, on_gone=self._note_end)
        self._part = WorkerSpec.of(name, partial(EnginePart, spec))
        self._environment = {**os.environ, "OMP_NUM_THREADS": str(spec.threads)}
        self._under_way = 0
        self._epitaph = ""
        """How the process ended, once it has."""
        self._pong = Pong(0, busy=False)
        """The last pong, which says whether the engine works and how many passes it has made."""
        self._beating: asyncio.Task[None] | None = None

    @classmethod
    async def begin(cls, spec: EngineSpec, *, name: str, log: Path, timeout_s: float) -> EngineLife:
        """Start a process and wait until the model is built.

        Raises:
            ConfigError: the model cannot be built as asked.
            EngineLost: the process ended.
            RequestTimeout: the model was not built in time.
        """
        life = cls(spec, name, log)
        try:
            life.worker.start(life._spawn)
            life._beating = asyncio.create_task(life._beat())
            async with asyncio.timeout(timeout_s):
                life.max_length = (await life.ask(BuildCall(), ReadyReply)).max_length
        except BaseException as error:
            await life.end()
            if isinstance(error, TimeoutError):
                raise RequestTimeout(
                    f"{name} was not ready within {timeout_s:g} s; its log is {log}"
                ) from error
            raise
        return life

    async def ask(self, message: Call, as_type: type[T]) -> T:
        """Send a call and return the reply.

        Raises:
            EngineLost: the process is gone.
            LudusError: what the engine raised.
        """
        answer = self._call(message)
        self._under_way += 1
        try:
            reply = REPLIES.decode((await answer)[1])
        except asyncio.CancelledError:
            self.worker.cancel(answer)  # the process would otherwise sample on for nobody
            raise
        except WorkerLost as lost:
            raise EngineLost(self._epitaph or f"{self.name} {lost}") from None
        except CallFailed as error:
            raise ServerFault(f"{self.name} failed: {error} (log: {self.log})") from error
        finally:
            self._under_way -= 1
        if isinstance(reply, FailedReply):
            raise failure_of(reply, self.name, str(self.log))
        assert isinstance(reply, as_type)
        return reply

    async def ping(self) -> None:
        """Return at the answer to a ping.

        Raises:
            EngineLost: the process is gone.
        """
        await self.ask(Ping(), Pong)

    async def end(self) -> None:
        """End the process, and wait for the exit."""
        if self._beating is not None:
            self._beating.cancel()
        self.worker.stop(WorkerEnd.STOPPED, "was closed")
        await self.worker.ended()

    async def _spawn(self, worker: WorkerProcess) -> None:
        def start() -> None:
            with self.log.open("ab") as output:
                worker.process = start_worker(
                    self._part, max_body=MAX_BODY, environment=self._environment, output=output
                )

        await blocking(start)

    def _call(self, message: Call) -> asyncio.Future[Answer]:
        # A call has no deadline of its own: the heartbeat finds an engine that hangs.
        body = msgspec.msgpack.encode(message)
        return self.worker.call(CALL, 0, body, timeout_s=math.inf)

    async def _beat(self) -> None:
        silent = stuck = 0
        heard, passes = self.worker.heard, self._pong.passes
        while True:
            self._call(Ping()).add_done_callback(self._note_pong)
            await asyncio.sleep(BEAT_S)
            # `max_length` is 0 until the model is built. Before that the process may be importing
            # torch, when it answers nothing, and `begin` has a time limit of its own.
            silent = 0 if self.worker.heard != heard or not self.max_length else silent + 1
            moving = self._pong.passes != passes or not self._pong.busy
            stuck = 0 if moving else stuck + 1
            heard, passes = self.worker.heard, self._pong.passes
            why = ""
            if silent >= SILENT_BEATS:
                why = f"has said nothing for {silent * BEAT_S:g} s"
            elif stuck >= STUCK_BEATS:
                why = f"has made no forward pass for {stuck * BEAT_S:g} s"
            if why:
                reason = f"{why} and was killed; its log is {self.log}"
                self.worker.stop(WorkerEnd.LATE, reason)
                return

    def _note_pong(self, answer: asyncio.Future[Answer]) -> None:
        if not answer.cancelled() and answer.exception() is None:
            pong = REPLIES.decode(answer.result()[1])
            if isinstance(pong, Pong):
                self._pong = pong

    def _note_end(self, worker: WorkerProcess) -> None:
        if worker.end in (WorkerEnd.STOPPED, WorkerEnd.LATE, WorkerEnd.UNSTARTED):
            self._epitaph = f"{self.name} {worker.why}"
            return
        death = worker.death
        if not death.known:
            how = "ended, nobody knows how"
        elif death.signal:
            how = f"was killed by {signal.Signals(death.signal).name}"
        else:
            how = f"ended with exit code {death.code}"
        lines: list[str] = []
        with contextlib.suppress(OSError), self.log.open("rb") as file:
            file.seek(max(0, self.log.stat().st_size - LOG_TAIL_BYTES))
            lines = file.read().decode(errors="replace").strip().splitlines()
        ending = f", which ends with {lines[-1][:300]!r}" if lines else ""
        self._epitaph = (
            f"{self.name} {how} with {self._under_way} requests under way; its log is "
            f"{self.log}{ending}"
        )
