"""A client of many streams at a time: when their first bytes came, how many tokens, how long between."""

import asyncio
import json
import time
from dataclasses import dataclass
from typing import cast

TOKEN, DONE = b'"delta":{"content":"', b"data: [DONE]"


@dataclass(slots=True, eq=False)
class Stream(asyncio.Protocol):
    """One request; `longest_gap_s` is between parts of its answer."""

    request: bytes
    over: "asyncio.Future[None]"
    began_s: float = 0.0
    first_s: float = 0.0
    last_s: float = 0.0
    longest_gap_s: float = 0.0
    tokens: int = 0
    is_whole: bool = False
    transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's has the same methods
        self.began_s = time.perf_counter()
        self.transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        now_s = time.perf_counter()
        if TOKEN in data:
            if self.first_s:
                self.longest_gap_s = max(self.longest_gap_s, now_s - self.last_s)
            self.first_s = self.first_s or now_s
            self.last_s = now_s
            self.tokens += data.count(TOKEN)
        if DONE in data:
            self.is_whole = True
            self._end()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()

    def _end(self) -> None:
        if not self.over.done():
            self.over.set_result(None)
            if self.transport is not None:
                self.transport.close()

    @property
    def ttft_s(self) -> float:
        return self.first_s - self.began_s

    @property
    def tokens_per_s(self) -> float:
        return (self.tokens - 1) / (self.last_s - self.first_s)


def request(model: str, record: int, **fields: object) -> bytes:
    content = {"model": model, "messages": [{"role": "user", "content": f"record {record}"}], "stream": True, **fields}
    body = json.dumps(content).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def begun(port: int, content: bytes) -> Stream:
    loop = asyncio.get_running_loop()
    _, stream = await loop.create_connection(lambda: Stream(content, loop.create_future()), "127.0.0.1", port)
    return stream


async def whole(port: int, content: bytes) -> Stream:
    stream = await begun(port, content)
    await stream.over
    return stream
