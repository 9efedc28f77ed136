"""The answers that clients get where something goes wrong on this side of the engines."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from gearshift.runtime.engines.requests.asked import CHAT, Asked
from gearshift.runtime.engines.upstream.call import Fault
from gearshift.runtime.service.room import Client as Held
from gearshift.serving.http.http_exchange import HttpExchange
from gearshift.serving.openai import assembly, readers
from gearshift.serving.openai.bodies import read_body
from gearshift.serving.openai.readers import StreamedAnswer, WholeAnswer, told_as
from gearshift.support.event_loop import loop_factory
from gearshift.v2.packing import Buffer
from tests.emulated_service import EmulatedService
from tests.two_language_models import SMALL_ALONE, language_plan, language_profile

PROFILE = language_profile(step_s=(0.0005, 0.001), output_tokens=10)


class Client:
    """Keeps what it is sent; reads at once."""

    ending, crowded, address = False, False, None

    def __init__(self) -> None:
        self.held = Held()
        self.got = b""
        self.over = asyncio.Event()
        self.ends = 0

    def vouch(self) -> None: ...

    def let_in(self, exchange: HttpExchange) -> None: ...

    def sent(self, data: bytes) -> None:
        assert not self.ends
        self.got += data

    def answered(self, exchange: HttpExchange, parts: Sequence[Buffer], *, last: bool) -> None:
        self.got += b"".join(bytes(part) for part in parts)
        self.ends += 1
        self.over.set()


def exchange_of(client: Client) -> HttpExchange:
    exchange = HttpExchange(client, "POST", "/v1/chat/completions", {}, True)
    exchange.complete = True
    return exchange


def wanted(**fields: Any) -> Asked:
    messages = [{"role": "user", "content": "record 3"}]
    return read_body(CHAT, json.dumps({"model": "chat", "messages": messages, **fields}).encode(), "chat")


def served(use: Callable[[EmulatedService], Awaitable[None]], **replicas: int) -> None:
    async def main() -> None:
        plan = language_plan([SMALL_ALONE], replicas=replicas or None)
        async with asyncio.timeout(30), EmulatedService(PROFILE, plan) as service:
            await use(service)

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(main())


@pytest.mark.parametrize("stream", [True, False])
def test_an_error_in_answering_gives_the_client_an_error_and_an_end(
    stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def use(service: EmulatedService) -> None:
        client, asked = Client(), wanted(stream=stream)
        kind = StreamedAnswer if stream else WholeAnswer
        service.service.submit(asked, kind(exchange_of(client), "chat", (), asked))  # models without names
        await client.over.wait()
        assert client.got.startswith(b"HTTP/1.1 500 ")
        assert b"the server's log explains id" in client.got
        await asyncio.sleep(0.02)
        assert client.ends == 1

    served(use)
    assert sum(record.exc_info is not None for record in caplog.records) == 1


def test_an_error_amid_a_stream_ends_it_with_an_error() -> None:
    async def use(service: EmulatedService) -> None:
        client, asked = Client(), wanted(stream=True, stream_options={"include_usage": True})
        reader = StreamedAnswer(exchange_of(client), "chat", ("small", "large"), asked)
        stream = service.service.submit(asked, reader)
        while stream.count < 3:
            await asyncio.sleep(0.0005)
        reader._models = ()
        await client.over.wait()
        assert client.got.startswith(b"HTTP/1.1 200 ")
        assert b'data: {"error":' in client.got
        assert client.got.endswith(b"0\r\n\r\n")
        assert b"[DONE]" not in client.got

    served(use)


def events_in(got: bytes) -> list[dict[str, Any]]:
    """The JSON of the events of a chunked answer."""
    lines = [line for line in got.split(b"\n") if line.startswith(b"data: {")]
    return [json.loads(line[len(b"data: ") :]) for line in lines]


def test_a_stream_that_waits_gets_comments_and_its_first_and_last_chunk_say_what_the_head_could_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(readers, "KEEP_ALIVE_S", 0.05)

    async def use(service: EmulatedService) -> None:
        available = service.service.router.available
        available.cool_until_ns[0] = service.service.now_ns() + 300_000_000
        available.look(service.service.now_ns())
        client, asked = Client(), wanted(stream=True)
        service.service.submit(asked, StreamedAnswer(exchange_of(client), "chat", ("small", "large"), asked))
        await client.over.wait()
        head, _, rest = client.got.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 ")
        assert b"x-gearshift-model" not in head
        assert rest.index(readers.COMMENT) < rest.index(b"data: ")
        events = events_in(rest)
        assert [place for place, event in enumerate(events) if "gearshift" in event] == [0, len(events) - 1]
        assert {event["gearshift"]["model"] for event in (events[0], events[-1])} == {"small"}
        assert b"[DONE]" in client.got
        await asyncio.sleep(0.1)
        assert client.ends == 1, "nothing follows the end"

    served(use)


def test_an_answer_that_begins_at_once_says_all_in_its_head() -> None:
    async def use(service: EmulatedService) -> None:
        client, asked = Client(), wanted(stream=True)
        service.service.submit(asked, StreamedAnswer(exchange_of(client), "chat", ("small", "large"), asked))
        await client.over.wait()
        assert b"x-gearshift-model: small" in client.got.lower()
        assert not any("gearshift" in event for event in events_in(client.got))
        assert readers.COMMENT not in client.got

    served(use)


def test_a_stream_that_broke_off_ends_with_an_error_in_a_chunk_that_says_so() -> None:
    async def use(service: EmulatedService) -> None:
        client, asked = Client(), wanted(stream=True, emulated={"cut_after": 3})
        service.service.submit(asked, StreamedAnswer(exchange_of(client), "chat", ("small", "large"), asked))
        await client.over.wait()
        *chunks, last = events_in(client.got)
        assert len(chunks) >= 3
        assert (last["id"], last["object"]) == (chunks[0]["id"], "chat.completion.chunk")
        assert last["choices"] == [{"index": 0, "delta": {}, "finish_reason": "error"}]
        assert last["error"]["message"]
        assert b"[DONE]" not in client.got

    served(use)


def test_an_answer_that_is_not_streamed_is_given_whole_by_another_engine() -> None:
    async def use(service: EmulatedService) -> None:
        client, asked = Client(), wanted(emulated={"model": "small", "cut_after": 6})
        stream = service.service.submit(asked, WholeAnswer(exchange_of(client), "chat", ("small", "large"), asked))
        await client.over.wait()
        head, _, body = client.got.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 ")
        answer = json.loads(body)
        assert answer["choices"][0]["message"]["content"].startswith("large:3 1 2 3")
        assert answer["gearshift"]["model"] == "large"
        assert stream.request.failed_replicas == 1
        assert service.service.held.held_bytes == 0

    served(use)


def test_a_whole_answer_that_is_too_large_is_refused_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assembly, "LARGEST_BYTES", 400)

    async def use(service: EmulatedService) -> None:
        client, asked = Client(), wanted()
        service.service.submit(asked, WholeAnswer(exchange_of(client), "chat", ("small", "large"), asked))
        await client.over.wait()
        assert client.got.startswith(b"HTTP/1.1 503 ")
        assert b"too large to be given as a whole" in client.got
        await asyncio.sleep(0.02)
        assert client.ends == 1
        router = service.service.router
        assert (router.requests, router.work.prompt_tokens, *router.outstanding) == (0, 0, 0, 0)

    served(use)


def test_an_engine_has_to_wait_while_its_client_has_yet_to_read() -> None:
    async def use(service: EmulatedService) -> None:
        client, asked = Client(), wanted(stream=True, ignore_eos=True, max_tokens=400)
        client.crowded = True
        exchange = exchange_of(client)
        stream = service.service.submit(asked, StreamedAnswer(exchange, "chat", ("small", "large"), asked))
        while stream.call is None or not stream.call.paused:
            await asyncio.sleep(0.001)
        count, got = stream.count, len(client.got)
        while service.engines[0].running:
            await asyncio.sleep(0.001)
        assert (stream.count, len(client.got)) == (count, got), "nothing is read while the engine goes on"
        assert count < 400
        client.crowded = False
        assert exchange.on_room is not None
        exchange.on_room()
        await client.over.wait()
        assert stream.count == 400
        assert client.got.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")

    served(use)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"error": {"message": "bad stop", "param": "stop", "code": "x", "type": "y"}}, ("bad stop", "stop", "x")),
        ({"object": "error", "message": "bad stop", "param": None, "code": 400}, ("bad stop", None, None)),
        ({"error": "bad stop"}, ("bad stop", None, None)),
        ({"detail": "bad stop"}, ("bad stop", None, None)),
        ({"detail": [{"loc": ["stop"]}]}, ('{"detail": [{"loc": ["stop"]}]}', None, None)),
        (["bad", "stop"], ('["bad", "stop"]', None, None)),
    ],
)
def test_what_an_engine_refuses_is_told_in_openais_form(body: Any, told: tuple[str | None, ...]) -> None:
    fault = Fault("", 400, json.dumps(body).encode())
    error = json.loads(told_as("/v1/chat/completions", fault))["error"]
    assert (error["message"], error["param"], error["code"]) == told
    assert error["type"] == "invalid_request_error"
