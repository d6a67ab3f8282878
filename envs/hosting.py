"""One session on a server: an environment, its seq, its last reply.

What runs is kept apart from who waits for it: an operation is begun once, and whoever sends it
again joins it while it runs or is given its kept reply.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

from ludus.errors import LudusError, SequenceConflict
from ludus.messages import Observation
from ludus.wire.codec import Format, encode
from ludus.wire.faults import Fault, fault_of
from ludus.wire.lanes import Lanes

from .gym import run_sync
from .offload import offload, settle
from .protocol import Briefing, Info
from .served import ServedEnv
from .session import EnvSession, Stepped
from .wire import Beginning, Create, Created, Outcome, Play, Reset, ResetReply, Step, StepReply

logger = logging.getLogger(__name__)
CLOSE_TIMEOUT_S = 30.0


class HostedSession:
    """Runs the operations of one session, one at a time, each once.

    Args:
        create: the operation that made it.
        served: its environment.
        lanes: where blocking work runs.
        instance: of the server.
        timeout_s: of one reset or step, from when it starts to run.
        on_timeout: told when one takes longer; the session is then of no use any more.
    """

    def __init__(
        self,
        create: Create,
        served: ServedEnv,
        lanes: Lanes,
        *,
        instance: str,
        timeout_s: float,
        on_timeout: Callable[[HostedSession], None],
    ) -> None:
        self.name = create.session
        self.create = create
        self.served = served
        self.born = self.touched = time.monotonic()
        self.running = False
        self.abandoned = False
        self._next_seq = 0
        self._last: tuple[Play, asyncio.Future[Outcome]] | None = None
        self._lanes = lanes
        self._instance = instance
        self._timeout_s = timeout_s
        self._on_timeout = on_timeout
        self._session: EnvSession | None = None
        self._task: asyncio.Task[None] | None = None

    def created(self) -> asyncio.Future[Outcome]:
        """The reply to a create that begins no episode."""
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        future.set_result(Created(session=self.name, instance=self._instance))
        return future

    def kept(self, play: Play, seq: int) -> asyncio.Future[Outcome] | None:
        """The reply of an operation sent again, running or done; None if it is the next one.

        Raises:
            SequenceConflict: it is neither.
        """
        self.touched = time.monotonic()
        if seq == self._next_seq and not self.running:
            return None
        if self._last is not None and seq == self._next_seq - 1:
            if play != self._last[0]:
                raise SequenceConflict(
                    f"session {self.name!r}: seq {seq} was sent before with another payload"
                )
            return self._last[1]
        raise SequenceConflict(self._conflict(seq))

    def begin(self, play: Play, seq: int) -> asyncio.Future[Outcome]:
        """Start the next operation."""
        self._next_seq = seq + 1
        self.running = True
        future = self._run_async(play, seq) if self.served.is_async else self._run_sync(play, seq)
        future.add_done_callback(self._ended)
        self._last = (play, future)
        return future

    async def close(self) -> None:
        """Release the environment, after whatever still runs on its lane."""
        self.abandoned = True
        if self._task is not None and not self._task.done():
            self._task.cancel()
        if self.served.is_async:
            await self._close_async()
        else:
            await self._lanes.submit(
                self.name, self._close_sync, timeout_s=CLOSE_TIMEOUT_S, late=lambda: None
            )

    def _conflict(self, seq: int) -> str:
        if seq == self._next_seq:
            return f"session {self.name!r}: seq {seq - 1} is still running"
        if seq < self._next_seq:
            return (
                f"session {self.name!r}: seq {seq} is long past; the next is {self._next_seq}, and "
                "only the last reply is kept"
            )
        return f"session {self.name!r}: seq {seq} skips; the next is {self._next_seq}"

    def _ended(self, _: asyncio.Future[Outcome]) -> None:
        self.running = False
        self.touched = time.monotonic()

    # --- plain environments: all of it on their lane --------------------------------------------

    def _run_sync(self, play: Play, seq: int) -> asyncio.Future[Outcome]:
        def work() -> Outcome:
            if self.abandoned:
                return self._released_fault(seq)
            if self._session is None:
                self._session = self.served.session(self.served.build())
            return run_sync(perform(self._session, play, seq, self._instance))

        if self._session is not None and self._session.env.never_blocks:
            done: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
            done.set_result(self._guarded(work, play, seq))
            return done
        return self._lanes.submit(
            self.name,
            lambda: self._guarded(work, play, seq),
            timeout_s=self._timeout_s,
            late=lambda: self._late(seq),
        )

    def _guarded(self, work: Callable[[], Outcome], play: Play, seq: int) -> Outcome:
        try:
            outcome = work()
        except BaseException as error:  # also sys.exit(), which must not end the server
            outcome = self._fault(error, seq)
        if self.abandoned:  # nobody waits any more: this thread alone still holds the environment
            self._close_sync()
        return outcome

    def _close_sync(self) -> None:
        session, self._session = self._session, None
        if session is None:
            return
        try:
            run_sync(session.close())
        except Exception:
            logger.exception("closing %s of session %s failed", self.served.id, self.name)

    # --- environments with async methods: on the loop, their plain methods on the lane ----------

    def _run_async(self, play: Play, seq: int) -> asyncio.Future[Outcome]:
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._attend(future, play, seq))
        return future

    async def _attend(self, future: asyncio.Future[Outcome], play: Play, seq: int) -> None:
        work = asyncio.create_task(self._on_loop(play, seq))
        try:
            in_time = await settle(work, self._timeout_s)
        except asyncio.CancelledError:
            work.cancel()
            future.set_result(self._released_fault(seq))
            return
        if work.cancelled():  # the environment cancelled itself
            future.set_result(self._fault(RuntimeError("the environment was cancelled"), seq))
            return
        future.set_result(work.result() if in_time else self._late(seq))

    async def _on_loop(self, play: Play, seq: int) -> Outcome:
        try:
            if self._session is None:
                env = await self._off_loop(self.served.build)
                offload(env, self._off_loop)
                self._session = self.served.session(env)
            return await perform(self._session, play, seq, self._instance)
        except (Exception, SystemExit) as error:
            return self._fault(error, seq)

    async def _off_loop(self, work: Callable[[], Any]) -> Any:
        def guarded() -> tuple[Any, Exception | None]:
            try:
                return work(), None
            except Exception as error:
                return None, error

        made, error = await self._lanes.submit(
            self.name,
            guarded,
            timeout_s=self._timeout_s,
            late=lambda: (None, TimeoutError(f"no end within {self._timeout_s:g} s")),
        )
        if error is not None:
            raise error
        return made

    async def _close_async(self) -> None:
        session, self._session = self._session, None
        if session is None:
            return
        closing = asyncio.create_task(session.close())
        if not await settle(closing, CLOSE_TIMEOUT_S):
            logger.warning("closing %s of session %s takes too long", self.served.id, self.name)
        elif closing.exception() is not None:
            logger.error("closing %s failed", self.served.id, exc_info=closing.exception())

    # --- faults ---------------------------------------------------------------------------------

    def _fault(self, error: BaseException, seq: int) -> Fault:
        if not isinstance(error, LudusError):
            logger.error("%s failed in session %s", self.served.id, self.name, exc_info=error)
        return fault_of(error, session=self.name, seq=seq, otherwise="env_failed")

    def _late(self, seq: int) -> Fault:
        self.abandoned = True
        self._on_timeout(self)
        took = f"{self.served.id} did not answer within {self._timeout_s:g} s"
        return Fault(
            code="step_timeout",
            message=f"{took}; the session is released",
            session=self.name,
            seq=seq,
        )

    def _released_fault(self, seq: int) -> Fault:
        message = f"session {self.name!r} was released while it ran"
        return Fault(code="session_gone", message=message, session=self.name, seq=seq)


async def perform(session: EnvSession, play: Play, seq: int, instance: str) -> Outcome:
    """Carry out one operation. What it returns can be sent: that is found out here."""
    outcome: Outcome
    match play:
        case Create(reset=beginning):
            outcome = await _reset(session, beginning or Beginning(), play.session, seq, instance)
        case Reset():
            outcome = await _reset(session, play, play.session, seq, instance)
        case Step():
            outcome = _stepped(play.session, seq, await session.step(play.action))
    try:
        encode(outcome, Format.MSGPACK)
    except (TypeError, ValueError, RecursionError) as error:
        session.abort()
        raise TypeError(f"the answer of {session.id} cannot be sent: {error}") from error
    return outcome


async def _reset(
    session: EnvSession, beginning: Beginning, name: str, seq: int, instance: str
) -> ResetReply:
    observation, info = await session.reset(seed=beginning.seed, options=dict(beginning.options))
    return _begun(name, seq, instance, observation, info)


def _begun(name: str, seq: int, instance: str, observation: Observation, info: Info) -> ResetReply:
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


def _stepped(name: str, seq: int, stepped: Stepped) -> StepReply:
    observation, reward, terminated, truncated, info = stepped
    return StepReply(
        session=name,
        seq=seq,
        observation=observation,
        reward=reward,
        terminated=terminated,
        truncated=truncated,
        verdict=info.pop("verdict", None),
        info=info,
    )
