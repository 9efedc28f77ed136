"""TLS before a handler that answers everything, on real sockets."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gearshift.serving.door.settings import ServerSettings
from gearshift.serving.door.sockets import bound_socket
from gearshift.serving.http.server import HttpServer
from tests.certificates import write_certificate
from tests.unit.serving.http.test_connection import GET, LONGEST_S, Telling, run

Address = tuple[str, int]


@asynccontextmanager
async def listening(folder: Path, **settings: Any) -> AsyncIterator[tuple[HttpServer, Address]]:
    server = HttpServer(Telling(), ServerSettings(**write_certificate(folder), **settings))
    with bound_socket("127.0.0.1", 0) as sock:
        await server.start(sock)
        try:
            yield server, sock.getsockname()
        finally:
            await server.stop(1.0)


def ask(address: Address, folder: Path, sent: bytes = GET) -> bytes:
    """What is heard first; empty where the server closes."""
    context = ssl.create_default_context(cafile=str(folder / "certificate.pem"))
    with socket.create_connection(address, timeout=LONGEST_S) as plain:
        try:
            with context.wrap_socket(plain, server_hostname=address[0]) as secured:
                secured.sendall(sent)
                return secured.recv(1 << 16)
        except OSError:
            return b""


def silent(address: Address) -> socket.socket:
    return socket.create_connection(address, timeout=LONGEST_S)


def is_closed(client: socket.socket) -> bool:
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True


def test_clients_that_have_not_agreed_on_keys_count_and_the_oldest_goes_where_another_comes(tmp_path):
    async def main() -> None:
        async with listening(tmp_path, most_connections=2) as (server, address):
            with ExitStack() as clients:
                first, second = (clients.enter_context(silent(address)) for _ in range(2))
                await until(lambda: len(server._connections.open) == 2)
                assert (await asyncio.to_thread(ask, address, tmp_path)).startswith(b"HTTP/1.1 200 OK")
                assert await asyncio.to_thread(is_closed, first)
                second.setblocking(False)
                with pytest.raises(BlockingIOError):
                    second.recv(1)

    run(main)


@pytest.mark.parametrize("said", [b"", b"no TLS at all\r\n\r\n"])
def test_a_client_has_bounded_time_and_ways_to_agree_on_keys(tmp_path, said):
    async def main() -> None:
        async with listening(tmp_path, first_byte_s=0.2) as (server, address):
            with silent(address) as client:
                client.sendall(said)
                assert await asyncio.to_thread(is_closed, client)
            await server._connections.closed()

    run(main)


def test_a_client_that_has_not_agreed_on_keys_does_not_keep_the_server_from_ending(tmp_path):
    async def main() -> None:
        async with listening(tmp_path) as (server, address):
            with silent(address) as client:
                await until(lambda: len(server._connections.open) == 1)
                await server.stop(LONGEST_S)
                assert await asyncio.to_thread(is_closed, client)

    run(main)


def test_what_is_refused_over_tls_is_answered(tmp_path):
    async def main() -> None:
        async with listening(tmp_path) as (_, address):
            sent = b"no HTTP\r\n\r\n" + b"x" * (1 << 20)
            assert (await asyncio.to_thread(ask, address, tmp_path, sent)).startswith(b"HTTP/1.1 400 Bad Request")

    run(main)


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():  # accepted sockets are told of by nothing but the count
        await asyncio.sleep(0.005)
