"""uvicorn's connection with bounds on heads and time, which sees clients leave."""

import asyncio
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

CONNECTION = "gearshift.connection"
HEAD_TOO_LARGE = b"431 Request Header Fields Too Large"
TOO_SLOW = b"408 Request Timeout"


class HeadTooLarge(Exception):
    """The head of a request is over the bound."""


class JoiningTransport:
    """A transport that sends what is written in one go in one go: a response's head and body leave in one packet."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._pending: list[bytes] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Send `data` with all else that is written before the loop goes on."""
        if not self._pending:
            self._loop.call_soon(self._flush)
        self._pending.append(data)

    def close(self) -> None:
        """Send what is pending, then close."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._pending:
            data = b"".join(self._pending)
            self._pending.clear()
            self._transport.write(data)


class Connection(HttpToolsProtocol):
    """uvicorn's connection, with bounds, and the cancelling of requests whose client is gone.

    `longest_read_s` is how long a client may take over one request, head and body; it runs from when the connection
    opens or from the request's first byte, and not while a complete request waits for its answer.
    """

    largest_header_bytes = 64 << 10
    longest_read_s = 60.0
    most_connections = 10_000
    on_gone: "asyncio.Task[Any] | None" = None
    gone = False
    _header_bytes = -1
    """Bytes since the current request began; -1 outside of its headers."""
    _reading = False
    """Whether a request has begun and is not complete."""
    _read_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client is there; one too many is sent away."""
        joining = JoiningTransport(cast(asyncio.Transport, transport), self.loop)
        super().connection_made(cast(asyncio.Transport, joining))
        if len(self.connections) > self.most_connections:
            self.transport.close()
        else:
            self._start_read_timer()

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        self.scope[CONNECTION] = self  # type: ignore[literal-required]
        self._header_bytes = 0
        self._reading = True

    def on_headers_complete(self) -> None:
        """Its headers are complete; raises `HeadTooLarge`, which comes back as `send_400_response`."""
        self._header_bytes = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if self._header_bytes > self.largest_header_bytes:
            raise HeadTooLarge
        self._header_bytes = -1
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Its body is complete."""
        super().on_message_complete()
        self._reading = False
        self._stop_read_timer()

    def data_received(self, data: bytes) -> None:
        """Refuse headers without end, and requests that are never complete."""
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._header_bytes >= 0:
            self._header_bytes += len(data)
            if self._header_bytes > self.largest_header_bytes:
                self._refuse(HEAD_TOO_LARGE)
                return
        if self._reading or not self._answering:
            self._start_read_timer()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP, or a head over the bound."""
        if self._header_bytes > self.largest_header_bytes:
            self._refuse(HEAD_TOO_LARGE)
        else:
            super().send_400_response(msg)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone: what it waits for is not needed any more."""
        super().connection_lost(exc)
        self._stop_read_timer()
        self.gone = True
        if self.on_gone is not None:
            self.on_gone.cancel()

    @property
    def _answering(self) -> bool:
        """Whether a complete request waits for its answer."""
        return self.cycle is not None and not self.cycle.more_body and not self.cycle.response_complete

    def _start_read_timer(self) -> None:
        if self._read_timer is None:
            self._read_timer = self.loop.call_later(self.longest_read_s, self._read_too_long)

    def _stop_read_timer(self) -> None:
        if self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None

    def _read_too_long(self) -> None:
        self._read_timer = None
        if self.transport.is_closing():
            return
        if self._answering or self.flow.read_paused:  # it is our turn, not the client's
            self._start_read_timer()
        elif not self._reading or (self.cycle and self.cycle.response_started and not self.cycle.response_complete):
            self.transport.close()
        else:
            self._refuse(TOO_SLOW)

    def _refuse(self, status: bytes) -> None:
        self.transport.write(b"HTTP/1.1 " + status + b"\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
        self.transport.close()


def connection_class(*, largest_header_bytes: int, longest_read_s: float, most_connections: int) -> type[Connection]:
    """`Connection` with these bounds."""
    bounds = {
        "largest_header_bytes": largest_header_bytes,
        "longest_read_s": longest_read_s,
        "most_connections": most_connections,
    }
    return type("BoundedConnection", (Connection,), bounds)
