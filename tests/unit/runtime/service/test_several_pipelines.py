"""One service of two pipelines whose models share a device."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import uvloop

from gearshift.errors import InvalidInput, NotReady, QueueFull
from gearshift.gear import LoadRange
from gearshift.observability.journal import JournalFile
from gearshift.observability.metrics import Metrics
from gearshift.plans.plan_tables import plan_tables
from gearshift.request import Answer
from gearshift.runtime.backends.emulated import EmulatedBackend
from gearshift.runtime.router.status import ServedPlan
from gearshift.runtime.service.room import Client
from gearshift.runtime.service.served_pipeline import PipelineOptions
from gearshift.runtime.service.service import Service
from tests.little_task import little_profile
from tests.scaled_task import scaled_profile
from tests.two_tasks import two_task_plan

LONGEST_S = 20.0
PROFILES = {"sums": little_profile(), "numbers": scaled_profile((1,))}


def serve(use: Callable[[Service, EmulatedBackend], Awaitable[Any]], **options: Any) -> Any:
    async def main() -> Any:
        plan = two_task_plan("", "")
        tables = plan_tables(plan)
        backend = EmulatedBackend(tables, plan, PROFILES)
        service = Service(tables, backend, **options)
        await service.start()
        try:
            async with asyncio.timeout(LONGEST_S):
                return await use(service, backend)
        finally:
            await service.stop()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main())


def samples(*numbers: int) -> dict[str, np.ndarray]:
    return {"sample": np.array(numbers)}


def test_each_pipeline_answers_its_own_requests_from_its_own_models() -> None:
    async def use(service: Service, _: EmulatedBackend) -> list[Answer]:
        sums, numbers = service.pipelines["sums"], service.pipelines["numbers"]
        service.pin_gear(0, "sums")  # however late a busy machine lets the load be metered
        return await asyncio.gather(*(one.infer(samples(i)) for i in range(8) for one in (sums, numbers)))

    answers = serve(use)
    assert [answer.rows[0].model for answer in answers] == ["small", "net", "large", "net"] * 4
    assert [answer.outputs["label"].tolist() for answer in answers[:4]] == [["small-0"], ["a"], ["large-1"], ["a"]]


def test_what_may_wait_is_bounded_for_each_pipeline_and_in_bytes_for_all() -> None:
    async def use(service: Service, _: EmulatedBackend) -> None:
        sums, numbers = service.pipelines["sums"], service.pipelines["numbers"]
        waiting = [asyncio.ensure_future(numbers.infer(samples(0))) for _ in range(5)]
        await asyncio.sleep(0)
        assert (numbers.waiting, sums.waiting, service.waiting) == (4, 0, 4)
        with pytest.raises(QueueFull, match="4 requests wait"):
            numbers.require_room(1, 0)
        sums.require_room(1, 0)
        await asyncio.gather(*waiting)
        with numbers.reading(15_000) as reading:
            reading.hold(15_000)
            with pytest.raises(QueueFull, match="bytes are held"):
                sums.require_room(1, 6000)

    bounds = {"sums": PipelineOptions(), "numbers": PipelineOptions(most_waiting_requests=4)}
    serve(use, pipelines=bounds, most_waiting_bytes=20_000)


def test_a_client_that_fills_one_pipeline_takes_no_share_of_another() -> None:
    async def use(service: Service, _: EmulatedBackend) -> None:
        client = Client()
        sums, numbers = service.pipelines["sums"], service.pipelines["numbers"]
        requests = [asyncio.ensure_future(one.infer(samples(*[0] * 10), client=client)) for one in (sums, numbers)]
        await asyncio.sleep(0)
        assert [client.rows[one.room] for one in (sums, numbers)] == [10, 10]
        await asyncio.gather(*requests)
        assert (client.rows, client.held_bytes) == ({}, 0)
        assert [one.room.waiting for one in (sums, numbers)] == [0, 0]

    serve(use, pipelines={name: PipelineOptions(most_waiting_requests=12) for name in PROFILES})


def test_gears_are_pinned_and_freed_by_the_name_of_the_pipeline(tmp_path: Path) -> None:
    async def use(service: Service, _: EmulatedBackend) -> list[int]:
        with pytest.raises(InvalidInput, match=r"the plan has pipelines \['sums', 'numbers'\]"):
            service.pin_gear(1)
        with pytest.raises(InvalidInput, match="there is no pipeline 'other'; name one of numbers, sums"):
            service.pin_gear(1, "other")
        with pytest.raises(InvalidInput, match="there is no gear 1; pin one from 0 to 0"):
            service.pin_gear(1, "numbers")
        service.pin_gear(1, "sums")
        answer = await service.pipelines["sums"].infer(samples(1))
        assert (answer.gear, answer.rows[0].model) == (1, "small")
        service.free_gear("sums")
        return [each.gear for each in service.status(ServedPlan(path="", sha256="")).pipelines]

    journal = JournalFile(tmp_path / "journal")
    assert serve(use, journal=journal) == [1, 0]
    journal.close()
    rows = [json.loads(line) for line in (tmp_path / "journal").read_text().splitlines()]
    told = [(row["event"], row["pipeline"]) for row in rows if row["event"] in ("pin", "shift", "free")]
    assert told == [("pin", "sums"), ("shift", "sums"), ("free", "sums")]


def test_the_status_has_each_pipeline_and_no_fields_of_a_single_one() -> None:
    async def use(service: Service, _: EmulatedBackend) -> Any:
        return service.status(ServedPlan(path="", sha256=""))

    status = serve(use)
    sums, numbers = status.pipelines
    assert (sums.name, sums.last_gear, sums.load_range) == ("sums", 1, LoadRange(from_=0.0, to=50.0))
    assert (numbers.name, numbers.last_gear) == ("numbers", 0)
    assert [each.models for each in sums.cascades["sums"]] == [("small", "large")]
    assert [each.models for each in numbers.cascades["numbers"]] == [("net",)]
    told = msgspec.to_builtins(status)
    assert not {"gear", "operator", "cascade", "load_range", "most_waiting"} & told.keys()
    assert [each["adapting"]["load_drifts"] for each in told["pipelines"]] == [False, False]


def test_a_pipeline_without_a_worker_refuses_and_the_other_goes_on() -> None:
    async def use(service: Service, backend: EmulatedBackend) -> Answer:
        net = plan_tables(two_task_plan("", "")).replica_ids.index("net-0")
        backend.lose(net)
        sums, numbers = service.pipelines["sums"], service.pipelines["numbers"]
        assert (sums.ready, numbers.ready, service.ready) == (True, False, False)
        with pytest.raises(NotReady, match="no worker of model 'net'"):
            numbers.require_room(1, 0)
        return await sums.infer(samples(0))

    assert serve(use).outcome == "answered"


def test_a_drain_waits_for_the_requests_of_all_pipelines() -> None:
    async def use(service: Service, _: EmulatedBackend) -> list[str]:
        requests = [asyncio.ensure_future(one.infer(samples(0))) for one in service.pipelines.values()]
        await asyncio.sleep(0)
        assert service.open_requests == 2
        assert await service.drain(LONGEST_S)
        return [(await request).outcome for request in requests]

    assert serve(use) == ["answered", "answered"]


def test_metrics_are_told_apart_by_pipeline() -> None:
    async def use(service: Service, _: EmulatedBackend) -> None:
        await asyncio.gather(*(service.pipelines["sums"].infer(samples(0)) for _ in range(3)))
        await service.pipelines["numbers"].infer(samples(0))

    metrics = Metrics(["sums", "numbers"])
    serve(use, metrics=metrics)
    text = metrics.text().decode()
    for line in (
        'gearshift_requests_total{operator="sums",outcome="answered"} 3.0',
        'gearshift_requests_total{operator="numbers",outcome="answered"} 1.0',
        'gearshift_last_gear{operator="sums"} 1.0',
        'gearshift_last_gear{operator="numbers"} 0.0',
    ):
        assert line in text
