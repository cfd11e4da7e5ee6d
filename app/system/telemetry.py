"""Spans and metrics of a process, sent to an OpenTelemetry collector: the only place that exports anything.

Only roles at work come here (`app.bootstrap.opened`). Commands do not, so that nothing of a replay is ever exported
(invariant 9). Nothing is waited for: what a collector does not take in time is dropped from a bounded queue, which is said
once, and the run goes on.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread

import structlog

from hindcast.core.settings.schema import TelemetrySettings

QUEUE_SPANS = 4096
"""Spans that wait to be sent; beyond it the oldest are dropped."""
BATCH_SPANS = 512
EVERY_MS = 1000.0
"""How long a span may wait for others to be sent with."""
METRICS_EVERY_MS = 10_000.0
EXPORT_S = 5.0
"""One attempt to send, retries included."""
FLUSH_S = 0.4
"""How long leaving waits for what is not sent yet: a stop has 4 s in all, and `app.system.worker.STOP_S` of them are a role's."""

_log = structlog.get_logger(__name__)


@contextmanager
def exporting(settings: TelemetrySettings, *, process: str, role: str, run: str) -> Iterator[None]:
    """Record spans and metrics during the block if the settings name a collector. Once in a process."""
    if not settings.otlp_endpoint:
        yield
        return
    flush = _begin(settings, process=process, role=role, run=run)
    try:
        yield
    finally:
        closing = Thread(target=flush, daemon=True, name="last spans")
        closing.start()
        closing.join(FLUSH_S)


def _begin(settings: TelemetrySettings, *, process: str, role: str, run: str) -> Callable[[], None]:
    """Make everything that is recorded go to the collector; returns what sends the rest."""
    from opentelemetry import metrics, trace
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

    endpoint = settings.otlp_endpoint.rstrip("/")
    _word_library_once(endpoint)
    names = {"service.name": "hindcast", "service.instance.id": f"{run}/{process}"}
    resource = Resource.create({**names, "hindcast.run": run, "hindcast.role": role})
    spans = TracerProvider(
        resource=resource, sampler=ParentBased(TraceIdRatioBased(settings.sample)), shutdown_on_exit=False
    )
    spans.add_span_processor(
        BatchSpanProcessor(
            OTLPSpanExporter(endpoint=f"{endpoint}/v1/traces", timeout=EXPORT_S),
            max_queue_size=QUEUE_SPANS,
            max_export_batch_size=BATCH_SPANS,
            schedule_delay_millis=EVERY_MS,
        )
    )
    reader = PeriodicExportingMetricReader(
        OTLPMetricExporter(endpoint=f"{endpoint}/v1/metrics", timeout=EXPORT_S),
        export_interval_millis=METRICS_EVERY_MS,
    )
    measures = MeterProvider(resource=resource, metric_readers=[reader], shutdown_on_exit=False)
    trace.set_tracer_provider(spans)
    metrics.set_meter_provider(measures)

    def flush() -> None:
        spans.shutdown()
        measures.shutdown()

    return flush


class _Once(logging.Handler):
    """Says the first thing that the exporting library complains of; the rest would fill the output of a long run."""

    def __init__(self, endpoint: str) -> None:
        super().__init__(logging.WARNING)
        self._endpoint = endpoint
        self._said = False

    def emit(self, record: logging.LogRecord) -> None:
        """Say it, unless something was said before."""
        if self._said:
            return
        self._said = True
        _log.warning(
            "traces are not taken; the run goes on without them, and this is said once",
            endpoint=self._endpoint,
            reason=record.getMessage(),
        )


def _word_library_once(endpoint: str) -> None:
    library = logging.getLogger("opentelemetry")
    library.handlers = [_Once(endpoint)]
    library.propagate = False
