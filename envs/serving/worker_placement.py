"""Sessions in worker processes: placed, played in turn on threads, and lost together.

The server owns the processes; a session lives in one process from its first operation to its end.
Sessions of one environment share a bounded number of processes, never with another environment. A
process that dies, or is killed because one call in it is late, takes its sessions with it: each of
their clients is told by type (`session_gone`), and no reward is made up.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

import msgspec

from ludus.isolation.group import WorkerGroup, WorkerLimits
from ludus.isolation.part import Answer
from ludus.isolation.process import CallFailed, CallLate, WorkerEnd, WorkerLost, WorkerProcess
from ludus.wire.codec import Encoded, Format, encode, trace_parent
from ludus.wire.faults import Fault, Refused, error_of, status_of
from ludus.wire.prometheus import ServerMetrics

from ..tasks import TaskPage
from .env_wire import EnvCard, Fork, ForkDone, Outcome, Play, TaskQuery
from .placement import CLOSE_TIMEOUT_S, ForkResult, Lost, PlacedSession, late, released
from .served import ServedEnv
from .worker import (
    AS_JSON,
    BROKEN,
    CLOSE,
    FORK,
    PAGE,
    PLAY,
    REPLY_AS_JSON,
    Broken,
    EnvPart,
    ForkCall,
    PlayCall,
)

logger = logging.getLogger(__name__)
THREADS = 8
"""Threads of a worker process, for plain methods; a session always runs on the same thread."""


@dataclass(slots=True, eq=False)
class _Thread:
    """A thread of a worker. The server sends a call only after the previous call on the thread
    ended, so that the time of each call counts from when it begins to run.
    """

    number: int
    sessions: int = 0
    busy: bool = False
    waiting: deque[Callable[[], None]] = field(default_factory=deque[Callable[[], None]])

    def run(self, start: Callable[[], asyncio.Future[Answer]], when_done: _Then) -> None:
        """Call `start` when the thread is free, and `when_done` with the answer."""
        begin = partial(self._begin, start, when_done)
        if self.busy:
            self.waiting.append(begin)
        else:
            begin()

    def _begin(self, start: Callable[[], asyncio.Future[Answer]], when_done: _Then) -> None:
        self.busy = True
        answer = start()
        # Callbacks run in this order: this session is answered before the next call begins.
        answer.add_done_callback(when_done)
        answer.add_done_callback(self._next)

    def _next(self, answer: asyncio.Future[Answer]) -> None:
        self.busy = False
        if self.waiting:
            self.waiting.popleft()()


_Then = Callable[[asyncio.Future[Answer]], None]


@dataclass(slots=True, eq=False)
class _Room:
    """A worker process with the threads and sessions in the process."""

    worker: WorkerProcess
    threads: list[_Thread]
    places: set[WorkerSession] = field(default_factory=lambda: set[WorkerSession]())


class InWorkers:
    """Plays the sessions of an environment in worker processes.

    Args:
        served: the environment.
        limits: the bounds on the worker processes.
        threads: the number of threads of each process.
        timeout_s: the limit in seconds for one operation, from when its thread begins it; the
            process is then killed. An async operation is cancelled first.
        metrics: the counters of the server.
    """

    def __init__(
        self,
        served: ServedEnv,
        *,
        limits: WorkerLimits,
        threads: int = THREADS,
        timeout_s: float,
        metrics: ServerMetrics,
    ) -> None:
        self.served = served
        self.timeout_s = timeout_s
        self._threads = threads
        self._rooms: dict[WorkerProcess, _Room] = {}
        part = partial(EnvPart, served.portable(), limits.max_reply_bytes)
        self._group = WorkerGroup(
            served.id, part, limits=limits, metrics=metrics, on_gone=self._gone
        )

    @property
    def problem(self) -> str:
        """The reason why no worker process can be started; empty if all is well."""
        return self._group.problem

    @property
    def is_async(self) -> bool:
        """Whether operations run side by side on the event loop of the process."""
        return self._group.is_async

    async def start(self) -> EnvCard:
        """Load the environment in the template process, from which the workers are forked."""
        card = msgspec.msgpack.decode(await self._group.start(), type=EnvCard)
        self.served.card = card
        return card

    async def stop(self) -> None:
        """End all worker processes, and the template."""
        await self._group.stop()

    async def page(self, query: TaskQuery) -> TaskPage:
        """Return some tasks of a split, as a worker lists the split.

        Raises:
            UnknownTask: the split or task does not exist.
            Refused: no worker could answer.
        """
        worker = self._group.place()
        body = msgspec.msgpack.encode(query)
        try:
            tag, page_body = await worker.call(PAGE, 0, body, timeout_s=self.timeout_s)
        except (CallFailed, CallLate, WorkerLost) as error:
            raise Refused(f"the tasks of {self.served.id}: {error}", "worker_lost") from None
        if tag == BROKEN:
            fault = msgspec.msgpack.decode(page_body, type=Broken).fault
            raise error_of(fault, status_of(fault))
        return msgspec.msgpack.decode(page_body, type=TaskPage)

    def place(
        self, name: str, on_lost: Lost, *, beside: PlacedSession | None = None
    ) -> PlacedSession:
        """Make a seat for a session, in the worker and on the thread with the fewest sessions, or
        in those of another session.
        """
        if isinstance(beside, WorkerSession):
            return self._seat(beside.room, beside.thread, name, on_lost)
        worker = self._group.place()
        room = self._rooms.get(worker)
        if room is None:
            # From 1 on: lists of tasks are asked for on thread 0, beside the sessions.
            threads = [_Thread(number + 1) for number in range(self._threads)]
            room = self._rooms[worker] = _Room(worker, threads)
        thread = min(room.threads, key=lambda candidate: candidate.sessions)
        return self._seat(room, thread, name, on_lost)

    def _seat(self, room: _Room, thread: _Thread, name: str, on_lost: Lost) -> WorkerSession:
        place = WorkerSession(self, room, thread, name, on_lost)
        thread.sessions += 1
        room.worker.sessions += 1
        room.places.add(place)
        return place

    def leave(self, place: WorkerSession) -> None:
        """Remove the session of `place` from the worker and thread; a worker that is due may be
        replaced.
        """
        room = place.room
        if place in room.places:  # a lost session leaves at its loss, and again when it is closed
            room.places.discard(place)
            place.thread.sessions -= 1
            room.worker.sessions -= 1
            self._group.recycle(room.worker)

    def _gone(self, worker: WorkerProcess) -> None:
        if room := self._rooms.get(worker):
            for place in list(room.places):
                place.lost()
            del self._rooms[worker]


class WorkerSession:
    """Plays a session in a worker process."""

    def __init__(
        self, home: InWorkers, room: _Room, thread: _Thread, name: str, on_lost: Lost
    ) -> None:
        self.room = room
        self.thread = thread
        self._home = home
        self._worker = room.worker
        self._name = name
        self._on_lost = on_lost
        self._playing: tuple[asyncio.Future[Outcome], int] | None = None

    def play(self, play: Play, seq: int, instance: str, format: Format) -> asyncio.Future[Outcome]:
        """Begin an operation, which waits while the thread is busy with another session."""
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._playing = future, seq
        call = PlayCall(play, seq, instance, format, trace_parent.get())
        body, new_state = encode(call, Format.MSGPACK)
        tag = PLAY + (AS_JSON if new_state is Format.JSON else 0)
        self._call(tag, body, self._home.timeout_s, partial(self._on_played, future, seq))
        return future

    def fork(self, fork: Fork, children: Mapping[str, PlacedSession]) -> asyncio.Future[ForkResult]:
        """Begin a fork, which waits while the thread is busy with another session."""
        future: asyncio.Future[ForkResult] = asyncio.get_running_loop().create_future()
        body = msgspec.msgpack.encode(ForkCall(fork, list(children)))
        # A replay plays the whole episode for each child.
        timeout_s = self._home.timeout_s * max(1, len(children))
        self._call(FORK, body, timeout_s, partial(self._on_forked, future, fork.seq))
        return future

    def _on_forked(
        self, future: asyncio.Future[ForkResult], seq: int, answer: asyncio.Future[Answer]
    ) -> None:
        error = answer.exception()
        result: ForkResult
        if error is not None:
            result = self._failed(error, seq)
        else:
            tag, body = answer.result()
            if tag == BROKEN:
                result = msgspec.msgpack.decode(body, type=Broken).fault
            else:
                result = msgspec.msgpack.decode(body, type=ForkDone)
        if not future.done():
            future.set_result(result)
        if isinstance(error, CallLate):
            self._on_lost("a fork took too long", is_late=True)

    async def close(self) -> None:
        """Close the environment after the operation that still runs; an async operation is given
        up.
        """
        # The caller of an async operation is answered now, and the worker cancels the operation. A
        # plain method cannot be interrupted, so its caller gets the outcome.
        if self._home.is_async and self._playing is not None:
            future, seq = self._playing
            if not future.done():
                future.set_result(released(self._name, seq))
        closed: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        if self._worker.end is None:
            self._call(CLOSE, self._name.encode(), CLOSE_TIMEOUT_S, partial(_copy, closed))
            try:
                tag, body = await closed
                if tag == BROKEN:
                    broken = msgspec.msgpack.decode(body, type=Broken)
                    logger.error(
                        "closing %s of session %s failed: %s\n%s",
                        self._home.served.id,
                        self._name,
                        broken.fault.message,
                        broken.trace,
                    )
            except (CallFailed, CallLate, WorkerLost) as error:
                logger.error(
                    "closing %s of session %s failed: %s", self._home.served.id, self._name, error
                )
        self._home.leave(self)

    def lost(self) -> None:
        """Report that the worker process is gone, unless the server itself ended the process."""
        self._home.leave(self)
        if self._worker.end is not WorkerEnd.STOPPED:
            self._on_lost(self._worker.why, is_late=False)

    def _call(self, tag: int, body: bytes, timeout_s: float, when_done: _Then) -> None:
        start = partial(self._worker.call, tag, self.thread.number, body, timeout_s=timeout_s)
        if self._home.is_async:
            start().add_done_callback(when_done)
        else:
            # Queued here and not in the worker, so that waiting does not count against the limit.
            self.thread.run(start, when_done)

    def _on_played(
        self, future: asyncio.Future[Outcome], seq: int, answer: asyncio.Future[Answer]
    ) -> None:
        error = answer.exception()
        outcome = self._read(*answer.result(), seq) if error is None else self._failed(error, seq)
        if not future.done():
            future.set_result(outcome)
        if isinstance(error, CallLate):
            self._on_lost("a step took too long", is_late=True)

    def _read(self, tag: int, body: bytes, seq: int) -> Outcome:
        if tag != BROKEN:
            return Encoded(body, Format.JSON if tag == REPLY_AS_JSON else Format.MSGPACK)
        try:
            broken = msgspec.msgpack.decode(body, type=Broken)
        except (msgspec.DecodeError, ValueError) as error:
            return self._fault("env_failed", f"a fault that cannot be read: {error}", seq)
        if broken.trace:
            env_id = self._home.served.id
            logger.error("%s failed in session %s\n%s", env_id, self._name, broken.trace)
        return broken.fault

    def _failed(self, error: BaseException, seq: int) -> Fault:
        if isinstance(error, CallLate):
            return late(self._home, self._name, seq)
        if isinstance(error, WorkerLost):
            message = f"session {self._name!r} is lost: {error}"
            return self._fault("session_gone", message, seq)
        env_id = self._home.served.id
        trace = error.failure.trace if isinstance(error, CallFailed) else ""
        logger.error("%s failed in session %s: %s\n%s", env_id, self._name, error, trace)
        return self._fault("env_failed", f"{env_id}: {error}", seq)

    def _fault(self, code: str, message: str, seq: int) -> Fault:
        return Fault(code=code, message=message, session=self._name, seq=seq)


def _copy(to: asyncio.Future[Answer], answer: asyncio.Future[Answer]) -> None:
    if to.done():
        return
    error = answer.exception()
    if error is None:
        to.set_result(answer.result())
    else:
        to.set_exception(error)
