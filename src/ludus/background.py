"""An event loop in a background thread, shared by the whole process.

Functions that are synchronous outside and async inside (`ludus.make` of an async environment,
`ludus.score`) run here, so that they work in a script, in a notebook and under a running loop
alike.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine, Generator, Iterable
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")


def run_on_loop(work: Coroutine[Any, Any, T], *, timeout_s: float | None = None) -> T:
    """Run a coroutine on the background loop, and wait for the result on the calling thread.

    Not to be called from the background loop itself, which would then wait for its own work.

    Args:
        work: the coroutine.
        timeout_s: the limit in seconds; None where `work` bounds its own time.

    Raises:
        TimeoutError: `work` took longer, and is cancelled.
    """
    future = asyncio.run_coroutine_threadsafe(work, background_loop())
    try:
        return future.result(timeout_s)
    except BaseException:  # a timeout or Ctrl-C here must not leave `work` running there
        future.cancel()
        raise


async def on_background(work: Coroutine[Any, Any, T]) -> T:
    """Await a coroutine that runs on the background loop, from any event loop."""
    loop = background_loop()
    if asyncio.get_running_loop() is loop:
        return await work
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))


async def all_or_none(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Return all results in order, or raise the first failure and cancel what is under way."""
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()


_starting = threading.Lock()
_loops: dict[int, asyncio.AbstractEventLoop] = {}
"""The loop of this process, by pid, and those of the processes that this one was forked from: these
are kept, because their end would end what the parent still uses.
"""
# A thread that starts the loop while another forks would leave the child a lock that nobody opens.
os.register_at_fork(
    before=_starting.acquire, after_in_parent=_starting.release, after_in_child=_starting.release
)


def background_loop() -> asyncio.AbstractEventLoop:
    """Return the loop of this process, started when first needed. A forked child starts another,
    since it has none of its parent's threads.
    """
    with _starting:
        loop = _loops.get(os.getpid())
        if loop is None:
            loop = _loops[os.getpid()] = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, name="ludus-background", daemon=True).start()
        return loop


async def end_task(task: asyncio.Task[None] | None) -> None:
    """Cancel `task` and wait until the task has ended; None is accepted and does nothing.

    A cancellation of the caller meanwhile goes through: only that of `task` is swallowed.

    Raises:
        Exception: the exception with which `task` ended.
    """
    if task is None:
        return
    task.cancel()
    await asyncio.wait({task})
    if not task.cancelled():
        task.result()


@contextmanager
def failing_where_given_up() -> Generator[None]:
    """Raise RuntimeError where what the block awaits was cancelled, and the task that runs the
    block was not: to that task this is a failure, and a CancelledError would end the task unheard.
    """
    try:
        yield
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise RuntimeError("what it waited for was cancelled") from error
