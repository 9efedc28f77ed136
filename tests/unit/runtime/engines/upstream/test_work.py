"""What reading an answer costs grows with its bytes alone, however an engine parts them: counted in bytes and calls."""

import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import repeat
from types import FrameType
from typing import Any, Self, SupportsIndex

import pytest

from gearshift.runtime.engines.upstream.call import Call, Fault
from gearshift.runtime.engines.upstream.connection import (
    LARGEST_ERROR_BYTES,
    LARGEST_HEAD_BYTES,
    STEP_BYTES,
    UpstreamConnection,
)
from gearshift.runtime.engines.upstream.server_sent import LARGEST_EVENT_BYTES, EventTooLarge, ServerSentEvents
from gearshift.runtime.remote.masking import Mask

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


class Counted(bytes):
    """Bytes that count in `copied` what is made of them."""

    copied = 0

    def _counting(self, made: bytes) -> "Counted":
        Counted.copied += len(made)
        return Counted(made)

    def __add__(self, other: Any) -> "Counted":
        return self._counting(bytes(self) + bytes(other))

    def __radd__(self, other: Any) -> "Counted":
        return self._counting(bytes(other) + bytes(self))

    def __getitem__(self, place: Any) -> Any:
        made = bytes(self)[place]
        return self._counting(made) if isinstance(made, bytes) else made

    def splitlines(self, keepends: bool = False) -> list[bytes]:
        return [self._counting(line) for line in bytes(self).splitlines(keepends)]

    def join(self, parts: Iterable[Any]) -> bytes:
        return self._counting(bytes(self).join(parts))

    def __reduce_ex__(self, _: SupportsIndex) -> Any:
        raise NotImplementedError


def copied(parts: Iterable[bytes]) -> int:
    """The bytes that are copied to read events of these parts."""
    Counted.copied = 0
    events = ServerSentEvents()
    for part in parts:
        events.feed(Counted(part))
    return Counted.copied


def calls_of(step: Callable[[], object]) -> int:
    """The calls of Python and built-in functions in it."""
    count = 0

    def trace(_: FrameType, event: str, __: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(trace)
    try:
        step()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize(
    ("first", "part"),
    [(b"data: " + b"x" * 1_000_000, b"x"), (b"data: " + b"x" * 1_000_000 + b"\n", b"data:\n"), (b"", b": hi\n")],
    ids=["a line by the byte", "an event of many lines", "comments"],
)
def test_no_byte_is_copied_again_for_each_part_that_follows(first: bytes, part: bytes) -> None:
    times = 2_000
    assert copied([first, *repeat(part, times)]) <= 6 * (len(first) + times * len(part))


def test_many_lines_in_one_part_are_joined_once() -> None:
    text = b"data: " + b"x" * 1_000_000 + b"\n" + b"data:\n" * 43_000
    assert copied([text, b"\n"]) <= 6 * len(text)


@pytest.mark.parametrize("part", [b"x", b"x" * 1000], ids=["by the byte", "by parts"])
def test_a_part_takes_a_fixed_number_of_calls(part: bytes) -> None:
    events = ServerSentEvents()
    events.feed(b"data: " + b"x" * 1_000_000)
    few = calls_of(lambda: [events.feed(part) for _ in range(10)])
    many = calls_of(lambda: [events.feed(part) for _ in range(1000)])
    assert many <= 100 * few + 100


@pytest.mark.parametrize("part", [b"x" * 1000, b"data: x\n" * 100, b": hi\n" * 100, b"id: 7\r" * 100])
def test_what_comes_without_the_end_of_an_event_has_a_bound(part: bytes) -> None:
    events = ServerSentEvents()
    for _ in range(LARGEST_EVENT_BYTES // len(part)):
        events.feed(part)
    with pytest.raises(EventTooLarge):
        events.feed(part)


def test_comments_between_events_are_no_part_of_them() -> None:
    events = ServerSentEvents()
    for _ in range(5):
        events.feed(b": hi\n" * (LARGEST_EVENT_BYTES // 10))
        assert events.feed(b"data: x\n\n") == [b"x"]


# Connections --------------------------------------------------------------------------------------


class Transport:
    """Counts what a connection asks of it."""

    def __init__(self) -> None:
        self.aborted, self.reading = False, True

    def write(self, data: bytes) -> None: ...

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def abort(self) -> None:
        self.aborted = True

    def is_closing(self) -> bool:
        return self.aborted


class Link:
    """The part of a link that a connection uses, without a network."""

    url = "http://engine"

    def __init__(self) -> None:
        self.heard_s, self.calls, self.resting = 0.0, set[Call](), dict[UpstreamConnection, float]()
        self.kept: list[UpstreamConnection] = []
        self.mask = Mask(None)
        self.now_s = lambda: 0.0

    def keep(self, connection: UpstreamConnection) -> None:
        self.kept.append(connection)

    def forget(self, connection: UpstreamConnection) -> None:
        self.resting.pop(connection, None)

    def send_anew(self, call: Call) -> None: ...


class Heard:
    def __init__(self) -> None:
        self.events, self.fault, self.over = 0, Fault(""), False

    def event(self, data: bytes) -> None:
        self.events += 1

    def ended(self) -> None:
        self.over = True

    def failed(self, fault: Fault) -> None:
        self.fault, self.over = fault, True


class World:
    """A connection with one request, which is fed by hand."""

    def __init__(self) -> None:
        self.link, self.heard, self.transport = Link(), Heard(), Transport()
        self.connection = UpstreamConnection(self.link)
        self.connection.connection_made(self.transport)  # type: ignore[arg-type]
        self.connection.send(Call(self.link, (), self.heard))

    def feed_until_over(self, parts: Iterator[bytes], most_bytes: int) -> Self:
        """Feed parts until the connection has given up; fails where that takes more bytes."""
        fed = 0
        for part in parts:
            self.connection.data_received(part)
            fed += len(part)
            if self.transport.aborted:
                return self
            assert fed <= most_bytes, "it reads without end"
        raise AssertionError


def begun(head: bytes, part: bytes) -> Iterator[bytes]:
    yield head
    yield from repeat(part)


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


LAST_CHUNK = HEAD + chunk(b"data: x\n\n") + b"0\r\n"
ENDLESS = {
    "headers": (b"HTTP/1.1 200 OK\r\n", b"x-a: b\r\n", "head has more than 65536 bytes"),
    "a header": (b"HTTP/1.1 200 OK\r\nx-a: ", b"y" * 100, "head has more than 65536 bytes"),
    "1xx answers": (b"", b"HTTP/1.1 100 Continue\r\n\r\n", "head has more than 65536 bytes"),
    "trailers": (LAST_CHUNK, b"x-a: b\r\n", "trailer has more than 65536 bytes"),
    "a trailer": (LAST_CHUNK + b"x-a: ", b"y" * 100, "trailer has more than 65536 bytes"),
    "an extension": (HEAD + chunk(b"data: x\n\n") + b"5;a=", b"y" * 100, "has more than 65536 bytes"),
}


@pytest.mark.parametrize("name", ENDLESS)
def test_what_is_no_body_has_a_bound(name: str) -> None:
    first, part, said = ENDLESS[name]
    world = World().feed_until_over(begun(first, part), LARGEST_HEAD_BYTES + 1000)
    assert said in world.heard.fault.reason


@pytest.mark.parametrize("name", ["trailers", "a trailer"])
def test_what_follows_on_the_end_of_an_answer_has_a_bound(name: str) -> None:
    _, part, _ = ENDLESS[name]
    first = HEAD + chunk(b"data: x\n\n") + chunk(b"data: [DONE]\n\n") + b"0\r\nx-b: "
    world = World().feed_until_over(begun(first, part), LARGEST_HEAD_BYTES + 1000)
    assert (world.heard.fault.reason, world.heard.over, world.link.resting) == ("", True, {})


def test_an_endless_error_is_told_as_far_as_it_is_kept() -> None:
    head = b"HTTP/1.1 500 no\r\ncontent-type: text/plain\r\n\r\n"
    world = World().feed_until_over(begun(head, b"z" * 1000), LARGEST_ERROR_BYTES + 2000)
    assert (world.heard.fault.status, len(world.heard.fault.body)) == (500, LARGEST_ERROR_BYTES)


def test_an_error_by_the_byte_takes_a_fixed_number_of_calls_for_each() -> None:
    head = b"HTTP/1.1 500 no\r\ntransfer-encoding: chunked\r\n\r\n"
    world = World()
    world.connection.data_received(head)
    few = calls_of(lambda: world.connection.data_received(chunk(b"z") * 10))
    many = calls_of(lambda: world.connection.data_received(chunk(b"z") * 1000))
    assert many <= 100 * few


def test_a_trailer_is_no_header() -> None:
    world = World()
    world.connection.data_received(b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ntransfer-encoding: chunked\r\n\r\n")
    world.connection.data_received(b"0\r\ncontent-type: text/event-stream\r\n\r\n")
    assert "with text/html" in world.heard.fault.reason


def test_much_that_comes_at_once_is_read_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    later: list[Callable[[], None]] = []

    class Loop:
        def call_soon(self, step: Callable[[], None]) -> None:
            later.append(step)

    monkeypatch.setattr("asyncio.get_running_loop", Loop)
    world = World()
    event = chunk(b"data: x\n\n")
    world.connection.data_received(HEAD + event * (4 * STEP_BYTES // len(event)))
    heard = []
    while later:
        heard.append(world.heard.events)
        assert not world.transport.reading
        later.pop()()
    assert world.transport.reading
    most = STEP_BYTES // len(event) + 1
    assert [one - before for before, one in zip([0, *heard], [*heard, world.heard.events], strict=False)] == [
        pytest.approx(most, abs=most // 2)
    ] * 4 + [pytest.approx(0, abs=most // 2)]


@pytest.mark.parametrize("lost", [False, True])
def test_what_was_not_read_yet_is_part_of_the_answer(monkeypatch: pytest.MonkeyPatch, lost: bool) -> None:
    later: list[Callable[[], None]] = []

    class Loop:
        def call_soon(self, step: Callable[[], None]) -> None:
            later.append(step)

    monkeypatch.setattr("asyncio.get_running_loop", Loop)
    world = World()
    world.connection.data_received(HEAD + chunk(b": hi\n" * 20_000) + chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")
    assert not world.heard.over
    if lost:
        world.connection.connection_lost(None)
    else:
        later.pop()()
    assert (world.heard.events, world.heard.fault.reason, world.heard.over) == (1, "", True)


def test_a_connection_with_more_than_its_answer_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    class Loop:
        def call_soon(self, step: Callable[[], None]) -> None: ...

    monkeypatch.setattr("asyncio.get_running_loop", Loop)
    world = World()
    world.connection.data_received(HEAD + chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n" + b"HTTP/1.1 200" * STEP_BYTES)
    assert (world.heard.over, world.link.kept, world.transport.aborted) == (True, [], True)
