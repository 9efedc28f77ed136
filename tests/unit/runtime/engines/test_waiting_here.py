"""Requests that wait here, as an engine has by default at most twice those that it can run."""

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from gearshift.errors import QueueFull
from gearshift.gear import GearPlan
from gearshift.runtime.engines.routing.first_token_promise import FirstTokenPromise
from gearshift.runtime.router.status import ServedPlan
from gearshift.serving.openai.operated import status_of
from gearshift.support.event_loop import loop_factory
from tests.emulated_service import EmulatedService, Reading
from tests.two_language_models import SMALL_ALONE, engine, language_plan, language_profile

BASE = language_profile(step_s=(0.001, 0.001), output_tokens=10)
PROFILE = dataclasses.replace(BASE, engines=tuple(engine(one, 0.002, running=1) for one in BASE.models))
PLAN = language_plan([SMALL_ALONE], most_outstanding=None)
LONG = {"ignore_eos": True, "max_tokens": 60}


def served(
    use: Callable[[EmulatedService, list[Reading]], Awaitable[None]], *, plan: GearPlan = PLAN, **options: Any
) -> None:
    """Four long requests are there: one runs, one is its engine's next, two wait."""

    async def main() -> None:
        async with asyncio.timeout(30), EmulatedService(PROFILE, plan, **options) as service:
            readings = [Reading() for _ in range(4)]
            for record, reading in enumerate(readings):
                service.submit(record, reading, **LONG)
            while not service.engines[0].running:
                await asyncio.sleep(0.001)
            assert (service.service.waiting, service.service.outstanding(0)) == (2, 2)
            await use(service, readings)
            for reading in readings:
                await reading.over.wait()

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(main())


def test_a_client_that_leaves_while_it_waits_is_sent_to_no_engine() -> None:
    async def use(service: EmulatedService, readings: list[Reading]) -> None:
        leaving = Reading()
        stream = service.submit(5, leaving)
        service.service.withdraw(stream)
        assert service.service.waiting == 2
        for reading in readings:
            await reading.over.wait()
            assert reading.fault is None
        assert (leaving.ends, stream.request.visited, service.service.router.requests) == (0, 0, 0)
        assert 'gearshift_requests_total{operator="chat",outcome="cancelled"} 1.0' in metrics(service)

    served(use)


@pytest.mark.parametrize("late", [False, True])
def test_a_deadline_passes_also_while_a_request_waits(late: bool) -> None:
    async def use(service: EmulatedService, readings: list[Reading]) -> None:
        reading = Reading()
        service.service.router.expected.slowdown[0] = 0.1  # it is let in, as engines are said to be so much faster
        stream = service.submit(5, reading, deadline_s=0.03)
        await reading.over.wait()
        if late:
            assert reading.text.startswith("small:5")
            return
        assert reading.fault is not None
        assert (reading.fault.status, stream.request.visited, service.service.waiting) == (504, 0, 2)
        assert 'gearshift_dropped_total{reason="deadline"} 1.0' in metrics(service)

    served(use, promise=FirstTokenPromise(gives_late_answers=late))


@pytest.mark.parametrize("deadline_s", [0.01, None])
def test_a_request_whose_first_token_would_be_late_is_refused_at_arrival(deadline_s: float | None) -> None:
    async def use(service: EmulatedService, readings: list[Reading]) -> None:
        reading = Reading()
        with pytest.raises(QueueFull, match="2 requests wait already, and its first token is expected after"):
            service.submit(5, reading, deadline_s=deadline_s)
        assert (reading.ends, service.service.open_requests) == (0, 4)
        assert 'gearshift_dropped_total{reason="late"} 1.0' in metrics(service)

    objective_ns = None if deadline_s else 10_000_000
    promise = FirstTokenPromise(gives_late_answers=False)
    if objective_ns is None:
        served(use, promise=promise)
    else:
        served(lambda service, readings: _with(service, readings, objective_ns, use), promise=promise)


async def _with(
    service: EmulatedService, readings: list[Reading], objective_ns: int, use: Callable[..., Awaitable[None]]
) -> None:
    """With an objective that came when four requests were let in."""
    service.service.answers.promise.objective_ns = objective_ns
    await use(service, readings)


def test_who_is_refused_is_told_to_come_again_when_what_waits_is_cleared() -> None:
    async def use(service: EmulatedService, readings: list[Reading]) -> None:
        router, before_ns = service.service.router, service.service.router.drain_ns
        more = [Reading() for _ in range(4)]
        for reading in more:
            service.submit(5, reading, max_tokens=10_000)
        assert router.drain_ns > 1.5 * before_ns
        router.work.waiting_ns[0] += 7_000_000_000
        with pytest.raises(QueueFull, match="try again in 8 s") as refused:
            service.submit(6, Reading())
        router.work.waiting_ns[0] -= 7_000_000_000
        assert refused.value.retry_after_s == 8
        for reading in more:
            await reading.over.wait()

    served(use, most_waiting=6)


def test_status_and_metrics_tell_what_waits_from_what_engines_have() -> None:
    async def use(service: EmulatedService, readings: list[Reading]) -> None:
        plan = ServedPlan(path="plan.json", sha256="")
        status = status_of(service.service, PLAN, plan)
        assert (status.waiting, status.open_requests) == (2, 4)
        assert [(one.id, one.waiting, one.running) for one in status.replicas] == [("small-0", 2, 2), ("large-0", 0, 0)]
        told = metrics(service)
        assert "gearshift_waiting_requests 2.0" in told
        assert "gearshift_open_requests 4.0" in told
        assert 'gearshift_outstanding{replica="small-0"} 2.0' in told

    served(use)


def test_a_request_that_waits_for_lost_engines_alone_goes_elsewhere() -> None:
    async def use(service: EmulatedService, readings: list[Reading]) -> None:
        service.service.lost(0)
        for reading in readings:
            await reading.over.wait()
        assert [reading.text.partition(":")[0] for reading in readings] == ["small", "small", "large", "large"]
        service.service.found(0)

    served(use)


def metrics(service: EmulatedService) -> str:
    return service.service.metrics.text().decode()
