"""Bulk work of a service: its room, its deadlines, and what does not count it."""

import asyncio
import gc

import pytest

from gearshift.errors import DeadlinePassed, QueueFull, UnknownModel
from gearshift.observability.metrics import Metrics
from gearshift.request import Answer, BulkWork
from gearshift.runtime.backends.emulated import EmulatedBackend
from gearshift.runtime.service.answers import OpenRequest
from gearshift.runtime.service.service import Service
from tests.little_task import two_gear_plan
from tests.unit.runtime.service.test_service import samples, serve

PLAN = two_gear_plan("")


def test_bulk_work_keeps_the_cascade_of_its_gear():
    async def use(service: Service, _: EmulatedBackend) -> list[Answer]:
        ask = service.pipeline.infer
        return await asyncio.gather(ask(samples(1, 3), bulk=BulkWork()), ask(samples(1, 3), bulk=BulkWork(gear=1)))

    first, second = serve(use, plan=PLAN)
    assert (first.gear, [row.model for row in first.rows]) == (0, ["large", "large"])
    assert (second.gear, [row.model for row in second.rows]) == (1, ["small", "small"])


def test_a_gear_that_the_plan_does_not_have_is_refused():
    async def use(service: Service, _: EmulatedBackend) -> None:
        await service.pipeline.infer(samples(1), bulk=BulkWork(gear=2))

    with pytest.raises(UnknownModel, match=r"gear is 2, the plan has gears 0 to 1"):
        serve(use, plan=PLAN)


def test_bulk_work_has_room_of_its_own():
    async def use(service: Service, _: EmulatedBackend) -> Answer:
        pipeline = service.pipeline
        bulk = [asyncio.create_task(pipeline.infer(samples(0, 2, 4), bulk=BulkWork())) for _ in range(3)]
        await asyncio.sleep(0)
        with pytest.raises(QueueFull):
            await pipeline.infer(samples(0, 2), bulk=BulkWork())
        online = await pipeline.infer(samples(*[0] * 10))
        await asyncio.gather(*bulk)
        await pipeline.infer(samples(*[0] * 10), bulk=BulkWork())  # all of it was given back
        return online

    assert serve(use, most_waiting_requests=10).outcome == "answered"


def test_bulk_work_is_refused_at_its_deadline_and_leaves_its_queue():
    async def use(service: Service, _: EmulatedBackend) -> int:
        pipeline = service.pipeline
        rows = samples(*[1] * 200)
        with pytest.raises(DeadlinePassed, match="expired_in_queue"):
            await pipeline.infer(rows, bulk=BulkWork(), deadline_ns=pipeline.now_ns() + 5_000_000)
        return service.router._dispatch.bulk.waiting

    assert serve(use) == 0


def test_answered_bulk_work_is_not_held_until_its_deadline():
    async def use(service: Service, _: EmulatedBackend) -> int:
        pipeline = service.pipeline
        deadline_ns = pipeline.now_ns() + 3600 * 10**9
        await asyncio.gather(*(pipeline.infer(samples(0), bulk=BulkWork(), deadline_ns=deadline_ns) for _ in range(20)))
        await asyncio.sleep(0)
        gc.collect()
        return sum(type(each) is OpenRequest for each in gc.get_objects())

    assert serve(use) == 0


def test_metrics_count_bulk_work_apart():
    metrics = Metrics()

    async def use(service: Service, _: EmulatedBackend) -> None:
        await service.pipeline.infer(samples(0, 2), bulk=BulkWork())
        await service.pipeline.infer(samples(0))

    serve(use, metrics=metrics)
    lines = metrics.text().decode().splitlines()
    assert 'gearshift_bulk_rows_total{operator="sums",outcome="answered"} 2.0' in lines
    assert 'gearshift_requests_total{operator="sums",outcome="answered"} 1.0' in lines
    assert 'gearshift_batches_total{model="small",reason="bulk"} 1.0' in lines
