"""A sandbox behind a gate, for every route that runs code, with a queue and metrics.

Work that finds the queue full, or that no slot takes in time, is refused with the expected wait in
seconds: 429 with `Retry-After`, and never a time-out that looks like the program's.

All work goes through the runner, which checks bounds, limits the waiting, and counts.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from ludus.wire.admission import FairQueue
from ludus.wire.faults import QueueFull, Refused
from ludus.wire.prometheus import LATENCY_BUCKETS, ServerMetrics
from ludus.wire.routes import Context

from ..grading.hidden_tests import KINDS, Grading, grade_in_detail
from ..languages import UnknownLanguage
from ..local.slot_pool import default_size
from ..local.slot_sandbox import SlotSandbox
from ..local.slots import SlotLost
from ..open import open_with
from ..protocol import Execution, Limits, Program, Sandbox
from ..settings import DEFAULTS, SandboxSettings
from .sandbox_wire import Bounds, ExecuteBody, GradeBody

_SMOOTHING = 0.1
"""The weight of the newest work in the mean time for which a slot is held."""
_FIRST_GUESS_S = 0.01
"""The mean before any work has ended."""
_MIN_RETRY_S, _MAX_RETRY_S = 0.05, 60.0
"""The bounds of the wait that a refusal tells."""


@dataclass(slots=True, eq=False)
class _Waiter:
    """Work that waits in the queue."""

    weight: int
    turn: asyncio.Future[None]


class Gate:
    """Admits work for at most `width` slots at a time; principals take turns.

    Args:
        width: the number of slots.
        max_waiting: how many requests may wait.
    """

    def __init__(self, width: int, *, max_waiting: int) -> None:
        self.width = width
        self.max_waiting = max_waiting
        self.busy = 0
        """The number of slots in use."""
        self._line: FairQueue[_Waiter] = FairQueue()
        self._slot_s = _FIRST_GUESS_S
        """The exponential mean of how long a slot is held, in seconds."""

    @property
    def waiting(self) -> int:
        """The number of waiting requests."""
        return self._line.size

    @property
    def queue_s(self) -> float:
        """The expected wait of a new request in seconds, from the recent duration of work."""
        waiting_weight = sum(waiter.weight for waiter in self._line) + (self.busy >= self.width)
        return waiting_weight * self._slot_s / self.width

    @asynccontextmanager
    async def enter(
        self, weight: int = 1, *, patience_s: float, bounded: bool = True
    ) -> AsyncGenerator[float]:
        """Hold `weight` slots while the context is open; yields the seconds spent waiting.

        Args:
            weight: how many slots the work needs; all, if there are fewer.
            patience_s: how long to wait, in seconds.
            bounded: whether a full queue refuses this work at once, or only `patience_s` does.

        Raises:
            QueueFull: the queue is full, or the work was not admitted in time.
        """
        weight = min(weight, self.width)
        asked_at = time.monotonic()
        if self._line.size or self.busy + weight > self.width:
            if bounded and not self._line.has_room(self.max_waiting):
                raise self.full("every place in line is taken")
            waiter = _Waiter(weight, asyncio.get_running_loop().create_future())
            self._line.append(waiter)
            try:
                async with asyncio.timeout(patience_s):
                    await waiter.turn
            except TimeoutError:
                # Slots that were assigned in the same moment are used all the same.
                if not self._give_up(waiter):
                    raise self.full(f"no slot was free within {patience_s:.3g} s") from None
            except BaseException:
                if self._give_up(waiter):
                    self._leave(weight)
                raise
        else:
            self.busy += weight
        entered = time.monotonic()
        try:
            yield entered - asked_at
        finally:
            held_s = time.monotonic() - entered
            self._slot_s += _SMOOTHING * (held_s - self._slot_s)
            self._leave(weight)

    def _give_up(self, waiter: _Waiter) -> bool:
        """Leave the queue; return whether the slots had been assigned at the same moment."""
        if waiter.turn.done() and not waiter.turn.cancelled():
            return True
        self._line.remove(waiter)
        self._admit()  # Lighter work behind may fit where this work did not.
        return False

    def _leave(self, weight: int) -> None:
        self.busy -= weight
        self._admit()

    def _admit(self) -> None:
        # In strict order: otherwise light work could overtake heavy work for ever.
        while self._line.size and self.busy + self._line.head().weight <= self.width:
            waiter = self._line.head()
            self._line.remove(waiter)
            # The waiter was cancelled and has not run since, so it is still in the queue.
            if waiter.turn.cancelled():
                continue
            self.busy += waiter.weight
            waiter.turn.set_result(None)

    def full(self, reason: str) -> QueueFull:
        """Return the refusal of work, with the length of the queue and the expected wait."""
        retry_after_s = min(_MAX_RETRY_S, max(_MIN_RETRY_S, self.queue_s))
        return QueueFull(
            f"{reason}: {self.busy} of {self.width} slots are busy "
            f"and {self.waiting} requests wait, about {retry_after_s:.2g} s",
            retry_after_s,
            depth=self.waiting + self.busy,
            limit=self.max_waiting + self.width,
            cause="sandbox",
        )


class SandboxMetrics:
    """Metrics of runs, gradings, cells, the queue and the REPLs, in the server's registry."""

    def __init__(self, server: ServerMetrics) -> None:
        registry = server.registry
        self.refuse = server.refuse
        self.runs = Counter(
            "ludus_sandbox_runs",
            "Programs, gradings and cells, by how they ended",
            ("operation", "status"),
            registry=registry,
        )
        self.seconds = _seconds(registry, "sandbox_seconds", "One run, queued and run", "operation")
        self.queue_seconds = _seconds(registry, "sandbox_queue_seconds", "Waiting for a slot")
        self._registry = registry

    def watch(self, name: str, documentation: str, read: Callable[[], float]) -> None:
        """Register a gauge that is read when scraped."""
        Gauge(f"ludus_{name}", documentation, registry=self._registry).set_function(read)


def _seconds(registry: CollectorRegistry, name: str, documentation: str, *labels: str) -> Histogram:
    return Histogram(
        f"ludus_{name}", documentation, labels, buckets=LATENCY_BUCKETS, registry=registry
    )


logger = logging.getLogger(__name__)
MIN_SLOTS = 2
"""The fewest slots; a grading holds two at once."""
CLOSE_TIMEOUT_S = 30.0
"""Seconds that the sandbox may take to close."""


class Runner:
    """Opens a sandbox, and runs work in it once the gate admits the work.

    Args:
        tier: the isolation tier that is opened when the server starts; None takes the strongest
            that holds here.
        settings: the settings of the sandbox; `size` and `for_tenants` are set here.
        slots: how many programs run at a time, at least 2; by default twice the number of cores.
        bounds: what clients may ask for; by default those of `Bounds`.
        sandbox: an open sandbox to use instead, which is closed with the runner.
    """

    def __init__(
        self,
        tier: str | None = None,
        settings: SandboxSettings = DEFAULTS,
        *,
        slots: int | None = None,
        bounds: Bounds | None = None,
        sandbox: Sandbox | None = None,
    ) -> None:
        self.bounds = bounds or Bounds()
        self.slots = max(MIN_SLOTS, slots or default_size())
        self.gate = Gate(self.slots, max_waiting=self.bounds.max_queue)
        self._tier, self._settings = tier, settings
        self._sandbox = sandbox
        self._metrics: SandboxMetrics | None = None

    @property
    def sandbox(self) -> Sandbox:
        """The sandbox; available once the server has started."""
        assert self._sandbox is not None, "start the server first"
        return self._sandbox

    @property
    def metrics(self) -> SandboxMetrics:
        """The metrics; available once the server has started."""
        assert self._metrics is not None, "start the server first"
        return self._metrics

    async def start(self, context: Context) -> None:
        """Probe and open the sandbox, and start the slots.

        Raises:
            ConfigError: no tier works, or the named tier does not.
        """
        self._metrics = SandboxMetrics(context.metrics)
        self._metrics.watch("sandbox_slots_busy", "Slots in use", lambda: self.gate.busy)
        self._metrics.watch("sandbox_waiting", "Waiting for a slot", lambda: self.gate.waiting)
        if self._sandbox is None:
            settings = replace(self._settings, size=self.slots, for_tenants=True)
            self._sandbox = await open_with(self._tier, settings)
        if isinstance(self._sandbox, SlotSandbox):
            try:
                await self._sandbox.pool().warm()
            except SlotLost as error:  # A slot that is missing is started when it is needed.
                logger.warning("not every slot started: %s", error)

    async def stop(self) -> None:
        """Close the sandbox and end all programs.

        Raises:
            TimeoutError: the sandbox is still open after `CLOSE_TIMEOUT_S`.
        """
        if self._sandbox is not None:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self._sandbox.close()

    async def execute(self, body: ExecuteBody) -> Execution:
        """Run a program of the native protocol.

        Raises:
            Refused: the program asks for more than is granted, or for an unknown language.
            ConfigError: a path, argument or text cannot be passed on.
            QueueFull: the queue is full or does not move on.
        """
        program = body.program(self.bounds)
        self.check(program.limits)
        if body.stdin and body.stdin_bytes:
            raise Refused("give stdin or stdin_bytes, not both", "invalid")
        return await self.run(
            program, patience_s=body.queue_timeout_s or self.bounds.queue_timeout_s
        )

    async def run(
        self,
        program: Program,
        *,
        patience_s: float,
        operation: str = "execute",
        bounded: bool = True,
    ) -> Execution:
        """Run a program once a slot is free.

        Args:
            program: the program; its limits are not checked here.
            patience_s: how long to wait for a slot, in seconds.
            operation: the name of the work in the metrics.
            bounded: see `Gate.enter`.

        Raises:
            Refused: the sandbox does not know the program's language.
            QueueFull: see `Gate.enter`.
        """
        started = time.perf_counter()
        try:
            async with self.gate.enter(patience_s=patience_s, bounded=bounded) as waited_s:
                execution = await self.sandbox.run(program)
        except UnknownLanguage as error:
            raise Refused(str(error), "unknown_language") from error
        self.metrics.queue_seconds.observe(waited_s)
        self.count(operation, execution.status, started)
        usage = msgspec.structs.replace(execution.usage, queue_s=execution.usage.queue_s + waited_s)
        return msgspec.structs.replace(execution, usage=usage)

    async def grade(self, body: GradeBody) -> Grading:
        """Grade a solution.

        Raises:
            Refused: the grading could take longer than is granted.
            ConfigError: an unknown kind or comparison.
            QueueFull: the queue is full or does not move on.
        """
        limits = body.options.limits(output_bytes=1)
        self.check_time("timeout_s", limits.timeout_s)
        self.check_time("cpu_s", limits.cpu_s)
        self.check_room(limits)
        per_case = KINDS.get(body.kind) == "stdin"
        longest_s = body.options.timeout_s * (len(body.tests) if per_case else 1)
        self.check_grading_time(longest_s)
        started = time.perf_counter()
        patience_s = body.queue_timeout_s or self.bounds.queue_timeout_s
        async with self.gate.enter(1 if per_case else 2, patience_s=patience_s) as waited_s:
            grading = await grade_in_detail(
                self.sandbox, body.solution, body.tests, kind=body.kind, options=body.options
            )
        self.metrics.queue_seconds.observe(waited_s)
        self.count("grade", grading.verdict.status, started)
        return grading

    def check(self, limits: Limits) -> None:
        """Check limits against what is granted.

        Raises:
            Refused: 422, naming the limit.
        """
        for name in ("timeout_s", "cpu_s", "compile_s"):
            self.check_time(name, getattr(limits, name))
        self.check_room(limits)

    def check_time(self, name: str, seconds: float) -> None:
        """Check a time against what is granted to a single run or cell.

        Raises:
            Refused: 422, naming the time.
        """
        self._grant(name, seconds, self.bounds.max_timeout_s)

    def check_room(self, limits: Limits) -> None:
        """Check memory and output against what is granted.

        Raises:
            Refused: 422, naming the limit.
        """
        self._grant("memory_bytes", limits.memory_bytes, self.bounds.max_memory_bytes)
        self._grant("output_bytes", limits.output_bytes, self.bounds.max_output_bytes)

    def check_grading_time(self, seconds: float) -> None:
        """Check the longest possible time of a grading against what is granted.

        Raises:
            Refused: 422. The grading is refused before it starts, so that no program decides by its
                slowness whether it is graded.
        """
        self._grant("timeout_s of all inputs together", seconds, self.bounds.max_grade_s)

    def _grant(self, name: str, value: float, bound: float) -> None:
        if value > bound:
            raise Refused(f"{name} is {value:g}; this server grants at most {bound:g}", "invalid")

    def count(self, operation: str, status: str, started: float) -> None:
        """Record work in the metrics.

        Args:
            operation: the name of the work.
            status: how the work ended.
            started: when it began, by `time.perf_counter`.
        """
        self.metrics.runs.labels(operation, str(status)).inc()
        self.metrics.seconds.labels(operation).observe(time.perf_counter() - started)
