"""The pool: lanes that feed warm workers, a spare always ready, and a clear answer to whose fault
a loss is.

Limits count CPU time of the item. The wall limit is three times that; reaching it is the item's
fault only if it had used its CPU, else it is tried once more on a fresh worker and then
`unavailable`. An item that loses two fresh workers in another way (a crash, the machine's
out-of-memory killer) is at fault itself.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass

import msgspec

from ludus.errors import ConfigError

from . import channel
from .outcome import Fate, Outcome
from .processes import Template, Worker

logger = logging.getLogger(__name__)
WALL_FACTOR = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a pool may use."""

    workers: int = 0
    """Requests scored at once; 0 means one per CPU, at most four."""
    cpu_s: float = 2.0
    """CPU seconds for one item; its wall limit is three times that."""
    memory_bytes: int = 512 << 20
    """Memory of a worker above what the warm template uses."""
    spares: int = 1
    """Idle warm workers kept ready to replace a lost one."""
    recycle_after: int = 2000
    """Items a worker scores before a fresh one takes its place."""
    chunk: int = 8
    """Most items sent to a worker at once."""
    queue: int = 20_000
    """Items that may wait; past it a request is answered `unavailable` at once."""
    queue_s: float = 120.0
    """Seconds an item may wait before work on it starts."""

    def __post_init__(self) -> None:
        if (
            self.cpu_s <= 0
            or self.memory_bytes < 16 << 20
            or min(self.workers, self.spares) < 0
            or self.chunk < 1
        ):
            raise ConfigError(
                f"pool limits that cannot work: {self!r}; cpu_s > 0, "
                "memory_bytes >= 16 MiB, chunk >= 1"
            )


@dataclass(slots=True, eq=False)
class _Job:
    request: msgspec.Raw
    cpu_s: float
    future: Future[Outcome]
    queued_at: float
    losses: int = 0


class WorkerPool:
    """Runs `target` ("module:function", data in, data out) in killable processes. Thread-safe;
    started on first use.

    >>> pool = WorkerPool("math:sqrt", limits=Limits(workers=1))
    >>> pool.submit(16).result(timeout=60).value
    4.0
    >>> pool.close()
    """

    def __init__(self, target: str, *, limits: Limits | None = None) -> None:
        self.target = target
        self.limits = limits or Limits()
        self._changed = threading.Condition()
        self._jobs: deque[_Job] = deque()
        self._lanes: list[threading.Thread] = []
        self._spares: deque[Worker] = deque()
        self._template: Template | None = None
        self._starting = threading.Lock()
        self._closed = False
        self._owner = os.getpid()
        self.lost = 0
        """Workers killed or crashed so far."""

    @property
    def size(self) -> int:
        """How many requests are scored at once."""
        return self.limits.workers or min(4, os.cpu_count() or 1)

    # --- asking ---

    def submit(self, request: object, *, cpu_s: float | None = None) -> Future[Outcome]:
        """Queue a request; the future always gets an Outcome, never an exception of the scorer."""
        future: Future[Outcome] = Future()
        if self._closed or self._owner != os.getpid():
            future.set_result(
                Outcome(
                    Fate.UNAVAILABLE, reason="the pool is closed (or belongs to a parent process)"
                )
            )
            return future
        try:
            packed = msgspec.Raw(msgspec.msgpack.encode(request))
        except (TypeError, ValueError, OverflowError) as error:
            future.set_result(Outcome(Fate.ERROR, reason=f"the request is not plain data: {error}"))
            return future
        with self._changed:
            if len(self._jobs) >= self.limits.queue:
                future.set_result(
                    Outcome(
                        Fate.UNAVAILABLE, reason=f"{len(self._jobs)} requests are waiting already"
                    )
                )
                return future
            self._jobs.append(_Job(packed, cpu_s or self.limits.cpu_s, future, time.monotonic()))
            self._start_lanes()
            self._changed.notify()
        return future

    async def run(self, request: object, *, cpu_s: float | None = None) -> Outcome:
        """`submit` for coroutines."""
        return await asyncio.wrap_future(self.submit(request, cpu_s=cpu_s))

    def warm(self) -> None:
        """Start the template and a spare now rather than on the first request."""
        self._add_spares()

    def close(self) -> None:
        """Kill the workers; what still waits becomes `unavailable`."""
        with self._changed:
            self._closed = True
            waiting, self._jobs = list(self._jobs), deque()
            self._changed.notify_all()
        for job in waiting:
            _settle(job, Outcome(Fate.UNAVAILABLE, reason="the pool was closed"))
        for lane in self._lanes:
            if lane is not threading.current_thread():
                lane.join(timeout=WALL_FACTOR * self.limits.cpu_s + 5)
        with self._starting:
            while self._spares:
                self._spares.pop().close()
            if self._template is not None:
                self._template.close()
                self._template = None

    # --- lanes ---

    def _start_lanes(self) -> None:
        if len(self._lanes) < min(self.size, len(self._jobs)):
            lane = threading.Thread(
                target=self._lane, name=f"pool lane {len(self._lanes)}", daemon=True
            )
            self._lanes.append(lane)
            lane.start()

    def _lane(self) -> None:
        worker: Worker | None = None
        while jobs := self._take():
            pending = deque(jobs)
            while pending:
                try:
                    worker = worker or self._fresh_worker()
                    worker = self._exchange(worker, pending)
                except Exception as error:  # a boundary: a lost template must not end the lane
                    logger.warning("pool lane: %s", error)
                    worker = None
                    self._lose_template()
                    self._fail_or_retry(pending, f"no worker could be started: {error}")
        if worker is not None:
            worker.close()

    def _take(self) -> list[_Job]:
        """The next chunk of jobs; empty when the pool closes."""
        while not self._closed:
            with self._changed:
                while not self._jobs and not self._closed:
                    self._changed.wait(timeout=60)
                share = max(1, min(self.limits.chunk, len(self._jobs) // self.size))
                jobs = [self._jobs.popleft() for _ in range(min(share, len(self._jobs)))]
            if kept := [job for job in jobs if self._still_wanted(job)]:
                return kept
        return []

    def _still_wanted(self, job: _Job) -> bool:
        waited = time.monotonic() - job.queued_at
        if waited > self.limits.queue_s:
            _settle(job, Outcome(Fate.UNAVAILABLE, reason=f"waited {waited:.0f} s for a worker"))
            return False
        return job.future.set_running_or_notify_cancel()

    def _exchange(self, worker: Worker, pending: deque[_Job]) -> Worker | None:
        """Send the chunk, settle replies as they come; returns the worker if it is still good."""
        worker.sock.settimeout(WALL_FACTOR * self.limits.cpu_s)
        try:
            channel.send(
                worker.sock, [{"request": job.request, "cpu_s": job.cpu_s} for job in pending]
            )
        except OSError:
            self._lost(worker, pending, late=False)
            return None
        while pending:
            job = pending[0]
            deadline = time.monotonic() + WALL_FACTOR * job.cpu_s + 0.05
            try:
                reply = channel.receive(worker.sock, deadline=deadline)
            except (TimeoutError, channel.ChannelClosed) as error:
                self._lost(worker, pending, late=isinstance(error, TimeoutError))
                return None
            pending.popleft()
            worker.served += 1
            if not _settle(job, _outcome(reply, worker)):
                self._retire(worker)
                return None
        if worker.served >= self.limits.recycle_after:
            self._retire(worker)
            return None
        return worker

    def _lost(self, worker: Worker, pending: deque[_Job], *, late: bool) -> None:
        """A worker died or was late: find out how, decide whose fault it is."""
        self.lost += 1
        worker.kill()
        before = worker.cpu_s
        death = self._live_template().reap(worker)
        job = pending[0]
        used = death.cpu_s - before
        if death.used_its_cpu or used >= 0.95 * job.cpu_s:
            pending.popleft()
            _settle(job, Outcome(Fate.LIMIT, reason=f"more than {job.cpu_s:g} s of CPU time"))
            return
        job.losses += 1
        if job.losses < 2:
            return
        pending.popleft()
        if late:
            waited = f"{WALL_FACTOR * job.cpu_s:g} s, of which it ran {used:.2f} s"
            reason = f"no answer in {waited}: the machine is too busy"
            _settle(job, Outcome(Fate.UNAVAILABLE, reason=reason))
        else:
            _settle(
                job,
                Outcome(
                    Fate.LIMIT, reason=f"it crashed {job.losses} workers (signal {death.signal})"
                ),
            )

    def _fail_or_retry(self, pending: deque[_Job], reason: str) -> None:
        for job in list(pending):
            job.losses += 1
            if job.losses >= 2 or self._closed:
                pending.remove(job)
                _settle(job, Outcome(Fate.UNAVAILABLE, reason=reason))

    def _retire(self, worker: Worker) -> None:
        worker.kill()
        self._live_template().reap(worker)

    # --- workers ---

    def _fresh_worker(self) -> Worker:
        with self._changed:
            worker = self._spares.popleft() if self._spares else None
        if worker is None:
            worker = self._live_template().fork()
        if not self._closed:
            threading.Thread(target=self._add_spares, name="pool spare", daemon=True).start()
        return worker

    def _add_spares(self) -> None:
        with self._starting:
            try:
                while not self._closed and len(self._spares) < self.limits.spares:
                    worker = self._started_template().fork()
                    with self._changed:
                        self._spares.append(worker)
            except (OSError, channel.ChannelClosed) as error:
                logger.warning("no spare worker: %s", error)

    def _live_template(self) -> Template:
        with self._starting:
            return self._started_template()

    def _started_template(self) -> Template:
        if self._template is None:
            if self._closed:
                raise channel.ChannelClosed("the pool is closed")
            self._template = Template(self.target, self.limits.memory_bytes)
        return self._template

    def _lose_template(self) -> None:
        with self._starting:
            while self._spares:
                self._spares.pop().close()
            template, self._template = self._template, None
        if template is not None:
            template.close()


def _outcome(reply: object, worker: Worker) -> Outcome:
    if not isinstance(reply, dict):
        return Outcome(Fate.ERROR, reason=f"a malformed reply: {reply!r:.80}")
    worker.cpu_s = float(str(reply.get("cpu_s", 0.0)))
    if "limit" in reply:
        return Outcome(Fate.LIMIT, reason=str(reply["limit"]))
    if "error" in reply:
        return Outcome(Fate.ERROR, reason=str(reply["error"]))
    return Outcome(Fate.DONE, reply.get("value"))


def _settle(job: _Job, outcome: Outcome) -> bool:
    """Hand the outcome over; False when the worker that gave it should not be used again."""
    if not job.future.done():
        job.future.set_result(outcome)
    return outcome.fate is not Fate.LIMIT
