"""The gRPC server on an event loop with its clients, over emulated devices."""

import asyncio
import gc
import gzip
import sys
import zlib
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from gearshift.errors import InvalidInput
from gearshift.observability.metrics import Metrics
from gearshift.plans.plan_tables import plan_tables
from gearshift.runtime.backends.emulated import EMULATED_INPUTS, EmulatedBackend, emulated_outputs
from gearshift.runtime.router.status import ServedPlan
from gearshift.runtime.service.room import Client
from gearshift.runtime.service.served_pipeline import PipelineOptions
from gearshift.runtime.service.service import Service
from gearshift.serving import serve
from gearshift.serving.door import open_exchanges
from gearshift.serving.door.bounds import most_waiting_bytes
from gearshift.serving.door.keys import read_keys
from gearshift.serving.door.settings import ServerSettings
from gearshift.serving.door.signature import Signature
from gearshift.serving.grpc.server import GrpcServer
from gearshift.serving.operate.control import Control
from gearshift.serving.rows.served import ROWS
from gearshift.v2 import grpc_messages_pb2 as pb
from gearshift.v2.grpc_status import SERVICE
from gearshift.v2.tensors import Limits
from tests.http2 import Http2
from tests.little_task import little_plan, little_profile, write_little_task

LONGEST_S = 20.0
LARGEST_BYTES = 4 << 20
ROW_FACTS = ("gearshift_model", "gearshift_stage", "gearshift_certainty", "gearshift_exit_segment")


@pytest.mark.parametrize(
    "settings",
    [
        {"grpc_port": -1},
        {"grpc_port": 65_536},
        {"most_grpc_calls": 0},
        {"most_grpc_calls": 10**11},
        {"largest_body_bytes": 1 << 32},
        {"keep_alive_s": 3_000_000},
    ],
)
def test_settings_that_make_no_sense_are_refused(settings):
    (name,) = settings
    with pytest.raises(InvalidInput, match=f"{name} is"):
        ServerSettings(**settings)


def test_serving_without_the_library_says_how_to_install_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "grpc", None)
    plan = write_little_task(tmp_path)
    with pytest.raises(InvalidInput, match=r"--grpc-port: needs grpcio.*pip install 'gearshift\[grpc\]'"):
        serve.serve(ROWS, plan, settings=ServerSettings(port=0, grpc_port=0), backend="emulated")


class Served:
    """A server, its service, and how it is asked by the library's own client and by one of our own."""

    def __init__(self, service: Service, server: GrpcServer, address: str) -> None:
        self.service, self.server, self.address = service, server, address

    @property
    def held_bytes(self) -> int:
        return self.service.held.held_bytes

    async def status(self, method: str, message: bytes, **options: Any) -> tuple[str, str]:
        """The status of a call, and its details."""
        async with grpc.aio.insecure_channel(self.address) as channel:
            try:
                await channel.unary_unary(f"/{SERVICE}/{method}")(message, timeout=LONGEST_S, **options)
            except grpc.aio.AioRpcError as error:
                return error.code().name, error.details() or ""
        return "OK", ""

    async def until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            await asyncio.sleep(0.005)


def run(use: Callable[[Served], Awaitable[Any]], keys: str | None = None, **settings: Any) -> Any:
    """The result of `use` on a server with these settings."""

    async def main() -> Any:
        plan, profile, metrics = little_plan(""), little_profile(), Metrics()
        tables = plan_tables(plan)
        chosen = ServerSettings(grpc_port=0, **({"largest_body_bytes": LARGEST_BYTES} | settings))
        bounds: dict[str, Any] = {
            "most_waiting_bytes": most_waiting_bytes(chosen),
            "pipelines": {"sums": PipelineOptions(most_waiting_requests=chosen.most_waiting_requests or 10_000)},
        }
        service = Service(tables, EmulatedBackend(tables, plan, profile), metrics=metrics, **bounds)
        server = GrpcServer(
            Control(service, ServedPlan(path="plan.json", sha256="")),
            [Signature(name="sums", inputs=EMULATED_INPUTS, outputs=emulated_outputs(profile))],
            settings=chosen,
            limits=Limits(),
            metrics=metrics,
            keys=read_keys(keys, None),
        )
        await service.start()
        port = await server.start()
        try:
            async with asyncio.timeout(LONGEST_S):
                return await use(Served(service, server, f"127.0.0.1:{port}"))
        finally:
            await server.stop(0)
            await service.stop()

    return asyncio.run(main())


@pytest.fixture
def keys(tmp_path):
    path = tmp_path / "keys"
    path.write_text("k" * 32 + "\n")
    path.chmod(0o600)
    return str(path)


def write_keys(path: str, *letters: str) -> None:
    new = Path(path).with_suffix(".new")
    new.write_text("".join(letter * 32 + "\n" for letter in letters))
    new.chmod(0o600)
    new.rename(path)


def samples(*numbers: int, outputs: tuple[str, ...] = (), **fields: Any) -> pb.ModelInferRequest:
    tensor = pb.ModelInferRequest.InferInputTensor(name="sample", datatype="INT64", shape=[len(numbers)])
    raw = np.array(numbers, dtype="<i8").tobytes()
    asked = [pb.ModelInferRequest.InferRequestedOutputTensor(name=name) for name in outputs]
    return pb.ModelInferRequest(model_name="sums", inputs=[tensor], raw_input_contents=[raw], outputs=asked, **fields)


def sent(message: bytes) -> bytes:
    """A message as it travels."""
    return b"\0" + len(message).to_bytes(4, "big") + message


# Before a message ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "method",
    ["ModelInfer", "ModelStreamInfer", "ModelReady", "ModelMetadata", "RepositoryIndex", "RepositoryModelLoad"],
)
def test_a_call_without_a_key_is_refused_before_its_message_has_come(keys, method):
    async def use(served: Served) -> tuple[bytes, int]:
        async with await Http2.connect(served.address) as client:
            call = await client.call(method, LARGEST_BYTES)
            await call.send(b"\0" * LARGEST_BYTES)
            return call.headers, call.sent_bytes

    headers, sent_bytes = run(use, keys)
    assert b"an API key is needed" in headers
    assert sent_bytes <= 65_535


@pytest.mark.parametrize(
    "method",
    ["ModelInfer", "ModelStreamInfer", "/grpc.health.v1.Health/Watch", "/grpc.reflection.v1.ServerReflection/"
     "ServerReflectionInfo"],
)  # fmt: skip
def test_a_call_whose_key_is_revoked_ends_though_no_message_comes(keys, method, monkeypatch):
    monkeypatch.setattr(open_exchanges, "LOOK_S", 0.01)

    async def use(served: Served) -> bytes:
        async with await Http2.connect(served.address) as client:
            call = await client.call(method, 100, {"authorization": "Bearer " + "k" * 32})
            other = await client.call("ModelStreamInfer", 100, {"x-api-key": "l" * 32})
            if method.endswith("Watch"):
                await call.send(b"", last=True)
            await served.until(lambda: len(served.server._keys.open) == 2)
            write_keys(keys, "l")
            await call.ended.wait()
            assert not other.ended.is_set()
            return call.headers

    write_keys(keys, "k", "l")
    assert b"no longer one that this server knows" in run(use, keys)


def test_a_stream_whose_key_is_revoked_answers_nothing_more(keys, monkeypatch):
    monkeypatch.setattr(open_exchanges, "LOOK_S", 0.01)

    async def use(served: Served) -> tuple[grpc.StatusCode, int, int]:
        async with grpc.aio.insecure_channel(served.address) as channel:
            metadata = (("x-api-key", "k" * 32),)
            call = channel.stream_stream(f"/{SERVICE}/ModelStreamInfer")(timeout=LONGEST_S, metadata=metadata)
            await call.write(samples(0).SerializeToString())
            assert await call.read() is not grpc.aio.EOF
            await call.write(samples(*[0] * 5000).SerializeToString())
            await served.until(lambda: served.service.waiting > 0)
            write_keys(keys, "l")
            code = await call.code()
            return code, served.service.waiting, served.held_bytes

    assert run(use, keys) == (grpc.StatusCode.UNAUTHENTICATED, 0, 0)


def test_health_is_told_without_waiting_for_a_message(keys):
    async def use(served: Served) -> list[bytes]:
        async with await Http2.connect(served.address) as client:
            calls = [await client.call(method, LARGEST_BYTES) for method in ("ServerLive", "ServerReady")]
            for call in calls:
                await call.ended.wait()
            return [call.data for call in calls]

    assert run(use, keys) == [sent(pb.ServerLiveResponse(live=True).SerializeToString())] * 2


def test_a_server_without_room_says_so_before_a_message_has_come():
    async def use(served: Served) -> bytes:
        async with await Http2.connect(served.address) as client:
            served.service.pipeline.room.take(0, served.service.held.most_bytes + 1, Client())
            call = await client.call("ModelInfer", 100)
            await call.ended.wait()
            return call.headers

    assert b"try again in 1 s" in run(use)


# While messages come -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["ModelInfer", "ModelStreamInfer", "ModelMetadata"])
def test_a_message_that_is_never_whole_is_held_for_so_long_and_not_longer(method):
    async def use(served: Served) -> tuple[bytes, int]:
        async with await Http2.connect(served.address) as client:
            call = await client.call(method, LARGEST_BYTES)
            await call.send(b"\0" * (1 << 20))
            await served.until(lambda: served.held_bytes >= 1_000_000)
            await call.ended.wait()
            await served.until(lambda: served.held_bytes == 0)
            return call.headers, served.service.held.reading_bytes

    headers, reading = run(use, longest_read_s=0.5)
    assert b"not whole after 0.5 s" in headers
    assert reading == 0


def test_a_stream_may_rest_between_messages_for_longer_than_one_may_take():
    async def use(served: Served) -> bool:
        async with await Http2.connect(served.address) as client:
            message = samples(0).SerializeToString()
            call = await client.call("ModelStreamInfer", len(message))
            await call.send(message)
            await served.until(lambda: len(call.data) > 0)
            answer = len(call.data)
            async with await Http2.connect(served.address) as other:  # which takes longer than that
                slow = await other.call("ModelInfer", LARGEST_BYTES)
                await slow.ended.wait()
            await call.send(sent(message))
            await served.until(lambda: len(call.data) == 2 * answer and served.held_bytes == 0)
            return call.ended.is_set()

    assert run(use, longest_read_s=0.3) is False


def test_errors_on_a_stream_carry_the_ids_that_their_requests_were_sent_with():
    bad = {"bad": "another", "": "another", "two words": "another", "x" * 129: "another", "of shape": "sums"}

    async def use(served: Served) -> list[pb.ModelStreamInferResponse]:
        messages = [pb.ModelInferRequest(id=id, model_name=model).SerializeToString() for id, model in bad.items()] + [
            b"\xff",
            samples(0, id="good one").SerializeToString(),
        ]
        async with grpc.aio.insecure_channel(served.address) as channel:
            call = channel.stream_stream(f"/{SERVICE}/ModelStreamInfer")(iter(messages), timeout=LONGEST_S)
            return [pb.ModelStreamInferResponse.FromString(answer) async for answer in call]

    *errors, unreadable, good = run(use)
    assert [answer.infer_response.id for answer in errors] == list(bad)
    assert all(answer.error_message for answer in errors)
    assert (unreadable.error_message != "", unreadable.infer_response.id) == (True, "")
    assert (good.error_message, good.infer_response.id) == ("", "good one")


def test_a_call_for_another_model_ends_with_the_id_of_its_message():
    async def use(served: Served) -> dict[str, str]:
        message = pb.ModelInferRequest(id="7", model_name="another").SerializeToString()
        async with grpc.aio.insecure_channel(served.address) as channel:
            call = channel.unary_unary(f"/{SERVICE}/ModelInfer")(message, timeout=LONGEST_S)
            return dict(await call.trailing_metadata())

    assert run(use)["x-request-id"] == "7"


def test_messages_on_their_way_take_half_of_the_room_and_small_ones_are_not_in_the_way_of_large_ones():
    async def use(served: Served) -> tuple[list[bool], list[bytes], int]:
        most_bytes = 0

        async def watch() -> None:
            nonlocal most_bytes
            while True:
                most_bytes = max(most_bytes, served.held_bytes)
                await asyncio.sleep(0.01)

        watching = asyncio.create_task(watch())
        async with await Http2.connect(served.address) as small, await Http2.connect(served.address) as large:
            patient = await small.call("ModelInfer", 200_000)
            await patient.send(b"\0" * 100_000)
            calls = [await large.call("ModelInfer", LARGEST_BYTES) for _ in range(6)]
            await asyncio.gather(*(call.send(b"\0" * (3 << 20)) for call in calls))
            await served.until(lambda: sum(call.ended.is_set() for call in calls) >= 4)
            watching.cancel()
            return [patient.ended.is_set()], [call.headers for call in calls if call.headers], most_bytes

    ended, refusals, most_bytes = run(use, most_waiting_bytes=16 << 20)
    assert ended == [False]
    assert all(b"try again in" in headers for headers in refusals)
    assert most_bytes <= (16 << 20) + LARGEST_BYTES


@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress])
def test_a_compressed_message_counts_as_what_it_holds_and_is_bounded_by_that(pack):
    async def use(served: Served) -> list[tuple[str, str]]:
        compression = grpc.Compression.Gzip if pack is gzip.compress else grpc.Compression.Deflate
        message = samples(0).SerializeToString()
        return [
            await served.status("ModelInfer", samples(*[0] * 100).SerializeToString(), compression=compression),
            await served.status("ModelInfer", b"\0" * (LARGEST_BYTES + 1), compression=compression),
            await served.status("ModelInfer", b"\0" * (1 << 20), compression=compression),
            await served.status("ModelInfer", pack(message)[:-3]),
            await served.status("ModelMetadata", b"\0" * (1 << 20), compression=compression),
        ]

    ok, too_large, no_room, cut, small = run(use, most_waiting_bytes=500_000)
    assert ok[0] == "OK"
    assert too_large[0] == "RESOURCE_EXHAUSTED"
    assert no_room[0] in ("RESOURCE_EXHAUSTED", "INVALID_ARGUMENT")
    assert cut == ("INVALID_ARGUMENT", "grpc-encoding: the message is not compressed as it begins; compress all of it")
    assert small[0] == "RESOURCE_EXHAUSTED"
    assert "more than 65536 bytes" in small[1]


# Answers -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["ModelInfer", "ModelStreamInfer"])
def test_answers_are_held_until_they_are_taken_and_who_does_not_take_them_is_cut_off(method):
    async def use(served: Served) -> tuple[int, int]:
        async with await Http2.connect(served.address) as client:
            message = samples(*[0] * 2000, outputs=("label", "quality", *ROW_FACTS)).SerializeToString()
            call = await client.call(method, len(message))
            await call.send(message, last=method == "ModelInfer")
            await served.until(lambda: len(call.data) == 65_535)
            held_bytes = served.held_bytes
            await client.closed.wait()
            await served.until(lambda: served.held_bytes == 0)
            return len(call.data), held_bytes

    data_bytes, held_bytes = run(use, longest_read_s=0.5)
    assert data_bytes == 65_535
    assert held_bytes > 100_000


# What is left --------------------------------------------------------------------------------------------------------

CASES: dict[str, tuple[str, bytes, str]] = {
    "answered": ("ModelInfer", samples(0).SerializeToString(), "OK"),
    "answered at once": ("ModelReady", b"", "NOT_FOUND"),
    "live": ("ServerLive", b"", "OK"),
    "no message of the protocol": ("ModelInfer", b"\xff", "INVALID_ARGUMENT"),
    "a large one": ("ModelInfer", b"\x3a" + b"\xff" * 100_000, "INVALID_ARGUMENT"),
    "too many fields": ("ModelInfer", b"\x2a\x00" * 100_000, "INVALID_ARGUMENT"),
    "too many inputs": ("ModelInfer", b"\x0a\4sums" + b"\x2a\x00" * 10_000, "INVALID_ARGUMENT"),
    "no such model": ("ModelInfer", samples(0).SerializeToString() + b"\x0a\1x", "NOT_FOUND"),
    "no such input": ("ModelInfer", b"\x0a\4sums\x2a\0", "INVALID_ARGUMENT"),
    "a tensor that does not fit": ("ModelInfer", samples(0).SerializeToString() + b"\x3a\0", "INVALID_ARGUMENT"),
    "a large tensor that does not fit": (
        "ModelInfer",
        samples(*[0] * 10_000).SerializeToString() + b"\x3a\0",
        "INVALID_ARGUMENT",
    ),
    "a row that fails": ("ModelInfer", samples(99).SerializeToString(), "INTERNAL"),
    "not compressed as it says": ("ModelInfer", b"\x1f\x8b" * 100, "INVALID_ARGUMENT"),
    "too large": ("ModelInfer", b"\0" * (LARGEST_BYTES + 1), "RESOURCE_EXHAUSTED"),
    "too large for its method": ("ModelReady", b"\0" * 100_000, "RESOURCE_EXHAUSTED"),
    "loading": ("RepositoryModelLoad", b"", "INVALID_ARGUMENT"),
    "no such method": ("Other", b"", "UNIMPLEMENTED"),
}


def kept() -> Counter[str]:
    """Counts of objects that calls make: errors, and state of calls in our code and in the library."""
    names = {"_ServicerContext", "RPCState", "_MessageReceiver", "Arrival", "Unread", "Exchange"}
    kinds = [type(found) for found in gc.get_objects()]  # and not isinstance, which asks what some modules make up
    return Counter(kind.__name__ for kind in kinds if kind.__name__ in names or issubclass(kind, BaseException))


async def left_by(served: Served, ask: Callable[[Http2], Awaitable[None]]) -> Counter[str]:
    """Objects that `ask` leaves behind after its connection is closed, without a garbage collection.

    The library keeps the last call until the next one comes, so another one follows.
    """

    async def and_another(ask: Callable[[Http2], Awaitable[None]]) -> Counter[str]:
        for each in (ask, live):
            async with await Http2.connect(served.address) as client:
                await each(client)
        return kept()

    async def live(client: Http2) -> None:
        await (await client.call("ServerLive")).ended.wait()

    gc.collect()
    gc.disable()
    gc.freeze()
    try:
        await and_another(live)
        before = await and_another(live)
        left = await and_another(ask) - before
        end = asyncio.get_running_loop().time() + 1
        while left and asyncio.get_running_loop().time() < end:
            await asyncio.sleep(0.01)
            left = kept() - before
        return left
    finally:
        gc.enable()


@pytest.mark.parametrize(("method", "message", "status"), CASES.values(), ids=CASES)
def test_a_call_is_forgotten_without_a_collection(method, message, status):
    async def use(served: Served) -> tuple[str, Counter[str]]:
        async def ask(client: Http2) -> None:
            call = await client.call(method, len(message))
            await call.send(message, last=True)
            await call.ended.wait()

        found = await served.status(method, message)
        return found[0], await left_by(served, ask)

    assert run(use) == (status, Counter())


@pytest.mark.parametrize("method", ["ModelInfer", "ModelStreamInfer", "ModelReady"])
@pytest.mark.parametrize("how", ["no key", "too slow", "the client leaves"])
def test_a_call_that_never_has_its_message_is_forgotten_without_a_collection(keys, method, how):
    async def use(served: Served) -> Counter[str]:
        async def ask(client: Http2) -> None:
            call = await client.call(method, LARGEST_BYTES, {} if how == "no key" else {"x-api-key": "k" * 32})
            await call.send(b"\0" * (1 << 20))
            if how != "the client leaves":
                await call.ended.wait()

        return await left_by(served, ask)

    assert run(use, keys, longest_read_s=0.2) == Counter()


def test_a_stream_is_forgotten_without_a_collection():
    async def use(served: Served) -> Counter[str]:
        async def ask(client: Http2) -> None:
            messages = [samples(0).SerializeToString(), b"\xff", samples(99).SerializeToString()]
            call = await client.call("ModelStreamInfer", len(messages[0]))
            await call.send(messages[0] + b"".join(map(sent, messages[1:])), last=True)
            await call.ended.wait()

        return await left_by(served, ask)

    assert run(use) == Counter()
