from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from gearshift.errors import InvalidInput
from gearshift.observability.tracing import Tracing, open_tracing, tracing_if
from tests.unit.serving.http.test_application import Server, samples, serve

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@contextmanager
def traced() -> Iterator[tuple[Tracing, InMemorySpanExporter]]:
    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracing = Tracing(provider)
    yield tracing, exporter
    tracing.close()


def spans_of(body: Any, headers: dict[str, str] | None = None) -> tuple[int, Sequence[ReadableSpan]]:
    with traced() as (tracing, exporter):
        response = serve(lambda server: server.infer(body, headers), tracing=tracing)
        return response.status, exporter.get_finished_spans()


def test_a_request_has_a_span_and_each_of_its_batches_two_below_it():
    status, spans = spans_of(samples(0, 1), {"x-request-id": "mine"})
    assert status == 200
    assert [span.name for span in spans] == ["queue small", "run small", "queue large", "run large", "infer sums"]
    *stages, request = spans
    assert request.kind is SpanKind.SERVER
    assert request.attributes == {
        "gearshift.operator": "sums",
        "gearshift.outcome": "answered",
        "gearshift.gear": 0,
        "gearshift.request_id": "mine",
        "http.request.method": "POST",
        "http.route": "/v2/models/sums/infer",
        "http.response.status_code": 200,
    }
    assert all(span.parent.span_id == request.context.span_id for span in stages)
    assert {span.context.trace_id for span in spans} == {request.context.trace_id}
    facts = [(s.attributes["gearshift.stage"], s.attributes["gearshift.rows"]) for s in stages]
    assert facts == [(0, 2), (0, 2), (1, 1), (1, 1)]
    assert stages[3].attributes == {
        "gearshift.operator": "sums",
        "gearshift.gear": 0,
        "gearshift.node": "sums",
        "gearshift.model": "large",
        "gearshift.stage": 1,
        "gearshift.replica": "large-0",
        "gearshift.batch_size": 1,
        "gearshift.rows": 1,
        "gearshift.outcome": "answered",
    }


def test_waiting_and_running_follow_one_another_within_the_request():
    _, (*stages, request) = spans_of(samples(0, 1))
    times = [t for span in stages for t in (span.start_time, span.end_time)]
    assert stages[1].end_time - stages[1].start_time >= 1_000_000  # small takes a millisecond
    assert times == sorted(times)
    assert times[0] >= request.start_time


def test_the_trace_of_a_client_goes_on():
    _, spans = spans_of(samples(0), {"traceparent": f"00-{TRACE}-{PARENT}-01"})
    assert {f"{span.context.trace_id:032x}" for span in spans} == {TRACE}
    assert f"{spans[-1].parent.span_id:016x}" == PARENT


def test_a_client_that_does_not_sample_is_obeyed():
    status, spans = spans_of(samples(0), {"traceparent": f"00-{TRACE}-{PARENT}-00"})
    assert (status, list(spans)) == (200, [])


@pytest.mark.parametrize("given", ["", "nonsense", "00-0-0-01", "é", "x" * 10_000])
def test_a_traceparent_that_is_none_begins_a_new_trace(given):
    status, spans = spans_of(samples(0), {"traceparent": given})
    assert status == 200
    assert spans[-1].parent is None


def test_a_request_that_is_refused_has_a_span_with_its_status():
    status, (request,) = spans_of(b"{")
    assert (status, request.attributes["http.response.status_code"]) == (400, 400)
    assert request.status.status_code is StatusCode.UNSET


def test_a_request_that_fails_is_an_error_with_its_reason(caplog):
    status, (*_, request) = spans_of(samples(10), {"x-request-id": "mine"})
    assert status == 500
    assert request.status.status_code is StatusCode.ERROR
    assert request.attributes["gearshift.outcome"] == "failed"
    assert "sample" in request.attributes["gearshift.reason"]
    (record,) = (record for record in caplog.records if hasattr(record, "facts"))
    assert record.facts == {"request_id": "mine", "trace_id": f"{request.context.trace_id:032x}"}


def test_only_inferences_are_traced():
    with traced() as (tracing, exporter):

        async def use(server: Server) -> list[int]:
            return [(await server.ask("GET", path)).status for path in ("/metrics", "/livez", "/v2")]

        assert serve(use, tracing=tracing) == [200, 200, 200]
        assert exporter.get_finished_spans() == ()


def test_nothing_is_kept_of_requests_that_are_answered():
    with traced() as (tracing, _):

        async def use(server: Server) -> dict[int, Any]:
            await server.infer(samples(0, 1))
            return server.service.pipeline.open_requests.spans

        assert serve(use, tracing=tracing) == {}


def test_without_being_asked_there_is_no_tracing():
    with tracing_if(False) as tracing:
        assert tracing is None


@pytest.mark.parametrize(
    ("variable", "value", "told"),
    [
        ("OTEL_TRACES_EXPORTER", "pigeon", "OTEL_TRACES_EXPORTER: there is no exporter 'pigeon'; .* otlp_proto_http"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "smoke", "OTEL_EXPORTER_OTLP_PROTOCOL: there is no exporter 'smoke'"),
    ],
)
def test_an_exporter_that_is_not_there_is_refused(monkeypatch, variable, value, told):
    monkeypatch.setenv(variable, value)
    with pytest.raises(InvalidInput, match=told):
        open_tracing()


@pytest.mark.parametrize(("given", "name"), [({}, "gearshift"), ({"OTEL_SERVICE_NAME": "mine"}, "mine")])
def test_the_service_is_named_as_the_variables_say(monkeypatch, given, name):
    for variable, value in {"OTEL_TRACES_EXPORTER": "none", **given}.items():
        monkeypatch.setenv(variable, value)
    tracing = open_tracing()
    assert tracing._provider.resource.attributes["service.name"] == name
    tracing.close()
