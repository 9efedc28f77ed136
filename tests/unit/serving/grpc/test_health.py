"""Health as Kubernetes, load balancers and gRPC's own clients ask for it."""

import asyncio

import grpc
import pytest

from gearshift.serving.grpc.health import SERVICE, Health
from gearshift.serving.grpc.health_pb2 import HealthCheckRequest, HealthCheckResponse, HealthListResponse
from gearshift.v2.grpc_status import SERVICE as INFERENCE
from tests.http2 import Http2
from tests.unit.serving.grpc.test_server import LARGEST_BYTES, LONGEST_S, Served, keys, run, sent  # noqa: F401

SERVING, NOT_SERVING = HealthCheckResponse.SERVING, HealthCheckResponse.NOT_SERVING


def check(channel: grpc.aio.Channel, service: str = "", **options):
    call = channel.unary_unary(
        f"/{SERVICE}/Check", HealthCheckRequest.SerializeToString, HealthCheckResponse.FromString
    )
    return call(HealthCheckRequest(service=service), timeout=LONGEST_S, **options)


def watch(channel: grpc.aio.Channel, service: str = ""):
    call = channel.unary_stream(
        f"/{SERVICE}/Watch", HealthCheckRequest.SerializeToString, HealthCheckResponse.FromString
    )
    return call(HealthCheckRequest(service=service), timeout=LONGEST_S)


@pytest.mark.parametrize("service", ["", INFERENCE, SERVICE])
def test_a_server_that_is_ready_serves_and_one_that_drains_does_not(service):
    async def use(served: Served) -> list[int]:
        async with grpc.aio.insecure_channel(served.address) as channel:
            before = await check(channel, service)
            served.service.refuse_new()
            return [before.status, (await check(channel, service)).status]

    assert run(use) == [SERVING, NOT_SERVING]


def test_a_service_that_is_not_there_is_not_found():
    async def use(served: Served) -> tuple[grpc.StatusCode, str]:
        async with grpc.aio.insecure_channel(served.address) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await check(channel, "another.Service")
            return caught.value.code(), caught.value.details()

    code, details = run(use)
    assert code is grpc.StatusCode.NOT_FOUND
    assert "there is no service 'another.Service'; this server has ['', 'inference.GRPCInferenceService'" in details


def test_all_services_are_listed():
    async def use(served: Served) -> HealthListResponse:
        async with grpc.aio.insecure_channel(served.address) as channel:
            return HealthListResponse.FromString(await channel.unary_unary(f"/{SERVICE}/List")(b"", timeout=LONGEST_S))

    statuses = run(use).statuses
    assert {"", INFERENCE, SERVICE} < set(statuses)
    assert {status.status for status in statuses.values()} == {SERVING}


def test_who_watches_hears_of_each_change_and_at_the_end_that_it_is_over():
    statuses: asyncio.Queue[int] = asyncio.Queue()

    async def use(served: Served) -> list[int]:
        async def listen() -> None:
            async with grpc.aio.insecure_channel(served.address) as channel:
                async for answer in watch(channel):
                    statuses.put_nowait(answer.status)

        task = asyncio.create_task(listen())
        heard = [await statuses.get()]
        for change in (served.service.refuse_new, served.service.undo_drain):
            change()
            heard.append(await statuses.get())
        await asyncio.gather(served.server.stop(LONGEST_S), task)
        return [*heard, await statuses.get()]

    assert run(use) == [SERVING, NOT_SERVING, SERVING, NOT_SERVING]


def test_who_begins_to_watch_within_a_short_dip_hears_of_its_end_and_others_of_all_of_it():
    async def use() -> dict[str, list[int]]:
        ready, heard, events = True, {"before": [], "within": []}, asyncio.Queue()
        health = Health(lambda: ready, ())

        async def watch_as(name: str) -> None:
            async def send(answer: HealthCheckResponse) -> None:
                heard[name].append(answer.status)
                events.put_nowait(name)

            await health.watch("", send)

        async with asyncio.timeout(LONGEST_S), asyncio.TaskGroup() as group:
            group.create_task(watch_as("before"))
            await events.get()
            ready = False
            group.create_task(watch_as("within"))
            while await events.get() != "within":
                pass
            ready = True
            while [statuses[-1] for statuses in heard.values()] != [SERVING, SERVING]:
                await events.get()
            health.end()
        return heard

    assert asyncio.run(use()) == {
        "before": [SERVING, NOT_SERVING, SERVING, NOT_SERVING],
        "within": [NOT_SERVING, SERVING, NOT_SERVING],
    }


def test_a_service_that_is_not_there_may_be_watched():
    async def use(served: Served) -> int:
        async with grpc.aio.insecure_channel(served.address) as channel:
            return (await watch(channel, "another.Service").read()).status

    assert run(use) == HealthCheckResponse.SERVICE_UNKNOWN


def test_with_keys_health_is_told_to_anybody_without_waiting_for_a_message(keys):  # noqa: F811
    async def use(served: Served) -> list[bytes]:
        async with await Http2.connect(served.address) as client:
            calls = [await client.call(f"/{SERVICE}/{method}", LARGEST_BYTES) for method in ("Check", "Watch")]
            for call in calls:
                await call.ended.wait()
            assert b"an API key is needed" in calls[1].headers
            return calls[0].data

    assert run(use, keys) == sent(b"\x08\x01")
