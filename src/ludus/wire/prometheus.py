"""The metrics that a server offers Prometheus, in a registry of each server's own.

Because nothing is registered globally, two servers fit in one process.
"""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)

from .faults import Fault

LATENCY_BUCKETS = (
    *(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1),
    *(0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0),
)
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class ServerMetrics:
    """Holds the counters, gauges and histograms of a server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)  # process_*: memory, CPU, open files
        self._gauges: dict[str, Gauge] = {}
        self.requests = self._counter("requests", "HTTP requests", "route", "status")
        self.sessions_opened = self._counter("sessions_opened", "Sessions created", "env")
        self.sessions_ended = self._counter(
            "sessions_ended", "Sessions released, by reason", "env", "reason"
        )
        self.operations = self._counter(
            "operations", "Resets and steps, by outcome", "env", "operation", "outcome"
        )
        self.replays = self._counter("replays", "Repeated seqs answered from the kept reply", "env")
        self.refused = self._counter("refused", "Work refused (429), by the bound it met", "cause")
        self.verdicts = self._counter("verdicts", "Verdicts by status", "verifier", "status")
        self.fates = self._counter(
            "pool_fates", "Verdicts whose worker met a limit or was lost", "verifier", "fate"
        )
        self.worker_starts = self._counter(
            "worker_starts", "Worker processes forked for user code", "served"
        )
        self.worker_losses = self._counter(
            "worker_losses", "Worker processes lost, by reason", "served", "reason"
        )
        self.chaos = self._counter("chaos", "Faults injected on purpose", "fault")
        self.step_seconds = self._histogram(
            "step_seconds", "A reset or step, queued and run", "env"
        )
        self.score_seconds = self._histogram("score_seconds", "One verdict", "verifier")
        self.lag_seconds = self._histogram("event_loop_lag_seconds", "How late the loop wakes up")

    def refuse(self, fault: Fault) -> None:
        """Count a fault that is sent to a client, if the cause is a bound."""
        if fault.cause:
            self.refused.labels(fault.cause).inc()

    def watch(
        self, name: str, documentation: str, read: Callable[[], float], **labels: str
    ) -> None:
        """Register a gauge whose value is read with `read` at each scrape.

        Args:
            name: the name of the gauge, without the prefix `ludus_`.
            documentation: the help text of the gauge; that of the first call holds.
            read: returns the current value; must be quick, since every scrape calls it.
            labels: the labels that tell this value from others of the gauge.
        """
        gauge = self._gauges.get(name)
        if gauge is None:
            gauge = Gauge(
                f"ludus_{name}", documentation, labelnames=tuple(labels), registry=self.registry
            )
            self._gauges[name] = gauge
        (gauge.labels(**labels) if labels else gauge).set_function(read)

    def text(self) -> bytes:
        """Write every metric in the Prometheus text format."""
        return generate_latest(self.registry)

    def _counter(self, name: str, documentation: str, *labels: str) -> Counter:
        return Counter(f"ludus_{name}", documentation, labels, registry=self.registry)

    def _histogram(self, name: str, documentation: str, *labels: str) -> Histogram:
        return Histogram(
            f"ludus_{name}", documentation, labels, buckets=LATENCY_BUCKETS, registry=self.registry
        )
