"""A fixed number of single threads for blocking work, off the event loop.

Work under one key always runs on the same thread, in order, so that an environment may hold things
that belong to a thread (a sqlite connection, an event loop of its own). Work that exceeds its time
cannot be killed: its thread is abandoned to finish or hang on its own, its caller is told, and a
fresh thread takes over the rest of the work in that inbox.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from ludus.background import end_task

logger = logging.getLogger(__name__)
T = TypeVar("T")
WATCH_EVERY_S = 0.05


@dataclass(slots=True, eq=False)
class _Job(Generic[T]):
    work: Callable[[], T]
    late: Callable[[], T]
    timeout_s: float
    future: asyncio.Future[T]
    started: float = 0.0


@dataclass(eq=False)
class _WorkerThread:
    """An inbox with the thread that serves the work inside."""

    name: str
    inbox: SimpleQueue[_Job[Any] | None] = field(default_factory=SimpleQueue[_Job[Any] | None])
    lock: threading.Lock = field(default_factory=threading.Lock)
    thread: threading.Thread | None = None
    current: _Job[Any] | None = None
    generation: int = 0


class WorkerThreads:
    """Runs blocking work on a fixed number of threads, each started when first needed.

    Args:
        count: the number of threads.
        name: the prefix of the threads' names.
    """

    def __init__(self, count: int = 32, *, name: str = "ludus-worker") -> None:
        self.abandoned = 0
        """The number of threads given up on because their work exceeded its time."""
        self._worker_threads = [_WorkerThread(f"{name}-{index}") for index in range(count)]
        self._done: deque[tuple[_Job[Any], Any, BaseException | None]] = deque()
        self._flushing = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._watcher: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Attach to the running loop, on which results are delivered, and watch for work that is
        late.
        """
        self._loop = asyncio.get_running_loop()
        self._watcher = asyncio.create_task(self._watch(), name="ludus-workers-watch")

    async def stop(self) -> None:
        """Let every thread end once the waiting work is done; does not wait for the threads."""
        await end_task(self._watcher)
        for worker_thread in self._worker_threads:
            worker_thread.inbox.put(None)

    def submit(
        self, key: str | int, work: Callable[[], T], *, timeout_s: float, late: Callable[[], T]
    ) -> asyncio.Future[T]:
        """Run `work` on the thread of `key`, and return a future of the result.

        Args:
            key: what the work belongs to; numbers in a row have threads in a row, a name has any.
            work: blocks as long as it likes, off the loop.
            timeout_s: the seconds that the work may take from its start; waiting in the inbox does
                not count.
            late: makes the result when the time is over; called on the loop.

        Raises:
            RuntimeError: the system has no thread left; the next work tries again.
        """
        assert self._loop is not None, "start() first"
        number = key if isinstance(key, int) else zlib.crc32(key.encode())
        worker_thread = self._worker_threads[number % len(self._worker_threads)]
        job = _Job(work, late, timeout_s, self._loop.create_future())
        if worker_thread.thread is None:
            self._start_thread(worker_thread)
        worker_thread.inbox.put(job)
        return job.future

    def _start_thread(self, worker_thread: _WorkerThread) -> None:
        thread = threading.Thread(
            target=self._run,
            args=(worker_thread, worker_thread.generation),
            name=worker_thread.name,
            daemon=True,
        )
        thread.start()
        worker_thread.thread = thread

    def _run(self, worker_thread: _WorkerThread, generation: int) -> None:
        while (job := worker_thread.inbox.get()) is not None:
            if job.future.cancelled():
                continue
            job.started = time.monotonic()
            worker_thread.current = job
            result: object = None
            error: BaseException | None = None
            try:
                result = job.work()
            except StopIteration as stop:  # a future cannot hold one
                error = RuntimeError(f"work raised {stop!r}")
            except BaseException as raised:
                error = raised
            with worker_thread.lock:
                if worker_thread.generation != generation:
                    return  # abandoned: another thread has taken the place
                worker_thread.current = None
            # Hand a result to the loop; results that come close together share a wake-up.
            # A deque's append is atomic. `_flush` clears the flag before it takes results, so a
            # result appended while the flag is set is either seen by that flush or asks for
            # another.
            self._done.append((job, result, error))
            if not self._flushing:
                self._flushing = True
                with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                    assert self._loop is not None
                    self._loop.call_soon_threadsafe(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        while self._done:
            job, result, error = self._done.popleft()
            if job.future.done():
                continue
            if error is None:
                job.future.set_result(result)
            else:
                job.future.set_exception(error)

    async def _watch(self) -> None:
        """Abandon the threads whose work exceeds the time limit, and tell the callers."""
        while True:
            await asyncio.sleep(WATCH_EVERY_S)
            now = time.monotonic()
            for worker_thread in self._worker_threads:
                job = worker_thread.current
                if job is not None and now - job.started > job.timeout_s:
                    self._abandon(worker_thread, job)
                if worker_thread.thread is None and not worker_thread.inbox.empty():
                    with contextlib.suppress(RuntimeError):  # no thread is left: tried again
                        self._start_thread(worker_thread)

    def _abandon(self, worker_thread: _WorkerThread, job: _Job[Any]) -> None:
        with worker_thread.lock:
            if worker_thread.current is not job:  # the work has just ended
                return
            worker_thread.current = worker_thread.thread = None
            # The old thread compares this when its work ends, and then leaves the inbox alone.
            worker_thread.generation += 1
        self.abandoned += 1
        logger.warning(
            "%s: work exceeded %g s; its thread is abandoned", worker_thread.name, job.timeout_s
        )
        if not job.future.done():
            job.future.set_result(job.late())
