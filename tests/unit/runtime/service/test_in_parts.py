"""Requests of more rows than may wait: let in whole, run as bulk work, answered as online ones."""

import asyncio
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from gearshift.errors import DeadlinePassed, QueueFull, TooLarge
from gearshift.observability.metrics import Metrics
from gearshift.plans.plan_tables import plan_tables
from gearshift.request import Answer, RowFacts
from gearshift.runtime.backends.emulated import EmulatedBackend
from gearshift.runtime.router.by_deadline import DeadlineRules
from gearshift.runtime.service import in_parts
from gearshift.runtime.service.in_parts import joined
from gearshift.runtime.service.room import Client
from gearshift.runtime.service.service import Service
from tests.little_task import two_gear_plan
from tests.unit.runtime.service.test_service import samples, serve

PLAN = two_gear_plan("")
MOST = 10


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_parts, "PART_ROWS", 4)
    monkeypatch.setattr(in_parts, "PARTS", 2)


def test_it_is_answered_whole_and_in_order() -> None:
    numbers = [number % 9 for number in range(MOST + 9)]
    answer: Answer = serve(
        lambda service, _: service.pipeline.infer(samples(*numbers)), plan=PLAN, most_waiting_requests=MOST
    )
    assert (answer.outcome, answer.gear, len(answer.rows)) == ("answered", 0, len(numbers))
    outputs: Any = answer.outputs
    assert outputs["label"].tolist() == [f"{'large' if number % 2 else 'small'}-{number}" for number in numbers]


def test_it_takes_nobody_elses_room_and_nobody_takes_its_own() -> None:
    async def use(service: Service, _: EmulatedBackend) -> int:
        pipeline, client = service.pipeline, Client()
        wide = asyncio.create_task(pipeline.infer(samples(*[0] * 40), client=client))
        most = 0
        for _turn in range(5):
            await asyncio.sleep(0)
            most = max(most, service.router._dispatch.bulk.waiting)
        assert (service.waiting, pipeline.room.waiting) == (0, 0)
        online = await pipeline.infer(samples(*[0] * MOST), client=client)
        assert (online.outcome, wide.done()) == ("answered", False)
        assert (await wide).outcome == "answered"
        assert (service.held.held_bytes, client.held_bytes, client.rows) == (0, 0, {})
        return most

    assert 0 < serve(use, most_waiting_requests=MOST) <= 2 * 4  # of its rows, two parts at a time


def test_a_second_is_refused_until_the_first_is_answered() -> None:
    metrics = Metrics()

    async def use(service: Service, _: EmulatedBackend) -> int:
        infer = service.pipeline.infer
        first = asyncio.create_task(infer(samples(*[0] * 30)))
        await asyncio.sleep(0)
        with pytest.raises(QueueFull, match="more than 10 rows are taken one at a time, and one has 30 rows left") as e:
            await infer(samples(*[0] * 11))
        await first
        assert (await infer(samples(*[0] * 11))).outcome == "answered"
        return e.value.retry_after_s

    assert serve(use, most_waiting_requests=MOST, capacity_qps=4.0, metrics=metrics) == 8
    assert 'gearshift_dropped_total{reason="queue_full"} 1.0' in metrics.text().decode()


def test_metrics_count_one_request_and_bulk_rows() -> None:
    metrics = Metrics()
    serve(lambda s, _: s.pipeline.infer(samples(*[0] * 19)), most_waiting_requests=MOST, metrics=metrics)
    lines = metrics.text().decode().splitlines()
    assert 'gearshift_requests_total{operator="sums",outcome="answered"} 1.0' in lines
    assert 'gearshift_bulk_rows_total{operator="sums",outcome="answered"} 19.0' in lines


def test_bytes_bound_it() -> None:
    async def use(service: Service, _: EmulatedBackend) -> None:
        with pytest.raises(TooLarge, match="the request takes 31992 bytes in memory, at most 30000 may be held"):
            await service.pipeline.infer(samples(*[0] * 31), payload_bytes=236)
        assert (await service.pipeline.infer(samples(*[0] * 20))).outcome == "answered"

    serve(use, most_waiting_requests=MOST, most_waiting_bytes=30_000)


@pytest.mark.parametrize("late", ["refuse", "answer"])
def test_its_deadline_counts(late: Any) -> None:
    async def use(service: Service, _: EmulatedBackend) -> Answer:
        pipeline = service.pipeline
        asked = pipeline.infer(samples(*[1] * 200), deadline_ns=pipeline.now_ns() + 5_000_000)
        if late == "answer":
            return await asked
        with pytest.raises(DeadlinePassed, match="expired_in_queue"):
            await asked
        assert (service.router._dispatch.bulk.waiting, service.open_requests, service.held.held_bytes) == (0, 0, 0)
        return Answer(outcome="refused")

    rules = DeadlineRules(plan_tables(PLAN), late=late)
    answer = serve(use, plan=PLAN, most_waiting_requests=MOST, deadlines=rules)
    assert answer.outcome == ("refused" if late == "refuse" else "late")


def test_whoever_leaves_takes_all_rows_out_of_their_queues() -> None:
    async def use(service: Service, _: EmulatedBackend) -> tuple[int, int, int]:
        wide = asyncio.create_task(service.pipeline.infer(samples(*[0] * 1000)))
        await asyncio.sleep(0.01)
        wide.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return service.router._dispatch.bulk.waiting, service.open_requests, service.held.held_bytes

    assert serve(use, most_waiting_requests=MOST) == (0, 0, 0)


def test_one_failed_row_fails_it() -> None:
    async def use(service: Service, _: EmulatedBackend) -> tuple[Answer, int]:
        answer = await service.pipeline.infer(samples(*[0] * 15, 10, *[0] * 200))
        return answer, service.open_requests

    answer, left = serve(use, most_waiting_requests=MOST)
    assert (answer.outcome, left) == ("failed", 0)


def test_a_stopped_service_fails_it_once() -> None:
    async def use(service: Service, _: EmulatedBackend) -> Answer:
        wide = asyncio.create_task(service.pipeline.infer(samples(*[0] * 1000)))
        await asyncio.sleep(0.01)
        await service.stop()
        return await wide

    assert serve(use, most_waiting_requests=MOST).outcome == "failed"


def test_outputs_of_its_parts_are_held_and_bounded() -> None:
    async def use(service: Service, _: EmulatedBackend) -> int:
        wide, held = asyncio.create_task(service.pipeline.infer(samples(*[0] * 20))), list[int]()
        while not wide.done():
            held.append(service.held.held_bytes)
            await asyncio.sleep(0)
        again = asyncio.create_task(service.pipeline.infer(samples(*[0] * 20)))
        await asyncio.sleep(0)
        service.held.most_bytes = service.held.held_bytes // 2  # twice this is what it holds by its rows alone
        with pytest.raises(TooLarge, match=r"the outputs of this request's nodes take .* send fewer rows at once"):
            await again
        assert service.held.held_bytes == 0
        return max(held) - held[1]

    assert serve(use, most_waiting_requests=MOST) > 16 * 8  # the numbers of four parts, with their labels


def part(rows: int, outputs: Mapping[str, Any], **told: Any) -> Answer:
    facts = (RowFacts(model="m", stage=0, certainty=1.0),) * rows
    return Answer(outcome=told.pop("outcome", "answered"), rows=facts, outputs=outputs, **told)


def test_a_part_without_outputs_has_empty_rows() -> None:
    whole = joined(
        [
            part(2, {}, outcome="degraded", reason="no_answer"),
            part(1, {"label": np.array(["a"], dtype=object), "scores": np.ones((1, 2))}),
        ]
    )
    outputs: Any = whole.outputs
    assert (whole.outcome, whole.reason, len(whole.rows)) == ("degraded", "no_answer", 3)
    assert outputs["label"].tolist() == ["", "", "a"]
    assert outputs["scores"].tolist() == [[0, 0], [0, 0], [1, 1]]


@pytest.mark.parametrize("other", [{"other": np.ones(1)}, {"x": np.ones((1, 2))}])
def test_parts_whose_outputs_do_not_fit_together_fail(other: Mapping[str, Any]) -> None:
    assert joined([part(1, {"x": np.ones(1)}), part(1, other)]).outcome == "failed"
