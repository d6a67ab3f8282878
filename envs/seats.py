"""Where sessions of one environment live: on the event loop, where it never blocks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, Protocol

from ludus.wire.codec import Format
from ludus.wire.faults import Fault

from .gym import run_sync
from .offload import settle
from .playing import fault_in, is_bug, perform
from .served import ServedEnv
from .session import EnvSession
from .tasks import TaskPage
from .wire import EnvCard, Outcome, Play, TaskQuery

logger = logging.getLogger(__name__)
CLOSE_TIMEOUT_S = 30.0


class Seat(Protocol):
    """One session, wherever it lives."""

    def play(self, play: Play, seq: int, instance: str, format: Format) -> asyncio.Future[Outcome]:
        """Begin one operation; a fault of the environment is an outcome too."""
        ...

    async def close(self) -> None:
        """Close the environment; an operation that still runs is given up."""
        ...


class Lost(Protocol):
    """Told when a session cannot go on."""

    def __call__(self, why: str, *, is_late: bool) -> None: ...


class Home(Protocol):
    """One environment on a server, and where its sessions are played."""

    served: ServedEnv
    timeout_s: float
    """Of one operation, from when it begins to run."""

    @property
    def problem(self) -> str:
        """Why no session can be played now; empty if one can."""
        ...

    async def start(self) -> EnvCard:
        """Load the environment: what cannot work fails here."""
        ...

    async def stop(self) -> None:
        """Let everything go; its sessions were closed before."""
        ...

    async def page(self, query: TaskQuery) -> TaskPage:
        """Some tasks of a split."""
        ...

    def seat(self, name: str, on_lost: Lost) -> Seat:
        """A place for the session `name`."""
        ...


class OnLoop:
    """Sessions of an environment that never blocks.

    Args:
        served: the environment.
        timeout_s: of one async operation; plain ones return at once, as they declare.
        max_bytes: of a reply.
    """

    problem = ""

    def __init__(self, served: ServedEnv, *, timeout_s: float, max_bytes: int) -> None:
        self.served = served
        self.timeout_s = timeout_s
        self.max_bytes = max_bytes

    async def start(self) -> EnvCard:
        """Load the environment."""
        await asyncio.to_thread(self.served.load)
        assert self.served.card is not None
        return self.served.card

    async def stop(self) -> None:
        """Nothing is held here."""

    async def page(self, query: TaskQuery) -> TaskPage:
        """Some tasks of a split."""
        return await asyncio.to_thread(self.served.page, query)

    def seat(self, name: str, on_lost: Lost) -> Seat:
        """A place for a session."""
        return LoopSeat(self, name, on_lost)


class LoopSeat:
    """One session on the event loop."""

    def __init__(self, home: OnLoop, name: str, on_lost: Lost) -> None:
        self._home = home
        self._name = name
        self._on_lost = on_lost
        self._session: EnvSession | None = None
        self._task: asyncio.Task[None] | None = None

    def play(self, play: Play, seq: int, instance: str, format: Format) -> asyncio.Future[Outcome]:
        """Carry the operation out, at once where the environment is plain."""
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        work = self._work(play, seq, instance, format)
        if self._home.served.is_async:
            self._task = asyncio.create_task(self._attend(future, work, seq))
        else:
            future.set_result(run_sync(work))
        return future

    async def close(self) -> None:
        """Close the environment, waiting for it only so long."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait({self._task})
        session, self._session = self._session, None
        if session is None:
            return
        try:
            if not self._home.served.is_async:
                run_sync(session.close())
                return
            closing = asyncio.create_task(session.close())
            if not await settle(closing, CLOSE_TIMEOUT_S):
                logger.warning("closing %s of session %s takes long", session.id, self._name)
            else:
                closing.result()
        except Exception:
            logger.exception("closing %s of session %s failed", session.id, self._name)

    async def _work(self, play: Play, seq: int, instance: str, format: Format) -> Outcome:
        served = self._home.served
        try:
            if self._session is None:
                self._session = served.session(served.build())
            return await perform(
                self._session,
                play,
                seq,
                instance,
                format=format,
                max_bytes=self._home.max_bytes,
            )
        except (Exception, SystemExit) as error:
            if is_bug(error):
                logger.error("%s failed in session %s", served.id, self._name, exc_info=error)
            return fault_in(error, self._name, seq)

    async def _attend(
        self,
        future: asyncio.Future[Outcome],
        work: Coroutine[Any, Any, Outcome],
        seq: int,
    ) -> None:
        task = asyncio.create_task(work)
        try:
            in_time = await settle(task, self._home.timeout_s)
        except asyncio.CancelledError:
            task.cancel()
            future.set_result(released(self._name, seq))
            return
        if task.cancelled():  # the environment cancelled itself
            error = RuntimeError("the environment was cancelled")
            future.set_result(fault_in(error, self._name, seq))
        elif in_time:
            future.set_result(task.result())
        else:
            future.set_result(late(self._home, self._name, seq))
            self._on_lost("a step took too long", is_late=True)


def late(home: Home, name: str, seq: int) -> Fault:
    """The outcome of an operation that did not end in time."""
    took = f"{home.served.id} did not answer within {home.timeout_s:g} s"
    return Fault(
        code="step_timeout", message=f"{took}; the session is released", session=name, seq=seq
    )


def released(name: str, seq: int) -> Fault:
    """The outcome of an operation whose session was released meanwhile."""
    message = f"session {name!r} was released while it ran"
    return Fault(code="session_gone", message=message, session=name, seq=seq)
