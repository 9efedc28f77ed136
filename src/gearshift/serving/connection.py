"""HTTP/1.1 on one connection: requests are cut out of its bytes, handed on, and answered one after another.

    bytes -> httptools -> HttpExchange -> handler.begun (head) -> handler.completed (body) -> respond -> bytes

A request that comes in one piece is complete when it is begun.

No request costs a task, a future or a timer.  Requests that arrive while one is being answered wait in order, and
nothing more is read meanwhile.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from typing import Any, cast
from urllib.parse import unquote

import httptools

from gearshift.runtime.room import Client
from gearshift.runtime.transport import Buffer
from gearshift.serving import v2_json
from gearshift.serving.connections import Connections
from gearshift.serving.http_exchange import EXPECT, TRANSFER_ENCODING, HttpExchange

STEP_BYTES = 16 << 10
"""Parsed at a time, so that one read cannot become thousands of waiting requests."""
LINGER_S, LINGER_BYTES = 2.0, 16 << 20
"""How long, and for how much, a client is still read from that has its last answer and may go on sending."""
NEVER = float("inf")
CONNECTION, UPGRADE = b"connection", b"upgrade"
VERSIONS = "1.1", "1.0"
ENCODED_SLASH = "%252F"
"""A slash that is encoded divides no path, or a proxy that filters by prefix would be passed by."""
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
LONGEST_LIST_BYTES = 8 << 10
"""Of the values of one header that is given several times."""
HEAD_TOO_LARGE = "the head of the request is larger than is taken"
TOO_SLOW = "the request was not complete in time"

log = logging.getLogger(__name__)


class HeadTooLarge(Exception):
    """The head of a request is over the bound."""


class NotTaken(Exception):
    """A request is HTTP, but in a form that no client of ours needs."""


class Connection(asyncio.Protocol):
    """One client."""

    def __init__(self, connections: Connections) -> None:
        self._all, self._handler = connections, connections.handler
        self._loop = asyncio.get_running_loop()
        self.held = Client()
        self._parser: Any = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport
        self._url, self._headers, self._head_bytes = b"", dict[bytes, bytes](), 0
        self._exchange: HttpExchange | None = None
        """The request that is read or answered now."""
        self._arriving: HttpExchange | None = None
        """The request whose body the parser is in; the one of now, or the last of those that wait."""
        self._waiting: deque[HttpExchange] = deque()
        self._unread = b""
        self._unread_at = 0
        self._feeding = self._progress = False
        self._deaf = self._reading_paused = self._writing_paused = False
        """Deaf: nothing that the client still says counts."""
        self._idle = self._lingering = False
        self._forgotten_bytes = 0
        """Since it lingers."""
        self._due = NEVER
        """When the client has taken too long; never while it is our turn."""
        self._unheard_bytes = 0
        """Since a head began or a body went on: of a head, of trailers, of a chunk's extensions."""
        self._timer: asyncio.TimerHandle | None = None
        self._unsent_bytes, self._unsent_since = 0, 0.0

    @property
    def address(self) -> str | None:
        """Where the client is."""
        name = self._transport.get_extra_info("peername")
        return name[0] if isinstance(name, tuple) else None

    @property
    def ending(self) -> bool:
        """Whether the server ends."""
        return self._all.ending

    # The socket ------------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client is there; one too many is sent away."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name
        if not self._all.add(self):
            self._close()
            return
        self._due = self._loop.time() + self._all.longest_read_s
        self._look_again()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone: what it waits for is not needed any more."""
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
        """A client that says no more counts as gone; those that only half close are not told apart."""
        return False

    def pause_writing(self) -> None:
        """The client does not take its answers: take no more requests."""
        self._writing_paused = True
        self._set_reading()

    def resume_writing(self) -> None:
        """It does again."""
        self._writing_paused = False
        self._go_on()

    def data_received(self, data: bytes) -> None:
        """Parse what came, at once where nothing is before it."""
        if self._lingering:
            self._forgotten_bytes += len(data)
            if self._forgotten_bytes > LINGER_BYTES:
                self._close()
        if self._deaf:
            return
        if self._unread or self._waiting or len(data) > STEP_BYTES:
            self._unread, self._unread_at = self._unread[self._unread_at :] + data, 0
            self._go_on()
        else:
            self._feed(data)
            if self._waiting:
                self._set_reading()

    def end(self) -> None:
        """Close the connection now if it is idle; `Connections.ending` closes it after its answer otherwise."""
        if self._exchange is None:
            self._close()

    def abort(self) -> None:
        """Cut it off."""
        self._transport.abort()

    def _close(self) -> None:
        self._deaf, self._unread, self._due = True, b"", NEVER
        for exchange in self._waiting:
            exchange.leave()
        self._waiting.clear()
        self._transport.close()

    def _linger(self) -> None:
        """Close once the client has had time to read its last answer (RFC 9112, section 9.6).

        One that is still sending would have its connection reset, and the answer lost, were it closed at once: what it
        sends is forgotten for a while.
        """
        if self._lingering:
            return
        self._lingering = True
        if self._transport.can_write_eof():  # TLS cannot half close
            self._transport.write_eof()
        self._loop.call_later(LINGER_S, self._close)

    def _go_on(self) -> None:
        """Do what waits, unless that is under way further up the stack."""
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

    def _step(self) -> memoryview:
        step = memoryview(self._unread)[self._unread_at : self._unread_at + STEP_BYTES]
        self._unread_at += len(step)
        if self._unread_at == len(self._unread):
            self._unread, self._unread_at = b"", 0
        return step

    def _set_reading(self) -> None:
        """Read while nothing waits."""
        pause = bool(self._waiting or self._unread or self._writing_paused)
        if pause == self._reading_paused or self._transport.is_closing():
            return
        self._reading_paused = pause
        if pause:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    # The parser ------------------------------------------------------------------------------------------------------

    def _feed(self, data: bytes | memoryview) -> None:
        feeding, self._feeding = self._feeding, True
        self._progress = False
        offered_at = None
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            offered_at = upgrade.args[0]
        except httptools.HttpParserError as error:
            self._not_http(error)
        if offered_at is not None:
            self._pass_over_upgrade(bytes(data)[offered_at:])
            self._feeding = feeding
            return  # what was parsed anew has been counted
        exchange = self._arriving
        if exchange is not None and exchange is self._exchange and not exchange.begun:
            try:
                self._begin(exchange)  # the rest of its body is still to come
            except Exception as fault:  # noqa: BLE001  as of one that is begun within the parser
                self._fault(fault)
        self._feeding = feeding
        self._unheard_bytes = 0 if self._progress else self._unheard_bytes + len(data)
        if self._unheard_bytes > self._all.largest_header_bytes and not self._deaf:
            self._refuse(431, HEAD_TOO_LARGE)
        if self._idle and (self._unheard_bytes or self._url or self._exchange is not None):
            self._idle, self._due = False, self._loop.time() + self._all.longest_read_s

    def on_url(self, url: bytes) -> None:
        """A part of the request's target."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header; after a body, a trailer, which nobody needs."""
        if self._arriving is None:
            self._head_bytes += len(name) + len(value) + 4
            name, value = name.lower(), value.strip(b" \t")
            if name in self._headers:  # one list: a second coding is no chunked body, two deadlines are none
                value = self._headers[name] + b", " + value
                if len(value) > LONGEST_LIST_BYTES:
                    raise HeadTooLarge
            self._headers[name] = value

    def on_headers_complete(self) -> None:
        """The head is complete; what is raised here ends in `_not_http`."""
        self._progress = True
        url, headers, parser = self._url, self._headers, self._parser
        if self._deaf:
            return
        if self._head_bytes + len(url) > self._all.largest_header_bytes:
            raise HeadTooLarge
        method = parser.get_method()
        if method == b"CONNECT":
            raise NotTaken("CONNECT is for proxies")
        if parser.get_http_version() not in VERSIONS:
            raise NotTaken(f"HTTP/{parser.get_http_version()} in the form of HTTP/1")
        if UPGRADE in headers and parser.should_upgrade():
            return
        if TRANSFER_ENCODING in headers and headers[TRANSFER_ENCODING].strip().lower() != b"chunked":
            raise NotTaken("of transfer codings only chunked is taken")
        keep_alive = parser.should_keep_alive() and (CONNECTION not in headers or parser.get_http_version() != "1.0")
        exchange = HttpExchange(self, method.decode(), _path(url), headers, keep_alive)
        self._url, self._headers, self._head_bytes = b"", {}, 0
        self._arriving = exchange
        if self._exchange is None and not self._waiting and not self._writing_paused:
            self._exchange = exchange  # begun once all is parsed that came with its head
        else:
            self._waiting.append(exchange)

    def on_body(self, part: bytes) -> None:
        """A part of the body."""
        self._progress = True
        exchange = self._arriving
        if exchange is None or exchange.answered:
            return
        exchange.add_part(part)
        if exchange.measure is not None:
            self._handler.measured(exchange, len(part))

    def on_message_complete(self) -> None:
        """The request is complete."""
        self._progress = True
        exchange = self._arriving
        if exchange is None:
            return
        exchange.complete = True
        if exchange is self._exchange and not exchange.begun:
            self._begin(exchange)
            self._arriving = None  # not before: a fault in it is this request's
            return
        self._arriving = None
        if exchange is not self._exchange:
            return
        self._due, self._idle = NEVER, False
        if exchange.answered:
            self._ended(exchange)
        else:
            self._handler.completed(exchange)

    def _pass_over_upgrade(self, rest: bytes) -> None:
        """Go on as if no other protocol had been offered; the parser took what follows the head for that protocol."""
        first = b"%b %b HTTP/%b\r\n" % (
            self._parser.get_method(), self._url, self._parser.get_http_version().encode(),
        )  # fmt: skip
        others = [b"%b: %b\r\n" % pair for pair in self._headers.items() if pair[0] != UPGRADE]
        self._parser = httptools.HttpRequestParser(self)
        self._url, self._headers, self._head_bytes = b"", {}, 0
        self._feed(b"".join([first, *others, b"\r\n"]))
        if rest and not self._deaf:
            self._feed(rest)

    # Requests in turn ------------------------------------------------------------------------------------------------

    def _begin(self, exchange: HttpExchange) -> None:
        self._exchange, exchange.begun = exchange, True
        if exchange.complete:
            self._due, self._idle = NEVER, False
        elif self._idle:  # its head came behind another request
            self._due, self._idle = self._loop.time() + self._all.longest_read_s, False
        if exchange.refusal is not None:
            status, text = exchange.refusal
            exchange.respond(status, v2_json.encode_error(text))
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
        """Ask for the body that the client holds back."""
        if not exchange.complete:
            self._transport.write(CONTINUE)

    def answered(self, exchange: HttpExchange, parts: Sequence[Buffer], *, last: bool) -> None:
        """Send an answer, then turn to the next request, or close, in time where the client may still be sending."""
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
        self._idle = not self._url  # the next head may have begun meanwhile
        self._due = self._loop.time() + (self._all.keep_alive_s if self._idle else self._all.longest_read_s)
        if self._waiting or self._unread:
            self._go_on()

    # What is refused -------------------------------------------------------------------------------------------------

    def _not_http(self, error: Exception) -> None:
        """What came is no HTTP that is taken, or goes on after the last request of the connection."""
        last = self._waiting[-1] if self._waiting else self._exchange
        if self._deaf or (self._arriving is None and last is not None and not last.keep_alive):
            self._deaf = True
            return
        why = error.__context__
        if isinstance(why, HeadTooLarge):
            self._refuse(431, HEAD_TOO_LARGE)
        elif why is None or isinstance(why, NotTaken):
            log.warning("a client sent no HTTP request that is taken: %s", why or error)
            self._refuse(400, f"this is no HTTP request that is taken: {why or error}")
        else:
            self._fault(why)

    def _fault(self, fault: BaseException) -> None:
        log.error("fault while a request was begun", exc_info=fault)
        self._refuse(500, "an internal error; the server's log explains it")

    def _refuse(self, status: int, text: str) -> None:
        """Answer the request that is arriving so, when it is its turn, and close; what comes after it is not heard."""
        refused = self._arriving or HttpExchange(self, "", "", {}, False)
        self._arriving, self._deaf, self._unread, self._due = None, True, b"", NEVER
        refused.complete, refused.keep_alive, refused.refusal = True, False, (status, text)
        if refused is self._exchange and refused.answered:
            self._linger()
        elif refused is self._exchange or (self._exchange is None and not self._waiting):
            self._begin(refused)
        elif refused not in self._waiting:
            self._waiting.append(refused)

    # Time ------------------------------------------------------------------------------------------------------------

    def _look_again(self) -> None:
        """Look at the latest after the shorter of both bounds: whatever begins meanwhile is not due before that."""
        shortest_s = min(self._all.longest_read_s, self._all.keep_alive_s)
        delay_s = max(0.001, min(shortest_s, self._due - self._loop.time()))
        self._timer = self._loop.call_later(delay_s, self._look)

    def _look(self) -> None:
        """Close, or cut off, where the client has let its time pass."""
        now, unsent_bytes = self._loop.time(), self._transport.get_write_buffer_size()
        if unsent_bytes != self._unsent_bytes:
            self._unsent_bytes, self._unsent_since = unsent_bytes, now
        if unsent_bytes and now - self._unsent_since >= self._all.keep_alive_s:
            self._transport.abort()
            return
        if now >= self._due and not self._deaf:
            unanswered = self._exchange is not None and not self._exchange.answered
            if unanswered or (self._exchange is None and self._url):
                self._refuse(408, TOO_SLOW)
            elif unsent_bytes:
                self._due = now + self._all.keep_alive_s  # it is still taking its answer
            else:
                self._close()
        self._look_again()


def _path(url: bytes) -> str:
    """The path of a request's target; raises `NotTaken` for what is none."""
    try:
        if b"?" in url or b"%" in url or url[:1] != b"/":
            path = (httptools.parse_url(url).path or b"/").decode("ascii")
            return unquote(path.replace("%2f", ENCODED_SLASH).replace("%2F", ENCODED_SLASH))
        return url.decode("ascii")
    except (httptools.HttpParserError, UnicodeDecodeError):
        raise NotTaken("its target cannot be read") from None
