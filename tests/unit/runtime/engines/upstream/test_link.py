"""The client of endpoints, against servers that are written here byte by byte."""

import asyncio
import os
import resource
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from gearshift.runtime.engines.upstream.call import Fault
from gearshift.runtime.engines.upstream.link import EngineLink
from gearshift.support.event_loop import loop_factory

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
KEY = "sk-very-secret"
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


class Heard:
    def __init__(self) -> None:
        self.events: list[bytes] = []
        self.fault: Fault | None = None
        self.over = asyncio.Event()

    def event(self, data: bytes) -> None:
        self.events.append(data)

    def ended(self) -> None:
        self.over.set()

    def failed(self, fault: Fault) -> None:
        self.fault = fault
        self.over.set()


def whole(content_type: bytes, body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ncontent-length: %d\r\n\r\n%b" % (content_type, len(body), body)


def with_server(serve: Serve, use: Callable[[EngineLink], Awaitable[None]], **options: float) -> None:
    async def main() -> None:
        async def serve_and_close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await serve(reader, writer)
            finally:
                writer.close()

        server = await asyncio.start_server(serve_and_close, "127.0.0.1", 0)
        async with asyncio.timeout(20), server:
            port = server.sockets[0].getsockname()[1]
            link = EngineLink(f"http://127.0.0.1:{port}/v1", key=KEY, **options)
            await use(link)
            link.close()

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(main())


async def request_of(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0)
    return head + await reader.readexactly(length)


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


async def ask(link: EngineLink, body: bytes = b"{}") -> Heard:
    heard = Heard()
    link.post("/chat/completions", body, heard)
    await heard.over.wait()
    return heard


def test_events_come_one_by_one_and_the_connection_is_kept() -> None:
    connections = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer)
        for _ in range(2):
            request = await request_of(reader)
            assert request.startswith(b"POST /v1/chat/completions HTTP/1.1\r\n")
            assert f"authorization: Bearer {KEY}\r\n".encode() in request
            assert request.endswith(b'{"a":1}')
            for byte in HEAD + chunk("data: é€".encode()) + chunk(b"\n\ndata: [DONE]\n\n") + b"0\r\n\r\n":
                writer.write(bytes([byte]))
                await writer.drain()

    async def use(link: EngineLink) -> None:
        for _ in range(2):
            heard = await ask(link, b'{"a":1}')
            assert (heard.events, heard.fault) == (["é€".encode(), b"[DONE]"], None)

    with_server(serve, use)
    assert len(connections) == 1


def test_a_request_has_the_id_that_it_is_given() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert b"\r\nx-request-id: seven\r\n" in await request_of(reader)
        writer.write(HEAD + chunk(b"data: x\n\n") + b"0\r\n\r\n")

    async def use(link: EngineLink) -> None:
        heard = Heard()
        link.post("/chat/completions", b"{}", heard, request_id="seven")
        await heard.over.wait()
        assert heard.events == [b"x"]

    with_server(serve, use)


def test_a_kept_connection_that_was_closed_is_replaced_unheard() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_of(reader)
        writer.write(HEAD + chunk(b"data: x\n\n") + b"0\r\n\r\n")

    async def use(link: EngineLink) -> None:
        for _ in range(5):
            assert (await ask(link)).events == [b"x"]

    with_server(serve, use)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"", "closed the connection"),
        (HEAD + chunk(b"data: x\n\n"), "closed the connection"),
        (b"what is this\r\n\r\n", "cannot be read"),
        (whole(b"application/json", b"{}"), "with application/json, where a stream of events was asked for"),
        (whole(b"text/html", b"<p>A"), "with text/html, where a stream of events was asked for: <p>A"),
        (b"HTTP/1.1 404 No\r\ncontent-length: 8\r\n\r\nno model", "with status 404: no model"),
        (HEAD[:-2] + b"content-encoding: gzip\r\n\r\n" + chunk(b"\x1f") + b"0\r\n\r\n", "in 'gzip', which it was not"),
        (b"HTTP/1.1 200 OK\r\nx: " + b"a" * (1 << 20), "head has more than 65536 bytes"),
    ],
)
def test_what_is_no_whole_stream_fails(answer: bytes, said: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_of(reader)
        writer.write(answer)

    async def use(link: EngineLink) -> None:
        heard = await ask(link)
        assert heard.fault is not None
        assert said in heard.fault.reason

    with_server(serve, use)


def test_an_answer_is_not_quoted() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_of(reader)
        writer.write(whole(b"application/json", b'{"a":"secret"}'))

    async def use(link: EngineLink) -> None:
        heard = await ask(link)
        assert heard.fault is not None
        assert "secret" not in heard.fault.reason

    with_server(serve, use)


def test_the_last_event_may_end_in_blanks() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_of(reader)
        writer.write(HEAD + chunk(b"data: x\n\ndata: [DONE] \n\n"))
        await reader.read()

    async def use(link: EngineLink) -> None:
        heard = await ask(link)
        assert (heard.events, heard.fault) == ([b"x", b"[DONE]"], None)

    with_server(serve, use)


def test_an_error_is_told_with_its_body_and_when_to_come_again() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_of(reader)
        writer.write(b"HTTP/1.1 429 Slow\r\nretry-after: 7\r\ncontent-length: 4\r\n\r\nbusy")

    async def use(link: EngineLink) -> None:
        heard = await ask(link)
        assert heard.fault is not None
        assert (heard.fault.status, heard.fault.body, heard.fault.retry_after_s) == (429, b"busy", 7)

    with_server(serve, use)


def test_to_cancel_closes_the_connection() -> None:
    closed = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_of(reader)
        writer.write(HEAD + chunk(b"data: x\n\n"))
        with suppress(ConnectionResetError):
            assert await reader.read() == b""
        closed.set()

    async def use(link: EngineLink) -> None:
        heard = Heard()
        call = link.post("/chat/completions", b"{}", heard)
        while not heard.events:
            await asyncio.sleep(0.001)
        call.cancel()
        await closed.wait()
        assert not heard.over.is_set()
        assert not link.calls

    with_server(serve, use)


def test_silence_has_a_bound_and_nobody_there_is_told() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async def use(link: EngineLink) -> None:
        heard = Heard()
        link.post("/chat/completions", b"{}", heard)
        while not heard.over.is_set():
            await asyncio.sleep(0.01)
            link.look()
        assert heard.fault is not None
        assert "sent nothing of an answer for 0.1 s" in heard.fault.reason
        nobody = await ask(EngineLink("http://127.0.0.1:1/v1"))
        assert nobody.fault is not None
        assert nobody.fault.unreachable

    with_server(serve, use, longest_silence_s=0.1)


def test_an_endpoint_has_to_wait_while_a_call_is_paused() -> None:
    sent = [0]

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_of(reader)
        writer.write(HEAD)
        for _ in range(2000):
            writer.write(chunk(b"data: " + b"x" * 10_000 + b"\n\n"))
            await writer.drain()
            sent[0] += 1
        writer.write(b"0\r\n\r\n")

    async def use(link: EngineLink) -> None:
        heard = Heard()
        call = link.post("/chat/completions", b"{}", heard)
        while not heard.events:
            await asyncio.sleep(0.001)
        call.pause()
        before = -1
        while before != sent[0]:
            before = sent[0]
            await asyncio.sleep(0.1)
        assert sent[0] < 2000
        held = len(heard.events)
        await asyncio.sleep(0.05)
        assert len(heard.events) == held
        call.resume()
        await heard.over.wait()
        assert len(heard.events) == 2000

    with_server(serve, use)


@pytest.mark.parametrize("rest", [b"", chunk(b"data: more\n\n"), b"0\r\n\r\n" + HEAD, b"rubbish\r\n\r\n"])
def test_an_answer_is_over_at_its_done_whatever_follows(rest: bytes) -> None:
    closed = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_of(reader)
        writer.write(HEAD + chunk(b"data: x\n\ndata: [DONE]\n\n"))
        await writer.drain()
        writer.write(rest)
        with suppress(ConnectionResetError):
            await reader.read()
        closed.set()

    async def use(link: EngineLink) -> None:
        heard = await ask(link)
        assert (heard.events, heard.fault) == ([b"x", b"[DONE]"], None)
        assert not link.calls
        link.now_s = lambda: asyncio.get_running_loop().time() + 60
        while not closed.is_set():
            link.look()
            await asyncio.sleep(0.001)
        assert not link.resting

    with_server(serve, use)


def test_an_endpoint_whose_name_cannot_be_looked_up_is_told() -> None:
    async def use(_: EngineLink) -> None:
        nobody = await ask(EngineLink(f"http://{'a' * 70}.example:1/v1"))
        assert nobody.fault is not None
        assert nobody.fault.unreachable

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    with_server(serve, use)


def test_this_machines_own_bounds_are_no_fault_of_the_endpoint() -> None:
    async def use(link: EngineLink) -> None:
        most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 2, most[1]))
        opened = list[int]()
        try:
            with suppress(OSError):
                while True:
                    opened.append(os.open(os.devnull, os.O_RDONLY))
            heard = await ask(link)
        finally:
            for file in opened:
                os.close(file)
            resource.setrlimit(resource.RLIMIT_NOFILE, most)
        assert heard.fault is not None
        assert (heard.fault.unreachable, heard.fault.status) == (False, 503)
        assert "raise its bound on open files" in heard.fault.reason

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    with_server(serve, use)


@pytest.mark.parametrize(("status", "told"), [(401, True), (403, True), (500, False)])
def test_an_endpoint_that_wants_another_key_is_explained(status: int, told: bool) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_of(reader)
        writer.write(b"HTTP/1.1 %d No\r\ncontent-length: 0\r\n\r\n" % status)
        await writer.drain()

    async def use(link: EngineLink) -> None:
        heard = Heard()
        link.post("/chat/completions", b"{}", heard)
        await heard.over.wait()
        assert heard.fault is not None
        assert ("api_key_env" in heard.fault.reason) == told

    with_server(serve, use)


@pytest.mark.parametrize("status", [400, 401, 413, 422, 429, 500, 503])
def test_an_error_that_repeats_the_key_is_heard_without_it(status: int) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sent = (await request_of(reader)).partition(b"authorization: ")[2].partition(b"\r\n")[0]
        body = b'{"error": {"message": "%b%b"}}' % (b"x" * 165, sent)  # the log's part ends within the key
        head = b"HTTP/1.1 %d no\r\ncontent-type: text/%b\r\ncontent-length: %d\r\n\r\n"
        writer.write(head % (status, sent[7:], len(body)) + body)

    async def use(link: EngineLink) -> None:
        fault = (await ask(link)).fault
        assert fault is not None
        assert fault.status == status
        assert fault.body.endswith(b'Bearer ***"}}')
        assert KEY[:6] not in fault.reason
        assert "***" in fault.reason

    with_server(serve, use)


def test_a_stream_that_repeats_the_key_is_heard_without_it() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sent = (await request_of(reader)).partition(b"authorization: ")[2].partition(b"\r\n")[0]
        writer.write(HEAD + chunk(b'data: {"error": "bad: %b"}\n\n' % sent) + chunk(b"data: [DONE]\n\n"))

    async def use(link: EngineLink) -> None:
        assert (await ask(link)).events == [b'{"error": "bad: Bearer ***"}', b"[DONE]"]

    with_server(serve, use)


def test_a_content_type_that_repeats_the_key_is_told_without_it() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_of(reader)
        writer.write(whole(b"text/" + b"x" * 190 + KEY.encode(), b"{}"))

    async def use(link: EngineLink) -> None:
        fault = (await ask(link)).fault
        assert fault is not None
        assert KEY[:4] not in fault.reason

    with_server(serve, use)
