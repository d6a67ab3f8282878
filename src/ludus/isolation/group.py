"""The worker processes of an environment or verifier: forked, placed, recycled, counted; and calls
that go to any free worker of them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial

import msgspec

from ludus.errors import ConfigError
from ludus.wire.admission import FairQueue
from ludus.wire.prometheus import ServerMetrics

from . import system
from .part import Answer, WorkerPart, WorkerSpec
from .process import WorkerEnd, WorkerLost, WorkerProcess, blocking
from .spawning import Template

logger = logging.getLogger(__name__)
MIB = 1 << 20
LOOK_EVERY_S = 5.0
MAX_LOSSES = 2
"""A call that has lost so many workers is not tried again."""
SIDE_BY_SIDE = 64
"""How many calls of an async part a worker carries out at a time."""


class WorkerLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of the worker processes of an environment or verifier."""

    processes: int = 8
    """The most processes; they are forked when needed."""
    memory_bytes: int = 1024 * MIB
    """The private writable memory of a process, above what is shared with the others; an allocation
    beyond raises MemoryError there.
    """
    max_reply_bytes: int = 16 * MIB
    """The most bytes of an answer; a longer answer is a fault of the part."""
    recycle_after: int = 50_000
    """After so many calls a process takes no new work, and ends once it is empty."""
    idle_s: float = 300.0
    """A process that has been idle for so many seconds ends."""

    def __post_init__(self) -> None:
        if self.processes < 1 or self.memory_bytes < 16 * MIB or self.max_reply_bytes < 1024:
            raise ConfigError(
                f"limits that no worker process can keep: {self!r}; processes >= 1, memory_bytes "
                ">= 16 MiB, max_reply_bytes >= 1024"
            )


class WorkerGroup:
    """Forks and ends the worker processes of a served environment or verifier.

    Args:
        label: the environment's id or the verifier's name.
        make: makes the `WorkerPart`, in the worker process.
        limits: the limits of the processes.
        metrics: counts starts and ends, and measures memory.
        on_free: called whenever a call has ended.
        on_gone: called whenever a process has ended; may be called again for the same one.
    """

    def __init__(
        self,
        label: str,
        make: Callable[[], WorkerPart],
        *,
        limits: WorkerLimits,
        metrics: ServerMetrics,
        on_free: Callable[[], None] = lambda: None,
        on_gone: Callable[[WorkerProcess], None] = lambda worker: None,
    ) -> None:
        self.label = label
        self.limits = limits
        self.workers: list[WorkerProcess] = []
        """The workers that are alive or starting."""
        self.problem = ""
        """Why no worker can be had now; empty while workers can be started."""
        self.is_async = False
        self._spec = WorkerSpec.of(label, make)
        self._metrics = metrics
        self._on_free = on_free
        self._on_gone = on_gone
        self._template: Template | None = None
        self._loading: asyncio.Future[None] | None = None
        """The loading of the template, which all who need one await."""
        self._memory = 0.0
        self._look: asyncio.Task[None] | None = None

    async def start(self) -> bytes:
        """Load the part in a template, and return what the part says about itself.

        Raises:
            LudusError: the part cannot be loaded.
        """
        template = await self._live_template()
        self.is_async = template.is_async
        if template.unshareable:
            logger.info(
                "%s: loading it leaves %s behind, which processes cannot share: each worker loads "
                "by itself",
                self.label,
                template.unshareable,
            )
        self._metrics.watch(
            "worker_processes", "Worker processes", lambda: len(self.workers), served=self.label
        )
        self._metrics.watch(
            "worker_private_bytes",
            "Memory of worker processes that they do not share",
            lambda: self._memory,
            served=self.label,
        )
        self._look = asyncio.create_task(self._look_after(), name=f"ludus-crew-{self.label}")
        return template.about

    async def stop(self) -> None:
        """End every worker, and the template; may be called again after a failure."""
        if self._look is not None:
            self._look.cancel()
        for worker in list(self.workers):
            worker.stop(WorkerEnd.STOPPED, "the server stops")
        await asyncio.gather(*(worker.ended() for worker in list(self.workers)))
        if self._template is not None:
            await blocking(self._template.close)

    def spawn(self) -> WorkerProcess:
        """Start a new worker, which can be called at once."""
        worker = WorkerProcess(
            self.label,
            is_async=self.is_async,
            max_body=self.limits.max_reply_bytes,
            max_calls=self.limits.recycle_after,
            on_free=self._on_free,
            on_gone=self._gone,
        )
        try:
            self.workers.append(worker)
            worker.start(self._fork)
        except BaseException:
            worker.abandon()
            raise
        return worker

    def place(self) -> WorkerProcess:
        """Choose the worker for a new session.

        It is an empty worker while more may be forked, else the worker with the fewest sessions.
        """
        open_for_more = [worker for worker in self.workers if worker.takes_more]
        fewest = min(open_for_more, key=lambda worker: worker.sessions, default=None)
        if fewest is None or (fewest.sessions and len(self.workers) < self.limits.processes):
            return self.spawn()
        return fewest

    def recycle(self, worker: WorkerProcess) -> None:
        """End `worker` if due for recycling and empty."""
        if worker.is_worn and worker.is_empty:
            worker.stop(WorkerEnd.STOPPED, "it has served enough")

    def _gone(self, worker: WorkerProcess) -> None:
        if worker in self.workers:
            self.workers.remove(worker)
            if worker.end is not None and worker.end is not WorkerEnd.STOPPED:
                self._metrics.worker_losses.labels(self.label, worker.end).inc()
        self._on_gone(worker)
        self._on_free()

    async def _fork(self, worker: WorkerProcess) -> None:
        try:
            template = await self._live_template()
            try:
                await blocking(partial(_fork_for, worker, template))
            except OSError as error:  # TimeoutError too
                logger.warning("%s: its template is lost (%s); loading it again", self.label, error)
                template = await self._live_template(lost_template=template)
                await blocking(partial(_fork_for, worker, template))
        except Exception as error:
            self.problem = f"no worker process for {self.label}: {error}"
            raise
        self.problem = ""
        self._metrics.worker_starts.labels(self.label).inc()

    async def _live_template(self, lost_template: Template | None = None) -> Template:
        if self._template is None or self._template is lost_template:
            if self._loading is None or self._loading.done():
                self._loading = asyncio.ensure_future(blocking(self._load))
            await asyncio.shield(self._loading)
        assert self._template is not None
        return self._template

    def _load(self) -> None:
        if self._template is not None:
            self._template.close()
            self._template = None
        limits = self.limits
        self._template = Template(
            self._spec, memory_bytes=limits.memory_bytes, max_body=limits.max_reply_bytes
        )

    async def _look_after(self) -> None:
        """Measure memory, end workers that have been idle for long, and see whether workers can
        be had.
        """
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            try:
                await self._look_once(time.monotonic())
            except Exception:
                logger.exception("%s: looking after its processes failed", self.label)

    async def _look_once(self, now: float) -> None:
        for worker in list(self.workers):
            if worker.is_empty and now - worker.idle_since > self.limits.idle_s:
                worker.stop(WorkerEnd.STOPPED, "it was idle")
        if self._template is not None and not self._template.alive:
            try:
                await self._live_template(lost_template=self._template)
            except Exception as error:
                self.problem = f"no worker process for {self.label}: {error}"
        elif self.problem and len(self.workers) < self.limits.processes:
            self.spawn()  # a worker that starts ends the problem
        pids = [worker.pid for worker in self.workers if worker.pid]
        self._memory = await blocking(partial(private_memory, pids))


def _fork_for(worker: WorkerProcess, template: Template) -> None:
    worker.process = template.fork()


def private_memory(pids: list[int]) -> float:
    """Return how many bytes of memory would be free without these processes."""
    return float(sum(system.private_bytes(pid) for pid in pids))


class NoFreeWorker(Exception):
    """No worker was free for too long."""


class _Waiting:
    """A call that waits for a worker."""

    def __init__(self, start: _Start, *, alone: bool) -> None:
        self.start = start
        self.alone = alone
        self.turn: asyncio.Future[asyncio.Future[Answer]] = (
            asyncio.get_running_loop().create_future()
        )
        """Done once a worker has the call, with the future of its answer."""


_Start = Callable[[WorkerProcess], asyncio.Future[Answer]]


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
            label, make, limits=limits, metrics=metrics, on_free=self._dispatch
        )
        self._waiting: FairQueue[_Waiting] = FairQueue()
        self._stopping = False

    async def start(self) -> bytes:
        """Load the part and return what the part says about itself."""
        return await self.group.start()

    async def stop(self) -> None:
        """End every worker and fail the waiting calls."""
        self._stopping = True
        while self._waiting.size:
            lost = WorkerLost(WorkerEnd.STOPPED, "the server stops")
            waiting = self._waiting.head()
            if not waiting.turn.done():
                waiting.turn.set_exception(lost)
            self._waiting.remove(waiting)
        await self.group.stop()

    async def call(
        self,
        tag: int,
        body: bytes,
        *,
        timeout_s: float,
        queue_s: float,
        tries: int = MAX_LOSSES,
        alone: bool = False,
    ) -> Answer:
        """Carry out a call on some worker, and return the answer.

        Args:
            tag: what is asked.
            body: the encoded arguments.
            timeout_s: the limit in seconds, from when a worker has the call.
            queue_s: how long the call may wait for a worker, in seconds.
            tries: how many workers may be lost on it before the loss is told.
            alone: whether the worker shall have no other call, also the first time.

        Raises:
            CallFailed: an exception escaped from the part.
            CallLate: no answer within `timeout_s`.
            WorkerLost: two workers were lost on it, or none could be started.
            NoFreeWorker: no worker was free within `queue_s`.
        """
        start = partial(
            WorkerProcess.call, tag=tag, thread_number=1, body=body, timeout_s=timeout_s
        )
        while True:
            worker = None if self._waiting.size else self._free_worker(alone=alone)
            if worker is not None:
                answer = start(worker)
            else:
                answer = await self._turn(start, queue_s, alone=alone)
            try:
                return await answer
            except WorkerLost as lost:
                tries, alone = tries - 1, True
                if lost.end is WorkerEnd.UNSTARTED or not tries or self._stopping:
                    raise

    async def _turn(self, start: _Start, queue_s: float, *, alone: bool) -> asyncio.Future[Answer]:
        """Wait until a worker has the call."""
        waiting = _Waiting(start, alone=alone)
        try:
            # A call that has lost a worker has waited before.
            (self._waiting.put_first if alone else self._waiting.append)(waiting)
            async with asyncio.timeout(queue_s):
                return await waiting.turn
        except TimeoutError:
            raise NoFreeWorker(f"no worker was free for {queue_s:g} s") from None
        finally:
            self._waiting.remove(waiting)

    def _dispatch(self) -> None:
        while self._waiting.size:
            waiting = self._waiting.head()
            if not waiting.turn.done():
                try:
                    worker = self._free_worker(alone=waiting.alone)
                    if worker is None:
                        return
                    waiting.turn.set_result(waiting.start(worker))
                except Exception as error:
                    waiting.turn.set_exception(error)
            self._waiting.remove(waiting)

    def _free_worker(self, *, alone: bool) -> WorkerProcess | None:
        """Return a worker with room, or a new worker; None where neither can be had now."""
        workers = self.group.workers
        can_spawn = len(workers) < self.group.limits.processes
        room = 1 if alone or not self.group.is_async else SIDE_BY_SIDE
        free: WorkerProcess | None = None
        if not (alone and can_spawn):
            for worker in workers:
                calls = len(worker.open)
                has_room = calls < (1 if worker.alone else room) and worker.takes_more
                if has_room and (free is None or calls < len(free.open)):
                    free = worker
        if free is None and can_spawn:
            free = self.group.spawn()
        if free is not None:
            free.alone = alone
        return free
