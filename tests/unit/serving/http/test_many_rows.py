"""Requests of more rows than may wait, over HTTP: answered whole, one at a time, in nobody else's way."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from gearshift.plans.plan_tables import plan_tables
from gearshift.runtime.backends.base import Batch
from gearshift.runtime.router.by_deadline import DeadlineRules
from gearshift.runtime.service.served_pipeline import PipelineOptions
from tests.little_task import little_plan
from tests.unit.serving.http import test_application as test_http
from tests.unit.serving.http.test_application import INFER, Server, samples
from tests.unit.serving.wire import Response

MOST = 18
WIDE = [number % 10 for number in range(MOST + 1)]
LABELS = [f"{'large' if number % 2 else 'small'}-{number}" for number in WIDE]


def serve(use: Callable[[Server], Awaitable[Any]], **service: Any) -> Any:
    bounds = {"sums": PipelineOptions(most_waiting_requests=MOST, capacity_qps=2.0)}
    return test_http.serve(use, service={"pipelines": bounds, **service})


def labels(response: Response) -> list[str]:
    assert response.status == 200, response.body
    data: list[str] = response.json()["outputs"][1]["data"]
    return data


async def until(is_so: Callable[[], object]) -> None:
    while not is_so():
        await asyncio.sleep(0)


async def opened(server: Server, *numbers: int, **headers: str) -> "asyncio.Task[Response]":
    """The answer to a request that the service has taken."""
    asked = asyncio.ensure_future(server.infer(samples(*numbers), headers))
    await until(lambda: server.service.open_requests or asked.done())
    return asked


def held_back(server: Server) -> Callable[[], None]:
    """Hold batches back from now on; returns how they are let go."""
    held: list[Batch] = []
    server.backend.run = held.append  # type: ignore[method-assign, assignment]

    def let_go() -> None:
        del server.backend.run
        for batch in held:
            server.backend.run(batch)

    return let_go


async def require_free(server: Server) -> None:
    """Require that nothing is held any more, and that the next such request is answered."""
    await until(lambda: server.service.open_requests == 0 and server.service.held.held_bytes == 0)
    assert labels(await server.infer(samples(*WIDE))) == LABELS


def test_it_is_answered_whole_and_in_order() -> None:
    assert labels(serve(lambda server: server.infer(samples(*WIDE)))) == LABELS


def test_a_second_is_told_when_to_come_again_and_small_ones_are_answered() -> None:
    async def use(server: Server) -> tuple[Response, list[str], bool]:
        let_go = held_back(server)
        first = await opened(server, *WIDE)
        second = await server.infer(samples(*WIDE))
        small = asyncio.ensure_future(server.infer(samples(1)))
        await until(lambda: server.service.pipeline.room.waiting)
        let_go()
        answer, over = labels(await small), first.done()
        assert labels(await first) == LABELS
        await require_free(server)
        return second, answer, over

    second, answer, over = serve(use)
    assert (second.status, second.headers["retry-after"]) == (429, "10")
    assert "requests of more than 18 rows are taken one at a time, and one has 19 rows left" in second.json()["error"]
    assert (answer, over) == (["large-1"], False)


def test_a_deadline_that_passes_ends_it() -> None:
    async def use(server: Server) -> int:
        let_go = held_back(server)
        refused = await server.infer(samples(*WIDE), {"x-slo-ms": "20"})
        let_go()
        await require_free(server)
        return refused.status

    assert serve(use, deadlines=DeadlineRules(plan_tables(little_plan("")), late="refuse")) == 504


def test_a_client_that_leaves_takes_it_along() -> None:
    async def use(server: Server) -> None:
        body = json.dumps(samples(*WIDE * 50)).encode()
        connection, _ = server.connect()
        head = f"POST {INFER} HTTP/1.1\r\nhost: [::1]\r\ncontent-length: {len(body)}\r\n\r\n".encode()
        connection.data_received(head + body)
        await until(lambda: server.service.open_requests)
        connection.connection_lost(None)
        await require_free(server)

    serve(use)


def test_a_row_that_fails_fails_it() -> None:
    async def use(server: Server) -> int:
        failed = await server.infer(samples(*WIDE, 10, *WIDE * 20))
        await require_free(server)
        return failed.status

    assert serve(use) == 500


@pytest.mark.parametrize("replica", [0, 1])
def test_a_worker_that_is_lost_meanwhile_loses_no_row(replica: int) -> None:
    async def use(server: Server) -> None:
        wide = await opened(server, *WIDE * 5)
        await until(lambda: server.backend._ends)
        server.backend.lose(replica)
        assert [label.rpartition("-")[2] for label in labels(await wide)] == [*map(str, WIDE * 5)]
        await until(lambda: not server.service.pipeline.degraded)  # some were answered without it
        await require_free(server)

    serve(use)
