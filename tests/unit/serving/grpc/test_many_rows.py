"""Requests of more rows than may wait, over gRPC: answered whole, one at a time, in nobody else's way."""

from typing import Any

import grpc
import pytest

from gearshift.runtime.backends.base import Batch
from gearshift.v2 import grpc_messages_pb2 as pb
from gearshift.v2.grpc_status import SERVICE
from tests.unit.serving.grpc import test_server as server_tests
from tests.unit.serving.grpc.test_server import LONGEST_S, Served, samples

MOST = 18
WIDE = [number % 10 for number in range(MOST + 1)]
LABELS = [f"{'large' if number % 2 else 'small'}-{number}" for number in WIDE]


def run(use: Any) -> Any:
    return server_tests.run(use, most_waiting_requests=MOST)


def labels(answer: bytes) -> list[str]:
    raw = pb.ModelInferResponse.FromString(answer).raw_output_contents[1]
    found, at = list[str](), 0
    while at < len(raw):
        end = at + 4 + int.from_bytes(raw[at : at + 4], "little")
        found.append(raw[at + 4 : end].decode())
        at = end
    return found


def call(channel: grpc.aio.Channel, *numbers: int, timeout_s: float = LONGEST_S) -> Any:
    message = samples(*numbers).SerializeToString()
    return channel.unary_unary(f"/{SERVICE}/ModelInfer")(message, timeout=timeout_s)


def held_back(served: Served) -> Any:
    """Hold batches back from now on; returns how they are let go."""
    backend: Any = served.service.driver.backend
    held: list[Batch] = []
    backend.run = held.append

    def let_go() -> None:
        del backend.run
        for batch in held:
            backend.run(batch)

    return let_go


async def require_free(served: Served, channel: grpc.aio.Channel) -> None:
    """Require that nothing is held any more, and that the next such request is answered."""
    await served.until(lambda: served.service.open_requests == 0 and served.held_bytes == 0)
    assert labels(await call(channel, *WIDE)) == LABELS


def test_a_second_is_told_when_to_come_again_and_small_ones_are_answered() -> None:
    async def use(served: Served) -> grpc.aio.AioRpcError:
        async with grpc.aio.insecure_channel(served.address) as channel:
            let_go = held_back(served)
            first = call(channel, *WIDE)
            await served.until(lambda: served.service.open_requests > 0)
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await call(channel, *WIDE)
            small = call(channel, 1)
            await served.until(lambda: served.service.pipeline.room.waiting > 0)
            assert not first.done()
            let_go()
            assert labels(await small) == ["large-1"]
            assert labels(await first) == LABELS
            await require_free(served, channel)
            return refused.value

    error = run(use)
    assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "taken one at a time, and one has 19 rows left" in (error.details() or "")
    assert int(dict(error.trailing_metadata())["grpc-retry-pushback-ms"]) >= 1000


@pytest.mark.parametrize("how", ["the deadline passes", "the client leaves"])
def test_a_deadline_that_passes_or_a_client_that_leaves_ends_it(how: str) -> None:
    async def use(served: Served) -> str:
        async with grpc.aio.insecure_channel(served.address) as channel:
            let_go, late = held_back(served), how == "the deadline passes"
            asked = call(channel, *WIDE, timeout_s=0.3 if late else LONGEST_S)
            await served.until(lambda: served.service.open_requests > 0)
            if not late:
                asked.cancel()
            code = await asked.code()
            await served.until(lambda: served.service.open_requests == 0 and served.held_bytes == 0)
            let_go()
            await require_free(served, channel)
            return str(code.name)

    assert run(use) == ("DEADLINE_EXCEEDED" if how == "the deadline passes" else "CANCELLED")


def test_a_row_that_fails_fails_it() -> None:
    async def use(served: Served) -> str:
        async with grpc.aio.insecure_channel(served.address) as channel:
            with pytest.raises(grpc.aio.AioRpcError, match="sample 10 is not recorded") as failed:
                await call(channel, *WIDE, 10, *WIDE * 5)
            await require_free(served, channel)
            return str(failed.value.code().name)

    assert run(use) == "INTERNAL"
