"""The spans of requests to language models."""

import json
from collections.abc import Sequence
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import StatusCode

from gearshift.serving.door.deadline_headers import SendingTimes
from gearshift.serving.http.http_exchange import HttpExchange
from gearshift.serving.openai.handlers import OpenAIHandlers
from tests.emulated_service import EmulatedService
from tests.two_language_models import language_plan
from tests.unit.observability.test_tracing import traced
from tests.unit.runtime.engines.test_language_service import SPLIT, SURE, UNSURE, served
from tests.unit.serving.openai.test_readers import Client


def spans_of(record: int, *, leaves: bool = False, **fields: Any) -> Sequence[ReadableSpan]:
    """Of one request to `small`, then `large`; its client may leave once it has been sent."""
    with traced() as (tracing, exporter):

        async def use(service: EmulatedService) -> None:
            handlers = OpenAIHandlers(
                service.service, largest_body_bytes=1 << 20, times=SendingTimes(), tracing=tracing
            )
            client, path = Client(), "/v1/chat/completions"
            exchange = HttpExchange(client, "POST", path, {b"x-request-id": b"mine"}, True)
            exchange.complete = True
            messages = [{"role": "user", "content": f"record {record}"}]
            exchange.add_part(json.dumps({"model": "chat", "messages": messages, **fields}).encode())
            handlers.chat(exchange)
            assert exchange.then is not None
            exchange.then(exchange)
            if leaves:
                service.service.answers._dispatch()
                exchange.leave()
            else:
                await client.over.wait()

        served(language_plan([SPLIT]), use)
        return exporter.get_finished_spans()


def test_a_request_has_a_span_and_each_of_its_stages_two_below_it() -> None:
    for stream in (False, True):
        *stages, request = spans_of(UNSURE, stream=stream)
        assert [span.name for span in stages] == ["queue small", "run small", "queue large", "run large"]
        assert all(span.parent.span_id == request.context.span_id for span in stages)
        outcomes = [
            (span.attributes["gearshift.outcome"], span.attributes["gearshift.output_tokens"]) for span in stages
        ]
        assert outcomes == [("unsure", 4)] * 2 + [("answered", 10)] * 2
        assert "gearshift.certainty" in stages[1].attributes
        assert "gearshift.certainty" not in stages[3].attributes
        assert stages[3].attributes["gearshift.replica"] == "large-0"
        assert min(span.attributes["gearshift.prompt_tokens"] for span in stages) > 0
        told = dict(request.attributes)
        assert told.pop("gearshift.ttft_s") > 0
        assert told.pop("gearshift.prompt_tokens") > 0
        assert told == {
            "gearshift.operator": "chat",
            "gearshift.outcome": "answered",
            "gearshift.gear": 0,
            "gearshift.model": "large",
            "gearshift.stage": 1,
            "gearshift.decided_at_token": 1,
            "gearshift.output_tokens": 10,
            "gearshift.request_id": "mine",
            "http.request.method": "POST",
            "http.route": "/v1/chat/completions",
            "http.response.status_code": 200,
        }


def test_stages_follow_one_another_within_the_request() -> None:
    *stages, request = spans_of(UNSURE)
    times = [time for span in stages for time in (span.start_time, span.end_time)]
    assert times == sorted(times)
    assert times[0] >= request.start_time
    assert stages[3].end_time - stages[3].start_time >= 9_000_000, "large takes a millisecond for each token"


def test_a_request_without_an_answer_tells_why() -> None:
    *stages, request = spans_of(SURE, emulated={"status": 500})
    assert [span.attributes["gearshift.outcome"] for span in stages] == ["failed"] * 4
    assert request.attributes["gearshift.outcome"] == "failed"
    assert "500" in request.attributes["gearshift.reason"]
    assert request.status.status_code is StatusCode.ERROR


def test_a_stream_that_breaks_off_tells_why() -> None:
    *stages, request = spans_of(SURE, stream=True, emulated={"cut_after": 6})
    assert stages[1].attributes["gearshift.outcome"] == "failed"
    assert (request.attributes["gearshift.outcome"], request.status.status_code) == ("failed", StatusCode.ERROR)
    assert request.attributes["gearshift.reason"]


def test_a_client_that_leaves_ends_the_stage_and_the_request() -> None:
    *stages, request = spans_of(SURE, leaves=True)
    assert [span.attributes["gearshift.outcome"] for span in (*stages, request)] == ["cancelled"] * 3
