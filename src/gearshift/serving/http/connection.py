"""One HTTP/1.1 connection: parses requests and answers them in order.

    bytes -> httptools -> HttpExchange -> handler.begun (head) -> handler.completed (body) -> respond -> bytes

A request that arrives in one piece is complete when it begins.  A request whose head equals the
previous one is not parsed again (`KnownHead`).

No request costs a task, a future or a timer.  Requests that arrive while another is being answered
wait in order, and reading pauses: at most `STEP_BYTES` are held beyond the end of a body.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from typing import Any, cast

import httptools

from gearshift.runtime.service.room import Client
from gearshift.serving.door.origins import HOST, host_name
from gearshift.serving.http.connections import STEP_BYTES, Connections
from gearshift.serving.http.http_exchange import (
    CLOSE,
    CONNECTION,
    KEEP_ALIVE,
    TRANSFER_ENCODING,
    HttpExchange,
    announced_length,
)
from gearshift.serving.http.known_request import EXPECT, HEAD_END, METHOD, KnownHead
from gearshift.serving.http.routes import STILL_ANSWERED
from gearshift.v2 import json as v2_json
from gearshift.v2.packing import Buffer

LINGER_S, LINGER_BYTES = 2.0, 16 << 20
"""After its last answer the server reads from a client for this time and this many bytes."""
LEAST_TAKEN_BYTES_PER_S = 8 << 10
"""For an answer larger than the system's buffer.  A client that reads more slowly over
`keep_alive_s` is disconnected."""
FULL = ((b"retry-after", b"1"), CLOSE)
NEVER = float("inf")
UPGRADE = b"upgrade"
VERSIONS = "1.1", "1.0"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
MOST_HEADS_IN_VAIN = 8
"""After this many heads that differ from the previous one, the connection stops keeping heads."""
LONGEST_LIST_BYTES = 8 << 10
"""Bound on the joined values of a header that is given several times."""
MOST_HEADERS = 100
MOST_CHUNKS, LEAST_CHUNK_BYTES = 16_384, 64
"""Chunks allowed, plus one per `LEAST_CHUNK_BYTES`: a chunk costs far more than its bytes."""
HEAD_TOO_LARGE = "the head of the request is larger than is taken"
TOO_MANY_CHUNKS = "the body comes in too many small chunks; send larger ones"
TOO_SLOW = "the request was not complete in time"

log = logging.getLogger(__name__)


class HeadTooLarge(Exception):
    """The head of a request exceeds a bound."""


class TooManyChunks(Exception):
    """A body has too many small chunks."""


class NotTaken(Exception):
    """The request is HTTP, but in a form that this server does not support."""


class Connection(asyncio.BufferedProtocol):
    """The asyncio protocol of one client; httptools calls its `on_` methods."""

    def __init__(self, connections: Connections) -> None:
        self._all, self._handler = connections, connections.handler
        self._loop = asyncio.get_running_loop()
        self.held = Client()
        self._parser: Any = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport
        self._url, self._headers, self._head_bytes, self._more_lines = b"", dict[bytes, bytes](), 0, 0
        """The head being read; `_more_lines` counts repeated headers and trailers."""
        self._body_bytes, self._body_parts, self._unmeasured_bytes = 0, 0, 0
        """Counts for the body being read; `_unmeasured_bytes` are not yet reported to the handler.
        """
        self._exchange: HttpExchange | None = None
        """The request being read or answered."""
        self._arriving: HttpExchange | None = None
        """The request whose body the parser reads: the current one, or the last that waits."""
        self._waiting: deque[HttpExchange] = deque()
        self._unread: bytes | memoryview = b""
        self._unread_at = 0
        self._feeding = self._progress = False
        self._deaf = self._reading_paused = self._writing_paused = False
        """`_deaf`: ignore all further input from this client."""
        self._idle = self._lingering = False
        self._reserve = self._known = False
        """`_reserve`: beyond the bound on connections.  `_known`: the client has shown a key."""
        self._completed: HttpExchange | None = None
        """The last request that the parser completed in the current input."""
        self._known_head: KnownHead | None = None
        self._heads_left = MOST_HEADS_IN_VAIN
        self._request_left = 0
        """Bytes that the parser needs to end a request; -1: unknown.  At 0 a known head can skip
        it."""
        self._forgotten_bytes = 0
        """Bytes read and ignored since the last answer."""
        self._turn_began_s, self._due = 0.0, NEVER
        """When the client's turn began, and when it times out; `NEVER` while it is the server's
        turn."""
        self._unheard_bytes = 0
        """Bytes of a head, of trailers or of chunk extensions since the last progress."""
        self._timer: asyncio.TimerHandle | None = None
        self._unsent_bytes, self._unsent_since = 0, 0.0
        """Unsent bytes, and the time, when the client last read its answers fast enough."""

    @property
    def address(self) -> str | None:
        name = self._transport.get_extra_info("peername")
        return name[0] if isinstance(name, tuple) else None

    @property
    def ending(self) -> bool:
        return self._all.ending

    @property
    def waited_for_since_s(self) -> float | None:
        """When the client's turn began; None while its complete request waits for an answer."""
        exchange = self._exchange
        waits = exchange is not None and exchange.complete and not exchange.answered
        return None if waits else self._turn_began_s

    def vouch(self) -> None:
        if not self._known:
            self._known = True
            self._all.seats.vouch(self)

    # The socket ----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take a seat: the reserve answers few paths, and beyond it connections are aborted."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's has the same methods
        self._transport.set_write_buffer_limits(STEP_BYTES)
        seat = self._all.add(self, self.address)
        if seat == "none":
            self.abort()
            return
        self._reserve = seat == "reserve"
        self._idle = True
        self._turn_began_s = self._loop.time()
        self._due = self._turn_began_s + min(self._all.first_byte_s, self._all.longest_read_s)
        self._look_again()

    def connection_lost(self, exc: Exception | None) -> None:
        self._all.remove(self)
        self._deaf = True
        if self._timer is not None:
            self._timer.cancel()
        if self._exchange is not None:
            self._exchange.leave()
        for exchange in self._waiting:
            exchange.leave()
        self._exchange = self._arriving = self._parser = None
        self._waiting.clear()

    def eof_received(self) -> bool:
        """Treat a client that stops sending as gone; half-closed connections are not supported."""
        return False

    def pause_writing(self) -> None:
        self._writing_paused = True
        self._set_reading()
        self._unsent_bytes, self._unsent_since = self._transport.get_write_buffer_size(), self._loop.time()
        self._all.keep_unsent(self, self._unsent_bytes)

    def resume_writing(self) -> None:
        self._writing_paused = False
        self._all.keep_unsent(self, 0)
        self._go_on()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where to read to: at most a step beyond the known rest of a body."""
        return self._all.step if self._arriving is None else self._all.buffer[: max(STEP_BYTES, self._body_left())]

    def buffer_updated(self, nbytes: int) -> None:
        self.data_received(self._all.buffer[:nbytes])

    def data_received(self, data: bytes | memoryview) -> None:
        """Parse the input, at once if nothing waits before it; the caller may reuse `data`."""
        if self._lingering:
            self._forgotten_bytes += len(data)
            if self._forgotten_bytes > LINGER_BYTES:
                self._close()
        if self._deaf:
            return
        if self._unread or self._waiting:
            self._unread, self._unread_at = bytes(self._unread[self._unread_at :]) + data, 0
            self._go_on()
        elif self._request_left == 0 and self._exchange is None and self._take_known(data):
            return
        elif len(data) <= STEP_BYTES or len(data) <= self._body_left():
            self._feed(data)
            if self._waiting:
                self._set_reading()
        else:
            self._unread, self._unread_at = data, 0
            self._go_on()
            if self._unread:
                self._unread, self._unread_at = bytes(self._unread[self._unread_at :]), 0

    def end(self) -> None:
        """Close if idle; otherwise `Connections.ending` closes after the answer."""
        if self._exchange is None:
            self._close()

    def abort(self) -> None:
        self._transport.abort()

    def _close(self) -> None:
        self._deaf, self._unread, self._due = True, b"", NEVER
        for exchange in self._waiting:
            exchange.leave()
        self._waiting.clear()
        self._transport.close()

    def _linger(self) -> None:
        """Close once the client has had time to read its last answer (RFC 9112, section 9.6).

        Closing at once would reset the connection of a client that is still sending, and lose the
        answer; its input is ignored for a while instead.
        """
        if self._lingering:
            return
        self._lingering = True
        if self._transport.can_write_eof():  # TLS cannot half close
            self._transport.write_eof()
        self._loop.call_later(LINGER_S, self._close)

    def _go_on(self) -> None:
        """Handle waiting requests and input, unless a caller up the stack does so already."""
        if self._feeding:
            return
        self._feeding = True
        while not self._writing_paused:
            if self._exchange is None and self._waiting:
                self._begin(self._waiting.popleft())
            elif self._unread and not self._waiting and not self._deaf:
                self._feed(self._step())
            else:
                break
        self._feeding = False
        self._set_reading()

    def _body_left(self) -> int:
        exchange = self._arriving
        return 0 if exchange is None else (announced_length(exchange.headers) or 0) - self._body_bytes

    def _step(self) -> memoryview:
        step_bytes = max(STEP_BYTES, self._body_left())
        step = memoryview(self._unread)[self._unread_at : self._unread_at + step_bytes]
        self._unread_at += len(step)
        if self._unread_at == len(self._unread):
            self._unread, self._unread_at = b"", 0
        return step

    def _set_reading(self) -> None:
        pause = bool(self._waiting or self._unread or self._writing_paused)
        if pause == self._reading_paused or self._transport.is_closing():
            return
        self._reading_paused = pause
        if pause:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    # The parser ----------------------------------------------------------------------------------

    def _take_known(self, data: bytes | memoryview) -> bool:
        """Begin the request in `data` if it is complete and has the head of the previous one."""
        known = self._known_head
        request = None if known is None or self._writing_paused else known.read(bytes(data))
        if known is None or request is None:
            return False
        headers, body = request
        exchange = HttpExchange(self, METHOD, known.path, headers, not self._reserve)
        exchange.parts.append(body)
        exchange.complete, exchange.known_head = True, known
        self._heads_left, self._unheard_bytes = MOST_HEADS_IN_VAIN, 0
        feeding, self._feeding = self._feeding, True
        self._arriving = exchange
        try:
            self._begin(exchange)
            self._arriving = None
        except Exception as fault:  # noqa: BLE001  as for one begun within the parser
            self._fault(fault)
        self._feeding = feeding
        return True

    def _feed(self, data: bytes | memoryview) -> None:
        feeding, self._feeding = self._feeding, True
        self._progress = False
        left, self._request_left = self._request_left, -1
        offered_at = None
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            offered_at = upgrade.args[0]
        except httptools.HttpParserError as error:
            self._not_http(error)
        if offered_at is not None:
            self._pass_over_upgrade(bytes(data)[offered_at:])
            self._feeding, self._completed = feeding, None
            return  # the nested call has counted it
        completed, self._completed = self._completed, None
        self._request_left = request_left(left, data, completed or self._arriving)
        if left == self._request_left == 0 and completed is not None and self._heads_left and not completed.answered:
            self._heads_left -= 1
            self._known_head = KnownHead.of(bytes(data), completed.path, completed.headers)
        if self._unmeasured_bytes and self._arriving is not None:
            self._measure(self._arriving)
        exchange = self._arriving
        if exchange is not None and exchange is self._exchange and not exchange.begun and not self._unread:
            try:
                self._begin(exchange)  # the rest of its body has yet to arrive
            except Exception as fault:  # noqa: BLE001  as for one begun within the parser
                self._fault(fault)
        self._feeding = feeding
        self._unheard_bytes = 0 if self._progress else self._unheard_bytes + len(data)
        if self._unheard_bytes > self._all.largest_header_bytes and not self._deaf:
            self._refuse(431, HEAD_TOO_LARGE)
        if self._idle and (self._unheard_bytes or self._url or self._exchange is not None):
            self._idle, self._due = False, self._loop.time() + self._all.longest_read_s

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; after a body, a trailer, which is ignored."""
        headers = self._headers
        if self._arriving is None:
            self._head_bytes += len(name) + len(value) + 4
            name, value = name.lower(), value.strip(b" \t")
            if name in headers:  # a list, so that two codings or deadlines are refused
                value = headers[name] + b", " + value
                self._more_lines += 1
                if len(value) > LONGEST_LIST_BYTES:
                    raise HeadTooLarge
            headers[name] = value
        else:
            self._more_lines += 1
        if len(headers) + self._more_lines > MOST_HEADERS:
            raise HeadTooLarge

    def on_headers_complete(self) -> None:
        self._progress = True
        url, headers, parser = self._url, self._headers, self._parser
        if self._deaf:
            return
        if self._head_bytes + len(url) > self._all.largest_header_bytes:
            raise HeadTooLarge
        method = parser.get_method()
        if method == b"CONNECT":
            raise NotTaken("CONNECT is for proxies")
        version = parser.get_http_version()
        if version not in VERSIONS:
            raise NotTaken(f"HTTP/{version} in the form of HTTP/1")
        if HOST in headers:
            if host_name(headers[HOST]) is None:  # several are joined into a list
                raise NotTaken("its Host is none")
        elif version != "1.0":
            raise NotTaken("it has no Host")
        if UPGRADE in headers and parser.should_upgrade():
            return
        if TRANSFER_ENCODING in headers and headers[TRANSFER_ENCODING].strip().lower() != b"chunked":
            raise NotTaken("of transfer codings only chunked is taken")
        keep_alive = parser.should_keep_alive()
        if version == "1.0":  # HTTP/1.0 has neither chunks nor Expect
            asked = headers.get(CONNECTION, b"").lower()
            asks_to_keep = KEEP_ALIVE in asked and CLOSE[1] not in asked
            keep_alive = keep_alive and asks_to_keep and TRANSFER_ENCODING not in headers
            headers.pop(EXPECT, None)
        exchange = HttpExchange(self, method.decode(), _path(url, headers), headers, keep_alive and not self._reserve)
        self._url, self._headers, self._head_bytes, self._more_lines = b"", {}, 0, 0
        self._body_bytes = self._body_parts = 0
        self._arriving = exchange
        if self._exchange is None and not self._waiting and not self._writing_paused:
            self._exchange = exchange  # begins once all input that came with its head is parsed
        else:
            self._waiting.append(exchange)

    def on_body(self, part: bytes) -> None:
        self._progress = True
        exchange = self._arriving
        if exchange is None:
            return
        self._body_bytes += len(part)
        self._body_parts += 1
        if self._body_parts > MOST_CHUNKS and TRANSFER_ENCODING in exchange.headers:
            self._require_few_chunks()
        if exchange.answered:
            if self._body_bytes > LINGER_BYTES:
                self._close()
            return
        exchange.add_part(part)
        if exchange.measure is not None:
            self._unmeasured_bytes += len(part)

    def _require_few_chunks(self) -> None:
        if self._body_parts > MOST_CHUNKS + self._body_bytes // LEAST_CHUNK_BYTES:
            raise TooManyChunks

    def _measure(self, exchange: HttpExchange) -> None:
        part_bytes, self._unmeasured_bytes = self._unmeasured_bytes, 0
        if part_bytes and exchange.measure is not None:
            self._handler.measured(exchange, part_bytes)

    def on_message_complete(self) -> None:
        self._progress = True
        exchange = self._completed = self._arriving
        if exchange is None:
            return
        exchange.complete = True
        if exchange is self._exchange and not exchange.begun:
            self._begin(exchange)
            self._arriving = None  # after `_begin`: a fault in there belongs to this request
            return
        self._arriving = None
        if exchange is not self._exchange:
            return
        self._due, self._idle = NEVER, False
        was_answered = exchange.answered
        if self._unmeasured_bytes:
            self._measure(exchange)
        if was_answered:
            self._ended(exchange)
        elif not exchange.answered:
            self._handler.completed(exchange)

    def _pass_over_upgrade(self, rest: bytes) -> None:
        """Ignore an offered protocol: parse the head without it, then `rest` as HTTP."""
        first = b"%b %b HTTP/%b\r\n" % (
            self._parser.get_method(), self._url, self._parser.get_http_version().encode(),
        )  # fmt: skip
        others = [b"%b: %b\r\n" % pair for pair in self._headers.items() if pair[0] != UPGRADE]
        self._parser = httptools.HttpRequestParser(self)
        self._url, self._headers, self._head_bytes, self._more_lines = b"", {}, 0, 0
        self._feed(b"".join([first, *others, b"\r\n"]))
        if rest and not self._deaf:
            self._feed(rest)

    # Requests in turn ----------------------------------------------------------------------------

    def _begin(self, exchange: HttpExchange) -> None:
        self._exchange, exchange.begun = exchange, True
        if exchange.complete:
            self._due, self._idle = NEVER, False
        elif self._idle:  # its head came after another request
            self._due, self._idle = self._loop.time() + self._all.longest_read_s, False
        if exchange.refusal is not None:
            status, text = exchange.refusal
            exchange.respond(status, v2_json.encode_error(text))
            return
        if self._reserve and exchange.path not in STILL_ANSWERED:
            full = f"{self._all.most_connections} connections wait for answers, as many as may be open; try again later"
            exchange.respond(503, v2_json.encode_error(full), extra=FULL)
            return
        self._handler.begun(exchange)
        if exchange.measure is not None and exchange.parts:
            self._handler.measured(exchange, sum(len(part) for part in exchange.parts))
        if exchange.answered:
            return
        if exchange.complete:
            self._handler.completed(exchange)
        elif EXPECT in exchange.headers and not exchange.parts:
            self.let_in(exchange)

    def let_in(self, exchange: HttpExchange) -> None:
        if not exchange.complete:
            self._transport.write(CONTINUE)

    def answered(self, exchange: HttpExchange, parts: Sequence[Buffer], *, last: bool) -> None:
        if len(parts) == 1:
            self._transport.write(parts[0])
        else:
            self._transport.writelines(parts)
        exchange.parts.clear()
        if last:
            exchange.keep_alive = False
        if exchange.complete:
            self._ended(exchange)
        elif last:
            self._linger()

    def _ended(self, exchange: HttpExchange) -> None:
        self._exchange = None
        if exchange.refusal is not None:
            self._linger()
            return
        if not exchange.keep_alive:
            self._close()
            return
        self._idle = not self._url  # part of the next head may have arrived
        self._turn_began_s = self._loop.time()
        self._due = self._turn_began_s + (self._all.keep_alive_s if self._idle else self._all.longest_read_s)
        if self._waiting or self._unread:
            self._go_on()

    # Refusals ------------------------------------------------------------------------------------

    def _not_http(self, error: Exception) -> None:
        """Refuse malformed or unsupported input, or ignore it after the last request."""
        last = self._waiting[-1] if self._waiting else self._exchange
        if self._deaf or (self._arriving is None and last is not None and not last.keep_alive):
            self._deaf = True
            return
        why = error.__context__
        if isinstance(why, HeadTooLarge):
            self._refuse(431, HEAD_TOO_LARGE)
        elif isinstance(why, TooManyChunks):
            self._refuse(413, TOO_MANY_CHUNKS)
        elif why is None or isinstance(why, NotTaken):
            log.warning("a client sent no HTTP request that is taken: %s", why or error)
            self._refuse(400, f"this is no HTTP request that is taken: {why or error}")
        else:
            self._fault(why)

    def _fault(self, fault: BaseException) -> None:
        log.error("fault while a request was begun", exc_info=fault)
        self._refuse(500, "an internal error; the server's log explains it")

    def _refuse(self, status: int, text: str) -> None:
        """Answer the arriving request with an error in its turn, ignore later input, close."""
        refused = self._arriving or HttpExchange(self, "", "", {}, False)
        self._arriving, self._deaf, self._unread, self._due = None, True, b"", NEVER
        refused.complete, refused.keep_alive, refused.refusal = True, False, (status, text)
        if refused is self._exchange and refused.answered:
            self._linger()
        elif refused is self._exchange or (self._exchange is None and not self._waiting):
            self._begin(refused)
        elif refused not in self._waiting:
            self._waiting.append(refused)

    # Time ----------------------------------------------------------------------------------------

    def _look_again(self) -> None:
        """Set the timer to the shorter bound at most: nothing that begins later is due earlier."""
        shortest_s = min(self._all.longest_read_s, self._all.keep_alive_s)
        delay_s = max(0.001, min(shortest_s, self._due - self._loop.time()))
        self._timer = self._loop.call_later(delay_s, self._look)

    def _look(self) -> None:
        now, unsent_bytes = self._loop.time(), self._transport.get_write_buffer_size()
        if self._takes_too_slowly(now, unsent_bytes):
            self._transport.abort()
            return
        if self._writing_paused:
            self._all.keep_unsent(self, unsent_bytes)
        if now >= self._due and not self._deaf:
            unanswered = self._exchange is not None and not self._exchange.answered
            if unanswered or (self._exchange is None and self._url):
                self._refuse(408, TOO_SLOW)
            elif unsent_bytes:
                self._due = now + self._all.keep_alive_s  # it still reads its answer
            else:
                self._close()
        self._look_again()

    def _takes_too_slowly(self, now: float, unsent_bytes: int) -> bool:
        """Return whether the client read nothing, or too little of much, for `keep_alive_s`."""
        past_s = now - self._unsent_since
        least_bytes = LEAST_TAKEN_BYTES_PER_S * past_s if self._writing_paused else 1
        if unsent_bytes == 0 or not 0 <= self._unsent_bytes - unsent_bytes < least_bytes:
            self._unsent_bytes, self._unsent_since = unsent_bytes, now
            return False
        return past_s >= self._all.keep_alive_s


def request_left(before: int, data: bytes | memoryview, exchange: HttpExchange | None) -> int:
    """Return the missing bytes of `exchange` after `data`, given `before`; -1: unknown.

    They are known only if `data` starts a whole head and contains nothing beyond its request.
    """
    if before > 0:
        return max(-1, before - len(data))
    if before < 0 or exchange is None or TRANSFER_ENCODING in exchange.headers:
        return -1
    text = bytes(data)
    head_bytes = text.find(HEAD_END) + len(HEAD_END)
    if head_bytes < len(HEAD_END) or not text[:1].isalpha():
        return -1
    return max(-1, head_bytes + (announced_length(exchange.headers) or 0) - len(text))


def _path(url: bytes, headers: dict[bytes, bytes]) -> str:
    """Return the path of a request target without its query; raises `NotTaken` if invalid.

    An authority in the target replaces the `Host` header (RFC 9112, section 3.2.2).
    """
    try:
        if url[:1] != b"/":
            httptools.parse_url(url)
            _, before_path, rest = url.partition(b"://")
            if before_path:
                headers[HOST] = rest.partition(b"?")[0].partition(b"/")[0]
                if host_name(headers[HOST]) is None:
                    raise NotTaken("the host in its target is none")
        return (url.partition(b"?")[0] if b"?" in url else url).decode("ascii")
    except (httptools.HttpParserError, UnicodeDecodeError):
        raise NotTaken("its target cannot be read") from None
