"""A real server that sends its traces to a real collector."""

import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.end_to_end.test_grpc import request, stub
from tests.end_to_end.test_server import LONGEST_S, body, infer, serving

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"


@contextmanager
def collector() -> Iterator[tuple[str, "queue.Queue[Any]"]]:
    """Where traces can be sent, and what was."""
    received: queue.Queue[Any] = queue.Queue()

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers["content-length"]))
            received.put((self.path, ExportTraceServiceRequest.FromString(data)))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *arguments: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Collector) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", received
        finally:
            server.shutdown()
            thread.join()


def test_traces_of_both_protocols_reach_the_collector_that_the_variables_name(tmp_path, monkeypatch):
    with collector() as (url, received):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
        with serving(tmp_path, otel=True, grpc_port=0) as server:
            assert infer(server, body((1, 2), (0, 3)), headers={"traceparent": TRACEPARENT})[0] == 200
            with grpc.insecure_channel(server.grpc) as channel:
                stub(channel).ModelInfer(request((1, 2)), metadata=[("traceparent", TRACEPARENT)])
            assert server.end() == 0
        exports = [received.get(timeout=LONGEST_S) for _ in range(received.qsize())]
    assert {path for path, _ in exports} == {"/v1/traces"}
    resources = [resource for _, export in exports for resource in export.resource_spans]
    names = {a.value.string_value for r in resources for a in r.resource.attributes if a.key == "service.name"}
    assert names == {"gearshift"}
    spans = [span for resource in resources for scope in resource.scope_spans for span in scope.spans]
    assert {span.trace_id.hex() for span in spans} == {TRACE}
    assert sorted(span.name for span in spans if span.parent_span_id.hex() == PARENT) == ["infer sums"] * 2
    assert sum(span.name == "run small" for span in spans) == 2
    assert sum(span.name == "run large" for span in spans) == 1


@pytest.mark.long
def test_a_collector_that_is_not_there_disturbs_nobody(tmp_path, monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    with serving(tmp_path, otel=True) as server:
        assert infer(server, body((1, 2)))[0] == 200
        assert server.end() == 0
