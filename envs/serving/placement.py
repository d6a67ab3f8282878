"""Carries out an operation on a session and encodes the reply once."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from ludus.background import end_task
from ludus.errors import ConstructionFailed, EpisodeEnded, LudusError, ServerFault
from ludus.wire.codec import Encoded, Format, encode
from ludus.wire.faults import Fault, fault_of

from ..forking import Nursery, digest_of_state, fork_session, how_it_forks
from ..gym import run_sync
from ..protocol import Briefing
from ..session import EnvSession
from ..tasks import TaskPage
from .env_wire import (
    Beginning,
    Create,
    EnvCard,
    Fork,
    ForkDone,
    Outcome,
    Play,
    Reply,
    Reset,
    ResetReply,
    Step,
    StepReply,
    TaskQuery,
)
from .offload import settle
from .served import ServedEnv

logger = logging.getLogger(__name__)
CLOSE_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class ReplyForm:
    """The encoding of a reply, and the largest length."""

    max_bytes: int
    """The limit on a reply; a longer reply counts as a fault of the environment."""
    format: Format = Format.MSGPACK
    """The format, if it can express the reply; the encoded reply tells which was used."""


async def perform(
    session: EnvSession, play: Play, seq: int, instance: str, form: ReplyForm
) -> Encoded:
    """Carry out an operation and encode the reply.

    Args:
        session: the session of the environment.
        play: the operation.
        seq: the number of the operation in its session.
        instance: the id of this server process.
        form: the format and the longest length of the reply.

    Raises:
        TypeError: the reply cannot be encoded.
        ServerFault: the reply is longer than `form.max_bytes`.
        LudusError, Exception: the environment raised it.
    """
    reply: Reply
    match play:
        case Create(reset=beginning):
            reply = await _reset(session, beginning or Beginning(), play.session, seq, instance)
        case Reset():
            reply = await _reset(session, play, play.session, seq, instance)
        case Step():
            stepped = await session.step(play.action)
            observation, reward, terminated, truncated, info = stepped
            reply = StepReply(
                session=play.session,
                seq=seq,
                observation=observation,
                reward=reward,
                terminated=terminated,
                truncated=truncated,
                verdict=info.pop("verdict", None),
                info=info,
            )
    try:
        data, new_state = encode(reply, form.format)
    except (TypeError, ValueError, RecursionError) as error:
        session.abort()
        raise TypeError(f"the answer of {session.id} cannot be sent: {error}") from error
    if len(data) > form.max_bytes:
        session.abort()
        raise ServerFault(
            f"the answer of {session.id} has {len(data)} bytes; this server sends at most "
            f"{form.max_bytes} (--max-reply-mb)"
        )
    return Encoded(data, new_state)


ForkResult = ForkDone | Fault


async def fork_all(
    parent: EnvSession | None, fork: Fork, nursery: Nursery, children: Collection[str]
) -> tuple[dict[str, EnvSession], ForkResult]:
    """Return the children of a session that could be made, and what is told of all.

    Args:
        parent: the session; None where nothing was played on it.
        fork: the operation.
        nursery: where children are made.
        children: those of the operation's children that have a seat.
    """
    if parent is None:
        error = EpisodeEnded("no episode has begun: nothing to fork")
        return {}, fault_of(error, session=fork.session)
    sessions: dict[str, EnvSession] = {}
    faults: dict[str, Fault] = {}
    for place, name in enumerate(fork.children):
        if name not in children:
            continue
        seed = None if fork.seeds is None else fork.seeds[place]
        try:
            sessions[name] = await fork_session(parent, nursery, seed=seed)
        except (Exception, SystemExit) as error:
            if is_bug(error):
                logger.error("a fork of session %s failed", fork.session, exc_info=error)
            faults[name] = fault_of(error, session=name, otherwise="env_failed")
        except BaseException:  # given up: nobody is told of the children that were made
            for child in sessions.values():
                with contextlib.suppress(Exception):
                    await child.close()
            raise
    how, digest = how_it_forks(parent.env), digest_of_state(parent)
    return sessions, ForkDone(parent.turns, how, digest, faults)


def fault_in(error: BaseException, session: str, seq: int) -> Fault:
    """Turn an exception of an environment into the fault that the client gets."""
    return fault_of(error, session=session, seq=seq, otherwise="env_failed")


def is_bug(error: BaseException) -> bool:
    """Whether the environment's author should see a traceback: any exception that is not a
    LudusError, or that the constructor raised.
    """
    return not isinstance(error, LudusError) or isinstance(error, ConstructionFailed)


async def _reset(
    session: EnvSession, beginning: Beginning, name: str, seq: int, instance: str
) -> ResetReply:
    observation, info = await session.reset(seed=beginning.seed, options=dict(beginning.options))
    briefing = info.pop("briefing")
    assert isinstance(briefing, Briefing)
    return ResetReply(
        session=name,
        seq=seq,
        instance=instance,
        observation=observation,
        briefing=briefing,
        task=str(info.pop("task")),
        info=info,
    )


class PlacedSession(Protocol):
    """The place where a session is played, on the event loop or in a worker process."""

    def play(self, play: Play, seq: int, instance: str, format: Format) -> asyncio.Future[Outcome]:
        """Begin an operation; a fault of the environment is a result of the future, not an
        exception.
        """
        ...

    def fork(self, fork: Fork, children: Mapping[str, PlacedSession]) -> asyncio.Future[ForkResult]:
        """Begin a fork of a session that plays nothing now.

        Args:
            fork: the operation.
            children: the seats of the children, which were made `beside` this one.
        """
        ...

    async def close(self) -> None:
        """Close the environment; an operation that still runs is given up."""
        ...


class Lost(Protocol):
    """A callback for a session that cannot go on, with the reason and whether a step was late."""

    def __call__(self, reason: str, *, is_late: bool) -> None: ...


class Home(Protocol):
    """Plays all sessions of an environment on a server."""

    served: ServedEnv
    timeout_s: float
    """Seconds that one operation may take, from when the operation begins to run."""

    @property
    def problem(self) -> str:
        """The reason why no session can be played now; empty if sessions can be played."""
        ...

    async def start(self) -> EnvCard:
        """Load the environment, so that a broken environment fails at the start of the server."""
        ...

    async def stop(self) -> None:
        """Release all resources; the sessions were closed before."""
        ...

    async def page(self, query: TaskQuery) -> TaskPage:
        """Return some tasks of a split."""
        ...

    def place(
        self, name: str, on_lost: Lost, *, beside: PlacedSession | None = None
    ) -> PlacedSession:
        """Make a seat for the session `name`, where that of another is if asked to."""
        ...


class OnLoop:
    """Plays the sessions of an environment that never blocks, on the event loop.

    Args:
        served: the environment.
        timeout_s: the limit in seconds for an async operation. Plain operations have no limit,
            since the environment declares that they return at once.
        max_bytes: the limit on a reply.
    """

    problem = ""

    def __init__(self, served: ServedEnv, *, timeout_s: float, max_bytes: int) -> None:
        self.served = served
        self.max_bytes = max_bytes
        self.deadlines: dict[LoopSession, float] = {}
        """The time on the loop's clock at which each seat's operation is late."""
        self._timeout_s = timeout_s
        self._limited = asyncio.Event()
        """Set when the limit has changed, so that the watcher does not sleep by the old one."""
        self._watcher: asyncio.Task[None] | None = None

    @property
    def timeout_s(self) -> float:
        """Seconds that one operation may take; another limit holds for those that begin later."""
        return self._timeout_s

    @timeout_s.setter
    def timeout_s(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._limited.set()

    async def start(self) -> EnvCard:
        """Load the environment, and start to watch for late operations."""
        await asyncio.to_thread(self.served.load)
        assert self.served.card is not None
        self._watcher = asyncio.create_task(self._watch(), name=f"ludus-late-{self.served.id}")
        return self.served.card

    async def stop(self) -> None:
        """Stop watching for late operations; every session was closed before."""
        await end_task(self._watcher)

    async def page(self, query: TaskQuery) -> TaskPage:
        """Return some tasks of a split."""
        return await asyncio.to_thread(self.served.page, query)

    def place(
        self, name: str, on_lost: Lost, *, beside: PlacedSession | None = None
    ) -> PlacedSession:
        """Make a seat for the session `name`; all are on the event loop."""
        return LoopSession(self, name, on_lost)

    async def _watch(self) -> None:
        """Give up late operations, for ever. An operation that begins during a sleep cannot be late
        before the sleep ends, since no sleep is longer than the limit, and another limit ends it.
        """
        loop = asyncio.get_running_loop()
        while True:
            now = loop.time()
            for place, deadline in list(self.deadlines.items()):
                if deadline <= now:
                    place.give_up()
            wake = min([now + self.timeout_s, *self.deadlines.values()])
            self._limited.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(wake):
                    await self._limited.wait()


class LoopSession:
    """Plays a session on the event loop."""

    def __init__(self, home: OnLoop, name: str, on_lost: Lost) -> None:
        self._home = home
        self._name = name
        self._on_lost = on_lost
        self._session: EnvSession | None = None
        self._task: asyncio.Task[None] | None = None
        self._future: asyncio.Future[Outcome] | None = None
        self._seq = 0

    def play(self, play: Play, seq: int, instance: str, format: Format) -> asyncio.Future[Outcome]:
        """Begin the operation; the operation of a plain environment is done on return."""
        loop = asyncio.get_running_loop()
        self._seq = seq
        self._future = future = loop.create_future()
        work = self._work(play, seq, instance, format, future)
        if self._home.served.is_async:
            self._home.deadlines[self] = loop.time() + self._home.timeout_s
            self._task = loop.create_task(work)
        else:
            run_sync(work)
        return future

    def fork(self, fork: Fork, children: Mapping[str, PlacedSession]) -> asyncio.Future[ForkResult]:
        """Begin a fork; that of a plain environment is done on return."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[ForkResult] = loop.create_future()

        async def work() -> None:
            served = self._home.served

            async def build() -> EnvSession:
                return served.session(served.build())

            nursery = Nursery(build, served.session)
            sessions, done = await fork_all(self._session, fork, nursery, set(children))
            for name, session in sessions.items():
                child = children[name]
                assert isinstance(child, LoopSession), "made beside this one"
                child._session = session
            if not future.done():
                future.set_result(done)

        if not self._home.served.is_async:
            run_sync(work())
            return future
        task = loop.create_task(work())
        timer = loop.call_later(self._home.timeout_s, self._late_fork, fork, future, task)
        future.add_done_callback(lambda _: timer.cancel())  # or it keeps the children that long
        return future

    def _late_fork(
        self, fork: Fork, future: asyncio.Future[ForkResult], task: asyncio.Task[None]
    ) -> None:
        if not future.done():
            future.set_result(late(self._home, self._name, fork.seq))
            task.cancel()

    def give_up(self) -> None:
        """Answer a late operation by a fault, cancel the work and report the session as lost."""
        self._answer_early(late(self._home, self._name, self._seq))
        self._on_lost("a step took too long", is_late=True)

    async def close(self) -> None:
        """Close the environment, waiting at most `CLOSE_TIMEOUT_S` for each part that still
        runs.
        """
        self._answer_early(released(self._name, self._seq))
        session, self._session = self._session, None
        try:
            if not self._home.served.is_async:
                if session is not None:
                    run_sync(session.close())
                return
            if self._task is not None and not await settle(self._task, CLOSE_TIMEOUT_S):
                logger.warning("a step of session %s goes on, though cancelled", self._name)
            if session is None:
                return
            closing = asyncio.create_task(session.close())
            if not await settle(closing, CLOSE_TIMEOUT_S):
                logger.warning("closing %s of session %s takes long", session.id, self._name)
            else:
                closing.result()
        except Exception:
            logger.exception("closing %s of session %s failed", self._home.served.id, self._name)

    def _answer_early(self, outcome: Outcome) -> None:
        """Answer an operation that still runs by `outcome`, and cancel the operation."""
        self._home.deadlines.pop(self, None)
        if self._future is not None and not self._future.done():
            # Before the cancellation, at which `_work` would answer with a fault of its own.
            self._future.set_result(outcome)
            if self._task is not None:
                self._task.cancel()

    async def _work(
        self, play: Play, seq: int, instance: str, format: Format, future: asyncio.Future[Outcome]
    ) -> None:
        home = self._home
        outcome: Outcome
        try:
            if self._session is None:
                self._session = home.served.session(home.served.build())
            outcome = await perform(
                self._session, play, seq, instance, ReplyForm(home.max_bytes, format)
            )
        except asyncio.CancelledError:  # by the environment itself, unless it is answered already
            error = RuntimeError("the environment was cancelled")
            outcome = fault_in(error, self._name, seq)
        except (Exception, SystemExit) as error:
            if is_bug(error):
                logger.error("%s failed in session %s", home.served.id, self._name, exc_info=error)
            outcome = fault_in(error, self._name, seq)
        if not future.done():
            home.deadlines.pop(self, None)
            future.set_result(outcome)


def late(home: Home, name: str, seq: int) -> Fault:
    """Return the outcome of an operation that did not end in time."""
    took = f"{home.served.id} did not answer within {home.timeout_s:g} s"
    return Fault(
        code="step_timeout", message=f"{took}; the session is released", session=name, seq=seq
    )


def released(name: str, seq: int) -> Fault:
    """Return the outcome of an operation whose session was released meanwhile."""
    message = f"session {name!r} was released while it ran"
    return Fault(code="session_gone", message=message, session=name, seq=seq)
