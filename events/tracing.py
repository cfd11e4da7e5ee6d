"""Tracing through the log: spans, and the W3C `traceparent` header of the span in which an event was recorded.

A fact recorded inside a span gets the header; later work on the event continues the trace. The header is an annotation
outside the stored bytes: no digest covers it, no fold reads it, and a log without it means the same. Nothing here exports
spans: the tracer provider does (`app.system.telemetry`). Without one, spans are no-ops and no header is written.

A span records an error's class, never its message, because pages write parts of some messages.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import INVALID_SPAN, Link, ProxyTracerProvider, Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from hindcast.core.telemetry_names import ERROR_TYPE

SCOPE = "hindcast"
"""Instrumentation scope of all our spans and metrics."""
Attribute = str | bool | int | float | Sequence[str]
Attributes = Mapping[str, Attribute]

_KEY = "traceparent"
_propagator = TraceContextTextMapPropagator()
_tracer = trace.get_tracer(SCOPE)


def is_tracing() -> bool:
    """Whether this process records spans; otherwise data for spans only need not be gathered."""
    return not isinstance(trace.get_tracer_provider(), ProxyTracerProvider)


def span(
    name: str,
    attributes: Attributes | None = None,
    *,
    kind: SpanKind = SpanKind.INTERNAL,
    parent: str | None = None,
    links: Sequence[Link] = (),
) -> AbstractContextManager[Span]:
    """Record the block as a span. `parent`: the `traceparent` of an event; None: the current span, if any.

    An exception that leaves the block marks the span as failed, with the exception's class as `error.type`.
    """
    if not is_tracing():
        return _NOTHING
    return _recorded(name, attributes, kind, None if parent is None else _context_of(parent), links)


@contextmanager
def _recorded(
    name: str,
    attributes: Attributes | None,
    kind: SpanKind,
    context: Context | None,
    links: Sequence[Link],
) -> Iterator[Span]:
    with _tracer.start_as_current_span(
        name,
        context=context,
        kind=kind,
        attributes=attributes,
        links=links,
        record_exception=False,
        set_status_on_exception=False,
    ) as opened_span:
        try:
            yield opened_span
        except Exception as error:
            fail(opened_span, type(error).__name__)
            raise


def fail(failed_span: Span, kind: str) -> None:
    """Mark a span as failed. `kind` is an error's class or a reason, never its message."""
    failed_span.set_attribute(ERROR_TYPE, kind)
    failed_span.set_status(Status(StatusCode.ERROR))


_NOTHING = nullcontext(INVALID_SPAN)
"""A no-op span, used when nothing is recorded."""


def current_traceparent() -> str:
    """Return the `traceparent` of the current span; empty outside any span."""
    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return ""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"


def link_to(traceparent: str) -> Link | None:
    """Make a link to the span that recorded an event; None if the header is empty or damaged."""
    context = trace.get_current_span(_context_of(traceparent)).get_span_context()
    return Link(context) if context.is_valid else None


def _context_of(traceparent: str) -> Context:
    """Make the context for a child of that span; an empty or damaged header starts a new trace."""
    return _propagator.extract({_KEY: traceparent}, context=Context())
