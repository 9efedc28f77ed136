"""Which connections a client keeps, where servers end them."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

import pytest

from gearshift.client.http_client import HttpClient
from gearshift.errors import NoAnswer

LONGEST_S = 20.0
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n%b\r\n{}"
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]


def keeps(left: int, serve: Serve, requests: int = 5, within_s: float = LONGEST_S) -> int:
    """Connections that a client would use again, once it knows of no more than are `left`."""

    async def main() -> int:
        handlers: list[asyncio.Task[None] | None] = []

        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            handlers.append(asyncio.current_task())
            with suppress(asyncio.IncompleteReadError, ConnectionError):
                await reader.readuntil(b"\r\n\r\n")
                serve(reader, writer)
                await reader.read()
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

        async with asyncio.timeout(LONGEST_S):
            server = await asyncio.start_server(handle, "127.0.0.1", 0)
            client = HttpClient(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
            request = client.request_bytes("GET", "/")
            exchanges = [client.response_to(request, within_s=within_s) for _ in range(requests)]
            await asyncio.gather(*exchanges, return_exceptions=True)
            known = client._pool.own()
            while len(known.all) > left:
                await asyncio.sleep(0.001)
            usable = len(known.free)
            client.close()
            server.close()
            await asyncio.gather(*filter(None, handlers))
            return usable

    return asyncio.run(main())


def test_connections_with_a_whole_answer_are_kept_until_the_client_is_closed() -> None:
    assert keeps(5, lambda _, writer: writer.write(ANSWER % b"")) == 5


def test_a_connection_that_an_answer_closes_is_forgotten() -> None:
    assert keeps(0, lambda _, writer: writer.write(ANSWER % b"connection: close\r\n")) == 0


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{", b"no HTTP\r\n\r\n"])
def test_a_connection_that_ends_without_a_whole_answer_is_forgotten(answer: bytes) -> None:
    def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        writer.write_eof()
        writer.close()

    assert keeps(0, serve) == 0


def test_a_connection_whose_answer_is_late_is_forgotten() -> None:
    assert keeps(0, lambda _, writer: None, within_s=0.02) == 0


def test_a_kept_connection_that_the_server_ends_is_forgotten_though_nobody_asks_again() -> None:
    def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(ANSWER % b"")
        asyncio.get_running_loop().call_soon(writer.close)

    assert keeps(0, serve) == 0


def test_where_nothing_listens_nothing_is_kept() -> None:
    async def main() -> int:
        client = HttpClient("http://127.0.0.1:1")
        with pytest.raises(NoAnswer):
            await client.response_to(client.request_bytes("GET", "/"), within_s=LONGEST_S)
        return len(client._pool.own().all)

    assert asyncio.run(main()) == 0
