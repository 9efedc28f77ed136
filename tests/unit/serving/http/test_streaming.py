"""Answers that are streamed: in chunks, no faster than the client reads."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from gearshift.serving.door.settings import ServerSettings
from gearshift.serving.door.sockets import bound_sockets
from gearshift.serving.http.http_exchange import HttpExchange
from gearshift.serving.http.server import HttpServer
from gearshift.support.event_loop import loop_factory

PART = b"x" * 10_000
Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Streaming:
    """Answers each request with `parts` parts, as far as its client reads (`connections.Handler`)."""

    def __init__(self, parts: int) -> None:
        self._parts = parts
        self.written = self.ended = self.gone = 0

    def begun(self, exchange: HttpExchange) -> None:
        pass

    def measured(self, exchange: HttpExchange, part_bytes: int) -> None:
        pass

    def completed(self, exchange: HttpExchange) -> None:
        exchange.begin_stream(200, b"text/event-stream", [(b"x-told", b"yes")])
        exchange.on_room = lambda: self._go_on(exchange)
        exchange.on_gone = self._left
        self.written = 0
        self._go_on(exchange)

    def _go_on(self, exchange: HttpExchange) -> None:
        while self.written < self._parts and not exchange.client.crowded:
            exchange.stream(PART)
            self.written += 1
        if self.written == self._parts and not exchange.answered:
            exchange.end_stream(200)
            self.ended += 1

    def _left(self) -> None:
        self.gone += 1


def talking(handler: Streaming, talk: Talk) -> None:
    async def main() -> None:
        settings = ServerSettings(port=0)
        with bound_sockets(settings.host, 0) as socks:
            server = HttpServer(handler, settings)
            await server.start(*socks)
            async with asyncio.timeout(20):
                reader, writer = await asyncio.open_connection(*socks[0].getsockname(), limit=1 << 16)
                await talk(reader, writer)
                writer.close()
            await server.stop(1)

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(main())


def request(version: str = "1.1", more: str = "", path: str = "/") -> bytes:
    return f"GET {path} HTTP/{version}\r\nhost: a\r\n{more}\r\n".encode()


async def head_of(reader: asyncio.StreamReader) -> bytes:
    return await reader.readuntil(b"\r\n\r\n")


async def parts_of(reader: asyncio.StreamReader) -> list[bytes]:
    parts = []
    while size := int(await reader.readline(), 16):
        parts.append(await reader.readexactly(size))
        assert await reader.readexactly(2) == b"\r\n"
    assert await reader.readexactly(2) == b"\r\n"
    return parts


def test_parts_are_chunks_and_the_connection_is_kept() -> None:
    handler = Streaming(3)

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(2):
            writer.write(request())
            head = await head_of(reader)
            assert head.startswith(b"HTTP/1.1 200 OK\r\n")
            assert b"\r\ntransfer-encoding: chunked\r\n" in head
            assert b"\r\nx-told: yes\r\n" in head
            assert b"connection: close" not in head
            assert await parts_of(reader) == [PART] * 3

    talking(handler, talk)
    assert (handler.ended, handler.gone) == (2, 0)


def test_headers_for_whatever_answer_stand_in_the_head_of_a_stream() -> None:
    class Readable(Streaming):
        def begun(self, exchange: HttpExchange) -> None:
            exchange.more = ((b"x-more", b"too"),)

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(request())
        assert b"\r\nx-more: too\r\n" in await head_of(reader)
        assert await parts_of(reader) == [PART]

    talking(Readable(1), talk)


def test_requests_in_one_go_are_answered_one_after_another() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(request() * 3)
        for _ in range(3):
            await head_of(reader)
            assert await parts_of(reader) == [PART] * 2

    talking(Streaming(2), talk)


def test_http_1_0_gets_bytes_until_the_end_of_the_connection() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(request("1.0", "connection: keep-alive\r\n"))
        head = await head_of(reader)
        assert b"connection: close" in head
        assert b"chunked" not in head
        assert await reader.read(-1) == PART * 4

    talking(Streaming(4), talk)


def test_no_more_is_written_than_a_slow_client_reads() -> None:
    parts = 3000
    handler = Streaming(parts)

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(request())
        await head_of(reader)
        before = -1
        while before != handler.written:
            before = handler.written
            await asyncio.sleep(0.1)
        assert handler.written < parts
        assert await parts_of(reader) == [PART] * parts

    talking(handler, talk)
    assert handler.ended == 1


def test_a_client_that_leaves_is_told_of_once() -> None:
    handler = Streaming(3000)

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(request())
        await head_of(reader)
        writer.transport.abort()
        while not handler.gone:
            await asyncio.sleep(0.001)

    talking(handler, talk)
    assert (handler.ended, handler.gone) == (0, 1)


@pytest.mark.parametrize("path", ["/live", "/v1/chat/completions"])
def test_a_stream_that_is_revoked_ends_with_its_connection(path: str) -> None:
    class Revoked(Streaming):
        def completed(self, exchange: HttpExchange) -> None:
            super().completed(exchange)
            exchange.on_room = None
            exchange.revoke()
            exchange.stream(b"nothing more")
            exchange.revoke()

    handler = Revoked(3000)

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(request(path=path) * 2)
        await head_of(reader)
        parts = await parts_of(reader)
        told = [part for part in parts if part != PART]
        assert [b"no longer" in part and part.startswith(b"data: {") for part in told] == [True] * ("v1" in path)
        assert await reader.read(-1) == b""

    talking(handler, talk)
    assert (handler.ended, handler.gone) == (0, 1)
