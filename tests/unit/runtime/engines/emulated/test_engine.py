"""Emulated engines over real sockets."""

import asyncio

import pytest

from gearshift.runtime.engines.emulated.engine import EmulatedEngine
from tests.two_language_models import language_profile

PROFILE = language_profile()


async def status_of(port: int, path: str, authorization: str) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    sent = f"authorization: {authorization}\r\n" if authorization else ""
    writer.write(f"GET {path} HTTP/1.1\r\nhost: x\r\n{sent}\r\n".encode())
    line = await reader.readline()
    writer.close()
    return int(line.split()[1])


@pytest.mark.parametrize(
    ("authorization", "status"), [("", 401), ("Bearer other", 401), ("the-key", 401), ("Bearer the-key", 200)]
)
def test_an_engine_with_a_key_answers_nobody_else(authorization: str, status: int) -> None:
    async def main() -> None:
        engine = EmulatedEngine(PROFILE, PROFILE.engines[0], key="the-key")
        port = await engine.start()
        assert await status_of(port, "/v1/models", authorization) == status
        assert await status_of(port, "/health", authorization) == 200
        await engine.stop()

    asyncio.run(main())
