"""One HTTP/1.1 connection: parses requests and answers them in order.

    bytes -> httptools -> HttpExchange -> handler.begun (head) -> handler.completed (body) -> respond -> bytes

A request that arrives in one piece is complete when it begins.  A request whose head equals the
previous one is not parsed again (`KnownHead`).  No request costs a task, a future or a timer.
Requests that arrive while another is being answered wait in order, and reading pauses: at most
`STEP_BYTES` are held beyond the end of a body.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import cast

import httptools

from gearshift.runtime.service.room import Client
from gearshift.serving.http.attempts import RETRY_AFTER, respond_error
from gearshift.serving.http.connections import STEP_BYTES, Connections
from gearshift.serving.http.http_exchange import CLOSE, HttpExchange
from gearshift.serving.http.known_request import EXPECT, METHOD
from gearshift.serving.http.parser import HEAD_TOO_LARGE, LINGER_BYTES, NotTaken, RequestParser, TooMuch
from gearshift.serving.http.patience import NEVER, Patience
from gearshift.serving.http.routes import STILL_ANSWERED
from gearshift.v2.packing import Buffer

LINGER_S = 2.0
"""After its last answer the server reads from a client for this time, and `LINGER_BYTES`."""

log = logging.getLogger(__name__)


class Connection(asyncio.BufferedProtocol):
    """The asyncio protocol of one client; one that stops sending, by a half-close, counts as gone."""

    takes_streams = True

    def __init__(self, connections: Connections) -> None:
        self._all, self._handler = connections, connections.handler
        self._loop = asyncio.get_running_loop()
        self.held = Client()
        self._parser = RequestParser(self, connections.largest_header_bytes)
        self._transport: asyncio.Transport
        self.sent: Callable[[bytes], None]
        self._exchange: HttpExchange | None = None
        """The request being read or answered."""
        self._waiting: deque[HttpExchange] = deque()
        self._unread: bytes | memoryview = b""
        self._unread_at, self._feeding = 0, False
        self.deaf = self._reading_paused = self.crowded = False
        """`deaf`: ignore all further input from this client. `crowded`: it has yet to read what was sent."""
        self._lingering = self._reserve = self._known = False
        """`_reserve`: beyond the bound on connections.  `_known`: the client has shown a key."""
        self._forgotten_bytes = 0
        """Bytes read and ignored since the last answer."""
        self._patience = Patience(connections)
        self._unheard_bytes = 0
        """Bytes of a head, of trailers or of chunk extensions since the last progress."""

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
        return None if waits else self._patience.turn_began_s

    def vouch(self) -> None:
        if not self._known:
            self._known = True
            self._all.seats.vouch(self)

    # The socket ----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take a seat: the reserve answers few paths, and beyond it connections are aborted."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's has the same methods
        self._transport.set_write_buffer_limits(STEP_BYTES)
        self.sent = self._transport.write
        seat = self._all.add(self, self.address)
        if seat == "none":
            self.abort()
            return
        self._reserve = seat == "reserve"
        self._patience.begin_turn(min(self._all.first_byte_s, self._all.longest_read_s), True)
        self._patience.look_again(self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        self._all.remove(self)
        self.deaf = True
        self._patience.end()
        for exchange in (self._exchange, *self._waiting):
            if exchange is not None:
                exchange.leave()
        self._exchange = None
        self._parser.close()
        self._waiting.clear()

    def pause_writing(self) -> None:
        self.crowded = True
        self._set_reading()
        unsent_bytes = self._transport.get_write_buffer_size()
        self._patience.note_unsent(unsent_bytes)
        self._all.keep_unsent(self, unsent_bytes)

    def resume_writing(self) -> None:
        self.crowded = False
        self._all.keep_unsent(self, 0)
        self._go_on()
        if self._exchange is not None and self._exchange.on_room is not None:
            self._exchange.on_room()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where to read to: at most a step beyond the known rest of a body."""
        parser = self._parser
        return self._all.step if parser.arriving is None else self._all.buffer[: max(STEP_BYTES, parser.body_left())]

    def buffer_updated(self, nbytes: int) -> None:
        self.data_received(self._all.buffer[:nbytes])

    def data_received(self, data: bytes | memoryview) -> None:
        """Parse the input, at once if nothing waits before it; the caller may reuse `data`."""
        if self._lingering:
            self._forgotten_bytes += len(data)
            if self._forgotten_bytes > LINGER_BYTES:
                self.close()
        if self.deaf:
            return
        if self._unread or self._waiting:
            self._unread, self._unread_at = bytes(self._unread[self._unread_at :]) + data, 0
            self._go_on()
        elif self._parser.left == 0 and self._exchange is None and self._take_known(data):
            return
        elif len(data) <= STEP_BYTES or len(data) <= self._parser.body_left():
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
            self.close()

    def abort(self) -> None:
        self._transport.abort()

    def close(self) -> None:
        self.deaf, self._unread, self._patience.due_s = True, b"", NEVER
        for exchange in self._waiting:
            exchange.leave()
        self._waiting.clear()
        self._transport.close()

    def _linger(self) -> None:
        """Close once the client has had time to read its last answer (RFC 9112, section 9.6).

        Closing at once would reset the connection of one that still sends: its input is ignored for a while.
        """
        if self._lingering:
            return
        self._lingering = True
        if self._transport.can_write_eof():  # TLS cannot half close
            self._transport.write_eof()
        self._loop.call_later(LINGER_S, self.close)

    def _go_on(self) -> None:
        """Handle waiting requests and input, unless a caller up the stack does so already."""
        if self._feeding:
            return
        self._feeding = True
        while not self.crowded:
            if self._exchange is None and self._waiting:
                self._begin(self._waiting.popleft())
            elif self._unread and not self._waiting and not self.deaf:
                self._feed(self._step())
            else:
                break
        self._feeding = False
        self._set_reading()

    def _step(self) -> memoryview:
        step_bytes = max(STEP_BYTES, self._parser.body_left())
        step = memoryview(self._unread)[self._unread_at : self._unread_at + step_bytes]
        self._unread_at += len(step)
        if self._unread_at == len(self._unread):
            self._unread, self._unread_at = b"", 0
        return step

    def _set_reading(self) -> None:
        pause = bool(self._waiting or self._unread or self.crowded)
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
        request = None if self.crowded else self._parser.read_known(bytes(data))
        if request is None:
            return False
        known, headers, body = request
        exchange = HttpExchange(self, METHOD, known.path, headers, not self._reserve)
        exchange.parts.append(body)
        exchange.complete, exchange.known_head = True, known
        self._unheard_bytes = 0
        feeding, self._feeding = self._feeding, True
        self._parser.arriving = exchange
        self._begin_safely(exchange)
        self._parser.arriving, self._feeding = None, feeding
        return True

    def _feed(self, data: bytes | memoryview) -> None:
        feeding, self._feeding = self._feeding, True
        offered_at = None
        try:
            self._parser.feed(data)
        except httptools.HttpParserUpgrade as upgrade:
            offered_at = upgrade.args[0]
        except httptools.HttpParserError as error:
            self._not_http(error)
        if offered_at is not None:
            self._feed(self._parser.without_upgrade())
            if (rest := bytes(data)[offered_at:]) and not self.deaf:
                self._feed(rest)
            self._feeding, self._parser.completed = feeding, None
            return  # the nested call has counted it
        self._parser.keep_head(data)
        if self._parser.unmeasured_bytes and self._parser.arriving is not None:
            self._measure(self._parser.arriving)
        exchange = self._parser.arriving
        if exchange is not None and exchange is self._exchange and not exchange.begun and not self._unread:
            self._begin_safely(exchange)  # the rest of its body has yet to arrive
        self._feeding = feeding
        self._unheard_bytes = 0 if self._parser.progress else self._unheard_bytes + len(data)
        if self._unheard_bytes > self._all.largest_header_bytes and not self.deaf:
            self._refuse(431, HEAD_TOO_LARGE)
        if self._patience.idle and (self._unheard_bytes or self._parser.url or self._exchange is not None):
            self._patience.expect_request()

    def head_arrived(self, method: str, path: str, headers: dict[bytes, bytes], keep_alive: bool) -> HttpExchange:
        exchange = HttpExchange(self, method, path, headers, keep_alive and not self._reserve)
        if self._exchange is None and not self._waiting and not self.crowded:
            self._exchange = exchange  # begins once all input that came with its head is parsed
        else:
            self._waiting.append(exchange)
        return exchange

    def _measure(self, exchange: HttpExchange) -> None:
        part_bytes, self._parser.unmeasured_bytes = self._parser.unmeasured_bytes, 0
        if part_bytes and exchange.measure is not None:
            self._handler.measured(exchange, part_bytes)

    def body_arrived(self, exchange: HttpExchange) -> None:
        if exchange is self._exchange and not exchange.begun:
            self._begin(exchange)
            self._parser.arriving = None  # after `_begin`: a fault in there belongs to this request
            return
        self._parser.arriving = None
        if exchange is not self._exchange:
            return
        self._patience.rest()
        was_answered = exchange.answered
        if self._parser.unmeasured_bytes:
            self._measure(exchange)
        if was_answered:
            self._ended(exchange)
        elif not exchange.answered:
            self._handler.completed(exchange)

    # Requests in turn ----------------------------------------------------------------------------

    def _begin_safely(self, exchange: HttpExchange) -> None:
        try:
            self._begin(exchange)
        except Exception as fault:  # noqa: BLE001  as for one begun within the parser
            self._fault(fault)

    def _begin(self, exchange: HttpExchange) -> None:
        self._exchange, exchange.begun = exchange, True
        if exchange.complete:
            self._patience.rest()
        elif self._patience.idle:  # its head came after another request
            self._patience.expect_request()
        if exchange.refusal is not None:
            respond_error(exchange, *exchange.refusal)
            return
        if self._reserve and exchange.path not in STILL_ANSWERED:
            full = f"{self._all.most_connections} connections wait for answers, as many as may be open; try again later"
            respond_error(exchange, 503, full, (RETRY_AFTER, CLOSE))
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
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

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
        elif not exchange.keep_alive:
            self.close()
        else:
            idle = not self._parser.url  # part of the next head may have arrived
            self._patience.begin_turn(self._all.keep_alive_s if idle else self._all.longest_read_s, idle)
            if self._waiting or self._unread:
                self._go_on()

    # Refusals ------------------------------------------------------------------------------------

    def _not_http(self, error: Exception) -> None:
        """Refuse malformed or unsupported input, or ignore it after the last request."""
        last = self._waiting[-1] if self._waiting else self._exchange
        if self.deaf or (self._parser.arriving is None and last is not None and not last.keep_alive):
            self.deaf = True
            return
        why = error.__context__
        if isinstance(why, TooMuch):
            self._refuse(why.status, why.text)
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
        refused = self._parser.arriving or HttpExchange(self, "", "", {}, False)
        self._parser.arriving, self.deaf, self._unread, self._patience.due_s = None, True, b"", NEVER
        refused.complete, refused.keep_alive, refused.refusal = True, False, (status, text)
        if refused is self._exchange and refused.answered:
            self._linger()
        elif refused is self._exchange or (self._exchange is None and not self._waiting):
            self._begin(refused)
        elif refused not in self._waiting:
            self._waiting.append(refused)

    # Time ----------------------------------------------------------------------------------------

    def _look(self) -> None:
        unsent_bytes = self._transport.get_write_buffer_size()
        if self._patience.reads_too_slowly(unsent_bytes, much=self.crowded):
            self._transport.abort()
            return
        if self.crowded:
            self._all.keep_unsent(self, unsent_bytes)
        if self._patience.over and not self.deaf:
            unanswered = self._exchange is not None and not self._exchange.answered
            if unanswered or (self._exchange is None and self._parser.url):
                self._refuse(408, "the request was not complete in time")
            elif unsent_bytes:
                self._patience.wait(self._all.keep_alive_s)  # it still reads its answer
            else:
                self.close()
        self._patience.look_again(self._look)
