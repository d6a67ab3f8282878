"""Spans of steps and verdicts for OpenTelemetry, which the extra `otel` brings.

A reset or step is a span from its admission to its outcome, through the worker process; so is a
verdict, whether it came by a POST, in a batch or over a stream. A verdict is an event of its span,
`gen_ai.evaluation.result` of the conventions for generative AI (semantic-conventions-genai, status
Development); a verifier that failed has no score there. The session is the span's
`gen_ai.conversation.id`. The span's parent is the `traceparent` that the operation has in its
stream, or else that of the request which carried it; it becomes the parent of what the environment
or verifier asks by clients of ludus, in its worker process too. Texts of answers are never sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import version
from typing import Any
from urllib.parse import urlsplit

from ludus.errors import ConfigError, MissingExtra
from ludus.verdict import Verdict

from .codec import trace_parent

TRACES_PATH = "/v1/traces"
"""The path of OTLP over HTTP, where an address has none."""
EXPORT_S = 5.0
"""Seconds for which a batch of spans is tried to be sent, at the end of the server too."""


class TraceSpan:
    """A span that has begun.

    Args:
        span: the span of OpenTelemetry.
        name: the name of what is judged in it.
    """

    def __init__(self, span: Any, name: str) -> None:
        self._span = span
        self.name = name

    def judge(self, verdict: Verdict) -> None:
        """Add the event of a verdict."""
        attributes: dict[str, str | float] = {"gen_ai.evaluation.name": self.name}
        if verdict.ok and verdict.reward is not None:
            attributes["gen_ai.evaluation.score.value"] = float(verdict.reward)
        else:
            attributes["error.type"] = verdict.status.value
        self._span.add_event("gen_ai.evaluation.result", attributes)

    def end(self, error: str = "") -> None:
        """End the span; `error` is the code of the fault, empty after a success."""
        if error:
            self._span.set_attribute("error.type", error)
            self._span.set_status(import_module("opentelemetry.trace").StatusCode.ERROR)
        self._span.end()


class Tracer:
    """Sends spans to a collector, in batches, from a background thread.

    Args:
        url: where the collector takes OTLP over HTTP, such as http://127.0.0.1:4318.
        exporter: an exporter of OpenTelemetry that is given the spans instead; None for OTLP.

    Raises:
        MissingExtra: OpenTelemetry is not installed.
        ConfigError: `url` is no address of HTTP.
    """

    def __init__(self, url: str, *, exporter: Any = None) -> None:
        refusal = f"a collector's address looks like http://127.0.0.1:4318, got {url!r}"
        try:
            parts = urlsplit(url)
            is_address = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:  # an unclosed bracket, or a port that is none
            raise ConfigError(refusal) from None
        if not is_address:
            raise ConfigError(refusal)
        try:
            otlp = import_module("opentelemetry.exporter.otlp.proto.http.trace_exporter")
            sdk = import_module("opentelemetry.sdk.trace")
            resources = import_module("opentelemetry.sdk.resources")
            propagation = import_module("opentelemetry.trace.propagation.tracecontext")
        except ImportError:
            raise MissingExtra.of("otel", needed_for="--otel") from None
        endpoint = url if parts.path.strip("/") else parts._replace(path=TRACES_PATH).geturl()
        self._exporter = exporter or otlp.OTLPSpanExporter(endpoint=endpoint, timeout=EXPORT_S)
        about = {"service.name": "ludus", "service.version": version("ludus-rl")}
        self._provider = sdk.TracerProvider(resource=resources.Resource.create(about))
        self._tracer = self._provider.get_tracer("ludus", version("ludus-rl"))
        self._propagator = propagation.TraceContextTextMapPropagator()

    def start(self) -> None:
        """Start the thread that sends."""
        export = import_module("opentelemetry.sdk.trace.export")
        self._provider.add_span_processor(export.BatchSpanProcessor(self._exporter))

    def begin(self, operation: str, name: str, attributes: Mapping[str, str | int]) -> TraceSpan:
        """Begin the span `operation name`, as the parent of all that clients of ludus ask from now
        on in this asyncio task.

        Args:
            operation: the kind of work, such as `step`.
            name: of the environment or verifier.
            attributes: the span's attributes, by their names in OpenTelemetry.
        """
        trace = import_module("opentelemetry.trace")
        parent = self._propagator.extract({"traceparent": trace_parent.get()})
        span = self._tracer.start_span(
            f"{operation} {name}", parent, trace.SpanKind.SERVER, dict(attributes)
        )
        carrier: dict[str, str] = {}
        self._propagator.inject(carrier, trace.set_span_in_context(span))
        trace_parent.set(carrier.get("traceparent", ""))
        return TraceSpan(span, name)

    def close(self) -> None:
        """Send the spans that wait, each batch for at most `EXPORT_S`, and end the thread."""
        self._provider.shutdown()
