"""Export a process's spans and metrics to an OpenTelemetry collector. Nothing else in Hindcast exports.

Only running roles use it (`app.bootstrap.opened`). Commands do not, so that a replay exports nothing (invariant 9). The
run never waits for the collector: a bounded queue drops what the collector does not take in time, and one warning says so.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread

import structlog

from hindcast.core.settings.schema import TelemetrySettings

QUEUE_SPANS = 4096
"""Spans in the queue; beyond it the oldest are dropped."""
BATCH_SPANS = 512
EVERY_MS = 1000.0
"""Longest time that a span waits to be sent in a batch."""
METRICS_EVERY_MS = 10_000.0
EXPORT_S = 5.0
"""Limit for one attempt to send, retries included."""
FLUSH_S = 0.4
"""How long the exit waits for unsent spans: a stop takes 4 s in all, of which a role gets `app.system.worker.STOP_S`."""

_log = structlog.get_logger(__name__)


@contextmanager
def exporting(settings: TelemetrySettings, *, process: str, role: str, run: str) -> Iterator[None]:
    """Export spans and metrics during the block if the settings name a collector. Use once in a process."""
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
    """Send everything that is recorded to the collector; returns a function that sends the rest."""
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
    """Logs the exporter's first complaint and drops the rest, which would fill the output of a long run."""

    def __init__(self, endpoint: str) -> None:
        super().__init__(logging.WARNING)
        self._endpoint = endpoint
        self._said = False

    def emit(self, record: logging.LogRecord) -> None:
        """Log the record if it is the first."""
        if self._said:
            return
        self._said = True
        _log.warning(
            "the collector takes no traces; the run continues without them, and this is the only warning",
            endpoint=self._endpoint,
            reason=record.getMessage(),
        )


def _word_library_once(endpoint: str) -> None:
    library = logging.getLogger("opentelemetry")
    library.handlers = [_Once(endpoint)]
    library.propagate = False
