"""The worker pool: threads that feed warm processes, a spare always ready, and a clear attribution
of losses.

A limit counts CPU time of the item; the wall limit is three times that, over all tries together.
A loss is blamed on the item only if a limit was seen to be exceeded: the kernel's timer ended
the worker, or the pool ended the worker at the wall limit after the item had used its CPU time
(decision 0301).
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
import time
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass

import msgspec

from ludus.errors import ConfigError

from . import channel
from .outcome import Fate, PoolOutcome
from .processes import PoolTemplate, PoolWorker

logger = logging.getLogger(__name__)
TRIES = 2
ENDING_S = 1.0
"""Seconds to wait, after a connection broke, for the worker to be seen dead."""
KILLED = (
    "{} workers were killed by signal 9, which ludus did not send: the machine may be out of memory"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolLimits:
    """The resources that a pool may use."""

    workers: int = 0
    """How many requests are scored at once; 0 means one per CPU, at most four."""
    cpu_s: float = 2.0
    """CPU seconds for one item."""
    wall_factor: float = 3.0
    """Wall limit of an item, over all tries, as a multiple of its CPU seconds. This sets how busy
    the machine may be before an item counts as `late`.
    """
    memory_bytes: int = 512 << 20
    """Memory of a worker above that of the warm template."""
    spares: int = 1
    """Idle warm workers kept ready to replace a lost worker."""
    recycle_after: int = 2000
    """How many items a worker scores before a fresh worker takes over."""
    chunk: int = 8
    """The most items sent to a worker at once."""
    queue: int = 20_000
    """How many items may wait. Beyond that, a request is answered `unavailable` at once."""
    queue_s: float = 120.0
    """Seconds an item may wait before work on it starts."""

    def __post_init__(self) -> None:
        if (
            self.cpu_s <= 0
            or self.wall_factor < 1
            or self.memory_bytes < 16 << 20
            or min(self.workers, self.spares) < 0
            or self.chunk < 1
        ):
            raise ConfigError(
                f"pool limits that cannot work: {self!r}; cpu_s > 0, wall_factor >= 1, "
                "memory_bytes >= 16 MiB, chunk >= 1"
            )


@dataclass(slots=True, eq=False)
class _Job:
    request: msgspec.Raw
    cpu_s: float
    future: Future[PoolOutcome]
    queued_at: float
    wall_limit: float = 0.0
    """The time.monotonic() at which the pool gives up on the job; set when work first starts."""
    crashes: int = 0
    """How many fresh workers have died of this item."""
    kills: int = 0
    """How many workers were killed by someone else while scoring this item."""
    failed_starts: int = 0
    """How many attempts failed because no worker could be started."""

    def has_time(self) -> bool:
        """Return whether the wall limit leaves time for another try."""
        return not self.wall_limit or time.monotonic() < self.wall_limit


class WorkerPool:
    """Runs `target` ("module:function", plain data in, plain data out) in killable processes.

    Thread-safe. The processes start on first use.

    >>> pool = WorkerPool("math:sqrt", limits=PoolLimits(workers=1))
    >>> pool.submit(16).result(timeout=60).value
    4.0
    >>> pool.close()
    """

    def __init__(self, target: str, *, limits: PoolLimits | None = None) -> None:
        self.target = target
        self.limits = limits or PoolLimits()
        self._changed = threading.Condition()
        self._jobs: deque[_Job] = deque()
        self._threads: list[threading.Thread] = []
        self._spares: deque[PoolWorker] = deque()
        self._template: PoolTemplate | None = None
        self._starting = threading.Lock()
        self._closed = False
        self._owner = os.getpid()
        self.lost = 0
        """How many workers have been killed or have crashed so far."""

    @property
    def size(self) -> int:
        """How many requests are scored at once."""
        return self.limits.workers or min(4, os.cpu_count() or 1)

    # --- asking ---

    def submit(self, request: object, *, cpu_s: float | None = None) -> Future[PoolOutcome]:
        """Queue a request; the future always resolves to a `PoolOutcome`, even if the scorer
        raises.

        `cpu_s` overrides the pool's CPU seconds for this item.
        """
        future: Future[PoolOutcome] = Future()
        # After a fork the threads exist in the parent only: a child's request would wait forever.
        if self._closed or self._owner != os.getpid():
            future.set_result(
                PoolOutcome(
                    Fate.REFUSED, reason="the pool is closed (or belongs to a parent process)"
                )
            )
            return future
        try:
            packed = msgspec.Raw(msgspec.msgpack.encode(request))
        except (TypeError, ValueError, OverflowError) as error:
            future.set_result(
                PoolOutcome(Fate.RAISED, reason=f"the request is not plain data: {error}")
            )
            return future
        with self._changed:
            if len(self._jobs) >= self.limits.queue:
                future.set_result(
                    PoolOutcome(
                        Fate.REFUSED, reason=f"{len(self._jobs)} requests are waiting already"
                    )
                )
                return future
            self._jobs.append(_Job(packed, cpu_s or self.limits.cpu_s, future, time.monotonic()))
            if len(self._threads) < min(self.size, len(self._jobs)):
                thread = threading.Thread(
                    target=self._work, name=f"pool worker thread {len(self._threads)}", daemon=True
                )
                self._threads.append(thread)
                thread.start()
            self._changed.notify()
        return future

    async def run(self, request: object, *, cpu_s: float | None = None) -> PoolOutcome:
        """Queue a request and wait for the outcome in a coroutine; see `submit`."""
        return await asyncio.wrap_future(self.submit(request, cpu_s=cpu_s))

    def warm(self) -> None:
        """Start the template and a spare now instead of on the first request."""
        self._add_spares()

    def close(self) -> None:
        """Kill the workers; requests that still wait become `unavailable`."""
        with self._changed:
            self._closed = True
            waiting, self._jobs = list(self._jobs), deque()
            self._changed.notify_all()
        for job in waiting:
            _settle(job, PoolOutcome(Fate.REFUSED, reason="the pool was closed"))
        for thread in self._threads:
            # A thread cannot join itself, and a future's callback may close the pool.
            if thread is not threading.current_thread():
                thread.join(timeout=self.limits.wall_factor * self.limits.cpu_s + 5)
        with self._starting:
            while self._spares:
                self._spares.pop().close()
            if self._template is not None:
                self._template.close()
                self._template = None

    # --- worker threads ---

    def _work(self) -> None:
        worker: PoolWorker | None = None
        while jobs := self._take():
            pending = deque(jobs)
            while pending:
                try:
                    worker = worker or self._fresh_worker()
                    worker = self._exchange(worker, pending)
                except Exception as error:  # a boundary: a lost template must not end the thread
                    logger.warning("pool worker thread: %s", error)
                    worker = None
                    with self._starting:
                        while self._spares:
                            self._spares.pop().close()
                        template, self._template = self._template, None
                    if template is not None:
                        template.close()
                    reason = f"no worker could be started: {error}"
                    for job in list(pending):
                        job.failed_starts += 1
                        if job.failed_starts >= TRIES or self._closed:
                            pending.remove(job)
                            _settle(job, PoolOutcome(Fate.REFUSED, reason=reason))
        if worker is not None:
            worker.close()

    def _take(self) -> list[_Job]:
        """Wait for and return the next chunk of jobs; empty when the pool closes."""
        while not self._closed:
            with self._changed:
                while not self._jobs and not self._closed:
                    self._changed.wait(timeout=60)
                # A short queue is spread over all threads instead of filling the chunk of one.
                share = max(1, min(self.limits.chunk, len(self._jobs) // self.size))
                jobs = [self._jobs.popleft() for _ in range(min(share, len(self._jobs)))]
            wanted: list[_Job] = []
            for job in jobs:
                waited = time.monotonic() - job.queued_at
                if waited > self.limits.queue_s:
                    reason = f"waited {waited:.0f} s for a worker"
                    _settle(job, PoolOutcome(Fate.REFUSED, reason=reason))
                elif job.future.set_running_or_notify_cancel():  # the caller has not cancelled
                    wanted.append(job)
            if wanted:
                return wanted
        return []

    def _exchange(self, worker: PoolWorker, pending: deque[_Job]) -> PoolWorker | None:
        """Send a chunk and settle the replies on arrival; returns the worker if still usable, else
        None.
        """
        # A worker that stops reading must not block this thread in `send`.
        worker.sock.settimeout(self.limits.wall_factor * self.limits.cpu_s)
        try:
            channel.send(
                worker.sock, [{"request": job.request, "cpu_s": job.cpu_s} for job in pending]
            )
        except OSError as error:
            self._handle_lost(worker, pending, channel.PoolChannelClosed(str(error)))
            return None
        while pending:
            job = pending[0]
            # The wall limit starts with the first try and covers all tries together.
            if not job.wall_limit:
                job.wall_limit = time.monotonic() + self.limits.wall_factor * job.cpu_s
            try:
                outcome = _outcome(channel.receive(worker.sock, deadline=job.wall_limit), worker)
            except (TimeoutError, channel.PoolChannelClosed) as error:
                self._handle_lost(worker, pending, error)
                return None
            pending.popleft()
            worker.served += 1
            _settle(job, outcome)
            if outcome.fate is Fate.LIMIT:  # the item may have damaged the worker's memory
                self._retire(worker)
                return None
        if worker.served >= self.limits.recycle_after:
            self._retire(worker)
            return None
        return worker

    def _handle_lost(self, worker: PoolWorker, pending: deque[_Job], error: Exception) -> None:
        """Find out how a worker was lost, and settle the current item or leave that item for
        another try.

        Args:
            worker: the worker that died, broke its connection, or did not answer in time.
            pending: the jobs without an answer; the worker was busy with the first.
            error: the exception that reading the answer raised.
        """
        self.lost += 1
        late = isinstance(error, TimeoutError)
        # A SIGKILL is somebody else's only if the worker was dead before the kill below.
        died_alone = type(error) is channel.PoolChannelClosed and worker.has_ended(ENDING_S)
        worker.kill()
        used_before = worker.cpu_s
        death = self._live_template().reap(worker)
        job = pending[0]
        used_s = death.cpu_s - used_before
        # At the wall limit, an item that has used nearly all its CPU time is slow itself. With
        # less CPU time used, the machine was too busy.
        if death.by_cpu_timer or (late and used_s >= 0.95 * job.cpu_s):
            end = PoolOutcome(Fate.LIMIT, reason=f"more than {job.cpu_s:g} s of CPU time")
        elif late:
            budget_text = (
                f"{self.limits.wall_factor * job.cpu_s:g} s, of which it ran {used_s:.2f} s"
            )
            end = PoolOutcome(
                Fate.LATE, reason=f"no answer in {budget_text}: the machine is too busy"
            )
        elif died_alone and death.signal == signal.SIGKILL:
            job.kills += 1
            if job.kills < TRIES and job.has_time():
                return
            end = PoolOutcome(Fate.KILLED, reason=KILLED.format(job.kills))
        else:
            # Count fresh workers only: others may have been damaged by an earlier item.
            job.crashes += worker.served == 0
            if job.crashes < TRIES and job.has_time():
                return
            death_text = f"signal {death.signal}" if death.signal else "it ended by itself"
            death_text = str(error) if isinstance(error, channel.BadPoolFrame) else death_text
            end = PoolOutcome(
                Fate.CRASHED, reason=f"it crashed {job.crashes} fresh workers ({death_text})"
            )
        pending.popleft()
        _settle(job, end)

    def _retire(self, worker: PoolWorker) -> None:
        worker.kill()
        self._live_template().reap(worker)

    # --- workers ---

    def _fresh_worker(self) -> PoolWorker:
        with self._changed:
            worker = self._spares.popleft() if self._spares else None
        if worker is None:
            worker = self._live_template().fork()
        if not self._closed:
            # Replace the spare in the background, so that forking does not delay this item.
            threading.Thread(target=self._add_spares, name="pool spare", daemon=True).start()
        return worker

    def _add_spares(self) -> None:
        with self._starting:
            try:
                while not self._closed and len(self._spares) < self.limits.spares:
                    worker = self._started_template().fork()
                    with self._changed:
                        self._spares.append(worker)
            except (OSError, channel.PoolChannelClosed) as error:
                logger.warning("no spare worker: %s", error)

    def _live_template(self) -> PoolTemplate:
        with self._starting:
            return self._started_template()

    def _started_template(self) -> PoolTemplate:
        if self._template is None:
            if self._closed:
                raise channel.PoolChannelClosed("the pool is closed")
            self._template = PoolTemplate(self.target, self.limits.memory_bytes)
        return self._template


class _Reply(msgspec.Struct, frozen=True):
    """A worker's report on an item."""

    cpu_s: float
    value: object = None
    limit: str = ""
    error: str = ""


def _outcome(message: object, worker: PoolWorker) -> PoolOutcome:
    """Read a worker's reply.

    Raises:
        BadPoolFrame: the message is not a reply.
    """
    try:
        reply = msgspec.convert(message, _Reply)
    except msgspec.ValidationError as error:
        raise channel.BadPoolFrame(f"no reply: {error}") from error
    worker.cpu_s = reply.cpu_s
    if reply.limit:
        return PoolOutcome(Fate.LIMIT, reason=reply.limit)
    if reply.error:
        return PoolOutcome(Fate.RAISED, reason=reply.error)
    return PoolOutcome(Fate.DONE, reply.value)


def _settle(job: _Job, outcome: PoolOutcome) -> None:
    if not job.future.done():
        job.future.set_result(outcome)
