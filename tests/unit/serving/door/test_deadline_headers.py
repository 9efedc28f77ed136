import logging
from typing import Any

import pytest

from gearshift.errors import InvalidInput
from gearshift.observability.deadline_metrics import DeadlineMetrics
from gearshift.observability.families import Families
from gearshift.plans.plan_tables import plan_tables
from gearshift.profiles.run_times import run_times_ns
from gearshift.request import NO_DEADLINE_NS, Late
from gearshift.runtime.router.by_deadline import DeadlineRules
from gearshift.runtime.service.served_pipeline import PipelineOptions
from gearshift.serving.door.deadline_headers import SendingTimes, deadline_ns_of, refused_before_it_ran, unix_ns_of
from gearshift.serving.door.settings import ServerSettings
from tests.little_task import little_plan, little_profile
from tests.unit.serving.http.test_application import Response, Server, samples, serve

NOW = 1_800_000_000_000_000_000
S = 1_000_000_000


@pytest.mark.parametrize(
    ("start", "unix_ns"),
    [
        ("t=1700000000.25", 1_700_000_000_250_000_000),
        ("1700000000.123456789", 1_700_000_000_123_456_789),
        ("t=1700000000", 1_700_000_000 * S),
        ("1700000000250", 1_700_000_000_250_000_000),
        ("t=1700000000250.5", 1_700_000_000_250_500_000),
        ("t=1700000000250000", 1_700_000_000_250_000_000),
        (" t=1700000000.1 ", 1_700_000_000_100_000_000),
        *((nothing, None) for nothing in ("", "t=", "-1", "nan", "1e9", "t=now", "1" * 20, "\u0661" * 10, "1.2.3")),
    ],
)
def test_the_time_of_sending_is_read_in_the_forms_that_proxies_write(start: str, unix_ns: int | None) -> None:
    assert unix_ns_of(start) == unix_ns


@pytest.mark.parametrize(
    ("ago_s", "sent_ago_s"), [(0.5, 0.5), (2.0, 2.0), (2.001, None), (3600, None), (-1.0, 0.0), (-3600, None)]
)
def test_a_time_of_sending_counts_within_the_trust_bound_and_never_lies_ahead(
    ago_s: float, sent_ago_s: float | None
) -> None:
    start = f"t={(NOW - round(ago_s * S)) / S:.9f}"
    sent_ns = SendingTimes(2.0).sent_ns(start, 50 * S, unix_ns=NOW)
    assert (None if sent_ns is None else (50 * S - sent_ns) / S) == pytest.approx(sent_ago_s, abs=1e-6)


def test_distrust_is_counted_every_time_and_said_once_for_each_reason(caplog: pytest.LogCaptureFixture) -> None:
    families = Families()
    times = SendingTimes(2.0, DeadlineMetrics(families))
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert times.sent_ns("t=1", 0, unix_ns=NOW) is None
            assert times.sent_ns("soon", 0) is None
    assert families.registry.get_sample_value("gearshift_untrusted_clocks_total", {"reason": "clock"}) == 3
    assert families.registry.get_sample_value("gearshift_untrusted_clocks_total", {"reason": "malformed"}) == 3
    assert [record.message.count("arrival counts as sent") for record in caplog.records] == [1, 1]


def test_a_deadline_counts_from_sending_where_that_is_known() -> None:
    assert deadline_ns_of(7 * S, 9 * S, 1_000_000) == 8 * S
    assert deadline_ns_of(None, 9 * S, 1_000_000) == 10 * S
    assert deadline_ns_of(7 * S, 9 * S, 0) == NO_DEADLINE_NS


@pytest.mark.parametrize("settings", [{"late": "never"}, {"trust_clock_s": -1.0}, {"trust_clock_s": float("nan")}])
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any]) -> None:
    (name,) = settings
    with pytest.raises(InvalidInput, match=f"{name} is"):
        ServerSettings(**settings)


# Spoken to over HTTP --------------------------------------------------------------------------------------------------


def rules(late: Late = "refuse") -> dict[str, Any]:
    plan, profile = little_plan(""), little_profile()
    tables = plan_tables(plan)
    return {"deadlines": DeadlineRules(tables, run_times_ns(plan, tables, profile).tolist(), late)}


def test_what_cannot_be_answered_by_its_deadline_is_504_and_counted_by_its_reason() -> None:
    async def use(server: Server) -> tuple[Response, str, int]:
        refused = await server.infer(samples(0, 2), {"x-slo-ms": "0.5"})
        return refused, (await server.ask("GET", "/metrics")).body.decode(), len(server.backend.requests)

    refused, metrics, run = serve(use, service=rules())
    assert (refused.status, run) == (504, 0)
    assert refused.json()["error"].startswith("infeasible: ")
    assert refused_before_it_ran(refused.body.decode())
    assert 'gearshift_dropped_total{reason="infeasible"} 1.0' in metrics
    assert 'gearshift_requests_total{operator="sums",outcome="refused"} 1.0' in metrics


def test_where_late_answers_are_wanted_they_are_given_and_say_so() -> None:
    answer = serve(lambda server: server.infer(samples(0), {"x-slo-ms": "0.5"}), service=rules("answer"))
    assert (answer.status, answer.json()["parameters"]["outcome"]) == (200, "late")
    assert answer.json()["parameters"]["remaining_s"] < 0


def test_an_answer_says_what_is_left_of_its_deadline_and_of_none_where_there_is_none() -> None:
    async def use(server: Server) -> list[dict[str, Any]]:
        answers = [await server.infer(samples(0), {"x-slo-ms": "10000"}), await server.infer(samples(0))]
        return [answer.json()["parameters"] for answer in answers]

    with_deadline, without = serve(use, service=rules() | {"pipelines": {"sums": PipelineOptions(answer_within_s=5.0)}})
    assert 0 < with_deadline["remaining_s"] < 10
    assert "remaining_s" not in without


def test_a_sample_without_time_for_the_next_model_is_degraded() -> None:
    def parameters(service: dict[str, Any]) -> dict[str, Any]:
        answer = serve(lambda server: server.infer(samples(1), {"x-slo-ms": "10000"}), service=service)
        return answer.json()["parameters"]  # type: ignore[no-any-return]

    slow = rules()
    slow["deadlines"].fastest_ns = [20 * S, 20 * S]
    assert parameters(rules())["outcome"] == "answered"
    degraded = parameters(slow)
    assert (degraded["outcome"], degraded["reason"]) == ("degraded", "deadline")


def test_the_deadline_counts_from_when_the_request_was_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gearshift.serving.door.deadline_headers.time.time_ns", lambda: NOW)
    start = {"x-request-start": f"t={(NOW - S) / S:.3f}"}

    async def use(server: Server) -> tuple[Response, Response, Response, str]:
        past = await server.infer(samples(0), start | {"x-slo-ms": "900"})
        by_timeout = await server.infer(samples(0) | {"parameters": {"timeout": 900_000}}, start)
        kept = await server.infer(samples(0), start | {"x-slo-ms": "20000"})
        (request,) = server.backend.requests
        assert request.sent_ns is not None
        assert request.deadline_ns == request.sent_ns + 20 * S
        assert request.arrived_ns - request.sent_ns >= S
        most_s, least_s = ((request.deadline_ns - at_ns) / S for at_ns in (request.arrived_ns, server.service.now_ns()))
        assert least_s < kept.json()["parameters"]["remaining_s"] < most_s <= 19
        return past, by_timeout, kept, (await server.ask("GET", "/metrics")).body.decode()

    past, by_timeout, kept, metrics = serve(use, service=rules())
    assert (past.status, by_timeout.status, kept.status) == (504, 504, 200)
    assert "gearshift_communication_seconds_count 3.0" in metrics
    assert 'gearshift_slack_seconds_count{at="dispatch"} 1.0' in metrics
    assert 'gearshift_slack_seconds_count{at="finish"} 1.0' in metrics
