"""A receiver of the OpenTelemetry protocol over HTTP: decodes what arrives with the protocol's own classes, and keeps it."""

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)


class ReceivedSpan(NamedTuple):
    """A span as it came over the wire, with the process that sent it."""

    name: str
    trace_id: str
    span_id: str
    parent: str
    kind: int
    start_ns: int
    end_ns: int
    failed: bool
    attributes: dict[str, Any]
    events: list[tuple[str, dict[str, Any]]]
    links: list[str]
    """Span ids."""
    resource: dict[str, Any]


class OtlpReceiver:
    """What has arrived so far."""

    def __init__(self) -> None:
        self.spans: list[ReceivedSpan] = []
        self.metrics: dict[str, list[Any]] = {}
        self.endpoint = ""
        self._lock = threading.Lock()

    def take_traces(self, content: bytes) -> bytes:
        request = ExportTraceServiceRequest.FromString(content)
        with self._lock:
            for group in request.resource_spans:
                resource = _plain(group.resource.attributes)
                for scope in group.scope_spans:
                    self.spans += [_received(span, resource) for span in scope.spans]
        return ExportTraceServiceResponse().SerializeToString()

    def take_metrics(self, content: bytes) -> bytes:
        request = ExportMetricsServiceRequest.FromString(content)
        with self._lock:
            for group in request.resource_metrics:
                for scope in group.scope_metrics:
                    for metric in scope.metrics:
                        self.metrics.setdefault(metric.name, []).append(metric)
        return ExportMetricsServiceResponse().SerializeToString()

    def named(self, prefix: str) -> list[ReceivedSpan]:
        """Spans whose names begin so, in the order of their start."""
        with self._lock:
            found = [span for span in self.spans if span.name.startswith(prefix)]
        return sorted(found, key=lambda span: span.start_ns)


def _received(span: Any, resource: dict[str, Any]) -> ReceivedSpan:
    return ReceivedSpan(
        name=span.name,
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent=span.parent_span_id.hex(),
        kind=span.kind,
        start_ns=span.start_time_unix_nano,
        end_ns=span.end_time_unix_nano,
        failed=span.status.code == 2,
        attributes=_plain(span.attributes),
        events=[(event.name, _plain(event.attributes)) for event in span.events],
        links=[link.span_id.hex() for link in span.links],
        resource=resource,
    )


def _plain(attributes: Any) -> dict[str, Any]:
    return {entry.key: getattr(entry.value, entry.value.WhichOneof("value")) for entry in attributes}


@contextmanager
def receiving() -> Iterator[OtlpReceiver]:
    """A receiver on a free port of loopback."""
    receiver = OtlpReceiver()
    routes = {"/v1/traces": receiver.take_traces, "/v1/metrics": receiver.take_metrics}

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                content = gzip.decompress(content)
            assert self.headers["Content-Type"] == "application/x-protobuf"
            answer = routes[self.path](content)
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            """Nothing: the tests look at what arrived."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    receiver.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
