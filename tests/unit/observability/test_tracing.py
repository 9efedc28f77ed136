from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from gearshift.errors import InvalidInput
from gearshift.observability.tracing import (
    MOST_BATCHES,
    MOST_VISITS,
    RequestSpan,
    Tracing,
    open_tracing,
    trace_batch,
    tracing_if,
)
from gearshift.request import ItemFacts, Request, Sample
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


def spans_of_visits(use: Any) -> Sequence[ReadableSpan]:
    with traced() as (tracing, exporter):
        request = tracing.begin("pairs", {})
        request.accepted(1_000)
        use(request)
        request.end(200, "mine")
        return exporter.get_finished_spans()


def test_each_visit_of_a_node_has_a_span_with_what_came_of_it():
    answered = ItemFacts(node="read", row=1, model="small", stage=0, certainty=0.75, queue_s=2e-6, run_s=3e-6)

    def use(request: RequestSpan) -> None:
        request.visited(answered, 10_000)
        request.visited(ItemFacts(node="check", row=0, error="it is gone"), 12_000)

    read, check, whole = spans_of_visits(use)
    assert (read.name, read.end_time - read.start_time) == ("node read", 5_000)
    assert check.end_time - read.end_time == 2_000
    assert read.parent.span_id == check.parent.span_id == whole.context.span_id
    assert read.attributes == {
        "gearshift.node": "read",
        "gearshift.row": 1,
        "gearshift.model": "small",
        "gearshift.stage": 0,
        "gearshift.certainty": 0.75,
        "gearshift.outcome": "answered",
    }
    assert check.attributes["gearshift.outcome"] == "failed"
    assert check.attributes["gearshift.reason"] == "it is gone"


def test_many_visits_of_a_node_have_one_span_with_their_number():
    def visits(count: int) -> Any:
        def use(request: RequestSpan) -> None:
            for number in range(count):
                error = "it is gone" if number < 3 else ""
                request.visited(ItemFacts(node="read", row=0, run_s=1e-6, error=error), 10_000 + 100 * number)

        return use

    assert len(spans_of_visits(visits(MOST_VISITS))) == MOST_VISITS + 1
    all_visits, _ = spans_of_visits(visits(1_000))
    assert all_visits.attributes == {"gearshift.node": "read", "gearshift.items": 1_000, "gearshift.failed": 3}
    assert all_visits.end_time - all_visits.start_time == 1_000 + 100 * 999


@pytest.mark.parametrize(("in_graph", "kept"), [(True, MOST_BATCHES), (False, MOST_BATCHES + 5)])
def test_batches_of_a_request_at_a_node_of_a_graph_have_spans_up_to_a_bound(in_graph, kept):
    row = Request(id=1, operator="pairs", arrived_ns=0, rows=1)

    def use(request: RequestSpan) -> None:
        for number in range(MOST_BATCHES + 5):
            sample = Sample(row, 0, number, scope=object() if in_graph else None)
            facts = {"model": "small", "replica": "small-0", "gears": [0], "nodes": ["read"], "size": 1}
            trace_batch({1: request}, [sample], **facts, started_ns=5, now_ns=9)

    *batches, whole = spans_of_visits(use)
    assert len(batches) == 2 * kept
    assert whole.attributes.get("gearshift.batches_left_out", 0) == MOST_BATCHES + 5 - kept


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
