"""Spans, and their context through the log: what an event was recorded in, as a W3C `traceparent` in its header.

Recording a fact inside a span writes the header; whoever works on that event later continues the trace from it. The
header is an annotation beside the stored bytes: no digest covers it, no fold reads it, and a log without it means the
same. Nothing here exports anything: that is a tracer provider's (`app.system.telemetry`), and without one every span is a
no-op and no header is written.

A span never carries an error's words, since pages write some of them: only what kind of error it was.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import INVALID_SPAN, Link, ProxyTracerProvider, Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from hindcast.core.telemetry_names import ERROR_TYPE

SCOPE = "hindcast"
"""Instrumentation scope of every span and metric of ours."""
Attribute = str | bool | int | float | Sequence[str]
Attributes = Mapping[str, Attribute]

_KEY = "traceparent"
_propagator = TraceContextTextMapPropagator()
_tracer = trace.get_tracer(SCOPE)


def is_tracing() -> bool:
    """Whether this process records spans at all: what is gathered for them alone need not be gathered otherwise."""
    return not isinstance(trace.get_tracer_provider(), ProxyTracerProvider)


def span(
    name: str,
    attributes: Attributes | None = None,
    *,
    kind: SpanKind = SpanKind.INTERNAL,
    parent: str | None = None,
    links: Sequence[Link] = (),
) -> AbstractContextManager[Span]:
    """The block as a span. `parent`: the `traceparent` of an event; None: the span that this code runs in, if any.

    An error that leaves the block marks the span as failed, with the error's class as `error.type`.
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
    ) as begun:
        try:
            yield begun
        except Exception as error:
            fail(begun, type(error).__name__)
            raise


def fail(failed: Span, kind: str) -> None:
    """What the span stands for went wrong, in this way: a class of error or a reason, never its words."""
    failed.set_attribute(ERROR_TYPE, kind)
    failed.set_status(Status(StatusCode.ERROR))


class _Nothing(AbstractContextManager[Span]):
    """A span where nobody records: costs next to nothing."""

    def __enter__(self) -> Span:
        return INVALID_SPAN

    def __exit__(self, *_: object) -> None:
        return None


_NOTHING = _Nothing()


def current_traceparent() -> str:
    """The span that this code runs in; empty outside of any."""
    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return ""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"


def link_to(traceparent: str) -> Link | None:
    """A link to the span that recorded an event; None where there was none, or its header is damaged."""
    context = trace.get_current_span(_context_of(traceparent)).get_span_context()
    return Link(context) if context.is_valid else None


def _context_of(traceparent: str) -> Context:
    """The context in which a child of that span begins; an empty or damaged header begins a trace of its own."""
    return _propagator.extract({_KEY: traceparent}, context=Context())
