"""An endpoint whose streams a test writes event by event, in the test's event loop; they may have no end."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
AT_ONCE = 16
"""Parts that are written before others have a turn."""


def event(content: Any) -> bytes:
    return b"data: %b\n\n" % (content if isinstance(content, bytes) else json.dumps(content).encode())


def delta(text: str | None = None, *, finish: str | None = None, index: int = 0, **more: Any) -> bytes:
    """The event of one chunk of a chat."""
    said = {} if text is None else {"content": text}
    return event({"model": "small", "choices": [{"index": index, "delta": said, "finish_reason": finish, **more}]})


@asynccontextmanager
async def raw_endpoint(
    parts: Callable[[dict[str, Any]], Iterable[bytes]], *, pause_s: float = 0.0, head: bytes = HEAD
) -> AsyncIterator[str]:
    """Its URL; each request, by its body, gets these parts until it leaves or they end, with a pause after some."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                asked = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = int(asked.partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0)
                body = json.loads(await reader.readexactly(length) or b"{}")
                writer.write(head)
                for number, part in enumerate(parts(body)):
                    writer.write(part)
                    if number % AT_ONCE == 0:
                        await writer.drain()
                        await asyncio.sleep(pause_s)
            writer.close()
        except asyncio.CancelledError:
            writer.transport.abort()
            raise

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
