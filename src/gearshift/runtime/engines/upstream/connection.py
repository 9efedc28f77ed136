"""A connection to an endpoint, and the answers that are read from it."""

import asyncio
from contextlib import suppress
from typing import Any, Protocol, cast

import httptools

from gearshift.errors import printable
from gearshift.runtime.engines.upstream.call import Call, Calls, Fault
from gearshift.runtime.engines.upstream.server_sent import EventTooLarge, ServerSentEvents
from gearshift.runtime.remote.masking import Mask
from gearshift.support.http import asked_pause_s

LARGEST_ERROR_BYTES = 64 << 10
LARGEST_HEAD_BYTES = 64 << 10
"""Of what is no body: status lines, headers, trailers, whatever stands between two parts of a body."""
STEP_BYTES = 64 << 10
"""Read in one step; what came with it waits until others had their turn."""
SAID_CHARACTERS = 200
"""The most characters of an endpoint's error that go into the log."""
EVENT_STREAM, DONE = b"text/event-stream", b"[DONE]"
PLAIN = "", "identity"
NO_KEY = 401, 403
NO_STREAM = "where a stream of events was asked for"


class Owner(Calls, Protocol):
    """The link that has the connection."""

    url: str
    mask: Mask
    heard_s: float
    resting: dict["UpstreamConnection", float]
    """Connections whose answer is over but for its last bytes, and since when."""

    def keep(self, connection: "UpstreamConnection") -> None: ...

    def forget(self, connection: "UpstreamConnection") -> None: ...

    def send_anew(self, call: Call) -> None:
        """Send the request over a new connection."""
        ...


class SecondAnswer(Exception):
    """An endpoint gave more than one answer to a request."""


class UpstreamConnection(asyncio.Protocol):
    """One connection, which has one request at a time; httptools calls its `on_` methods."""

    __slots__ = (
        "_bare_bytes", "_body", "_call", "_content_type", "_done", "_encoding", "_events", "_fresh", "_keeps",
        "_later", "_length", "_link", "_parser", "_retry_after", "_status", "_whole", "transport",
    )  # fmt: skip

    def __init__(self, link: Owner) -> None:
        self._link = link
        self.transport: asyncio.Transport
        self._parser: Any = None
        self._call: Call | None = None
        self._events: ServerSentEvents | None = None
        self._body, self._status, self._retry_after = bytearray(), 0, ""
        self._whole = self._done = False
        self._content_type, self._encoding = "", ""
        self._bare_bytes = 0
        """Bytes since the last part of a body."""
        self._later = b""
        """What has come and is not read yet."""
        self._keeps, self._fresh = False, True
        """Whether it has answered no request yet."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def send(self, call: Call) -> None:
        self._call, self._parser = call, httptools.HttpResponseParser(self)
        self._events, self._body, self._status, self._retry_after = None, bytearray(), 0, ""
        self._whole = self._done = False
        self._content_type, self._encoding, self._bare_bytes = "", "", 0
        call.sent_by(self)
        call.heard_s = self._link.now_s()
        for part in call.message:  # joined, a large body would be there twice
            self.transport.write(part)
        if call.paused:
            self.transport.pause_reading()

    def pause(self) -> None:
        self.transport.pause_reading()

    def resume(self) -> None:
        if not self._later:
            self.transport.resume_reading()

    def drop(self) -> None:
        self._call = None
        self._link.forget(self)
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._later:
            self._later += data
            return
        if len(data) > STEP_BYTES:
            data, self._later = data[:STEP_BYTES], data[STEP_BYTES:]
            self.transport.pause_reading()
            asyncio.get_running_loop().call_soon(self._go_on)
        self._take(data)

    def _go_on(self) -> None:
        """Read the next step of what has come."""
        data, self._later = self._later[:STEP_BYTES], self._later[STEP_BYTES:]
        if self.transport.is_closing():
            self._later = b""
            return
        self._take(data)
        if self._later:
            asyncio.get_running_loop().call_soon(self._go_on)
        elif not self.transport.is_closing() and (self._call is None or not self._call.paused):
            self.transport.resume_reading()

    def _take(self, data: bytes) -> None:
        call = self._call
        if call is None:
            self._after_the_end(data)
            return
        self._link.heard_s = self._link.now_s()
        self._bare_bytes += len(data)
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
        elif len(self._body) >= LARGEST_ERROR_BYTES:
            self._end(keep=False)
        elif self._bare_bytes > LARGEST_HEAD_BYTES:
            where = "head" if self._status < 200 else "trailer"
            self._fail(Fault(f"{self._link.url} gave an answer whose {where} has more than {LARGEST_HEAD_BYTES} bytes"))

    def _after_the_end(self, data: bytes) -> None:
        """The last bytes of an answer whose `[DONE]` came, or bytes that nobody asked for."""
        self._bare_bytes += len(data)
        if self in self._link.resting and self._bare_bytes <= LARGEST_HEAD_BYTES:
            with suppress(httptools.HttpParserError):
                self._parser.feed_data(data)
                if not self._whole:
                    return
                self._link.forget(self)
                if self._keeps and not self._later:
                    self._fresh = False
                    self._link.keep(self)
                    return
        self._link.forget(self)
        self.transport.abort()

    def _rest(self) -> None:
        """The answer is over; the connection is kept once its message has ended."""
        call, _ = self._let_go()
        if call.paused and not self._later:
            self.transport.resume_reading()
        self._link.resting[self] = self._link.now_s()
        call.listener.ended()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._later:
            last, self._later = self._later, b""
            self._take(last)
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
        if self._status >= 200:  # a trailer
            return
        name = name.lower()
        if name == b"content-type":
            self._content_type = self._link.mask(value)[:SAID_CHARACTERS].decode("latin-1")
            if value[: len(EVENT_STREAM)].lower() == EVENT_STREAM:
                self._events = ServerSentEvents()
        elif name == b"content-encoding":
            self._encoding = self._link.mask(value)[:SAID_CHARACTERS].decode("latin-1").lower()
        elif name in (b"content-length", b"transfer-encoding"):
            self._length = value.decode("latin-1")
        elif name == b"retry-after":
            self._retry_after = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self._status, self._keeps = self._parser.get_status_code(), self._parser.should_keep_alive()
        if self._status != 200 or self._encoding not in PLAIN:
            self._events = None
        if self._call is not None:
            self._call.message = ()  # it is not sent again

    def on_body(self, part: bytes) -> None:
        call = self._call
        if call is None:
            return
        self._bare_bytes = 0
        if self._events is None:
            self._body += part[: LARGEST_ERROR_BYTES - len(self._body)]
            return
        for data in self._events.feed(part):
            if self._done:  # what follows is no part of the answer
                return
            if data[: len(DONE)] == DONE:  # some add blanks
                self._done, data = True, DONE
            call.listener.event(data)
            if self._call is not call:  # the listener has cancelled it
                return

    def on_message_complete(self) -> None:
        self._whole = self._status >= 200

    # Its end -------------------------------------------------------------------------------------

    def _end(self, *, keep: bool) -> None:
        call, is_stream = self._let_go()
        if call.paused and not self._later:
            self.transport.resume_reading()
        if keep and not self._later:
            self._fresh = False
            self._link.keep(self)
        else:
            self.transport.abort()
        if is_stream:
            call.listener.ended()
            return
        fault = Fault(self._why_no_stream(), self._status, bytes(self._body), asked_pause_s(self._retry_after))
        call.listener.failed(fault)

    def _why_no_stream(self) -> str:
        """The sentence for the log, with the words of an error; answers are not quoted."""
        url, kind = self._link.url, printable(self._content_type) or "no content type"
        if self._status == 200 and self._encoding not in PLAIN:
            return f"{url} answered in {self._encoding!r}, which it was not asked for; let it answer uncompressed"
        begin = self._link.mask(bytes(self._body))[: 4 * SAID_CHARACTERS]  # a key that is cut in two would not be found
        said = " ".join(begin.decode(errors="replace").split())[:SAID_CHARACTERS]
        told = f": {printable(said)}" if said and (self._status != 200 or kind.startswith("text/")) else ""
        if self._status == 200:
            return f"{url} answered with {kind}, {NO_STREAM}{told}"
        remedy = "; name the variable with its key by api_key_env" if self._status in NO_KEY else ""
        return f"{url} answered with status {self._status}{told}{remedy}"

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
