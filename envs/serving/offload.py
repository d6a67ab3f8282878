"""Keeps the plain-`def` methods of an environment off a server's event loop.

An environment of only plain methods runs whole on its worker thread. An environment that mixes
plain with async methods runs on the event loop, and each call of a plain method is sent to the
worker thread and awaited.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from ludus.errors import RewardUnavailable
from ludus.verdict import Verdict
from ludus.wire.worker_threads import WorkerThreads

from ..protocol import TextEnv
from ..session import EnvSession

RunOffLoop = Callable[[Callable[[], Any]], Awaitable[Any]]
_METHODS = ("reset", "step", "close")


def offload(env: TextEnv, run: RunOffLoop) -> None:
    """Replace the plain methods and tools of `env` by awaitable methods that `run` carries out."""
    for name in _METHODS:
        method = getattr(env, name)
        if not inspect.iscoroutinefunction(method):
            setattr(env, name, _run_off_loop(method, run))
    for tool in env.tools.values():
        if not tool.is_async:
            tool.function = _run_off_loop(tool.function, run)


def _run_off_loop(method: Callable[..., Any], run: RunOffLoop) -> Callable[..., Any]:
    async def call(*args: Any, **kwargs: Any) -> object:
        outcome = await run(lambda: method(*args, **kwargs))
        return await outcome if inspect.isawaitable(outcome) else outcome

    return call


async def settle(task: asyncio.Task[Any], timeout_s: float) -> bool:
    """Wait at most `timeout_s` for `task`; a task that takes longer is cancelled and not waited
    for.

    Returns:
        Whether the task ended in time.
    """
    finished, _ = await asyncio.wait({task}, timeout=timeout_s)
    if not finished:
        task.cancel()
    return bool(finished)


class OwnThreads:
    """Worker threads for the environments of an event loop; a session always runs on the same
    thread.

    Args:
        count: the number of threads; sessions are given to the threads in turn.
        call_timeout_s: the limit in seconds for one reset, step or tool. A thread with a late call
            is abandoned, and the call raises RewardUnavailable.
    """

    def __init__(self, count: int, *, call_timeout_s: float) -> None:
        self._worker_threads = WorkerThreads(count, name="ludus-env")
        self._call_timeout_s = call_timeout_s
        self._numbers: dict[int, int] = {}
        """The number of each session, by the Python `id` of the session."""
        self._busy: set[int] = set()
        """The numbers of the sessions with a call that has not returned."""
        self._placed = 0

    async def start(self) -> None:
        """Attach the threads to the running event loop."""
        await self._worker_threads.start()

    async def stop(self) -> None:
        """Let every thread end after the calls that the thread has."""
        await self._worker_threads.stop()

    def place(self, session: EnvSession) -> EnvSession:
        """Move the plain methods of `session` to a worker thread, unless the environment never
        blocks.
        """
        self._numbers[id(session)] = number = self._placed
        self._placed += 1
        if not session.env.never_blocks:
            offload(session.env, partial(self._run, session.id, number))
        return session

    def is_inside(self, session: EnvSession) -> bool:
        """Whether a thread may still run a call of `session`, although the caller gave up or was
        cancelled.
        """
        return self._numbers[id(session)] in self._busy

    async def _run(self, name: str, number: int, work: Callable[[], Any]) -> Any:
        waited = f"{name}: no answer within {self._call_timeout_s:g} s"
        late = RewardUnavailable(Verdict.unavailable(waited))
        self._busy.add(number)
        try:
            outcome = await self._worker_threads.submit(
                number, work, timeout_s=self._call_timeout_s, late=lambda: late
            )
        except Exception:
            self._busy.discard(number)
            raise
        if outcome is late:
            raise late
        self._busy.discard(number)
        return outcome
