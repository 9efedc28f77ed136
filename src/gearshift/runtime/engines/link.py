"""Requests to one OpenAI-compatible endpoint, whose answers are streamed: HTTP/1.1 over kept connections.

No request costs a task, unless a connection must be opened for it. Closing its connection is how an
endpoint learns that a request is cancelled.
"""

import asyncio
import errno
import ssl
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol, cast
from urllib.parse import urlsplit

import httptools

from gearshift.runtime.engines.server_sent import EventTooLarge, ServerSentEvents
from gearshift.support.retry_after import asked_pause_s

LARGEST_ERROR_BYTES = 64 << 10
EVENT_STREAM, DONE = b"text/event-stream", b"[DONE]"
CONNECT_S = 5.0
LONGEST_REST_S = 5.0
"""For the end of an answer whose `[DONE]` has come; its connection is then given up."""
OWN_BOUNDS = errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL
"""Errors of this machine, which tell nothing of an endpoint."""
NO_MORE = "this machine can open no more connections to its engines: raise its bound on open files, or try again later"
MOST_KEPT = 256
"""Idle connections that are kept."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a request has no answer, or no whole one.

    `status` and `body` are those of an answer that is no stream; without one `status` is 0, and
    `unreachable` tells that there was no connection at all. The reason may name the endpoint,
    unless it is `for_clients`.
    """

    reason: str
    status: int = 0
    body: bytes = b""
    retry_after_s: float | None = None
    unreachable: bool = False
    for_clients: bool = False


class Listener(Protocol):
    """Receives the answer of one request; after `ended`, which may follow on `[DONE]`, or `failed` nothing more."""

    def event(self, data: bytes) -> None: ...

    def ended(self) -> None: ...

    def failed(self, fault: Fault) -> None: ...


class Call:
    """One request and where its answer goes, until it is over.

    `heard_s` is when it was sent, or its listener last said that the answer has `progressed`: bytes
    alone, such as comments, tell nothing.
    """

    __slots__ = ("_connection", "_link", "heard_s", "listener", "message", "paused")

    def __init__(self, link: "EngineLink", message: bytes, listener: Listener) -> None:
        self._link, self.message, self.listener = link, message, listener
        self._connection: UpstreamConnection | None = None
        self.paused = False
        self.heard_s = link.now_s()

    def cancel(self) -> None:
        """Close the connection; the listener hears nothing more."""
        self._link.calls.discard(self)
        if self._connection is not None:
            self._connection.drop()
            self._connection = None

    def pause(self) -> None:
        """Read nothing more, so that the endpoint has to wait, until `resume`."""
        self.paused = True
        if self._connection is not None:
            self._connection.transport.pause_reading()

    def resume(self) -> None:
        self.paused, self.heard_s = False, self._link.now_s()
        if self._connection is not None:
            self._connection.transport.resume_reading()

    def progressed(self) -> None:
        """Part of the answer has come, so that the endpoint is not silent."""
        self.heard_s = self._link.now_s()

    def sent_by(self, connection: "UpstreamConnection | None") -> None:
        self._connection = connection


class EngineLink:
    """The connections to an endpoint; `url` is the part before `/chat/completions`.

    A request whose answer makes no progress for `longest_silence_s` fails (`look`, which the owner
    calls now and then).
    """

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        longest_silence_s: float = 300.0,
        trust: ssl.SSLContext | None = None,
    ) -> None:
        parts = urlsplit(url)
        self.url, self._host = url, str(parts.hostname)
        secure = parts.scheme == "https"
        self._port = parts.port or (443 if secure else 80)
        self._tls = (trust or ssl.create_default_context()) if secure else None
        self._prefix, self._longest_silence_s = parts.path.rstrip("/"), longest_silence_s
        authority = f"[{self._host}]" if ":" in self._host else self._host
        host = authority if parts.port is None else f"{authority}:{parts.port}"
        authorization = "" if key is None else f"authorization: Bearer {key}\r\n"
        self._headers = f"host: {host}\r\n{authorization}accept: text/event-stream\r\n"
        self._loop = asyncio.get_running_loop()
        self.now_s: Callable[[], float] = self._loop.time
        self.heard_s = float("-inf")
        self.calls: set[Call] = set()
        """Those that are not over."""
        self._kept: list[UpstreamConnection] = []
        self.resting: dict[UpstreamConnection, float] = {}
        """Connections whose answer is over but for its last bytes, and since when."""
        self._opening: set[asyncio.Task[None]] = set()
        self._closed = False

    def post(self, path: str, body: bytes, listener: Listener, *, request_id: str = "") -> Call:
        """Send a JSON body to `path`, such as `/chat/completions`; nothing is heard before this returns."""
        named = f"x-request-id: {request_id}\r\n" if request_id else ""
        head = (
            f"POST {self._prefix}{path} HTTP/1.1\r\n{self._headers}{named}content-type: application/json\r\n"
            f"content-length: {len(body)}\r\n\r\n"
        )
        return self._send(Call(self, head.encode() + body, listener))

    def get(self, path: str, listener: Listener) -> Call:
        return self._send(Call(self, f"GET {self._prefix}{path} HTTP/1.1\r\n{self._headers}\r\n".encode(), listener))

    def look(self) -> None:
        """Fail the requests whose answers made no progress for too long."""
        for connection, since_s in list(self.resting.items()):
            if since_s < self.now_s() - LONGEST_REST_S:
                connection.drop()
        due_s = self.now_s() - self._longest_silence_s
        for call in [call for call in self.calls if call.heard_s < due_s and not call.paused]:
            call.cancel()
            call.listener.failed(Fault(f"{self.url} sent nothing of an answer for {self._longest_silence_s:g} s"))

    def heard_within(self, last_s: float) -> bool:
        """Whether the endpoint has sent anything in the `last_s`."""
        return self.heard_s >= self.now_s() - last_s

    def fail_all(self, fault: Fault) -> None:
        for call in list(self.calls):
            call.cancel()
            call.listener.failed(fault)

    def close(self) -> None:
        """Close all connections; requests that are not over hear nothing more."""
        self._closed = True
        for call in list(self.calls):
            call.cancel()
        for task in self._opening:
            task.cancel()
        for connection in (*self._kept, *self.resting):
            connection.transport.abort()
        self._kept.clear()
        self.resting.clear()

    def _send(self, call: Call) -> Call:
        self.calls.add(call)
        while self._kept:
            connection = self._kept.pop()
            if not connection.transport.is_closing():
                connection.send(call)
                return call
        self.send_anew(call)
        return call

    def send_anew(self, call: Call) -> None:
        """Send the request over a new connection."""
        task = self._loop.create_task(self._open(call))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    async def _open(self, call: Call) -> None:
        try:
            async with asyncio.timeout(CONNECT_S):
                _, connection = await self._loop.create_connection(
                    lambda: UpstreamConnection(self), self._host, self._port, ssl=self._tls
                )
        except Exception as error:  # noqa: BLE001  a name that cannot be encoded is no OSError
            if call in self.calls:
                self.calls.discard(call)
                if isinstance(error, OSError) and error.errno in OWN_BOUNDS:
                    call.listener.failed(Fault(f"{NO_MORE} ({error})", status=503, retry_after_s=1, for_clients=True))
                    return
                said = str(error) or f"no connection within {CONNECT_S:g} s"
                call.listener.failed(Fault(f"{self.url} cannot be reached: {said}", unreachable=True))
            return
        if call in self.calls:
            connection.send(call)
        else:
            self.keep(connection)

    def keep(self, connection: "UpstreamConnection") -> None:
        if self._closed or len(self._kept) >= MOST_KEPT:
            connection.transport.abort()
        else:
            self._kept.append(connection)

    def forget(self, connection: "UpstreamConnection") -> None:
        self.resting.pop(connection, None)
        if connection in self._kept:
            self._kept.remove(connection)


class SecondAnswer(Exception):
    """An endpoint gave more than one answer to a request."""


class UpstreamConnection(asyncio.Protocol):
    """One connection, which has one request at a time; httptools calls its `on_` methods."""

    __slots__ = (
        "_body", "_call", "_done", "_events", "_fresh", "_keeps", "_length", "_link", "_parser", "_retry_after",
        "_status", "_whole", "transport",
    )  # fmt: skip

    def __init__(self, link: EngineLink) -> None:
        self._link = link
        self.transport: asyncio.Transport
        self._parser: Any = None
        self._call: Call | None = None
        self._events: ServerSentEvents | None = None
        self._body, self._status, self._retry_after, self._whole, self._done = b"", 0, "", False, False
        self._keeps, self._fresh = False, True
        """Whether it has answered no request yet."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def send(self, call: Call) -> None:
        self._call, self._parser = call, httptools.HttpResponseParser(self)
        self._events, self._body, self._status, self._retry_after = None, b"", 0, ""
        self._whole = self._done = False
        call.sent_by(self)
        call.heard_s = self._link.now_s()
        self.transport.write(call.message)
        if call.paused:
            self.transport.pause_reading()

    def drop(self) -> None:
        self._call = None
        self._link.forget(self)
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        call = self._call
        if call is None:
            self._after_the_end(data)
            return
        self._link.heard_s = self._link.now_s()
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, EventTooLarge) as error:
            if self._call is None:
                self._link.forget(self)
                self.transport.abort()
                return
            if self._whole or self._done:  # what follows is no part of the answer
                self._end(keep=False)
                return
            why = error.__context__ if isinstance(error.__context__, EventTooLarge) else error
            self._fail(Fault(f"{self._link.url} gave an answer that cannot be read: {why or type(why).__name__}"))
            return
        if self._call is not call:  # the listener has cancelled it
            return
        if self._whole:
            self._end(keep=self._keeps)
        elif self._done:
            self._rest()

    def _after_the_end(self, data: bytes) -> None:
        """The last bytes of an answer whose `[DONE]` came, or bytes that nobody asked for."""
        if self in self._link.resting:
            with suppress(httptools.HttpParserError):
                self._parser.feed_data(data)
                if not self._whole:
                    return
                self._link.forget(self)
                if self._keeps:
                    self._fresh = False
                    self._link.keep(self)
                    return
        self._link.forget(self)
        self.transport.abort()

    def _rest(self) -> None:
        """The answer is over; the connection is kept once its message has ended."""
        call, _ = self._let_go()
        if call.paused:
            self.transport.resume_reading()
        self._link.resting[self] = self._link.now_s()
        call.listener.ended()

    def connection_lost(self, exc: Exception | None) -> None:
        self._link.forget(self)
        call = self._call
        if call is None:
            return
        if self._status == 0 and not self._fresh:  # it was closed while idle
            self._call = None
            call.sent_by(None)
            self._link.send_anew(call)
        elif self._status >= 200 and self._closes_the_body():
            self._end(keep=False)
        else:
            self._fail(Fault(f"{self._link.url} closed the connection before its answer was whole"))

    def _closes_the_body(self) -> bool:
        """Whether the answer has neither length nor chunks, so that it ends with the connection."""
        return self._length is None

    # Of httptools --------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self._whole:
            raise SecondAnswer
        self._length: str | None = None

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if name == b"content-type":
            if value[: len(EVENT_STREAM)].lower() == EVENT_STREAM:
                self._events = ServerSentEvents()
        elif name in (b"content-length", b"transfer-encoding"):
            self._length = value.decode("latin-1")
        elif name == b"retry-after":
            self._retry_after = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self._status, self._keeps = self._parser.get_status_code(), self._parser.should_keep_alive()
        if self._status != 200:
            self._events = None
        if self._call is not None:
            self._call.message = b""  # it is not sent again

    def on_body(self, part: bytes) -> None:
        call = self._call
        if call is None:
            return
        if self._events is None:
            if len(self._body) + len(part) <= LARGEST_ERROR_BYTES:
                self._body += part
            return
        for data in self._events.feed(part):
            if self._done:  # what follows is no part of the answer
                return
            self._done = data == DONE
            call.listener.event(data)
            if self._call is not call:  # the listener has cancelled it
                return

    def on_message_complete(self) -> None:
        self._whole = self._status >= 200

    # Its end -------------------------------------------------------------------------------------

    def _end(self, *, keep: bool) -> None:
        call, is_stream = self._let_go()
        if call.paused:
            self.transport.resume_reading()
        if keep:
            self._fresh = False
            self._link.keep(self)
        else:
            self.transport.abort()
        if is_stream:
            call.listener.ended()
            return
        reason = f"{self._link.url} answered with status {self._status}"
        call.listener.failed(Fault(reason, self._status, self._body, asked_pause_s(self._retry_after)))

    def _fail(self, fault: Fault) -> None:
        call, _ = self._let_go()
        self.transport.abort()
        call.listener.failed(fault)

    def _let_go(self) -> tuple[Call, bool]:
        call = cast(Call, self._call)
        self._call = None
        self._link.calls.discard(call)
        call.sent_by(None)
        return call, self._events is not None
