"""The part of an environment server that runs in a worker process and holds the sessions."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from functools import partial
from typing import Any

import msgspec

from ludus.errors import error_trace
from ludus.isolation.part import Answer, WorkerPart
from ludus.wire.codec import Format, encode, trace_parent
from ludus.wire.faults import Fault

from ..forking import Nursery
from ..gym import run_sync
from ..session import EnvSession
from .env_wire import Fork, Play, TaskQuery
from .offload import offload
from .placement import ReplyForm, fault_in, fork_all, is_bug, perform
from .served import ServedEnv

PLAY, CLOSE, PAGE, FORK = 1, 2, 3, 4
AS_JSON = 64
"""Added to the tag of a message whose body is JSON, since msgpack cannot hold an integer beyond 64
bits.
"""
REPLY, REPLY_AS_JSON, BROKEN = 1, 1 | AS_JSON, 2
"""The tags of answers: a reply as msgpack, a reply as JSON, and a fault."""


class PlayCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """The body of a PLAY message."""

    play: Play
    seq: int
    instance: str
    format: Format
    trace_parent: str = ""
    """The trace that calls of the environment belong to; see `ludus.wire.codec`."""


READ: dict[Format, Any] = {
    Format.MSGPACK: msgspec.msgpack.Decoder(PlayCall),
    Format.JSON: msgspec.json.Decoder(PlayCall),
}
"""The decoders of a PLAY message, built once on one thread: two threads that build a decoder of the
same struct at the same time can crash the interpreter.
"""


class ForkCall(msgspec.Struct, frozen=True):
    """The body of a FORK message."""

    fork: Fork
    children: list[str]
    """Those of the fork's children that have a seat."""


class Broken(msgspec.Struct, frozen=True):
    """The body of a BROKEN answer."""

    fault: Fault
    trace: str = ""
    """The traceback, if the fault is a bug in the environment."""


class EnvPart(WorkerPart):
    """Plays the sessions of an environment in a worker process.

    Args:
        served: the environment, which is loaded here.
        max_bytes: the limit on a reply.
    """

    def __init__(self, served: ServedEnv, max_bytes: int) -> None:
        served.load()
        self.is_async = served.is_async
        self._served = served
        self._max_bytes = max_bytes
        self._sessions: dict[str, EnvSession] = {}
        self._running: dict[str, asyncio.Task[Any]] = {}
        self._strays: set[asyncio.Future[None]] = set()
        """The sessions, under way to be closed, that were given up while they were built."""
        self._thread_of: Callable[[int], Executor] | None = None

    def about(self) -> bytes:
        """Return the card of the environment, encoded."""
        return msgspec.msgpack.encode(self._served.card)

    def start(self, thread_of: Callable[[int], Executor]) -> None:
        """Take over, in a new worker, the function that returns the executor of a thread number."""
        self._thread_of = thread_of

    def handle(self, tag: int, thread_number: int, body: bytes) -> Answer | Awaitable[Answer]:
        """Play an operation, close a session, or list tasks."""
        if tag & ~AS_JSON == PAGE:
            # To list tasks may take seconds, while other sessions of the event loop wait.
            return asyncio.to_thread(self._page, body) if self.is_async else self._page(body)
        if tag & ~AS_JSON == CLOSE:
            work = self._close(body.decode())
        elif tag & ~AS_JSON == FORK:
            work = self._fork(msgspec.msgpack.decode(body, type=ForkCall), thread_number)
        else:
            format = Format.JSON if tag & AS_JSON else Format.MSGPACK
            work = self._play(READ[format].decode(body), thread_number)
        return work if self.is_async else run_sync(work)

    def _page(self, body: bytes) -> Answer:
        try:
            page = self._served.page(msgspec.msgpack.decode(body, type=TaskQuery))
        except BaseException as error:
            return _broken(error, "", 0)
        return REPLY, msgspec.msgpack.encode(page)

    async def _play(self, call: PlayCall, thread_number: int) -> Answer:
        name = call.play.session
        trace_parent.set(call.trace_parent)
        if self.is_async:
            task = asyncio.current_task()
            assert task is not None
            self._running[name] = task
        try:
            session = self._sessions.get(name)
            if session is None:
                session = self._sessions[name] = await self._build(thread_number)
            reply = await perform(
                session, call.play, call.seq, call.instance, ReplyForm(self._max_bytes, call.format)
            )
        except BaseException as error:  # user code may raise anything, `SystemExit` too
            return _broken(error, name, call.seq)
        finally:
            self._running.pop(name, None)
        return REPLY if reply.format is Format.MSGPACK else REPLY_AS_JSON, reply.data

    async def _fork(self, call: ForkCall, thread_number: int) -> Answer:
        nursery = Nursery(partial(self._build, thread_number), self._served.session)
        parent = self._sessions.get(call.fork.session)
        sessions, done = await fork_all(parent, call.fork, nursery, set(call.children))
        self._sessions.update(sessions)
        if isinstance(done, Fault):
            return BROKEN, encode(Broken(done), Format.MSGPACK)[0]
        return REPLY, msgspec.msgpack.encode(done)

    async def _build(self, thread_number: int) -> EnvSession:
        if not self.is_async:
            return self._served.session(self._served.build())
        assert self._thread_of is not None
        loop, thread = asyncio.get_running_loop(), self._thread_of(thread_number)
        # The environment is built on the thread that later runs its plain methods, since some
        # objects work only on the thread that made them (decision 0203).
        building = loop.run_in_executor(thread, self._served.build)

        async def placed() -> EnvSession:
            env = await building
            offload(env, partial(loop.run_in_executor, thread))
            return self._served.session(env)

        try:
            return await asyncio.shield(placing := asyncio.ensure_future(placed()))
        except asyncio.CancelledError:
            # The constructor goes on in its thread, and nobody would close what it makes.
            placing.add_done_callback(self._close_stray)
            raise

    def _close_stray(self, placing: asyncio.Future[EnvSession]) -> None:
        if not placing.cancelled() and placing.exception() is None:
            closing = asyncio.ensure_future(placing.result().close())
            self._strays.add(closing)
            closing.add_done_callback(self._strays.discard)

    async def _close(self, name: str) -> Answer:
        running = self._running.get(name)
        if running is not None:
            running.cancel()
            # An operation may ignore its cancellation. The owner then cancels this close, whose
            # time is over, and waits a little before it kills the process with all its sessions.
            # The cancellation ends the waiting and not the close, so that the environment releases
            # what it holds, and the process lives on if it does so in time.
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait({running})
        session = self._sessions.pop(name, None)
        try:
            if session is not None:
                await session.close()
        except BaseException as error:
            return _broken(error, name, 0)
        return REPLY, b""


def _broken(error: BaseException, session: str, seq: int) -> Answer:
    trace = ""
    if is_bug(error):
        trace = error_trace(error)
    fault = fault_in(error, session, seq)
    return BROKEN, encode(Broken(fault, trace), Format.MSGPACK)[0]
