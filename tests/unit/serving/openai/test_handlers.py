"""Large bodies: read one at a time, while others are answered, and kept no longer than they are counted."""

import asyncio
import gc
import json
import tracemalloc

import pytest

from gearshift.models.language_config import PICTURE_TOKENS
from gearshift.serving.door.deadline_headers import SendingTimes
from gearshift.serving.http.attempts import Attempts
from gearshift.serving.http.http_exchange import HttpExchange, Work
from gearshift.serving.openai.handlers import OpenAIHandlers
from gearshift.v2.pieces import STEP_BYTES
from tests.emulated_service import EmulatedService
from tests.two_language_models import SMALL_ALONE, language_plan
from tests.unit.runtime.engines.test_language_service import served
from tests.unit.serving.openai.test_readers import Client


def body_of(content: str, **fields: object) -> bytes:
    return json.dumps({"model": "chat", "messages": [{"role": "user", "content": content}], **fields}).encode()


LARGE = body_of("record 1", metadata={"note": "x" * 10 * STEP_BYTES})
HOSTILE = json.dumps({"model": "chat", "messages": [1], "metadata": [[]] * 300_000 + [None]}).encode()[:-2]


def handlers_of(service: EmulatedService) -> OpenAIHandlers:
    return OpenAIHandlers(service.service, largest_body_bytes=1 << 26, times=SendingTimes())


def asked(handlers: OpenAIHandlers, body: bytes) -> tuple[Client, HttpExchange, Work | None]:
    """A request whose body has arrived, and the work that is left to read it."""
    client = Client()
    exchange = HttpExchange(client, "POST", "/v1/chat/completions", {}, True)
    handlers.chat(exchange)
    exchange.add_part(body)
    assert exchange.measure is not None
    exchange.measure(len(body))
    exchange.complete = True
    assert exchange.then is not None
    work = exchange.then(exchange)
    return client, exchange, None if work is None else Attempts(lambda: True)._wait(exchange, work)


def test_a_small_body_is_answered_while_large_ones_are_read() -> None:
    async def use(service: EmulatedService) -> None:
        handlers = handlers_of(service)
        reads = []
        for body in (LARGE, HOSTILE, LARGE):
            client, _, work = asked(handlers, body)
            assert work is not None
            reads.append((client, asyncio.create_task(work)))
        await asyncio.sleep(0)
        client, _, work = asked(handlers, body_of("record 2"))
        assert work is None
        assert service.service.open_requests == 1
        assert not any(task.done() for _, task in reads)
        for one, task in [*reads, (client, None)]:
            if task is not None:
                await task
            await one.over.wait()
        assert [one.got[9:12] for one, _ in reads] == [b"200", b"400", b"200"]
        assert b"the body is no JSON" in reads[1][0].got
        assert client.got[9:12] == b"200"

    served(language_plan([SMALL_ALONE]), use)


def test_each_step_reads_one_of_the_large_bodies() -> None:
    async def use(service: EmulatedService) -> None:
        handlers = handlers_of(service)
        tasks = []
        for _ in range(4):
            _, _, work = asked(handlers, HOSTILE)
            assert work is not None
            tasks.append(asyncio.create_task(work))
        rounds = 0
        while not all(task.done() for task in tasks):
            await asyncio.sleep(0)
            rounds += 1
        assert rounds >= 4 * len(HOSTILE) / STEP_BYTES

    served(language_plan([SMALL_ALONE]), use)


def test_a_body_whose_client_has_left_is_not_kept_while_it_waits() -> None:
    async def use(service: EmulatedService) -> None:
        handlers, held = handlers_of(service), service.service.held
        first, _, work = asked(handlers, LARGE)
        _, waiting, later = asked(handlers, LARGE)
        assert work is not None
        assert later is not None
        tasks = [asyncio.create_task(work), asyncio.create_task(later)]
        await asyncio.sleep(0)
        assert held.reading_bytes == 2 * len(LARGE)
        waiting.leave()
        assert held.reading_bytes == len(LARGE)
        assert waiting.parts == []
        await asyncio.gather(*tasks)
        await first.over.wait()
        assert first.got[9:12] == b"200"
        assert service.service.open_requests == 0

    served(language_plan([SMALL_ALONE]), use)


def test_a_picture_is_no_more_load_than_a_model_reads_of_it() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 1_500_000}}
    content = [{"type": "text", "text": "record 1"}, picture]

    async def use(service: EmulatedService) -> None:
        client, _, work = asked(handlers_of(service), body_of("", messages=[{"role": "user", "content": content}]))
        assert work is not None
        await work
        assert PICTURE_TOKENS <= service.service.router.work.prompt_tokens < PICTURE_TOKENS + 100
        await client.over.wait()

    served(language_plan([SMALL_ALONE], load_unit="queued_tokens"), use)


@pytest.mark.parametrize("stream", [False, True])
def test_a_body_is_not_kept_when_its_request_is_answered(stream: bool) -> None:
    async def use(service: EmulatedService) -> None:
        handlers = handlers_of(service)
        gc.disable()
        tracemalloc.start()
        try:
            client, _, work = asked(handlers, body_of("record 1", metadata=["x" * (4 << 20)], stream=stream))
            assert work is not None
            await work
            assert tracemalloc.get_traced_memory()[0] > 4 << 20
            await client.over.wait()
            assert client.got[9:12] == b"200"
            await asyncio.sleep(0)
            assert tracemalloc.get_traced_memory()[0] < 1 << 20
        finally:
            tracemalloc.stop()
            gc.enable()

    served(language_plan([SMALL_ALONE]), use)
