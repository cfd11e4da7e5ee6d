"""Spans that a test's exporter keeps in memory."""

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

PROVIDER, EXPORTER = TracerProvider(), InMemorySpanExporter()
PROVIDER.add_span_processor(SimpleSpanProcessor(EXPORTER))
"""One for the whole process: tracers keep the provider that they were first used with."""


class Spans:
    """Those that have ended since the test began."""

    def named(self, prefix: str) -> list[ReadableSpan]:
        return [found for found in EXPORTER.get_finished_spans() if found.name.startswith(prefix)]

    def only(self, prefix: str) -> ReadableSpan:
        (found,) = self.named(prefix)
        return found


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Spans:
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", PROVIDER)
    EXPORTER.clear()
    return Spans()


def place_of(found: ReadableSpan) -> str:
    context = found.get_span_context()
    assert context is not None
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"


def parent_of(found: ReadableSpan) -> str:
    return f"{found.parent.trace_id:032x}-{found.parent.span_id:016x}" if found.parent else ""
