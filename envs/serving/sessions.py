"""A session on a server: the lease, the numbered operations, and the seat that plays the session.

The work of an operation is kept apart from the requests that wait for it. An operation is begun
once; a client that sends the operation again waits for the same work, or gets the kept reply.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from functools import cache, partial

import msgspec

from ludus.errors import EpisodeEnded, LudusError, SessionGone, UnknownEnv
from ludus.verdict import Verdict
from ludus.wire.admission import Admission
from ludus.wire.codec import Encoded, asked_format, convert
from ludus.wire.faults import Fault, QueueFull, Refused, fault_of
from ludus.wire.principals import Principal, asked_by
from ludus.wire.routes import Context
from ludus.wire.session_table import KeptReplies, Lease, NumberedRequests, SessionTable
from ludus.wire.tracing import TraceSpan

from .env_wire import (
    Create,
    Created,
    Delete,
    Fork,
    ForkDone,
    Forked,
    ForkedChild,
    Operation,
    Outcome,
    Play,
    Released,
    Reset,
    Step,
)
from .placement import ForkResult, Home, PlacedSession


class HostedSession(Lease):
    """Holds a server's state of a session; `Sessions` begins the operations on the session's seat.

    Args:
        create: the operation that made the session.
        name: its name.
        home: plays the sessions of the environment.
        instance: the id of this server process.
        on_lost: called with the session, the reason and whether a step was late, when the session
            cannot go on.
    """

    def __init__(
        self,
        create: Create | Fork,
        home: Home,
        *,
        lease_s: float,
        instance: str,
        on_lost: Callable[[HostedSession, str, bool], None],
        name: str = "",
    ) -> None:
        super().__init__(name or create.session, lease_s)
        self.create = create
        self.served = home.served
        self._home = home
        self.place: PlacedSession | None = None
        """Where it is played."""
        self.plays: NumberedRequests[Play, Outcome] = NumberedRequests(f"session {self.name!r}")
        self._instance = instance
        self._on_lost = on_lost
        self.forked: asyncio.Future[Outcome] | None = None
        """The reply to the fork that made it; None for a session that was created."""

    def created(self) -> asyncio.Future[Outcome]:
        """Return the reply to a create that begins no episode."""
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        future.set_result(Created(session=self.name, instance=self._instance))
        return future

    def take_seat(self) -> PlacedSession:
        """Take a seat for the first operation: a session that has played nothing holds nothing."""
        self.place = self._home.place(self.name, self._lost)
        return self.place

    def take_seat_beside(self, parent: PlacedSession) -> PlacedSession:
        """Take a seat at the place of the session that this session is forked from."""
        self.place = self._home.place(self.name, self._lost, beside=parent)
        return self.place

    async def close(self) -> None:
        """Close the environment; an operation that still runs is answered by `session_gone`."""
        if self.place is not None:
            await self.place.close()

    def _lost(self, reason: str, *, is_late: bool) -> None:
        self._on_lost(self, reason, is_late)


class EndedSession(StrEnum):
    """The reason why a session ended."""

    RELEASED = "released"
    """The client deleted the session, or the server stopped."""
    EXPIRED = "expired"
    """No request used the session for as long as its lease."""
    TOO_OLD = "too_old"
    """The session reached the greatest lifetime."""
    TIMED_OUT = "timed_out"
    """A step of the session took too long."""
    LOST = "lost"
    """The worker process was lost: it crashed, was killed, or a step of another session in the same
    process took too long.
    """


class SessionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds that keep a server alive whatever the clients do."""

    max_sessions: int = 4096
    """The greatest number of open sessions; a create beyond this is refused with status 429."""
    max_queue: int = 8192
    """The greatest number of resets and steps in progress; more are refused with status 429."""
    max_queue_per_env: int = 8192
    """The greatest number of resets and steps in progress in one environment."""
    step_timeout_s: float = 60.0
    """Seconds that one reset or step may run; past them the answer is 504 and the session is
    released. The worker process in which a late operation hangs is killed, with the other
    sessions in that process.
    """
    lease_s: float = 900.0
    """A session that no request uses for this time, in seconds, is released; any request about the
    session renews the lease.
    """
    lifetime_s: float = 6 * 3600.0
    """The greatest age of a session, in seconds; an older session is released even while in use."""
    max_kept_bytes: int = 256 << 20
    """The most bytes of the last replies that all sessions keep together, for clients that have not
    got theirs; beyond it the oldest are forgotten.
    """


class Sessions:
    """The table of a server's sessions, by name.

    Args:
        homes: the environments that are served, each with the place where its sessions live.
        limits: the bounds of sessions.
        context: the instance name and the metrics of the server.
    """

    def __init__(self, homes: Iterable[Home], limits: SessionLimits, context: Context) -> None:
        self.homes = {home.served.id: home for home in homes}
        self.limits = limits
        self.admission = Admission(limits.max_queue, per_key=limits.max_queue_per_env)
        self.counts: Counter[str] = Counter()
        self.draining = False
        """Whether no episode begins any more."""
        self.stopped = False
        """Whether the server has ended the sessions that were left."""
        self._kept = KeptReplies(limits.max_kept_bytes)
        self._context = context
        self._metrics = context.metrics
        # Looking a counter up by its labels costs more than counting.
        self._operations = cache(context.metrics.operations.labels)
        self._seconds = cache(context.metrics.step_seconds.labels)
        context.metrics.watch("kept_bytes", "Bytes of kept replies", lambda: self._kept.held)
        self._table: SessionTable[HostedSession] = SessionTable(
            "session",
            most=limits.max_sessions,
            lifetime_s=limits.lifetime_s,
            reap_every_s=_reap_every_s(limits),
            on_overdue=lambda session, overdue: self._release(session, EndedSession(overdue)),
        )

    def __len__(self) -> int:
        return len(self._table)

    def all(self) -> list[HostedSession]:
        """Return every open session, the oldest first."""
        return self._table.all()

    def limit(self, limits: SessionLimits) -> None:
        """Take other bounds from now on."""
        self.limits = limits
        self._kept.limit = limits.max_kept_bytes
        self.admission.limit, self.admission.per_key = limits.max_queue, limits.max_queue_per_env
        self._table.most, self._table.lifetime_s = limits.max_sessions, limits.lifetime_s
        self._table.reap_every_s = _reap_every_s(limits)
        for home in self.homes.values():
            home.timeout_s = limits.step_timeout_s

    async def start(self) -> None:
        """Start the task that releases expired sessions."""
        await self._table.start()

    async def stop(self, timeout_s: float) -> None:
        """Release every session, waiting at most `timeout_s` for the environments to close."""
        self.stopped = True
        for session in self._table.all():
            self._release(session, EndedSession.RELEASED)
        await self._table.stop(timeout_s)

    def begin(self, operation: Operation) -> asyncio.Future[Outcome]:
        """Start an operation, or join an operation that was sent before.

        Raises:
            UnknownEnv, SessionGone, SequenceConflict, Overloaded: the operation cannot be carried
                out; its seq is not used up.
        """
        match operation:
            case Create():
                session = self._table.find(operation.session)
                if session is None:
                    self._refuse_draining()
                    principal = asked_by.get()
                    principal.require(f"env:{operation.env}")
                    if operation.env not in self.homes:
                        known = [name for name in self.homes if principal.may(f"env:{name}")]
                        raise UnknownEnv.near(operation.env, known, hint="served here")
                    self._table.check_new(operation.session)
                    session = HostedSession(
                        operation,
                        self.homes[operation.env],
                        lease_s=self.limits.lease_s,
                        instance=self._context.instance,
                        on_lost=self._on_lost,
                    )
                    self._table.add(session)
                    self.counts[operation.env] += 1
                    self._metrics.sessions_opened.labels(operation.env).inc()
                elif session.create != operation:
                    raise self._table.another(operation.session)
                if operation.reset is None:
                    return session.created()
                # A create may carry the first reset, which then is the operation number 0.
                return self._play(session, operation, 0)
            case Reset() | Step():
                session = self._find(operation.session, operation.instance)
                if (
                    self.draining
                    and isinstance(operation, Reset)
                    and session.plays.kept(operation, operation.seq) is None
                ):
                    # Its episode is over, and the next has to begin elsewhere.
                    self._release(session, EndedSession.RELEASED)
                    self._refuse_draining()
                return self._play(session, operation, operation.seq)
            case Fork():
                return self._fork(operation)
            case Delete():
                name = operation.session
                session = self._table.find(name)
                if session is None:
                    # A create that was sent before and arrives later opens nothing.
                    self._table.bury(name, EndedSession.RELEASED)
                    outcome = Released(session=name, released=False)
                else:
                    self._release(session, EndedSession.RELEASED)
                    outcome = Released(session=name, released=True)
                future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
                future.set_result(outcome)
                return future

    def _fork(self, fork: Fork) -> asyncio.Future[Outcome]:
        """Begin a fork, or join the same fork sent before.

        Raises:
            SessionGone, SequenceConflict, Refused: nothing was made.
        """
        known = [child for name in fork.children if (child := self._table.find(name)) is not None]
        for child in known:
            if child.create != fork:
                raise self._table.another(child.name)
            if child.forked is not None:
                return child.forked
        parent = self._find(fork.session, fork.instance)
        parent.touched = time.monotonic()
        self._refuse_draining()
        if len(set(fork.children)) < len(fork.children):
            raise Refused("a fork names each of its children once", "invalid")
        if fork.seeds is not None and len(fork.seeds) != len(fork.children):
            raise Refused(
                f"{len(fork.children)} children need as many seeds, got {len(fork.seeds)}; leave "
                "seeds out for common random numbers",
                "invalid",
            )
        parent.plays.between(fork.seq)
        if parent.place is None:
            raise EpisodeEnded(f"session {parent.name!r}: no episode has begun: nothing to fork")
        outcomes: dict[str, Fault] = {}
        children: dict[str, HostedSession] = {}
        for name in fork.children:
            try:
                self._table.check_new(name)
            except LudusError as error:
                outcomes[name] = fault_of(error, session=name)
                continue
            children[name] = child = HostedSession(
                fork,
                self.homes[parent.served.id],
                lease_s=self.limits.lease_s,
                instance=self._context.instance,
                on_lost=self._on_lost,
                name=name,
            )
            self._table.add(child)
            self.counts[parent.served.id] += 1
            self._metrics.sessions_opened.labels(parent.served.id).inc()
        seats = {name: child.take_seat_beside(parent.place) for name, child in children.items()}
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        for lease in (parent, *children.values()):
            lease.busy += 1
        for child in children.values():
            child.forked = future
        forking = parent.place.fork(fork, seats)
        forking.add_done_callback(
            partial(self._on_forked, fork, parent, children, outcomes, future)
        )
        return future

    def _on_forked(
        self,
        fork: Fork,
        parent: HostedSession,
        children: Mapping[str, HostedSession],
        outcomes: dict[str, Fault],
        future: asyncio.Future[Outcome],
        forking: asyncio.Future[ForkResult],
    ) -> None:
        result = forking.result()
        faults = result.faults if isinstance(result, ForkDone) else dict.fromkeys(children, result)
        outcomes |= faults
        for lease in (parent, *children.values()):
            lease.rest()
        for name in faults:
            if name in children:  # the name is free again: nothing came of it
                self._release(children[name], EndedSession.RELEASED, bury=False)
        if future.done():
            return
        if isinstance(result, Fault):
            future.set_result(result)
            return
        future.set_result(
            Forked(
                session=fork.session,
                instance=self._context.instance,
                turn=result.turn,
                how=result.how,
                digest=result.digest,
                children=[
                    ForkedChild(session=name, error=outcomes.get(name)) for name in fork.children
                ],
            )
        )

    def _refuse_draining(self) -> None:
        if self.draining:
            raise Refused("the server is draining: it begins no episode any more", "stopping")

    def touch(self, name: str) -> None:
        """Restart the lease of a session; harmless for an unknown session."""
        session = self._table.find(name)
        if session is not None:
            session.touched = time.monotonic()

    def _find(self, name: str, instance: str) -> HostedSession:
        """Return an open session.

        Args:
            name: the session's name.
            instance: the server on which the client created the session, as far as it knows.

        Raises:
            SessionGone: the session has ended, or was open when the server was restarted.
            Refused: there was no such session.
        """
        session = self._table.find(name)
        if session is not None:
            return session
        if self._table.why_gone(name):
            raise self._table.gone(name)
        if instance and instance != self._context.instance:
            raise SessionGone(
                f"session {name!r} was lost: the server was restarted (it was {instance}, is "
                f"{self._context.instance})"
            )
        raise Refused(f"no session named {name!r}; create it first", "unknown_session")

    def _play(self, session: HostedSession, play: Play, seq: int) -> asyncio.Future[Outcome]:
        """Start a reset or a step, or return the reply to the same request sent before."""
        session.touched = time.monotonic()
        stored_reply = session.plays.kept(play, seq)
        env = session.served.id
        if stored_reply is not None:
            self._metrics.replays.labels(env).inc()
            return stored_reply
        try:
            principal = self.admission.enter(env)
        except QueueFull:
            # The refused create has left no session behind, and may be sent again.
            if isinstance(play, Create):
                self._release(session, EndedSession.RELEASED, bury=False)
            raise
        operation, started = type(play).__name__.lower(), time.perf_counter()
        session.busy += 1
        place = session.place or session.take_seat()
        span = self._begin_span(session, play, seq, principal) if self._context.tracer else None
        future = place.play(play, seq, self._context.instance, asked_format.get())
        session.plays.begun(play, seq, future)
        if future.done():  # as of a plain environment: a callback would cost a turn of the loop
            self._on_ended(session, operation, principal, started, span, future)
        else:
            ended = partial(self._on_ended, session, operation, principal, started, span)
            future.add_done_callback(ended)
        return future

    def _begin_span(
        self, session: HostedSession, play: Play, seq: int, principal: Principal
    ) -> TraceSpan:
        assert self._context.tracer is not None
        attributes: dict[str, str | int] = {
            "gen_ai.conversation.id": session.name,
            "ludus.seq": seq,
            "ludus.principal": principal.name,
        }
        operation = "step" if isinstance(play, Step) else "reset"
        return self._context.tracer.begin(operation, session.served.id, attributes)

    def _on_ended(
        self,
        session: HostedSession,
        operation: str,
        principal: Principal,
        started: float,
        span: TraceSpan | None,
        future: asyncio.Future[Outcome],
    ) -> None:
        if span is not None:
            end_span(span, future)
        took_s = time.perf_counter() - started
        env = session.served.id
        session.rest()
        self.admission.leave(env, took_s, principal)
        if future.cancelled():
            return
        outcome = future.result()
        status = outcome.code if isinstance(outcome, Fault) else "ok"
        if self._kept.held or isinstance(outcome, Encoded):
            self._kept.note(session.plays, len(outcome.data) if isinstance(outcome, Encoded) else 0)
        self._operations(env, operation, status).inc()
        self._seconds(env).observe(took_s)

    def _on_lost(self, session: HostedSession, reason: str, is_late: bool) -> None:
        self._release(
            session, EndedSession.TIMED_OUT if is_late else EndedSession.LOST, detail=reason
        )

    def _release(
        self, session: HostedSession, reason: EndedSession, *, bury: bool = True, detail: str = ""
    ) -> None:
        """Remove a session from the table; the environment is closed in the background.

        Args:
            session: released once; a second call does nothing.
            reason: why the session ended.
            bury: whether the name stays taken, and later requests are told the reason.
            detail: more about the reason.
        """
        text = f"{reason}: {detail}" if detail else str(reason)
        if self._table.release(session, text, bury=bury):
            self.counts[session.served.id] -= 1
            self._kept.drop(session.plays)
            self._metrics.sessions_ended.labels(session.served.id, reason).inc()


def _reap_every_s(limits: SessionLimits) -> float:
    """A session may be released late by a quarter of the lease, and by no more than 5 s."""
    return max(0.02, min(5.0, limits.lease_s / 4, limits.lifetime_s / 4))


class _Judged(msgspec.Struct):
    """The part of a step's reply that a span tells."""

    verdict: Verdict | None = None


def end_span(span: TraceSpan, future: asyncio.Future[Outcome]) -> None:
    """End the span of a reset or a step, with the verdict of the reply."""
    if future.cancelled():
        return span.end("cancelled")
    outcome = future.result()
    if isinstance(outcome, Fault):
        if outcome.verdict is not None:
            span.judge(outcome.verdict)
        return span.end(outcome.code)
    if isinstance(outcome, Encoded):
        reply = convert(outcome.decoded(), _Judged)
        if reply.verdict is not None:
            span.judge(reply.verdict)
    return span.end()
