"""Verdicts on a server: admitted, timed and counted.

Whatever goes wrong becomes a verdict without a reward, never a zero.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Sequence
from functools import cache, partial

from ludus.errors import ConfigError
from ludus.verdict import Verdict
from ludus.wire.admission import Admission
from ludus.wire.faults import QueueFull
from ludus.wire.prometheus import ServerMetrics

from ..pool import fates_of
from ..protocol import Sample
from .placement import VerifierHost


class ServedVerifier:
    """A verifier on a server, with its queue and metrics.

    Args:
        name: the verifier's name on the server.
        host: scores the samples, in this process or in a worker process.
        admission: limits the number of samples in flight.
        metrics: the metrics of the server.
    """

    def __init__(
        self, name: str, host: VerifierHost, admission: Admission, metrics: ServerMetrics
    ) -> None:
        self.name = name
        self.host = host
        self._admission = admission
        self._seconds = metrics.score_seconds.labels(name)
        self._refused = metrics.refused.labels("verifiers")
        # Looking a counter up by its labels costs more than counting.
        self._verdicts = cache(partial(metrics.verdicts.labels, name))
        self._fates = metrics.fates

    def begin(self, sample: Sample) -> Verdict | Awaitable[Verdict]:
        """Score an answer, without a task where the verdict is ready at once, which halves the cost
        of easy answers.

        Raises:
            Overloaded: the queue is full.
        """
        started = self._enter(1)
        scoring = self.host.score(sample)
        if not isinstance(scoring, Verdict):
            return self._finish(scoring, started)
        self._leave([scoring], 1, started)
        return scoring

    async def score(self, sample: Sample) -> Verdict:
        """Score an answer and wait for the verdict.

        Raises:
            Overloaded: the queue is full.
        """
        verdict = self.begin(sample)
        return verdict if isinstance(verdict, Verdict) else await verdict

    async def score_group(self, samples: Sequence[Sample]) -> list[Verdict]:
        """Score the answers of a group against each other.

        Raises:
            ConfigError: this verifier does not compare answers.
            Overloaded: the queue is full.
        """
        if not self.host.about.group:
            raise ConfigError(f"verifier {self.name!r} has no score_group; score one by one")
        started = self._enter(len(samples))
        verdicts: list[Verdict] = []
        try:
            verdicts = await self.host.score_group(samples)
        finally:
            self._leave(verdicts, len(samples), started)
        return verdicts

    async def _finish(self, scoring: Awaitable[Verdict], started: float) -> Verdict:
        verdicts: list[Verdict] = []
        try:
            verdicts = [await scoring]
        finally:
            self._leave(verdicts, 1, started)
        return verdicts[0]

    def _enter(self, number: int) -> float:
        for entered in range(number):
            try:
                self._admission.enter(self.name)
            except QueueFull:
                self._refused.inc()
                self._leave([], entered, time.perf_counter())
                raise
        return time.perf_counter()

    def _leave(self, verdicts: Sequence[Verdict], number: int, started: float) -> None:
        took_s = time.perf_counter() - started
        for _ in range(number):
            self._admission.leave(self.name, took_s)
        if verdicts:
            self._seconds.observe(took_s)
        for verdict in verdicts:
            self._verdicts(verdict.status.value).inc()
            for fate in fates_of(verdict):
                self._fates.labels(self.name, fate).inc()
