"""Calls that go to any free worker: a late call harms no other, and a lost call is tried again."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from ludus.wire.prometheus import ServerMetrics

from .part import Answer, WorkerPart
from .process import WorkerEnd, WorkerLost, WorkerProcess
from .worker_group import WorkerGroup, WorkerLimits

MAX_LOSSES = 2
"""A call that has lost so many workers is not tried again."""
SIDE_BY_SIDE = 64
"""How many calls of an async part a worker carries out at a time."""


class NoFreeWorker(Exception):
    """No worker was free for too long."""


@dataclass(slots=True, eq=False)
class _Job:
    tag: int
    body: bytes
    timeout_s: float
    future: asyncio.Future[Answer]
    losses: int = 0
    timer: asyncio.TimerHandle | None = None


class AnyWorker:
    """Carries out calls that need no worker in particular, such as verdicts.

    A worker of a plain part has a single call at a time, a worker of an async part up to
    `SIDE_BY_SIDE`. A call whose worker was lost is tried once more, alone in a worker, so that no
    other call can be to blame the second time.
    """

    def __init__(
        self,
        label: str,
        make: Callable[[], WorkerPart],
        *,
        limits: WorkerLimits,
        metrics: ServerMetrics,
    ) -> None:
        self.group = WorkerGroup(
            label, make, limits=limits, metrics=metrics, on_change=self._changed
        )
        self._waiting: deque[_Job] = deque()
        self._alone: set[WorkerProcess] = set()
        """Workers that carry out a call whose worker was lost, and nothing else."""
        self._stopping = False

    async def start(self) -> bytes:
        """Load the part and return what the part says about itself."""
        return await self.group.start()

    async def stop(self) -> None:
        """End every worker and fail the waiting calls."""
        self._stopping = True
        await self.group.stop()
        while self._waiting:
            _fail(self._waiting.popleft(), WorkerLost(WorkerEnd.STOPPED, "the server stops"))

    def call(
        self, tag: int, body: bytes, *, timeout_s: float, queue_s: float
    ) -> asyncio.Future[Answer]:
        """Carry out a call on some worker.

        Args:
            tag: what is asked.
            body: the encoded arguments.
            timeout_s: the limit in seconds, from when a worker has the call.
            queue_s: how long the call may wait for a worker, in seconds.

        Returns:
            A future of the answer, which may fail with CallFailed, CallLate, WorkerLost or
            NoFreeWorker.
        """
        loop = asyncio.get_running_loop()
        job = _Job(tag, body, timeout_s, loop.create_future())
        worker = None if self._waiting else self._free_worker(alone=False)
        if worker is not None:
            self._begin(job, worker)
        else:
            self._waiting.append(job)
            late = NoFreeWorker(f"no worker was free for {queue_s:g} s")
            job.timer = loop.call_later(queue_s, _fail, job, late)
        return job.future

    def _begin(self, job: _Job, worker: WorkerProcess) -> None:
        if job.timer is not None:
            job.timer.cancel()
        if job.losses:
            self._alone.add(worker)
        answer = worker.call(job.tag, 1, job.body, timeout_s=job.timeout_s)
        answer.add_done_callback(partial(self._settle, job))

    def _settle(self, job: _Job, answer: asyncio.Future[Answer]) -> None:
        if job.future.done() or answer.cancelled():
            return
        error = answer.exception()
        if error is None:
            job.future.set_result(answer.result())
            return
        was_lost = isinstance(error, WorkerLost) and error.end is not WorkerEnd.UNSTARTED
        if was_lost and not self._stopping:
            job.losses += 1
            if job.losses < MAX_LOSSES:
                self._waiting.appendleft(job)
                self._dispatch()
                return
        job.future.set_exception(error)

    def _changed(self, worker: WorkerProcess) -> None:
        if not worker.busy:
            self._alone.discard(worker)
        self._dispatch()

    def _dispatch(self) -> None:
        while self._waiting and not self._stopping:
            job = self._waiting[0]
            if not job.future.done():
                worker = self._free_worker(alone=bool(job.losses))
                if worker is None:
                    return
                self._begin(job, worker)
            self._waiting.popleft()

    def _free_worker(self, *, alone: bool) -> WorkerProcess | None:
        """Return a worker with room, or a new worker; None where neither can be had now."""
        can_spawn = len(self.group.workers) < self.group.limits.processes
        if alone and can_spawn:
            return self.group.spawn()
        max_calls = SIDE_BY_SIDE if self.group.is_async and not alone else 1
        free = [
            worker
            for worker in self.group.workers
            if worker.busy < max_calls
            and worker not in self._alone
            and self.group.takes_more(worker)
        ]
        if free:
            return min(free, key=lambda worker: worker.busy)
        return self.group.spawn() if can_spawn else None


def _fail(job: _Job, error: Exception) -> None:
    if not job.future.done():
        job.future.set_exception(error)
