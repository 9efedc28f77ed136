"""A connection's other end without a socket, and what is read from it."""

import asyncio
import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Response:
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Wire(asyncio.Transport):
    """What a connection writes, kept."""

    def __init__(self, client: str = "127.0.0.1") -> None:
        super().__init__({"peername": (client, 1)})
        self.written = bytearray()
        self.writes = 0
        self.more = asyncio.Event()
        self.closed = self.aborted = self.ended = False
        self.reading = True
        self.unsent_bytes = self.asked = 0

    def write(self, data: Any) -> None:
        self.writes += 1
        self.written += data
        self.more.set()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        self.closed = True
        self.more.set()

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.ended = True

    def abort(self) -> None:
        self.aborted = True
        self.close()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def get_write_buffer_size(self) -> int:
        self.asked += 1
        return self.unsent_bytes


async def answered(wire: Wire) -> Response:
    """The next answer on the wire."""
    while True:
        head, found, rest = bytes(wire.written).partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines if ": " in line)
        length = int(headers.get("content-length", 0))
        if found and len(rest) >= length:
            del wire.written[: len(head) + 4 + length]
            return Response(int(first.split()[1]), headers, rest[:length])
        assert not wire.closed, "closed without an answer"
        wire.more.clear()
        await wire.more.wait()
