"""All sessions of a server: made under the caller's name, leased, capped, reaped."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, OrderedDict
from collections.abc import Iterable
from enum import StrEnum
from functools import cache, partial

import msgspec

from ludus.errors import SequenceConflict, SessionGone, UnknownEnv
from ludus.wire.admission import Admission
from ludus.wire.faults import Fault, QueueFull, Refused
from ludus.wire.routes import Context
from ludus.wire.tasks import end_task

from .env_wire import Create, Delete, Operation, Outcome, Play, Released, Reset, Step
from .hosting import HostedSession
from .seats import Home

logger = logging.getLogger(__name__)
MAX_TOMBSTONES = 200_000
MAX_NAME = 128


class EndedSession(StrEnum):
    """Why a session is no more."""

    RELEASED = "released"
    """Its client deleted it."""
    EXPIRED = "expired"
    """Nobody used it for as long as its lease."""
    TOO_OLD = "too_old"
    """It reached the absolute lifetime."""
    TIMED_OUT = "timed_out"
    """A step took too long."""
    LOST = "lost"
    """Its worker process was lost: it crashed, was killed, or a step of another session in it took
    too long.
    """


class SessionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds that keep a server alive whatever its clients do."""

    max_sessions: int = 4096
    """Past it, creating one is refused with 429."""
    max_queue: int = 8192
    """Resets and steps in flight; past it 429."""
    max_queue_per_env: int = 8192
    step_timeout_s: float = 60.0
    """Of one reset or step, from when it starts to run; past it 504 and the session is released.
    The worker process that it hangs in is killed, with the sessions in it.
    """
    lease_s: float = 900.0
    """A session nobody uses for so long is released; any request about it renews the lease."""
    lifetime_s: float = 6 * 3600.0
    """No session lives longer."""


class Sessions:
    """The table of sessions."""

    def __init__(
        self,
        homes: Iterable[Home],
        limits: SessionLimits,
        context: Context,
    ) -> None:
        self.homes = {home.served.id: home for home in homes}
        self.limits = limits
        self.admission = Admission(limits.max_queue, per_key=limits.max_queue_per_env)
        self.counts: Counter[str] = Counter()
        self._context = context
        self._metrics = context.metrics
        # Looking a counter up by its labels costs more than counting.
        self._operations = cache(context.metrics.operations.labels)
        self._seconds = cache(context.metrics.step_seconds.labels)
        self._open: dict[str, HostedSession] = {}
        self._gone: OrderedDict[str, str] = OrderedDict()
        self._closing: set[asyncio.Task[None]] = set()
        self._reaper: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._open)

    async def start(self) -> None:
        """Start the reaper."""
        self._reaper = asyncio.create_task(self._reap(), name="ludus-reaper")

    async def stop(self, timeout_s: float) -> None:
        """Release every session, waiting at most `timeout_s` for their environments."""
        await end_task(self._reaper)
        for session in list(self._open.values()):
            self._release(session, EndedSession.RELEASED)
        if self._closing:
            await asyncio.wait(self._closing, timeout=timeout_s)

    def begin(self, operation: Operation) -> asyncio.Future[Outcome]:
        """Start an operation, or join it if it was sent before.

        Raises:
            UnknownEnv, SessionGone, SequenceConflict, Overloaded: it cannot be done; no seq is used
                up.
        """
        match operation:
            case Create():
                return self._create(operation)
            case Reset() | Step():
                session = self._find(operation.session, operation.instance)
                return self._play(session, operation, operation.seq)
            case Delete():
                return _resolved(self._delete(operation.session))

    def _create(self, create: Create) -> asyncio.Future[Outcome]:
        session = self._open.get(create.session)
        if session is None:
            session = self._make(create)
        elif session.create != create:
            raise SequenceConflict(
                f"session {create.session!r} exists already, made by another request; choose "
                "another name"
            )
        if create.reset is None:
            return session.created()
        return self._play(session, create, 0)

    def _make(self, create: Create) -> HostedSession:
        if create.env not in self.homes:
            raise UnknownEnv.near(create.env, self.homes, hint="served here")
        if create.session in self._gone:
            raise self._gone_error(create.session)
        if len(self._open) >= self.limits.max_sessions:
            raise QueueFull(
                f"{len(self._open)} of {self.limits.max_sessions} sessions are open",
                1.0,
                depth=len(self._open),
                limit=self.limits.max_sessions,
            )
        session = HostedSession(
            create,
            self.homes[create.env],
            instance=self._context.instance,
            on_lost=self._lost,
        )
        self._open[create.session] = session
        self.counts[create.env] += 1
        self._metrics.sessions_opened.labels(create.env).inc()
        return session

    def _find(self, name: str, instance: str) -> HostedSession:
        session = self._open.get(name)
        if session is not None:
            return session
        if name in self._gone:
            raise self._gone_error(name)
        if instance and instance != self._context.instance:
            raise SessionGone(
                f"session {name!r} was lost: the server was restarted (it was {instance}, is "
                f"{self._context.instance})"
            )
        raise Refused(f"no session named {name!r}; create it first", "unknown_session")

    def _play(self, session: HostedSession, play: Play, seq: int) -> asyncio.Future[Outcome]:
        kept = session.kept(play, seq)
        env = session.served.id
        if kept is not None:
            self._metrics.replays.labels(env).inc()
            return kept
        try:
            self.admission.enter(env)
        except QueueFull:
            self._metrics.refused.labels("envs").inc()
            if isinstance(play, Create):
                self._release(session, EndedSession.RELEASED, tombstone=False)
            raise
        operation, started = type(play).__name__.lower(), time.perf_counter()
        future = session.begin(play, seq)
        future.add_done_callback(partial(self._ended, session, operation, started))
        return future

    def _ended(
        self,
        session: HostedSession,
        operation: str,
        started: float,
        future: asyncio.Future[Outcome],
    ) -> None:
        took_s = time.perf_counter() - started
        env = session.served.id
        session.running = False
        session.touched = time.monotonic()
        self.admission.leave(env, took_s)
        if future.cancelled():
            return
        outcome = future.result()
        ended = outcome.code if isinstance(outcome, Fault) else "ok"
        self._operations(env, operation, ended).inc()
        self._seconds(env).observe(took_s)

    def _delete(self, name: str) -> Released:
        session = self._open.get(name)
        if session is None:
            self._bury(name, self._gone.get(name, EndedSession.RELEASED))
            return Released(session=name, released=False)
        self._release(session, EndedSession.RELEASED)
        return Released(session=name, released=True)

    def _lost(self, session: HostedSession, why: str, is_late: bool) -> None:
        self._release(session, EndedSession.TIMED_OUT if is_late else EndedSession.LOST, why=why)

    def _release(
        self,
        session: HostedSession,
        reason: EndedSession,
        *,
        tombstone: bool = True,
        why: str = "",
    ) -> None:
        """Forget a session. Its environment is closed meanwhile."""
        if self._open.pop(session.name, None) is None:
            return
        self.counts[session.served.id] -= 1
        self._metrics.sessions_ended.labels(session.served.id, reason).inc()
        if tombstone:
            self._bury(session.name, f"{reason}: {why}" if why else str(reason))
        task = asyncio.create_task(session.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    def _bury(self, name: str, reason: str) -> None:
        """Remember the name: a request that comes late must not bring the session back."""
        if len(name) > MAX_NAME:
            return
        self._gone[name] = reason
        if len(self._gone) > MAX_TOMBSTONES:
            self._gone.popitem(last=False)

    def _gone_error(self, name: str) -> SessionGone:
        return SessionGone(f"session {name!r} is gone ({self._gone[name]})")

    async def _reap(self) -> None:
        every_s = max(0.02, min(5.0, self.limits.lease_s / 4, self.limits.lifetime_s / 4))
        while True:
            await asyncio.sleep(every_s)
            now = time.monotonic()
            for session in list(self._open.values()):
                if now - session.born > self.limits.lifetime_s:
                    self._release(session, EndedSession.TOO_OLD)
                elif not session.running and now - session.touched > self.limits.lease_s:
                    self._release(session, EndedSession.EXPIRED)


def _resolved(outcome: Outcome) -> asyncio.Future[Outcome]:
    future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
    future.set_result(outcome)
    return future
