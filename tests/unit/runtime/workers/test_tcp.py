"""Who is let in at the port for workers."""

import asyncio
import socket
import struct
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
import uvloop

from gearshift.errors import InvalidInput
from gearshift.runtime.wire.messages import Challenge, Event, Hello, Ping, Pong, Run, Stop
from gearshift.runtime.wire.transport import BlockingConnection, EndOfStream, FrameError, FrameProtocol, encode_frame
from gearshift.runtime.workers import tcp
from gearshift.runtime.workers.tcp import GREETING, Listener, greet, proof_of, serve_router

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
    said = Hello(worker=worker, nonce=bytes(32), proof=b"", host="here", pid=1, version="1")
    return msgspec.structs.replace(said, proof=proof_of(secret, Challenge(nonce=nonce), said))


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
    return msgspec.structs.replace(hello(nonce), worker=4)


def another_place(nonce: bytes) -> Any:
    return msgspec.structs.replace(hello(nonce), host="there")


def an_old_proof(nonce: bytes) -> Any:
    return hello(bytes(32))


def no_greeting(nonce: bytes) -> Any:
    return Run(batch=1, replica=0, parts=())


@pytest.mark.parametrize("answer", [wrong_secret, another_number, another_place, an_old_proof, no_greeting])
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


def deep_nesting() -> bytes:
    header = msgspec.msgpack.encode(Event(event="", facts={"a": 0}))[:-1] + b"\x91" * 3500 + b"\xc0"
    return struct.pack("<IQ", len(header), 0) + header


def no_utf8() -> bytes:
    return b"".join(map(bytes, encode_frame(hello(bytes(32))))).replace(b"\xa4here", b"\xa4\xff\xff\xff\xff")


@pytest.mark.parametrize(
    "data",
    [
        deep_nesting(),
        no_utf8(),
        b"\x0a" + bytes(11) + b"\xc1" * 10,
        b"".join(map(bytes, encode_frame(hello(bytes(32))))).replace(b"proof\xc4", b"proof\xd9"),
        b"".join(map(bytes, [*encode_frame(hello(bytes(32))), *encode_frame(Pong())])),
    ],
    ids=["deep", "utf8", "no msgpack", "a proof of text", "more behind it"],
)
def test_what_cannot_be_read_is_told_in_one_line(data, caplog):
    async def use(door: Door) -> None:
        sock = knocking(door)
        sock.sendall(data)
        assert await is_shut_on(sock)
        assert door.let_in.empty()

    at_the_door(use)
    assert len(caplog.records) == 1
    assert caplog.text.count("\n") == 1
    assert "the port for workers was closed" in caplog.text


def test_lines_about_strangers_are_of_one_kind_whatever_they_send_so_that_they_fill_no_log(caplog):
    async def use(door: Door) -> None:
        for size_bytes in range(5):
            sock = knocking(door)
            sock.sendall(struct.pack("<IQ", 10, 1 + size_bytes))
            assert await is_shut_on(sock)

    at_the_door(use)
    assert len({record.getMessage() for record in caplog.records}) == 5
    assert len({record.msg for record in caplog.records}) == 1


# Who sits between the two --------------------------------------------------------------------------------------------


class Relay:
    """Passes bytes between a worker that knows the secret and the router, and may change them."""

    def __init__(self, door: Door) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            self.worker = asyncio.get_running_loop().run_in_executor(None, serving, listening.getsockname())
            self.to_worker, _ = listening.accept()
        self.to_router = knocking(door)
        for sock in (self.to_worker, self.to_router):
            sock.settimeout(LONGEST_S)

    def down(self) -> bytes:
        """The next thing that the router says."""
        return self.to_router.recv(1 << 16)

    def up(self) -> bytes:
        """The next thing that the worker says."""
        return self.to_worker.recv(1 << 16)

    async def greet(self) -> None:
        """Pass all of the greeting on."""
        for take, give in [(self.down, self.to_worker), (self.up, self.to_router)] * 2:
            give.sendall(await asyncio.to_thread(take))

    async def end(self) -> object:
        """Close both; how the worker ended."""
        self.to_router.close()
        self.to_worker.close()
        return await self.worker


def serving(address: tuple[str, int]) -> str:
    try:
        return f"status {serve_router(address, 3, SECRET)}"
    except (EndOfStream, OSError) as error:
        return type(error).__name__


def test_who_passes_a_greeting_on_is_not_the_worker(caplog):
    async def use(door: Door) -> None:
        relay = Relay(door)
        relay.to_worker.sendall(await asyncio.to_thread(relay.down))
        relay.to_router.sendall(await asyncio.to_thread(relay.up))
        await asyncio.to_thread(relay.down)
        relay.to_router.sendall(b"".join(map(bytes, encode_frame(Pong()))) + bytes(32))
        assert await is_shut_on(relay.to_router)
        await relay.end()
        assert door.let_in.empty()

    at_the_door(use)
    assert "a frame is not of this session" in caplog.text


def changed(frame: bytes) -> bytes:
    return frame[:12] + bytes([frame[12] ^ 1]) + frame[13:]


def said_twice(frame: bytes) -> bytes:
    return frame + frame


def of_ones_own(frame: bytes) -> bytes:
    return b"".join(map(bytes, encode_frame(Stop()))) + frame[-32:]


@pytest.mark.parametrize("alter", [changed, said_twice, of_ones_own])
def test_a_worker_obeys_nobody_between_it_and_its_router(alter, caplog):
    async def use(door: Door) -> None:
        relay = Relay(door)
        await relay.greet()
        _, protocol = await door.let_in.get()
        protocol.send(Ping())
        relay.to_worker.sendall(alter(await asyncio.to_thread(relay.down)))
        assert await relay.worker == "EndOfStream"
        await relay.end()

    at_the_door(use)
    assert "a frame is not of this session" in caplog.text


@pytest.mark.parametrize("alter", [changed, said_twice])
def test_a_router_hears_nobody_between_it_and_its_worker(alter):
    async def use(door: Door) -> None:
        relay = Relay(door)
        await relay.greet()
        _, protocol = await door.let_in.get()
        heard, gone = list[Any](), asyncio.Event()
        protocol.hand_over(lambda message, body: heard.append(message), gone.set)
        protocol.send(Ping())
        relay.to_worker.sendall(await asyncio.to_thread(relay.down))
        relay.to_router.sendall(alter(await asyncio.to_thread(relay.up)))
        await gone.wait()
        assert heard == []
        assert "not of this session" in protocol.fault
        await relay.end()

    at_the_door(use)


def test_what_both_say_between_whom_nothing_is_changed_arrives():
    async def use(door: Door) -> None:
        relay = Relay(door)
        await relay.greet()
        _, protocol = await door.let_in.get()
        heard: asyncio.Queue[Any] = asyncio.Queue()
        protocol.hand_over(lambda message, body: heard.put_nowait(message), lambda: None)
        for _ in range(3):
            protocol.send(Ping())
            relay.to_worker.sendall(await asyncio.to_thread(relay.down))
            relay.to_router.sendall(await asyncio.to_thread(relay.up))
            assert await heard.get() == Pong()
        await relay.end()

    at_the_door(use)


@pytest.mark.parametrize("behind", [b"", b"".join(map(bytes, encode_frame(Ping())))], ids=["alone", "more behind it"])
def test_a_worker_obeys_no_router_that_does_not_know_the_secret(behind):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(b"".join(map(bytes, encode_frame(Challenge(nonce=bytes(32))))) + behind)
        pretended = threading.Thread(target=pretend, args=(ours,))
        pretended.start()
        with pytest.raises(FrameError):
            greet(BlockingConnection(theirs, GREETING), 3, SECRET, "here")
        theirs.close()
        pretended.join()


def pretend(ours: socket.socket) -> None:
    """Answer a greeting without knowing the secret."""
    router = BlockingConnection(ours)
    try:
        router.receive()
        router.send(Ping(), [])
        ours.sendall(bytes(32))
    except (EndOfStream, OSError):
        return


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
