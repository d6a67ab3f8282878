"""Runs verifiers on a server: plain ones off the event loop, all of them in bounded time.

Whatever goes wrong here becomes a verdict without a reward, never a zero.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import logging
import time
from collections.abc import Awaitable, Callable, Sequence

from prometheus_client import Counter

from ludus.errors import ConfigError, RemoteError, RewardUnavailable
from ludus.verdict import Status, Verdict
from ludus.wire.admission import Admission
from ludus.wire.codec import encode
from ludus.wire.faults import QueueFull
from ludus.wire.lanes import Lanes
from ludus.wire.metrics import ServerMetrics

from .pool import fates_of
from .protocol import GroupVerifier, Sample, Verifier
from .registry import FunctionVerifier, as_verdict

logger = logging.getLogger(__name__)


class Scorer:
    """One verifier on a server.

    Args:
        name: under which it is offered.
        verifier: the verifier. A plain `def score` may be called from several threads at a time.
        lanes: where plain ones run.
        admission: bounds the samples in flight.
        metrics: of the server.
        timeout_s: for one verdict, from when its scoring begins.
    """

    def __init__(
        self,
        name: str,
        verifier: Verifier,
        lanes: Lanes,
        admission: Admission,
        metrics: ServerMetrics,
        *,
        timeout_s: float,
    ) -> None:
        self.name = name
        self.verifier = verifier
        self.timeout_s = timeout_s
        self._lanes = lanes
        self._lane = itertools.count()
        self._admission = admission
        self._seconds = metrics.score_seconds.labels(name)
        self._refused = metrics.refused.labels("verifiers")
        self._verdicts = metrics.verdicts
        self._fates = metrics.fates
        self._counters: dict[Status, Counter] = {}

    @property
    def group(self) -> GroupVerifier | None:
        """The verifier, if it compares answers."""
        return self.verifier if isinstance(self.verifier, GroupVerifier) else None

    async def score(self, sample: Sample) -> Verdict:
        """Judge one answer.

        Raises:
            Overloaded: the queue is full.
        """
        started = self._enter(1)
        try:
            judged = await self._judge(
                lambda: self.verifier.score(sample), _is_async(self.verifier)
            )
        finally:
            self._leave(1, started)
        return self._read(judged)

    def begin(self, sample: Sample) -> Verdict | Awaitable[Verdict]:
        """`score`, without a task where the verifier never blocks and its verdict is there at
        once: a batch of easy answers costs half.

        Raises:
            Overloaded: the queue is full.
        """
        if not getattr(self.verifier, "never_blocks", False):
            return self.score(sample)
        started = self._enter(1)
        try:
            judged: object = self.verifier.score(sample)
        except Exception as error:
            judged = self._failed(error)
        if not isinstance(judged, Verdict) and inspect.isawaitable(judged):
            return self._finish(judged, started)
        self._leave(1, started)
        return self._read(judged)

    async def _finish(self, judged: Awaitable[object], started: float) -> Verdict:
        try:
            verdict = await self._judge(lambda: judged, is_async=True)
        finally:
            self._leave(1, started)
        return self._read(verdict)

    async def score_group(self, samples: Sequence[Sample]) -> list[Verdict]:
        """Judge the answers of one group against each other.

        Raises:
            ConfigError: this verifier does not.
            Overloaded: the queue is full.
        """
        group = self.group
        if group is None:
            raise ConfigError(f"verifier {self.name!r} has no score_group; score one by one")
        started = self._enter(len(samples))
        try:
            is_async = inspect.iscoroutinefunction(group.score_group)
            judged = await self._judge(lambda: group.score_group(samples), is_async)
        finally:
            self._leave(len(samples), started)
        return [self._read(verdict) for verdict in _one_each(judged, len(samples))]

    def _enter(self, number: int) -> float:
        for entered in range(number):
            try:
                self._admission.enter(self.name)
            except QueueFull:
                self._refused.inc()
                self._leave(entered, time.perf_counter())
                raise
        return time.perf_counter()

    def _leave(self, number: int, started: float) -> None:
        took_s = time.perf_counter() - started
        for _ in range(number):
            self._admission.leave(self.name, took_s)
        if number:
            self._seconds.observe(took_s)

    async def _judge(self, call: Callable[[], object], is_async: bool) -> object:
        """What `call` returns; a verdict without reward if it raises or takes too long."""
        try:
            made = call() if is_async else await self._off_loop(call)
            if inspect.isawaitable(made):
                async with asyncio.timeout(self.timeout_s):
                    return await made
        except Exception as error:
            return self._failed(error)
        return made

    def _failed(self, error: Exception) -> Verdict:
        """The verdict without reward that says what went wrong."""
        if isinstance(error, RewardUnavailable):
            return error.verdict
        if isinstance(error, RemoteError):  # a judge behind HTTP
            why = f"{type(error).__name__}: {error}"
            return Verdict.unavailable(why) if error.retryable else Verdict.error(why)
        if isinstance(error, TimeoutError):
            return self._late()
        logger.error("verifier %s failed", self.name, exc_info=error)
        return Verdict.error(f"{self.name} raised {type(error).__name__}: {error}")

    async def _off_loop(self, call: Callable[[], object]) -> object:
        key = f"{self.name}/{next(self._lane)}"
        return await self._lanes.submit(key, call, timeout_s=self.timeout_s, late=self._late)

    def _late(self) -> Verdict:
        return Verdict.unavailable(f"{self.name} gave no verdict within {self.timeout_s:g} s")

    def _read(self, judged: object) -> Verdict:
        try:
            verdict = as_verdict(judged)
            encode(verdict)
        except (TypeError, ValueError) as error:
            verdict = Verdict.error(f"{self.name} gave no usable verdict: {error}")
        self._count(verdict.status)
        for fate in fates_of(verdict):
            self._fates.labels(self.name, fate).inc()
        return verdict

    def _count(self, status: Status) -> None:
        counter = self._counters.get(status)
        if counter is None:  # looking it up by its labels costs more than counting
            counter = self._counters[status] = self._verdicts.labels(self.name, status.value)
        counter.inc()


def _is_async(verifier: Verifier) -> bool:
    """Whether it may be called on the loop: it is `async`, or says that it never blocks."""
    if getattr(verifier, "never_blocks", False):
        return True
    function = verifier.function if isinstance(verifier, FunctionVerifier) else verifier.score
    return inspect.iscoroutinefunction(function)


def _one_each(judged: object, number: int) -> Sequence[object]:
    if isinstance(judged, Verdict):  # nothing came of it, for all of them
        return [judged] * number
    if isinstance(judged, Sequence) and len(judged) == number:
        return judged
    return [Verdict.error(f"score_group must give {number} verdicts, got {judged!r:.80}")] * number
