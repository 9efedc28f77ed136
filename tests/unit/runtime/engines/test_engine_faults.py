"""Engines that fail, stall, or ask for a pause: what clients get of it, and what operators see."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gearshift.gear import GearPlan
from gearshift.observability.journal import Journal
from gearshift.runtime.engines.upstream.link import EngineLink
from gearshift.support.event_loop import loop_factory
from tests.emulated_service import EmulatedService, Reading
from tests.raw_endpoint import HEAD, delta, raw_endpoint
from tests.two_language_models import SMALL_ALONE, cascade, language_plan, language_profile

PROFILE = language_profile(step_s=(0.0005, 0.001), output_tokens=10)
UNSURE = int(PROFILE.answers.certainty[0, :, 1].argmin())
TWO = language_plan([SMALL_ALONE], replicas={"small": 2, "large": 1})
BUSY = b"HTTP/1.1 429 Too Many Requests\r\nretry-after: 1\r\ncontent-length: 2\r\n\r\n{}"
BROKEN = [delta("a")]


class Kept(Journal):
    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, object]]] = []

    def write(self, event: str, **facts: object) -> None:
        self.events.append((event, facts))

    def named(self, *names: str) -> list[str]:
        return [event for event, _ in self.events if event in names]


def served(use: Callable[[EmulatedService], Awaitable[None]], plan: GearPlan = TWO, **options: Any) -> None:
    async def main() -> None:
        async with asyncio.timeout(60), EmulatedService(PROFILE, plan, **options) as service:
            await use(service)

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(main())


@asynccontextmanager
async def in_place_of(
    service: EmulatedService, replica: int, parts: Callable[[dict[str, Any]], Iterable[bytes]], **how: Any
) -> AsyncIterator[None]:
    """Have a raw endpoint answer as this replica, and then the engine again."""
    async with raw_endpoint(parts, **how) as url:
        own = service.all[replica].link
        service.all[replica].link = EngineLink(url)
        try:
            yield
        finally:
            service.all[replica].link.close()
            service.all[replica].link = own


def test_a_replica_that_breaks_off_its_answers_is_taken_out_and_each_request_has_its_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    journal = Kept()

    async def use(service: EmulatedService) -> None:
        async with in_place_of(service, 0, lambda _: BROKEN):
            for number in range(30):
                reading = Reading(shows=False)
                service.submit(number, reading)
                await reading.over.wait()
                assert (reading.fault, reading.text.partition(" ")[0]) == (None, f"small:{number}")
        failed = 'gearshift_engine_failures_total{model="small",reason="broke_off",replica="small-0"} 5.0'
        assert failed in service.service.metrics.text().decode()
        assert not service.service.replica_ready(0)
        assert service.service.ready
        assert service.service.degraded == []
        assert journal.named("replica_failing", "replica_answers") == ["replica_failing"]
        service.service.router.available.ejections.look(1 << 61)  # its pause is over
        service.service.router.available.look(service.service.now_ns())
        for number in range(3):
            await service.ask(number)
        assert service.service.replica_ready(0)
        assert journal.named("replica_failing", "replica_answers") == ["replica_failing", "replica_answers"]

    with caplog.at_level(logging.WARNING):
        served(use, journal=journal)
    lines = [record.getMessage() for record in caplog.records]
    assert sum("requests failed (" in line for line in lines) <= 1, "one line for the failures of 10 s"
    assert sum("fails, and gets single requests that try it: " in line for line in lines) == 1


def test_what_was_shown_is_not_taken_back() -> None:
    async def use(service: EmulatedService) -> None:
        async with in_place_of(service, 0, lambda _: BROKEN):
            reading = await service.ask(1)
            assert reading.fault is not None
            assert reading.text == "a"

    served(use)


def test_where_all_engines_of_a_model_fail_the_server_is_degraded_and_ready() -> None:
    plan = language_plan([cascade(-0.5, None)])

    async def use(service: EmulatedService) -> None:
        async with in_place_of(service, 1, lambda _: BROKEN, head=HEAD.replace(b"200 OK", b"500 No")):
            for _ in range(6):
                reading = await service.ask(UNSURE)
                assert reading.text.startswith(f"small:{UNSURE}")
                assert reading.stream is not None
                assert reading.stream.request.degraded
            assert (service.service.ready, service.service.degraded) == (True, ["large"])
            text = service.service.metrics.text().decode()
            assert "gearshift_degraded 1.0" in text
            assert 'gearshift_engine_failures_total{model="large",reason="status",replica="large-0"} 5.0' in text

    served(use, plan)


def test_an_endpoint_that_asks_for_a_pause_gets_it_and_requests_wait_for_it() -> None:
    calls: list[str] = []

    def busy(body: dict[str, Any]) -> Iterable[bytes]:
        if body:
            calls.append(body["model"])
        return [BUSY]

    async def use(service: EmulatedService) -> None:
        readings = [Reading() for _ in range(8)]
        async with in_place_of(service, 1, busy, head=b""):
            for reading in readings:
                service.submit(UNSURE, reading)
            while not calls:
                await asyncio.sleep(0.001)
            await asyncio.sleep(0.3)
        assert not any(reading.over.is_set() for reading in readings)
        assert len(calls) <= 8, "those that were under way when the first one was told to wait"
        await asyncio.gather(*(reading.over.wait() for reading in readings))
        assert [reading.text.partition(" ")[0] for reading in readings] == [f"large:{UNSURE}"] * 8
        assert service.service.ready
        assert service.service.degraded == [], "an endpoint that is busy does not fail"

    served(use, language_plan([cascade(-0.5, 4)]))


def test_a_request_that_cannot_wait_for_the_pause_is_degraded() -> None:
    async def use(service: EmulatedService) -> None:
        async with in_place_of(service, 1, lambda _: [BUSY.replace(b": 1", b": 50")], head=b""):
            reading = await service.ask(UNSURE)
            assert reading.text.startswith("small:")
            assert reading.stream is not None
            assert reading.stream.request.degraded

    served(use, language_plan([cascade(-0.5, None)]))


def test_a_second_engine_answers_where_the_first_one_stalls() -> None:
    async def use(service: EmulatedService) -> None:
        async with in_place_of(service, 0, lambda _: [b": alive\n\n"] * 10_000, pause_s=0.05):
            for number in range(7):
                reading = await service.ask(number)
                assert reading.text.startswith(f"small:{number}")
            assert not service.service.replica_ready(0), "it stalled five times in a row"
        assert service.service.router.outstanding == [0, 0, 0]

    served(use)


def test_the_second_engine_leaves_where_the_first_one_answers_after_all() -> None:
    late = [b": wait\n\n", delta("late"), delta(finish="stop")]

    async def use(service: EmulatedService) -> None:
        async with (
            in_place_of(service, 0, lambda _: late, pause_s=0.6),
            in_place_of(service, 1, lambda _: [b": alive\n\n"] * 10_000, pause_s=0.05),
        ):
            reading = await service.ask(1)
            assert (reading.fault, reading.text) == (None, "late")
            assert not service.all[1].link.calls
        assert service.service.router.outstanding == [0, 0, 0]

    served(use)


@pytest.mark.parametrize("tokens", [0, 2])
def test_an_engine_that_stalls_alone_fails_after_a_limit_from_the_profile(tokens: int) -> None:
    async def use(service: EmulatedService) -> None:
        reading = Reading()
        stream = service.submit(1, reading, emulated={"silent_after": tokens})
        while stream.call is None or stream.count < tokens:
            await asyncio.sleep(0.001)
        assert stream.call.longest_silence_s == 0.5
        await reading.over.wait()
        assert reading.fault is not None
        assert "sent nothing of an answer for 0.5 s" in reading.fault.reason
        assert reading.fault.kind == "stalled"

    served(use, language_plan([SMALL_ALONE], replicas={"small": 1}), shortest_hang_s=0.5)
