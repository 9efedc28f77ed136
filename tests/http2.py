"""A client of HTTP/2 that does what no library does: leaves messages unfinished, and takes no answers."""

import asyncio
from collections.abc import Mapping
from types import TracebackType

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RESET, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
END_STREAM, ACK, END_HEADERS = 1, 1, 4
INITIAL_WINDOW = 4
LARGEST_FRAME = 16_384
SERVICE = "/inference.GRPCInferenceService/"


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """A frame as it is sent."""
    return b"%b%c%c%b%b" % (len(payload).to_bytes(3, "big"), kind, flags, stream.to_bytes(4, "big"), payload)


def headers_block(fields: Mapping[str, str]) -> bytes:
    """Literal fields that nobody needs to remember."""
    return b"".join(b"\0%c%b%c%b" % (len(n), n.encode(), len(v), v.encode()) for n, v in fields.items())


class Call:
    """A call, what came of its answer (`headers` as they were packed), and whether it has ended."""

    def __init__(self, connection: "Http2", number: int) -> None:
        self._connection, self._number = connection, number
        self.window = connection.initial_window
        self.headers = self.data = b""
        self.sent_bytes = 0
        self.ended = asyncio.Event()

    async def send(self, data: bytes, *, last: bool = False) -> None:
        """Send all of it, as fast as the server takes it, or until the call has ended."""
        view = memoryview(data)
        while view and not self.ended.is_set():
            size = min(len(view), LARGEST_FRAME, self.window, self._connection.window)
            if size <= 0:
                await self._connection.changed()
                continue
            self.window -= size
            self._connection.window -= size
            await self._connection.send(
                frame(DATA, END_STREAM * (last and size == len(view)), self._number, view[:size])
            )
            self.sent_bytes += size
            view = view[size:]


class Http2:
    """A connection, which acknowledges what it must; what it is sent it takes up to the first window alone."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.calls: dict[int, Call] = {}
        self.initial_window = self.window = 65_535
        self.closed = asyncio.Event()
        self._change = asyncio.Event()
        self._next = 1

    @classmethod
    async def connect(cls, address: str) -> "Http2":
        """Open one to HOST:PORT, and agree on settings."""
        host, _, port = address.rpartition(":")
        connection = cls(*await asyncio.open_connection(host, int(port)))
        await connection.send(PREFACE + frame(SETTINGS, 0, 0, b""))
        connection._task = asyncio.create_task(connection._read())
        await connection.changed()
        return connection

    async def call(self, method: str, message_bytes: int = 0, metadata: Mapping[str, str] | None = None) -> Call:
        """Begin a call whose message will have `message_bytes`; none of them are sent yet."""
        call = self.calls[self._next] = Call(self, self._next)
        fields = {
            ":method": "POST",
            ":scheme": "http",
            ":path": method if "/" in method else SERVICE + method,
            ":authority": "x",
            "te": "trailers",
        }
        fields |= {"content-type": "application/grpc", **(metadata or {})}
        await self.send(frame(HEADERS, END_HEADERS, self._next, headers_block(fields)))
        self._next += 2
        await call.send(b"\0" + message_bytes.to_bytes(4, "big"))
        return call

    async def send(self, data: bytes) -> None:
        """As it is."""
        self._writer.write(data)
        await self._writer.drain()

    async def changed(self) -> None:
        """Wait for the next frame, or the end."""
        self._change.clear()
        await self._change.wait()

    async def _read(self) -> None:
        try:
            while True:
                head = await self._reader.readexactly(9)
                payload = await self._reader.readexactly(int.from_bytes(head[:3], "big"))
                await self._take(head[3], head[4], int.from_bytes(head[5:], "big"), payload)
                self._change.set()
        except (asyncio.IncompleteReadError, ConnectionError):
            for call in self.calls.values():
                call.ended.set()
            self.closed.set()
            self._change.set()

    async def _take(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        call = self.calls.get(stream)
        if kind == SETTINGS and not flags & ACK:
            for at in range(0, len(payload), 6):
                if int.from_bytes(payload[at : at + 2], "big") == INITIAL_WINDOW:
                    self.initial_window = int.from_bytes(payload[at + 2 : at + 6], "big")
            await self.send(frame(SETTINGS, ACK, 0, b""))
        elif kind == PING and not flags & ACK:
            await self.send(frame(PING, ACK, 0, payload))
        elif kind == WINDOW_UPDATE and stream == 0:
            self.window += int.from_bytes(payload, "big")
        elif call is not None:
            if kind == WINDOW_UPDATE:
                call.window += int.from_bytes(payload, "big")
            elif kind == HEADERS:
                call.headers += payload
            elif kind == DATA:
                call.data += payload
            if kind == RESET or (kind in (DATA, HEADERS) and flags & END_STREAM):
                call.ended.set()

    async def __aenter__(self) -> "Http2":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.close()
        await self.closed.wait()
        await self._task
