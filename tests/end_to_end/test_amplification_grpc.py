"""Bounds on the cost of few bytes over gRPC: peak memory, and the time during which nobody else is answered.

The table is printed, so that changes can be seen (`pytest -s`).
"""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2

from gearshift.serving.grpc.arrivals import WINDOW_BYTES
from gearshift.v2.grpc_tensors import varint
from tests.end_to_end.test_server import LONGEST_S, Server, serving
from tests.http2 import Http2

pytestmark = pytest.mark.long

SIZE_BYTES = 60 << 20
MOST_TIMES = 4
"""The library assembles a message from its parts: both, and what it makes of them, are there for a moment."""
MOST_STALL_S = 0.25
BASE_BYTES = 64 << 20
INFER = "/inference.GRPCInferenceService/ModelInfer"


def field(number: int, contents: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(contents)) + contents


def an_input(contents: bytes) -> bytes:
    return field(1, b"sums") + field(5, field(1, b"x") + field(2, b"FP64") + contents)


def filled(unit: bytes) -> bytes:
    return unit * (SIZE_BYTES // len(unit))


MESSAGES: dict[str, Callable[[], bytes]] = {
    "empty elements of typed contents": lambda: an_input(field(5, filled(b"\x42\0"))),
    "empty parameters of an input": lambda: an_input(filled(b"\x22\0")),
    "parameters of an input": lambda: an_input(
        b"".join(field(4, field(1, b"%x" % n)) for n in range(SIZE_BYTES // 12))
    ),
    "empty values in a parameter": lambda: an_input(field(4, filled(b"\x12\0"))),
    "dimensions": lambda: an_input(field(3, filled(b"\1"))),
    "dimensions one by one": lambda: an_input(filled(b"\x18\1")),
    "numbers of 4 bytes": lambda: an_input(field(5, field(6, filled(b"\0")))),
    "numbers of 1 byte": lambda: an_input(field(5, field(5, filled(b"\1")))),
    "numbers one by one": lambda: an_input(field(5, filled(b"\x28\1"))),
    "empty inputs": lambda: field(1, b"sums") + filled(b"\x2a\0"),
    "empty outputs": lambda: field(1, b"sums") + filled(b"\x32\0"),
    "parameters of outputs": lambda: field(1, b"sums") + field(6, filled(b"\x12\0")),
    "unknown fields": lambda: filled(b"\x48\1"),
    "a long number": lambda: filled(b"\xff"),
    "a long name": lambda: field(1, filled(b"a")),
    "raw contents of no input": lambda: field(1, b"sums") + field(7, filled(b"\0")),
    "empty raw contents": lambda: field(1, b"sums") + filled(b"\x3a\0"),
    "a tensor too large": lambda: an_input(field(3, b"\1\2")) + field(7, filled(b"\0")),
    "groups": lambda: filled(b"\x0b\x0c"),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[Server]:
    with serving(
        tmp_path_factory.mktemp("task"), grpc_port=0, longest_read_s=5, keep_alive_s=5, most_rows=5000
    ) as server:
        yield server


def queued_s(thread: str) -> float:
    """How long a thread has waited for a processor in all: other programs' affair, not a stall."""
    return int(Path(f"/proc/{thread}/schedstat").read_text().split()[1]) / 1e9


class Watch:
    """Memory of the server at its most, and the longest that it took to answer `/livez`, while the block lasts."""

    def __init__(self, server: Server) -> None:
        self._server, self._status = server, Path(f"/proc/{server.process.pid}/status")
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._ask)
        self.stall_s = 0.0

    def _bytes(self, name: str) -> int:
        (line,) = [line for line in self._status.read_text().splitlines() if line.startswith(name)]
        return int(line.split()[1]) << 10

    def _ask(self) -> None:
        loop_thread = f"{self._server.process.pid}/task/{self._server.process.pid}"

        def waited_s() -> float:
            return queued_s("thread-self") + queued_s(loop_thread)

        async def main() -> None:
            host, port = self._server.url.removeprefix("http://").split(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            while not self._ends.is_set():
                begun = time.perf_counter() - waited_s()
                writer.write(b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
                assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
                self.stall_s = max(self.stall_s, time.perf_counter() - waited_s() - begun)
                await asyncio.sleep(0.01)
            writer.close()

        asyncio.run(main())

    def __enter__(self) -> "Watch":
        Path(f"/proc/{self._server.process.pid}/clear_refs").write_text("5")
        self._before_bytes = self._bytes("VmRSS")
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join(LONGEST_S)
        self.more_bytes = self._bytes("VmHWM") - self._before_bytes

    def told(self, what: str, in_bytes: int) -> None:
        print(f"{what:34} {in_bytes / 2**20:6.2f} MiB in, {self.more_bytes / 2**20:+5.0f} MiB, {self.stall_s:.3f} s")  # noqa: T201


@pytest.mark.parametrize("what", MESSAGES)
def test_a_message_costs_little_more_than_its_bytes_and_stalls_nobody(server, what):
    message = MESSAGES[what]()
    with (
        Watch(server) as watch,
        grpc.insecure_channel(server.grpc, [("grpc.max_send_message_length", -1)]) as channel,
        pytest.raises(grpc.RpcError) as caught,
    ):
        channel.unary_unary(INFER)(message, timeout=LONGEST_S)
    watch.told(what, len(message))
    assert caught.value.code() in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND)
    assert watch.more_bytes < MOST_TIMES * SIZE_BYTES
    assert watch.stall_s < MOST_STALL_S


@pytest.mark.parametrize("what", ["dimensions", "a long name", "raw contents of no input"])
def test_a_compressed_message_counts_as_what_it_holds(server, what):
    message = MESSAGES[what]()
    with Watch(server) as watch, grpc.insecure_channel(server.grpc) as channel:
        calls = [channel.unary_unary(INFER).future(message, compression=grpc.Compression.Gzip) for _ in range(6)]
        assert {call.code() for call in calls} <= {
            grpc.StatusCode.INVALID_ARGUMENT,
            grpc.StatusCode.RESOURCE_EXHAUSTED,
        }
    watch.told(f"6 of {what}, compressed", len(message) // 1000)
    assert watch.more_bytes < (256 << 20) + 2 * MOST_TIMES * SIZE_BYTES
    assert watch.stall_s < MOST_STALL_S


def test_messages_that_are_never_whole_take_no_more_than_their_share_and_not_for_long(server):
    nearly_all = bytes(
        SIZE_BYTES - 1
    )  # made before time runs, once: 20 of them would hold up client and watch for seconds

    async def main() -> int:
        async with AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(await Http2.connect(server.grpc)) for _ in range(4)]
            calls = [await client.call("ModelInfer", SIZE_BYTES) for client in clients for _ in range(5)]
            await asyncio.gather(*(call.send(nearly_all) for call in calls))
            await asyncio.gather(*(call.ended.wait() for call in calls))
            return sum(call.sent_bytes for call in calls)

    with Watch(server) as watch:
        sent_bytes = asyncio.run(asyncio.wait_for(main(), LONGEST_S))
    watch.told("20 messages that are never whole", sent_bytes)
    assert sent_bytes > 20 * WINDOW_BYTES  # so that messages have been on their way
    assert watch.more_bytes < (128 << 20) + 3 * SIZE_BYTES
    assert watch.stall_s < MOST_STALL_S


def test_a_large_request_that_fits_is_answered_and_stalls_nobody(server):
    rows = 5000  # which is more than is parsed at once
    message = service_pb2.ModelInferRequest(model_name="sums")
    message.inputs.add(name="x", datatype="FP64", shape=[rows, 2])
    message.raw_input_contents.append(np.ones((rows, 2)).tobytes())
    with grpc.insecure_channel(server.grpc, [("grpc.max_receive_message_length", -1)]) as channel:
        answer = channel.unary_unary(INFER, None, service_pb2.ModelInferResponse.FromString)(
            message.SerializeToString(), timeout=LONGEST_S
        )
    assert np.frombuffer(answer.raw_output_contents[0]).tolist() == [2.0] * rows
