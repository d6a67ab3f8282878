"""The Prometheus metrics of a sandbox server, besides the metrics common to all servers."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from ludus.wire.prometheus import LATENCY_BUCKETS, ServerMetrics


class SandboxMetrics:
    """Metrics of runs, gradings, cells, the queue and the REPLs, in the server's registry."""

    def __init__(self, server: ServerMetrics) -> None:
        registry = server.registry
        self.refused = server.refused.labels("sandbox")
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
