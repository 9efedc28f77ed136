import re

import prometheus_client
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest

from gearshift.observability import families, metrics
from gearshift.request import Answer
from gearshift.runtime.service.served_pipeline import PipelineOptions
from tests.unit.serving.http.test_application import Server, samples, serve


@pytest.mark.parametrize(("slo_ms", "late"), [("0.001", True), ("60000", False)])
def test_an_answer_after_its_deadline_counts_as_late(slo_ms, late):
    async def use(server: Server) -> str:
        assert (await server.infer(samples(0), {"x-slo-ms": slo_ms})).status == 200
        return (await server.ask("GET", "/metrics")).body.decode()

    assert f'gearshift_late_total{{operator="sums"}} {float(late)}\n' in serve(use)


def test_a_request_that_fails_is_not_late_too():
    async def use(server: Server) -> str:
        assert (await server.infer(samples(10), {"x-slo-ms": "0.001"})).status == 500
        return (await server.ask("GET", "/metrics")).body.decode()

    assert 'gearshift_late_total{operator="sums"} 0.0\n' in serve(use)


def test_counters_of_what_the_plan_names_begin_at_nought():
    async def use(server: Server) -> str:
        return (await server.ask("GET", "/metrics")).body.decode()

    text = serve(use)
    for name in (
        'restarts_total{replica="small-0"}',
        'requests_total{operator="sums",outcome="refused"}',
        'request_latency_seconds_count{operator="sums",outcome="failed"}',
        'batches_total{model="large",reason="retry"}',
        'run_seconds_count{model="small"}',
        'device_busy_seconds_total{device="cpu-0"}',
        'dropped_total{reason="queue_full"}',
        'forwarded_total{stage="0"}',
        'swaps_total{outcome="failed"}',
    ):
        assert f"gearshift_{name} 0.0\n" in text


def test_the_router_s_process_is_told_of():
    async def use(server: Server) -> str:
        return (await server.ask("GET", "/metrics")).body.decode()

    text = serve(use)
    for name in ("resident_memory_bytes", "cpu_seconds_total", "open_fds", "start_time_seconds"):
        assert f"\nprocess_{name} " in text


def test_readiness_and_the_last_gear_are_metrics():
    async def use(server: Server) -> list[bool]:
        ready = (await server.ask("GET", "/metrics")).body.decode()
        server.service.refuse_new()
        ending = (await server.ask("GET", "/metrics")).body.decode()
        assert "gearshift_last_gear 0.0" in ready
        assert "gearshift_predicted_accuracy 0.8" in ready
        return ["gearshift_ready 1.0" in ready, "gearshift_ready 0.0" in ending]

    assert serve(use, service={"pipelines": {"sums": PipelineOptions(accuracies=[0.8])}}) == [True, True]


BUCKETS = (0.1, 1.0, 5.0)
NAMES = st.sampled_from(["a", 'b"\n\\', "ü"])
VALUES = st.sampled_from([0.0, 0.1, 0.5, 1.0, 4.0, 5.0, 6.5])


def text(library, counted, observed) -> str:
    registry = CollectorRegistry()
    counter = library.Counter("things", "Things\nby kind.", ["kind", "of"], registry=registry)
    alone = library.Counter("alone", "Without labels.", registry=registry)
    histogram = library.Histogram("seconds", "How long.", ["kind"], buckets=BUCKETS, registry=registry)
    single = library.Histogram("single", "Without labels.", buckets=BUCKETS, registry=registry)
    for kind, value in counted:
        counter.labels(kind, "x").inc(value)
        (alone if library is prometheus_client else alone.labels()).inc()
    for kind, value in observed:
        histogram.labels(kind).observe(value)
        (single if library is prometheus_client else single.labels()).observe(value)
    return re.sub(r"(?m)^(\w+_created\S*) .*", r"\1 then", generate_latest(registry).decode())


@given(st.lists(st.tuples(NAMES, VALUES)), st.lists(st.tuples(NAMES, VALUES)))
def test_what_is_written_is_what_prometheus_client_writes(counted, observed):
    assert text(families, counted, observed) == text(prometheus_client, counted, observed)


class Pipeline:
    gear, pinned, rate_qps, ready, waiting = 0, False, 0.0, True, 0
    degraded: tuple[str, ...] = ()

    def __init__(self, gear: int, waiting: int) -> None:
        self.gear, self.waiting = gear, waiting


def known(operator: str, model: str) -> metrics.Known:
    return metrics.Known(operator=operator, models=[model], replicas=[], devices=[], stages=2, reasons=["queue_full"])


def test_several_pipelines_have_their_own_gauges_and_counters_under_their_names():
    told = metrics.Metrics(("sums", "numbers"))
    for name, gear, waiting in (("sums", 1, 3), ("numbers", 0, 5)):
        pipeline = Pipeline(gear, waiting)
        told.watch(pipeline, pipeline, operator=name, last_gear=2)
        told.begin(known(name, f"{name}-model"))
    told.refused("numbers", "queue_full")
    told.adapting_of("sums").load_drift.set(1)
    told.adapting_of("numbers").disagreement.labels("0", "1", "low").set(0.5)
    told.adapting_of("sums").forget_plan()
    text = told.text().decode()
    for line in (
        'gear{operator="sums"} 1.0',
        'gear{operator="numbers"} 0.0',
        'waiting_requests{operator="numbers"} 5.0',
        'dropped_total{operator="sums",reason="queue_full"} 0.0',
        'dropped_total{operator="numbers",reason="queue_full"} 1.0',
        'load_drift{operator="sums"} 0.0',
        'disagreement_ratio{bound="low",gear="0",operator="numbers",stage="1"} 0.5',
    ):
        assert f"\ngearshift_{line}\n" in text


def test_totals_are_of_one_pipeline_and_its_models():
    told = metrics.Metrics(("sums", "numbers"))
    for name in ("sums", "numbers"):
        told.begin(known(name, f"{name}-model"))
    told.answered("sums", Answer(outcome="answered", queue_s=0.25), 1.0)
    told.batch_finished("sums-model", ["cpu-0"], 0.5)
    told.batch_finished("numbers-model", ["cpu-0"], 0.5)
    sums, numbers = told.totals("sums"), told.totals("numbers")
    assert (sums.succeeded, sums.queued_s, sums.batches, numbers.succeeded, numbers.batches) == (1, 0.25, 1, 0, 1)
    assert sums.last_answer_s > 0 == numbers.last_answer_s
