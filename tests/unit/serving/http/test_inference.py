"""Large bodies, which are read one at a time: nothing of those that wait outlives their clients."""

import asyncio
import gzip
import json
import sys
from typing import Any

import pytest

from gearshift.serving.door import compression
from gearshift.v2 import large_json
from tests.unit.serving.http.test_application import INFER, Server, samples, serve
from tests.unit.serving.http.test_many_rows import until

LARGE = json.dumps(samples(1)).encode() + b" " * large_json.LARGE_BYTES
PACKED = gzip.compress(LARGE)


def model_of(server: Server) -> Any:
    (model,) = server.handler._handlers.models  # type: ignore[attr-defined]
    return model


def head(body: bytes, *lines: str) -> bytes:
    return "\r\n".join(
        [f"POST {INFER} HTTP/1.1", "host: [::1]", f"content-length: {len(body)}", *lines, "", ""]
    ).encode()


@pytest.mark.parametrize("waits", [False, True], ids=["at once", "waiting for its turn"])
@pytest.mark.parametrize(("body", "lines"), [(LARGE, ()), (PACKED, ("content-encoding: gzip",))], ids=["plain", "gzip"])
def test_a_body_whose_client_has_left_is_not_kept(body: bytes, lines: tuple[str, ...], waits: bool) -> None:
    async def use(server: Server) -> None:
        held, lock = server.service.held, model_of(server)._arriving.large
        async with lock:
            connection, _ = server.connect()
            connection.data_received(head(body, *lines))
            connection.data_received(body)
            exchange: Any = connection._exchange
            await until(lambda: lock._waiters or not waits)
            kept = exchange.parts[0]
            assert held.reading_bytes >= len(kept)
            connection.connection_lost(None)
            await asyncio.sleep(0)
            assert (exchange.parts, held.held_bytes) == ([], 0)
            assert sys.getrefcount(kept) == 2, "this test's name for it, and the argument"
        assert (await server.infer(LARGE)).status == 200

    serve(use)


def test_what_is_compressed_is_not_read_on_once_its_client_has_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compression, "STEP_BYTES", 1 << 10)

    async def use(server: Server) -> None:
        connection, _ = server.connect()
        connection.data_received(head(PACKED, "content-encoding: gzip"))
        connection.data_received(PACKED)
        await until(lambda: server.service.held.reading_bytes > len(PACKED))
        connection.connection_lost(None)
        for _ in range(3):
            await asyncio.sleep(0)
        assert model_of(server).attempt.__self__._waiting == set()

    serve(use)


def test_an_answer_whose_client_has_left_is_not_kept_while_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_json, "STEP_ELEMENTS", 5)
    body = json.dumps(samples(*[1] * 10)).encode()

    async def use(server: Server) -> bytearray:
        lock = model_of(server)._arriving.large
        async with lock:
            connection, wire = server.connect()
            connection.data_received(head(body) + body)
            exchange: Any = connection._exchange
            await until(lambda: lock._waiters)
            kept = exchange.on_gone.__self__
            assert len(kept) == 1
            connection.connection_lost(None)
            assert kept == []
        assert (await server.infer(body)).status == 200
        return wire.written

    assert serve(use) == b""
