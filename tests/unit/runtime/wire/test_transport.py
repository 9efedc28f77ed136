import asyncio
import socket
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from gearshift.model import DATATYPES
from gearshift.runtime.wire import transport
from gearshift.runtime.wire.messages import (
    Done,
    DonePart,
    Message,
    Ping,
    Release,
    Run,
    RunPart,
    SetThreads,
    Stop,
    TensorHeader,
)
from gearshift.runtime.wire.transport import (
    WIDE,
    BlockingConnection,
    Bounds,
    EndOfStream,
    FrameError,
    FrameProtocol,
    FrameReader,
    Seal,
    encode_frame,
    pack_tensors,
    unpack_tensors,
)

NUMBERS = [dtype for dtype in DATATYPES.values() if dtype != "object"]
SHAPES = npst.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=4)


def over_the_wire(arrays):
    headers, buffers = pack_tensors(arrays)
    return unpack_tensors(headers, memoryview(b"".join(bytes(buffer) for buffer in buffers)))


@given(st.sampled_from(NUMBERS).flatmap(lambda dtype: npst.arrays(dtype, SHAPES)))
def test_numbers_cross_unchanged(array):
    (crossed,) = over_the_wire({"x": array}).values()
    assert crossed.dtype == array.dtype
    assert crossed.shape == array.shape
    assert crossed.tobytes() == array.tobytes()


@given(st.lists(st.text()) | st.lists(st.binary()) | st.lists(st.text() | st.binary()))
def test_text_and_bytes_cross_as_what_they_are(elements):
    array = np.empty(len(elements), dtype=object)
    array[:] = elements
    (crossed,) = over_the_wire({"x": array}).values()
    assert crossed.tolist() == elements


def test_arrays_that_are_not_contiguous_cross_unchanged():
    array = np.arange(24).reshape(4, 6)[::2, 1::2]
    (crossed,) = over_the_wire({"x": array}).values()
    assert crossed.tolist() == array.tolist()


def test_several_tensors_follow_one_another():
    arrays = {"a": np.arange(3), "b": np.array(["x", "yz"], dtype=object), "c": np.ones((2, 2), dtype=np.float32)}
    crossed = over_the_wire(arrays)
    assert {name: array.tolist() for name, array in crossed.items()} == {n: a.tolist() for n, a in arrays.items()}


def test_a_tensor_that_ends_past_the_body_is_refused():
    headers, _ = pack_tensors({"x": np.arange(4)})
    with pytest.raises(FrameError, match="ends at byte 32"):
        unpack_tensors(headers, memoryview(bytes(8)))


@pytest.mark.parametrize(
    "header",
    [
        TensorHeader(name="x", datatype="FP64", shape=(-1,), size_bytes=8),
        TensorHeader(name="x", datatype="FP64", shape=(2,), size_bytes=8),
        TensorHeader(name="x", datatype="FP64", shape=(1,) * 100, size_bytes=8),
        TensorHeader(name="x", datatype="FP65", shape=(1,), size_bytes=8),
        TensorHeader(name="x", datatype="FP64", shape=(0,), size_bytes=-8),
        TensorHeader(name="x", datatype="BYTES", shape=(1,), size_bytes=5, text=True),
        TensorHeader(name="x", datatype="BYTES", shape=(1, 1 << 40), size_bytes=5),
    ],
)
def test_a_tensor_that_is_not_what_its_header_says_is_refused(header):
    with pytest.raises(FrameError, match="'x'"):
        unpack_tensors([header], memoryview(b"\1\0\0\0\xff" + bytes(3)))


def test_a_frame_over_the_bound_is_refused_on_both_sides(monkeypatch):
    frame = b"".join(bytes(part) for part in encode_frame(Stop(), [bytes(2000)]))
    monkeypatch.setattr(transport, "WIDE", Bounds(body=1000))
    with pytest.raises(FrameError, match="over the bound"):
        encode_frame(Stop(), [bytes(2000)])
    with pytest.raises(FrameError, match="over the bound"):
        read_in_pieces(frame, 100, Bounds(body=1000))


def test_a_header_that_is_no_message_is_refused():
    with pytest.raises(FrameError, match="cannot be read"):
        read_in_pieces(b"\x01\x00\x00\x00" + bytes(8) + b"\xc1", 100)


def read_in_pieces(data: bytes, piece: int, bounds: Bounds = WIDE, seal: Seal | None = None):
    reader, frames, offset = FrameReader(bounds), [], 0
    reader.seal = seal
    while offset < len(data):
        buffer = reader.buffer()
        count = min(piece, len(buffer), len(data) - offset)
        buffer[:count] = data[offset : offset + count]
        offset += count
        frames += reader.received(count)
    return frames


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("piece", [1, 7, 64 << 10, 1 << 20])
def test_frames_are_found_however_the_stream_is_cut(piece, sealed):
    sizes = [0, 1, 5, 64 << 10, 0, 20_000, 40_000, 40_000, 100_000, 3]
    bodies = [bytes([i]) * size for i, size in enumerate(sizes)]
    bodies = bodies[:3] if piece == 1 else bodies
    ours, theirs = (Seal(b"key"), Seal(b"key")) if sealed else (None, None)
    data = b"".join(bytes(part) for body in bodies for part in encode_frame(Stop(), [body], ours))
    assert [bytes(body) for _, body in read_in_pieces(data, piece, seal=theirs)] == bodies


@pytest.mark.parametrize("size_bytes", [10, 100_000])
@pytest.mark.parametrize("at", [0, 4, 12, 20, -33, -1])
def test_a_sealed_frame_of_which_any_byte_is_changed_is_refused(size_bytes, at):
    data = bytearray(b"".join(map(bytes, encode_frame(Stop(), [bytes(size_bytes)], Seal(b"key")))))
    data[at] ^= 1
    with pytest.raises(FrameError, match="not of this session"):
        read_in_pieces(bytes(data) + bytes(2), len(data) + 2, seal=Seal(b"key"))


def run_message(batch: int, array) -> tuple[Run, list]:
    headers, buffers = pack_tensors({"x": array})
    return Run(batch=batch, replica=0, parts=(RunPart(rows=tuple(range(len(array))), tensors=headers),)), buffers


def echo(sock: socket.socket) -> None:
    """A worker that sends back what it gets."""
    with sock:
        connection = BlockingConnection(sock)
        while True:
            try:
                message, body = connection.receive()
            except EndOfStream:
                return
            assert isinstance(message, Run)
            part = DonePart(rows=message.parts[0].rows, tensors=message.parts[0].tensors)
            connection.send(Done(batch=message.batch, run_s=0.0, parts=(part,)), [body])


class Looked:
    """A socket that has nothing for the first looks, then `data`; `looks` says which of them did not wait."""

    def __init__(self, data: bytes, *, empty: int) -> None:
        self.data, self._empty, self.looks = data, empty, list[bool]()

    def recv_into(self, buffer: memoryview, count: int, flags: int) -> int:
        self.looks.append(bool(flags & socket.MSG_DONTWAIT))
        if flags and self._empty:
            self._empty -= 1
            raise BlockingIOError
        buffer[: len(self.data)] = self.data
        return len(self.data)


class Clock:
    """Goes on by `tick_s` at each look at it."""

    def __init__(self) -> None:
        self.now_s, self.tick_s = 0.0, 1.0

    def perf_counter(self) -> float:
        self.now_s += self.tick_s
        return self.now_s


@pytest.fixture
def clock(monkeypatch):
    ticking = Clock()
    monkeypatch.setattr("gearshift.runtime.wire.transport.time", ticking)
    return ticking


@pytest.mark.parametrize(
    ("awake_s", "work_s", "second"),
    [
        (0.0, 800, [False]),  # never
        (0.5, 800, [False]),  # the first wait was longer
        (9.0, 800, [True] * 4),  # three looks without anything
        (3.0, 800, [True, True, False]),  # no longer than that, then it sleeps
        (9.0, 24, [True, True, False]),  # nor longer than an eighth of the work before
        (9.0, 7, [False]),  # to which the first wait was long
    ],
)
def test_a_wait_after_a_short_one_does_not_sleep(clock, awake_s, work_s, second):
    sock = Looked(b"".join(bytes(part) for part in encode_frame(Stop())), empty=3)
    connection = BlockingConnection(sock)
    connection.awake_s = awake_s
    assert isinstance(connection.receive()[0], Stop)
    assert sock.looks == [False]
    clock.now_s += work_s - 1
    assert isinstance(connection.receive()[0], Stop)
    assert sock.looks[1:] == second


@pytest.mark.parametrize(("awake_s", "looks"), [(9e-5, [False]), (2e-4, [True] * 4)])
def test_for_hardly_anything_no_wait_stays_awake(clock, awake_s, looks):
    sock = Looked(b"".join(bytes(part) for part in encode_frame(Stop())), empty=3)
    connection, clock.tick_s = BlockingConnection(sock), 1e-5
    connection.awake_s = awake_s
    connection.receive()
    clock.now_s += 800
    connection.receive()
    assert sock.looks[1:] == looks


def test_the_end_of_the_other_side_is_seen_without_sleeping_too(clock):
    sock = Looked(b"".join(bytes(part) for part in encode_frame(Stop())), empty=0)
    connection = BlockingConnection(sock)
    connection.awake_s = 9.0
    connection.receive()
    clock.now_s += 800
    sock.data = b""
    with pytest.raises(EndOfStream):
        connection.receive()
    assert sock.looks == [False, True]


def test_some_messages_may_be_taken_ahead_of_others():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        router, worker = BlockingConnection(ours), BlockingConnection(theirs)
        assert worker.take_arrived((SetThreads, Release)) == []
        orders = SetThreads(threads=1), Release(processors=(1,))
        for message in (Ping(), orders[0], Ping(), orders[1]):
            router.send(message)
        assert worker.take_arrived((SetThreads, Release)) == [*orders]
        assert [worker.receive()[0] for _ in range(2)] == [Ping(), Ping()]
        ours.close()
        with pytest.raises(EndOfStream):
            worker.take_arrived((SetThreads, Release))


@pytest.mark.parametrize("loop_kind", ["uvloop", "asyncio"])
def test_small_and_large_batches_cross_a_real_socket_both_ways(loop_kind):
    arrays = [np.random.default_rng(0).random((rows, 1000)) for rows in (1, 3, 2000, 1, 500)]

    async def main() -> dict[int, np.ndarray]:
        answers: dict[int, np.ndarray] = {}
        done, ended = asyncio.Event(), asyncio.Event()

        def on_frame(message: Message, body: memoryview) -> None:
            assert isinstance(message, Done)
            answers[message.batch] = unpack_tensors(message.parts[0].tensors, body)["x"]
            if len(answers) == len(arrays):
                done.set()

        ours, theirs = socket.socketpair()
        thread = threading.Thread(target=echo, args=(theirs,))
        thread.start()
        _, protocol = await asyncio.get_running_loop().create_unix_connection(
            lambda: FrameProtocol(on_frame, ended.set), sock=ours
        )
        for batch, array in enumerate(arrays):
            protocol.send(*run_message(batch, array))
        async with asyncio.timeout(20):
            await done.wait()
            protocol.close()
            await ended.wait()
        protocol.send(Stop())  # to nobody: no error
        thread.join(10)
        assert not thread.is_alive()
        return answers

    with asyncio.Runner(loop_factory=loop_factory(loop_kind)) as runner:
        answers = runner.run(main())
    for batch, array in enumerate(arrays):
        np.testing.assert_array_equal(answers[batch], array)


def loop_factory(kind: str):
    if kind == "asyncio":
        return asyncio.new_event_loop
    import uvloop

    return uvloop.new_event_loop
