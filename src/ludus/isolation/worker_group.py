"""The worker processes of an environment or verifier: forked, assigned, recycled, counted."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from functools import partial

import msgspec

from ludus.errors import ConfigError
from ludus.wire.prometheus import ServerMetrics

from . import system
from .owner import Forked, Template
from .part import WorkerPart
from .process import WorkerEnd, WorkerProcess, controls
from .worker_spec import WorkerSpec

logger = logging.getLogger(__name__)
MIB = 1 << 20
LOOK_EVERY_S = 5.0


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
        on_change: called whenever a call or a process has ended.
    """

    def __init__(
        self,
        label: str,
        make: Callable[[], WorkerPart],
        *,
        limits: WorkerLimits,
        metrics: ServerMetrics,
        on_change: Callable[[WorkerProcess], None] = lambda worker: None,
    ) -> None:
        self.label = label
        self.limits = limits
        self.workers: list[WorkerProcess] = []
        """The workers that are alive or starting."""
        self.problem = ""
        """Why no worker can be started now; empty if that works."""
        self.is_async = False
        self._recipe = WorkerSpec.of(label, make)
        self._metrics = metrics
        self._on_change = on_change
        self._template: Template | None = None
        self._loading = asyncio.Lock()
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
        """End every worker, and the template."""
        if self._look is not None:
            self._look.cancel()
        for worker in list(self.workers):
            worker.stop(WorkerEnd.STOPPED, "the server stops")
        await asyncio.gather(*(worker.ended() for worker in list(self.workers)))
        if self._template is not None:
            await asyncio.get_running_loop().run_in_executor(controls, self._template.close)

    def spawn(self) -> WorkerProcess:
        """Start a new worker, which can be called at once."""
        worker = WorkerProcess(
            self.label,
            is_async=self.is_async,
            max_body=self.limits.max_reply_bytes,
            fork=self._fork,
            on_change=self._changed,
        )
        self.workers.append(worker)
        return worker

    def place(self) -> WorkerProcess:
        """Choose the worker for a new session.

        It is an empty worker while more may be forked, else the worker with the fewest sessions.
        """
        open_for_more = [worker for worker in self.workers if self.takes_more(worker)]
        fewest = min(open_for_more, key=lambda worker: worker.sessions, default=None)
        if fewest is None or (fewest.sessions and len(self.workers) < self.limits.processes):
            return self.spawn()
        return fewest

    def takes_more(self, worker: WorkerProcess) -> bool:
        """Return whether `worker` is alive, answers in time, and is not due for recycling."""
        fresh = worker.calls < self.limits.recycle_after
        return worker.end is None and not worker.is_late and fresh

    def recycle(self, worker: WorkerProcess) -> None:
        """End `worker` if it is due for recycling and empty."""
        is_worn = worker.calls >= self.limits.recycle_after
        if is_worn and worker.end is None and worker.is_empty:
            worker.stop(WorkerEnd.STOPPED, "it has served enough")

    def _changed(self, worker: WorkerProcess) -> None:
        if worker.gone and worker in self.workers:
            self.workers.remove(worker)
            if worker.end not in (None, WorkerEnd.STOPPED):
                self._metrics.worker_losses.labels(self.label, worker.end).inc()
        else:
            self.recycle(worker)
        self._on_change(worker)

    async def _fork(self) -> tuple[Template, Forked]:
        loop = asyncio.get_running_loop()
        template = await self._live_template()
        try:
            forked = await loop.run_in_executor(controls, template.fork)
        except (OSError, TimeoutError) as error:
            logger.warning("%s: its template is lost (%s); loading it again", self.label, error)
            template = await self._live_template(lost_template=template)
            forked = await loop.run_in_executor(controls, template.fork)
        self._metrics.worker_starts.labels(self.label).inc()
        return template, forked

    async def _live_template(self, lost_template: Template | None = None) -> Template:
        async with self._loading:
            if self._template is not None and self._template is not lost_template:
                return self._template
            loop = asyncio.get_running_loop()
            if self._template is not None:
                await loop.run_in_executor(controls, self._template.close)
            load = partial(
                Template,
                self._recipe,
                memory_bytes=self.limits.memory_bytes,
                max_body=self.limits.max_reply_bytes,
            )
            try:
                self._template = template = await loop.run_in_executor(controls, load)
            except Exception as error:
                self._template = None
                self.problem = f"no worker process for {self.label}: {error}"
                raise
            self.problem = ""
            return template

    async def _look_after(self) -> None:
        """Measure memory, and end workers that have been idle for long."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            now = time.monotonic()
            for worker in list(self.workers):
                if worker.is_empty and now - worker.idle_since > self.limits.idle_s:
                    worker.stop(WorkerEnd.STOPPED, "it was idle")
            if self._template is not None and not self._template.alive:
                with contextlib.suppress(Exception):  # told by `problem`, and tried again
                    await self._live_template(lost_template=self._template)
            pids = [worker.pid for worker in self.workers if worker.pid]
            self._memory = await loop.run_in_executor(controls, private_memory, pids)


def private_memory(pids: list[int]) -> float:
    """Return how many bytes of memory would be free without these processes."""
    return float(sum(system.private_bytes(pid) for pid in pids))
