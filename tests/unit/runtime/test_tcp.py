"""Who is let in at the port for workers."""

import asyncio
import socket
import struct
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvloop

from gearshift.errors import InvalidInput
from gearshift.runtime import tcp
from gearshift.runtime.messages import Challenge, Hello, Ping, Pong, Run, Stop
from gearshift.runtime.tcp import Listener, proof_of, serve_router
from gearshift.runtime.transport import BlockingConnection, EndOfStream, FrameProtocol

SECRET = b"s" * 32
LONGEST_S = 10.0


class Door:
    """A listener, and those whom it let in."""

    def __init__(self) -> None:
        self.let_in: asyncio.Queue[tuple[Hello, FrameProtocol]] = asyncio.Queue()
        self.listener = Listener(SECRET, lambda hello, protocol: self.let_in.put_nowait((hello, protocol)))
        self.address = ("", 0)


def at_the_door(use: Callable[[Door], Awaitable[None]]) -> None:
    async def main() -> None:
        door = Door()
        door.address = await door.listener.start("127.0.0.1")
        try:
            async with asyncio.timeout(LONGEST_S):
                await use(door)
        finally:
            door.listener.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


def knocking(door: Door) -> socket.socket:
    return socket.create_connection(door.address, LONGEST_S)


def hello(nonce: bytes, secret: bytes = SECRET, worker: int = 3) -> Hello:
    return Hello(worker=worker, proof=proof_of(secret, nonce, worker), host="here", pid=1, version="1")


async def is_shut_on(sock: socket.socket) -> bool:
    def rest() -> bytes:
        data = b""
        with sock:
            try:
                while piece := sock.recv(1 << 16):
                    data += piece
            except ConnectionResetError:
                return b""
        return data

    await asyncio.to_thread(rest)
    return True


def test_a_worker_that_knows_the_secret_is_let_in_and_serves_until_it_is_told_to_stop():
    async def use(door: Door) -> None:
        status: list[int] = []
        worker = threading.Thread(target=lambda: status.append(serve_router(door.address, 7, SECRET)))
        worker.start()
        said, protocol = await door.let_in.get()
        assert (said.worker, said.host) == (7, "127.0.0.1")
        heard: asyncio.Queue[Any] = asyncio.Queue()
        protocol.hand_over(lambda message, body: heard.put_nowait(message), lambda: heard.put_nowait("gone"))
        protocol.send(Ping())
        assert await heard.get() == Pong()
        protocol.send(Stop())
        assert await heard.get() == "gone"
        await asyncio.to_thread(worker.join)
        assert status == [0]

    at_the_door(use)


def test_a_worker_whose_connection_ends_says_so():
    async def use(door: Door) -> None:
        serving = asyncio.create_task(asyncio.to_thread(serve_router, door.address, 7, SECRET))
        _, protocol = await door.let_in.get()
        protocol.close()
        with pytest.raises((EndOfStream, OSError)):
            await serving

    at_the_door(use)


def wrong_secret(nonce: bytes) -> Any:
    return hello(nonce, secret=b"t" * 32)


def another_number(nonce: bytes) -> Any:
    return Hello(worker=4, proof=hello(nonce).proof, host="here", pid=1, version="1")


def an_old_proof(nonce: bytes) -> Any:
    return hello(bytes(32))


def no_greeting(nonce: bytes) -> Any:
    return Run(batch=1, replica=0, parts=())


@pytest.mark.parametrize("answer", [wrong_secret, another_number, an_old_proof, no_greeting])
def test_who_cannot_prove_that_it_belongs_to_the_run_is_shut_out(answer, caplog):
    async def use(door: Door) -> None:
        sock = knocking(door)
        connection = BlockingConnection(sock)
        challenge, _ = await asyncio.to_thread(connection.receive)
        assert isinstance(challenge, Challenge)
        connection.send(answer(challenge.nonce))
        assert await is_shut_on(sock)
        assert door.let_in.empty()

    at_the_door(use)
    assert "did not know the run's secret" in caplog.text


@pytest.mark.parametrize(
    "data",
    [
        struct.pack("<IQ", 5000, 0),
        struct.pack("<IQ", 10, 1),
        struct.pack("<IQ", 10, 1 << 62),
        b"GET / HTTP/1.1\r\n\r\n",
    ],
)
def test_a_first_frame_of_any_size_but_a_greetings_is_not_waited_for(data):
    async def use(door: Door) -> None:
        sock = knocking(door)
        sock.sendall(data)
        assert await is_shut_on(sock)
        assert door.let_in.empty()

    at_the_door(use)


def test_two_connections_are_asked_for_different_proofs():
    async def use(door: Door) -> None:
        nonces = set()
        for _ in range(2):
            with knocking(door) as sock:
                challenge, _ = await asyncio.to_thread(BlockingConnection(sock).receive)
                nonces.add(challenge.nonce)
        assert len(nonces) == 2

    at_the_door(use)


def test_who_says_nothing_is_shut_out_after_a_while(monkeypatch):
    monkeypatch.setattr(tcp, "LONGEST_GREETING_S", 0.05)

    async def use(door: Door) -> None:
        assert await is_shut_on(knocking(door))

    at_the_door(use)


def test_no_more_strangers_than_a_few_are_kept_and_the_oldest_goes_where_a_worker_comes(monkeypatch):
    monkeypatch.setattr(tcp, "MOST_STRANGERS", 2)

    async def use(door: Door) -> None:
        first, second = knocking(door), knocking(door)
        for silent in (first, second):
            await asyncio.to_thread(BlockingConnection(silent).receive)
        worker = asyncio.create_task(asyncio.to_thread(serve_router, door.address, 1, SECRET))
        _, protocol = await door.let_in.get()
        assert await is_shut_on(first)
        second.setblocking(False)
        with second, pytest.raises(BlockingIOError):
            second.recv(1)
        protocol.send(Stop())
        assert await worker == 0

    at_the_door(use)


def test_a_host_that_is_not_of_this_machine_is_told():
    async def main() -> None:
        await Door().listener.start("192.0.2.77")

    with pytest.raises(InvalidInput, match=r"cannot listen for workers on '192\.0\.2\.77'.*--advertise-host"):
        asyncio.run(main())
