"""A model that reads text alone, or has little room, before one that takes more: together they are one cascade."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gearshift.runtime.engines.upstream.link import EngineLink
from gearshift.support.event_loop import loop_factory
from tests.emulated_service import EmulatedService, Reading
from tests.two_language_models import cascade, language_plan, language_profile

PROFILE = language_profile(step_s=(0.0005, 0.001), output_tokens=10)
IMAGE = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]}]
NO_IMAGES = {"error": {"message": "small is not a multimodal model", "type": "BadRequestError", "code": 400}}
TOO_LONG = {"error": {"code": 400, "message": "The input token count exceeds the maximum number of tokens allowed 9."}}
WRONG = {"error": {"message": "temperature must be non-negative", "type": "BadRequestError", "code": 400}}


@asynccontextmanager
async def refusing(status: int, body: dict[str, Any], asked: list[int], replica: int) -> AsyncIterator[str]:
    """The URL of an endpoint that refuses each request; `asked` notes its replica."""
    data = json.dumps(body).encode()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        await reader.readexactly(int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0]))
        asked.append(replica)
        kind = b"content-type: application/json\r\nconnection: close"
        writer.write(b"HTTP/1.1 %d no\r\n%b\r\ncontent-length: %d\r\n\r\n%b" % (status, kind, len(data), data))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"


def asked_of_two_small_ones(
    status: int, body: dict[str, Any], *, all_refuse: bool = False
) -> tuple[Reading, list[int], str]:
    """A request that replicas of the small model refuse: its answer, who was asked, and which model answered."""
    asked: list[int] = []
    found: list[tuple[Reading, str]] = []

    async def use() -> None:
        plan = language_plan([cascade(-0.5, None)], replicas={"small": 2, "large": 1})
        async with (
            EmulatedService(PROFILE, plan) as service,
            refusing(status, body, asked, 0) as first,
            refusing(status, body, asked, 1) as second,
            refusing(status, body, asked, 2) as third,
        ):
            urls = [first, second, third] if all_refuse else [first, second]
            for replica, url in zip(service.all, urls, strict=False):
                replica.link.close()
                replica.link = EngineLink(url)
            reading = await service.ask(1, **({"messages": IMAGE} if all_refuse else {}))
            model = "" if reading.stream is None else service.tables.models[reading.stream.request.model]
            found.append((reading, model))
            for replica in service.all:
                replica.link.close()

    run(use)
    ((reading, model),) = found
    return reading, asked, model


def run(use: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(30):
            await use()

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(main())


@pytest.mark.parametrize(("status", "body"), [(400, NO_IMAGES), (500, NO_IMAGES), (400, TOO_LONG), (413, {})])
def test_what_one_model_does_not_take_goes_to_the_next_and_not_to_another_replica(
    status: int, body: dict[str, Any]
) -> None:
    reading, asked, model = asked_of_two_small_ones(status, body)
    assert (reading.fault, model, len(asked)) == (None, "large", 1)


def test_what_no_model_takes_is_told_as_the_last_one_did() -> None:
    reading, asked, _ = asked_of_two_small_ones(500, NO_IMAGES, all_refuse=True)
    assert reading.fault is not None
    assert (reading.fault.status, json.loads(reading.fault.body)) == (400, NO_IMAGES)
    assert len(asked) == 2


def test_a_request_that_is_wrong_is_asked_of_one_engine_alone() -> None:
    reading, asked, _ = asked_of_two_small_ones(400, WRONG)
    assert reading.fault is not None
    assert (reading.fault.status, len(asked)) == (400, 1)


def test_a_failing_engine_is_followed_by_another_of_its_model() -> None:
    reading, asked, model = asked_of_two_small_ones(500, {"error": "out of memory"})
    assert (reading.fault, model, sorted(asked)) == (None, "large", [0, 1])
