"""A warm pool of killable worker processes for scorers that burn CPU: threads that feed workers, a
spare always ready, and a clear attribution of losses.

The processes are those of `ludus.isolation`: forked from a template that has imported the scorer,
each with one call at a time on its main thread. A limit counts CPU time of the item; the wall limit
is three times that, over all tries together. A loss is blamed on the item only if a limit was seen
to be exceeded: the kernel's timer ended the worker, or the pool ended the worker at the wall limit
after the item had used its CPU time (decision 0301).
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from importlib import import_module

import msgspec

from ludus.errors import ConfigError, error_text
from ludus.isolation.frames import FAILED, BadFrame, Line, LineClosed, pack
from ludus.isolation.part import Answer, WorkerPart, WorkerSpec
from ludus.isolation.spawning import Death, OwnedProcess, Template
from ludus.isolation.worker import Failure
from ludus.verdict import Status, Verdict

logger = logging.getLogger(__name__)
MAX_BODY = 64 << 20
"""The most bytes of a request or an answer."""
CHUNK_BYTES = 64 << 10
"""The most bytes of several requests sent at once: what a socket holds while the worker is busy
with the first.
"""
CLOSED = "the pool is closed (or belongs to a parent process)"
EXTRA_RECURSION = 3000
SCORE = 1
"""The tag of a request and of its answer."""
TRIES = 2
ENDING_S = 1.0
"""Seconds to wait, after a connection broke, for the worker to be seen dead."""
KILLED = (
    "{} workers were killed by signal 9, which ludus did not send: the machine may be out of memory"
)


class Fate(StrEnum):
    """How a request ended.

    Only `LIMIT` can be blamed on what was scored, because only then was a limit that ludus set
    and measured exceeded. Every other loss carries no reward (decision 0301).
    """

    DONE = "done"
    """The scorer returned a value."""
    LIMIT = "limit"
    """The item exceeded the CPU time, the memory or the recursion depth that was allowed."""
    RAISED = "raised"
    """The scorer raised an exception, or the request was not plain data: a bug."""
    CRASHED = "crashed"
    """Two fresh workers died of the item without exceeding a limit: a bug in the scorer or in a
    library.
    """
    KILLED = "killed"
    """Workers received a SIGKILL that ludus did not send, most likely from the operating system
    when memory ran out, or from an operator.
    """
    LATE = "late"
    """The machine was too busy to give the item its CPU time within the wall limit."""
    REFUSED = "refused"
    """The queue was full, the wait for a worker too long, no worker could be started, or the pool
    was closed.
    """


METRIC = "pool/"
"""Prefix of the metric that records the fate of a verdict's worker."""
STATUS = {
    Fate.LIMIT: Status.OK,
    Fate.RAISED: Status.ERROR,
    Fate.CRASHED: Status.ERROR,
    Fate.KILLED: Status.UNAVAILABLE,
    Fate.LATE: Status.UNAVAILABLE,
    Fate.REFUSED: Status.UNAVAILABLE,
}
"""The status of the verdict for a request that was not completed."""


def fates_of(verdict: Verdict) -> list[str]:
    """Return how the worker behind a verdict was lost or limited; an empty list for a normal
    verdict.

    >>> fates_of(PoolOutcome(Fate.KILLED, reason="signal 9").failure())
    ['killed']
    """
    return [name.removeprefix(METRIC) for name in verdict.metrics if name.startswith(METRIC)]


@dataclass(frozen=True, slots=True)
class PoolOutcome:
    """The result of a request: a fate with the scorer's value (when done) or the reason
    (otherwise).
    """

    fate: Fate
    value: object = None
    reason: str = ""

    def failure(self) -> Verdict:
        """Return the verdict for a request that was not completed.

        A limit that the answer exceeded is reward 0. Everything else has no reward: `error`
        where the scorer is at fault, `unavailable` (worth a retry) where the machine is. The
        metric `pool/<fate>` is 1, so that the mean over many verdicts is the rate of each fate.
        """
        metrics = {f"{METRIC}{self.fate}": 1.0, "pooled": 1.0}
        status = STATUS[self.fate]
        if status is Status.OK:
            return Verdict.of(0.0, f"limit: {self.reason}", metrics={"rule/limit": 1.0, **metrics})
        return Verdict(
            status=status,
            detail=self.reason,
            metrics=metrics,
            retryable=status is Status.UNAVAILABLE,
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
    request: bytes
    """The request with its CPU seconds, encoded."""
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
        self._spares: deque[_Worker] = deque()
        self._template: Template | None = None
        self._starting = threading.Lock()
        self._closed = False
        self._owner = os.getpid()
        self.lost = 0
        """How many workers have been killed or have crashed so far."""

    @property
    def size(self) -> int:
        """How many requests are scored at once."""
        return self.limits.workers or min(4, os.cpu_count() or 1)

    def submit(self, request: object, *, cpu_s: float | None = None) -> Future[PoolOutcome]:
        """Queue a request; the future always resolves to a `PoolOutcome`, even if the scorer
        raises.

        `cpu_s` overrides the pool's CPU seconds for this item.
        """
        future: Future[PoolOutcome] = Future()
        # After a fork the threads exist in the parent only: a child's request would wait forever.
        if self._closed or self._owner != os.getpid():
            future.set_result(PoolOutcome(Fate.REFUSED, reason=CLOSED))
            return future
        seconds = cpu_s or self.limits.cpu_s
        try:
            packed = msgspec.msgpack.encode((request, seconds))
        except (TypeError, ValueError, OverflowError) as error:
            future.set_result(
                PoolOutcome(Fate.RAISED, reason=f"the request is not plain data: {error}")
            )
            return future
        with self._changed:
            if not (reason := self._no_place()):
                self._jobs.append(_Job(packed, seconds, future, time.monotonic()))
                self._changed.notify()
        if reason:
            future.set_result(PoolOutcome(Fate.REFUSED, reason=reason))
        return future

    def _no_place(self) -> str:
        """Return why one more job is not taken, or "" with a thread to take it; hold `_changed`."""
        if self._closed:  # since `submit` looked
            return CLOSED
        if len(self._jobs) >= self.limits.queue:
            return f"{len(self._jobs)} requests are waiting already"
        if len(self._threads) > min(self.size - 1, len(self._jobs)):
            return ""
        name = f"pool worker thread {len(self._threads)}"
        thread = threading.Thread(target=self._work, name=name, daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # the system has no more; those there are do the work
            return "" if self._threads else f"no thread could be started: {error}"
        self._threads.append(thread)
        return ""

    async def run(self, request: object, *, cpu_s: float | None = None) -> PoolOutcome:
        """Queue a request and wait for the outcome in a coroutine; see `submit`."""
        return await asyncio.wrap_future(self.submit(request, cpu_s=cpu_s))

    def warm(self) -> None:
        """Start the template and a spare now instead of on the first request."""
        self._add_spares()

    def close(self) -> None:
        """Kill the workers; requests that still wait become `unavailable`. In a process that was
        forked nothing is done: the workers are its parent's.
        """
        if self._owner != os.getpid():
            return
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
                self._spares.pop().end()
            if self._template is not None:
                self._template.close()
                self._template = None

    # --- worker threads ---

    def _work(self) -> None:
        """Feed one worker after another until the pool closes: a thread is their owner."""
        pending: deque[_Job] = deque()
        worker: _Worker | None = None
        while pending or not self._closed:
            try:
                self._take(pending)
                if pending:
                    worker = self._living(worker) or self._fresh_worker()
                    if not self._exchange(worker, pending):
                        worker = None
            except Exception as error:  # a boundary: whatever fails must not end the thread
                logger.warning("pool worker thread: %s", error)
                self._give_up(worker, pending, error)
                worker = None
        if worker is not None:
            worker.end()

    def _give_up(self, worker: _Worker | None, pending: deque[_Job], error: Exception) -> None:
        """End the worker and the template; answer the jobs that were tried often enough."""
        if worker is not None:
            worker.end()
        with self._starting:
            while self._spares:
                self._spares.pop().end()
            template, self._template = self._template, None
        if template is not None:
            template.close()
        for job in list(pending):
            job.failed_starts += 1
            if job.failed_starts >= TRIES or self._closed:
                pending.remove(job)
                reason = f"no worker could be started: {error}"
                _settle(job, PoolOutcome(Fate.REFUSED, reason=reason))

    def _take(self, pending: deque[_Job]) -> None:
        """Wait for jobs, and move the next chunk to `pending` if that is empty."""
        late: list[tuple[_Job, float]] = []
        with self._changed:
            while not self._jobs and not self._closed and not pending:
                self._changed.wait(timeout=60)
            # A short queue is spread over all threads instead of filling the chunk of one.
            share = max(1, min(self.limits.chunk, len(self._jobs) // self.size))
            while not pending or len(pending) < share:
                if not self._jobs or (pending and pending[0].wall_limit):
                    break
                size = sum(len(job.request) for job in (*pending, self._jobs[0]))
                if pending and size > CHUNK_BYTES:
                    break
                job = self._jobs.popleft()
                waited = time.monotonic() - job.queued_at
                if waited > self.limits.queue_s:
                    late.append((job, waited))
                elif job.future.running() or job.future.set_running_or_notify_cancel():
                    pending.append(job)
        for job, waited in late:  # without the lock: a future's callback may close the pool
            reason = f"waited {waited:.0f} s for a worker"
            _settle(job, PoolOutcome(Fate.REFUSED, reason=reason))

    def _exchange(self, worker: _Worker, pending: deque[_Job]) -> bool:
        """Send a chunk and settle the replies on arrival; return whether `worker` can go on."""
        # A worker that stops reading must not block this thread in `send`.
        worker.line.sock.settimeout(self.limits.wall_factor * pending[0].cpu_s)
        chunk = enumerate(pending, worker.served + 1)
        try:
            worker.line.sock.sendall(
                b"".join(pack(number, SCORE, 0, job.request) for number, job in chunk)
            )
        except OSError as error:
            late = isinstance(error, TimeoutError)
            self._handle_lost(worker, pending, error if late else LineClosed(str(error)))
            return False
        while pending:
            job = pending[0]
            # The wall limit starts with the first try and covers all tries together.
            if not job.wall_limit:
                job.wall_limit = time.monotonic() + self.limits.wall_factor * job.cpu_s
            try:
                outcome = worker.receive(job.wall_limit)
            except (TimeoutError, LineClosed) as error:
                self._handle_lost(worker, pending, error)
                return False
            _settle(job, outcome)
            pending.popleft()
            if outcome.fate is Fate.LIMIT:  # the item may have damaged the worker's memory
                break
        else:
            if worker.served < self.limits.recycle_after:
                return True
        worker.end()
        return False

    def _handle_lost(self, worker: _Worker, pending: deque[_Job], error: Exception) -> None:
        """Find out how a worker was lost, and settle the current item or leave that item for
        another try.

        Args:
            worker: the worker that died, broke its connection, or did not answer in time.
            pending: the jobs without an answer; the worker was busy with the first.
            error: the exception that reading the answer raised.
        """
        self.lost += 1
        late = isinstance(error, TimeoutError)
        # A SIGKILL is somebody else's only if the worker was dead before it is ended below.
        died_alone = not worker.is_corrupt and not late and worker.process.has_ended(ENDING_S)
        death = worker.end()
        job = pending[0]
        used_s = death.cpu_s - worker.cpu_s
        # At the wall limit, an item that has used nearly all its CPU time is slow itself. With
        # less CPU time used, the machine was too busy.
        if death.signal == signal.SIGPROF or (late and used_s >= 0.95 * job.cpu_s):
            end = PoolOutcome(Fate.LIMIT, reason=f"more than {job.cpu_s:g} s of CPU time")
        elif late:
            budget_text = (
                f"{self.limits.wall_factor * job.cpu_s:g} s, of which it ran {used_s:.2f} s"
            )
            end = PoolOutcome(
                Fate.LATE, reason=f"no answer in {budget_text}: the machine is too busy"
            )
        elif not death.known or (died_alone and death.signal == signal.SIGKILL):
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
            death_text = str(error) if worker.is_corrupt else death_text
            end = PoolOutcome(
                Fate.CRASHED, reason=f"it crashed {job.crashes} fresh workers ({death_text})"
            )
        _settle(job, end)
        pending.popleft()

    # --- workers ---

    def _living(self, worker: _Worker | None) -> _Worker | None:
        """Return the worker unless it has died while it had nothing to do, which no item is to
        answer for.
        """
        if worker is None or worker.process.handle < 0 or not worker.process.has_ended(0.0):
            return worker
        self.lost += 1
        worker.end()
        return None

    def _fresh_worker(self) -> _Worker:
        worker: _Worker | None = None
        with self._changed:
            while worker is None and self._spares:
                worker = self._living(self._spares.popleft())
        if worker is None:
            with self._starting:
                worker = self._forked()
        if not self._closed:
            # Replace the spare in the background, so that forking does not delay this item.
            spare = threading.Thread(target=self._add_spares, name="pool spare", daemon=True)
            with suppress(RuntimeError):  # no more threads: the next worker is forked when needed
                spare.start()
        return worker

    def _add_spares(self) -> None:
        with self._starting:
            try:
                while not self._closed and len(self._spares) < self.limits.spares:
                    worker = self._forked()
                    with self._changed:
                        self._spares.append(worker)
            except Exception as error:  # a boundary: a worker is started when one is needed
                logger.warning("no spare worker: %s", error)

    def _forked(self) -> _Worker:
        """Fork a worker, of a template that is loaded first if there is none; hold `_starting`."""
        if self._closed:
            raise ConfigError("the pool is closed")
        if self._template is None:
            self._template = Template(
                WorkerSpec.of(self.target, partial(ScorerPart, self.target)),
                memory_bytes=self.limits.memory_bytes,
                max_body=MAX_BODY,
            )
        return _Worker(self._template.fork(reads_output=False))


def _settle(job: _Job, outcome: PoolOutcome) -> None:
    if not job.future.done():
        job.future.set_result(outcome)


class _Reply(msgspec.Struct, frozen=True):
    """A worker's report on an item."""

    cpu_s: float
    """The CPU seconds of the process so far."""
    value: object = None
    limit: str = ""
    error: str = ""


class _Worker:
    """A forked worker, as the thread that feeds it sees it."""

    def __init__(self, process: OwnedProcess) -> None:
        self.process = process
        self.line = Line(process.sock, MAX_BODY)
        self.served = 0
        """How many items the process has answered."""
        self.cpu_s = 0.0
        """The CPU seconds of the process up to its last answer."""
        self.is_corrupt = False
        """Whether it has sent what is not an answer."""

    def receive(self, deadline: float) -> PoolOutcome:
        """Wait for the next answer.

        Raises:
            TimeoutError: the deadline passed.
            LineClosed: the process is gone, or sent what is not an answer.
        """
        try:
            answer = self.line.receive(deadline=deadline)
            if answer.call != self.served + 1:
                raise BadFrame(f"call {answer.call} was answered instead of {self.served + 1}")
            if answer.tag == FAILED:
                failure = msgspec.msgpack.decode(answer.body, type=Failure)
                reply = _Reply(self.cpu_s, error=failure.message)
            else:
                reply = msgspec.msgpack.decode(answer.body, type=_Reply)
        except (BadFrame, msgspec.MsgspecError) as error:
            self.is_corrupt = True
            raise LineClosed(f"no reply: {error}") from error
        self.served += 1
        self.cpu_s = reply.cpu_s
        if reply.limit:
            return PoolOutcome(Fate.LIMIT, reason=reply.limit)
        if reply.error:
            return PoolOutcome(Fate.RAISED, reason=reply.error)
        return PoolOutcome(Fate.DONE, reply.value)

    def end(self) -> Death:
        """End the process, and return how it ended."""
        try:
            return self.process.reap()
        finally:
            self.process.close()


class ScorerPart(WorkerPart):
    """A scorer in a worker process.

    The CPU limit of an item is a kernel timer whose signal keeps its default action, death: unlike
    a Python handler, the signal also ends a single long operation of C.

    Args:
        target: `module:function`; a `warm()` in the same module is called first.
    """

    is_async = False
    takes_turns = True

    def __init__(self, target: str) -> None:
        module_name, _, attribute = target.partition(":")
        module = import_module(module_name)
        warm = getattr(module, "warm", None)
        if warm is not None:
            warm()
        self._score: Callable[[object], object] = getattr(module, attribute)
        self._is_damaged = False

    def about(self) -> bytes:
        """Return nothing: a pool knows its scorer."""
        return b""

    def start(self, thread_of: Callable[[int], Executor]) -> None:
        """Get ready in a worker."""
        sys.setrecursionlimit(EXTRA_RECURSION)
        signal.signal(signal.SIGPROF, signal.SIG_DFL)

    def handle(self, tag: int, thread_number: int, body: bytes) -> Answer:
        """Score an item within its CPU seconds."""
        if self._is_damaged:
            os._exit(0)  # an item that exceeded a limit may have left the process damaged
        request, cpu_s = msgspec.msgpack.decode(body)
        signal.setitimer(signal.ITIMER_PROF, cpu_s)
        report: dict[str, object] = {}
        try:
            report["value"] = self._score(request)
        except MemoryError:
            report["limit"] = "memory"
        except RecursionError:
            report["limit"] = "recursion depth"
        except Exception as error:  # a boundary: a bug in the scorer becomes data
            report["error"] = f"{type(error).__name__}: {error_text(error)}"[:2000]
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0.0)
        self._is_damaged = "limit" in report
        return SCORE, msgspec.msgpack.encode({**report, "cpu_s": time.process_time()})
