"""One HTTP request as it arrives, and its answer as it leaves."""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import cache
from http import HTTPStatus
from typing import Any, Protocol

from gearshift.errors import TooLarge, printable
from gearshift.runtime.service.room import Client as Held
from gearshift.runtime.service.room import Reading
from gearshift.serving.door.exchange import REQUEST_ID, Exchange
from gearshift.serving.door.open_exchanges import REVOKED
from gearshift.serving.http.known_request import CONTENT_LENGTH, EXPECT, KnownHead
from gearshift.v2 import json as v2_json
from gearshift.v2.packing import Buffer

ID_HEADER = REQUEST_ID.encode()
TRANSFER_ENCODING = b"transfer-encoding"
CONNECTION = b"connection"
JSON = b"application/json"
CLOSE = (CONNECTION, b"close")
KEEP_ALIVE = b"keep-alive"
BEARER = (b"www-authenticate", b"Bearer")
_HEAD = b"%%b%%d\r\n%b: %%b\r\n%%b\r\n" % ID_HEADER
SMALL_PART_BYTES = 1 << 10
LARGE_BYTES = 64 << 10
"""Larger bodies are written to the socket separately from the head, to save a copy."""

Headers = Sequence[tuple[bytes, bytes]]
Work = Coroutine[Any, Any, None]
Then = Callable[["HttpExchange"], Work | None]


class Client(Protocol):
    """The connection of a request."""

    @property
    def held(self) -> Held: ...

    @property
    def address(self) -> str | None:
        """The client's host address; None if unknown."""
        ...

    @property
    def ending(self) -> bool:
        """Whether the server is ending, so that each answer is its connection's last."""
        ...

    @property
    def takes_streams(self) -> bool:
        """Whether an answer may be sent in parts: not through a front end, which has the connection."""
        ...

    @property
    def crowded(self) -> bool:
        """Whether the client has yet to read what was sent."""
        ...

    def vouch(self) -> None:
        """Note that the client has shown a key: it is closed after those that have not."""
        ...

    def let_in(self, exchange: "HttpExchange") -> None:
        """Ask for the body that the client holds back (`Expect: 100-continue`)."""
        ...

    def sent(self, data: bytes) -> None:
        """Send a part of an answer that is streamed."""
        ...

    def answered(self, exchange: "HttpExchange", parts: Sequence[Buffer], *, last: bool) -> None:
        """Send the answer's bytes; with `last` close the connection after them."""
        ...


class HttpExchange(Exchange):
    """A request whose head has arrived, `headers` by lower-case name, and its answer.

    It is `begun` when its handler has received it, and `complete` when its body has arrived,
    perhaps earlier.  `then` receives the whole body; `measure` before that the size of each part,
    if the head does not give the length.  `release` is called once when the body is read, or will
    not be; `on_gone` if the client leaves before the answer.  `more` are headers of whatever answer
    it gets.
    """

    __slots__ = (
        "answered", "begun", "chunks", "client", "complete", "gone", "headers", "keep_alive", "known_head", "measure",
        "more", "on_gone", "on_room", "parts", "refusal", "release", "streams", "then",
    )  # fmt: skip

    def __init__(self, client: Client, method: str, path: str, headers: dict[bytes, bytes], keep_alive: bool) -> None:
        given = headers.get(ID_HEADER)
        super().__init__(method, path, given.decode("latin-1") if given else "")
        self.client, self.headers, self.keep_alive = client, headers, keep_alive
        self.parts: list[bytes | bytearray] = []
        self.begun = self.complete = self.answered = self.gone = self.streams = False
        self.chunks = True
        """Whether the client understands an answer in chunks: not with HTTP/1.0."""
        self.more: Headers = ()
        self.known_head: KnownHead | None = None
        """Set if the client has sent the same head before."""
        self.then: Then | None = None
        self.measure: Callable[[int], None] | None = None
        self.release: Callable[[], None] | None = None
        self.on_gone: Callable[[], None] | None = None
        self.on_room: Callable[[], None] | None = None
        """Called when a client that was `crowded` has read what was sent."""
        self.refusal: tuple[int, str] | None = None
        """The error to answer in turn, whatever the request asks for."""

    def add_part(self, part: bytes) -> None:
        """Add a part of the body; small ones are joined, as each costs more than its bytes."""
        last = self.parts[-1] if self.parts else None
        if last is None or len(part) >= SMALL_PART_BYTES:
            self.parts.append(part)
        elif isinstance(last, bytearray):
            last += part
        else:
            self.parts.append(bytearray(part))

    def take_body(self) -> bytes:
        """Return the whole body, once: it is not kept here, so that memory has it only once."""
        parts, self.parts = self.parts, []
        return parts[0] if len(parts) == 1 and isinstance(parts[0], bytes) else b"".join(parts)

    def end_reading(self) -> None:
        self.measure = None
        if self.release is not None:
            self.release()
            self.release = None

    def respond(self, status: int, body: bytes, content_type: bytes = JSON, extra: Headers = ()) -> None:
        self.respond_in_parts(status, (body,), content_type, extra)

    def respond_in_parts(
        self, status: int, body: Sequence[Buffer], content_type: bytes = JSON, extra: Headers = ()
    ) -> None:
        """Send an answer, unless the client is gone; the body's parts are sent in order."""
        if not self._settle():
            return
        size = len(body[0]) if len(body) == 1 else sum(len(part) for part in body)
        unheard = not self.complete and EXPECT in self.headers  # its body may follow or not
        last = not self.keep_alive or self.client.ending or unheard or CLOSE in extra
        if last and CLOSE not in extra:
            extra = (*extra, CLOSE)
        elif not last and CONNECTION in self.headers and KEEP_ALIVE in self.headers[CONNECTION].lower():
            extra = (*extra, (CONNECTION, KEEP_ALIVE))  # else an HTTP/1.0 client waits for the end
        if self.more:
            extra = (*extra, *self.more)
        lines = b"".join([b"%b: %b\r\n" % pair for pair in extra]) if extra else b""
        head = _HEAD % (_head(status, content_type), size, self.id.encode(), lines)
        if self.method == "HEAD":
            parts: Sequence[Buffer] = (head,)
        elif size < LARGE_BYTES:
            parts = (b"".join((head, *body)),)
        else:
            parts = (head, *body)
        self.client.answered(self, parts, last=last)
        self.end(status)

    def begin_stream(self, status: int, content_type: bytes, extra: Headers = ()) -> None:
        """Send the head of an answer whose parts follow by `stream`, until `end_stream`; the body has arrived."""
        if self.gone or self.answered or self.streams:
            return
        self.end_reading()
        self.streams, self.then = True, None
        self.keep_alive = self.keep_alive and self.chunks and not self.client.ending
        lines = [*extra, *self.more]
        if self.chunks:
            lines.append((TRANSFER_ENCODING, b"chunked"))
        if not self.keep_alive:
            lines.append(CLOSE)
        status_line = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}".encode()
        head = b"%b\r\ncontent-type: %b\r\n%b: %b\r\n" % (status_line, content_type, ID_HEADER, self.id.encode())
        self.client.sent(b"".join([head, *(b"%b: %b\r\n" % pair for pair in lines), b"\r\n"]))

    def stream(self, part: bytes) -> None:
        if not (self.gone or self.answered):
            self.client.sent(b"%x\r\n%b\r\n" % (len(part), part) if self.chunks else part)

    def end_stream(self, status: int) -> None:
        if self.gone or self.answered:
            return
        self.answered, self.on_gone, self.on_room = True, None, None
        parts = (b"0\r\n\r\n" if self.chunks else b"",)
        self.client.answered(self, parts, last=not self.keep_alive or self.client.ending)
        self.end(status)

    def revoke(self) -> None:
        """End a request whose key is revoked: nobody works on it any more, and its connection is closed."""
        if self.answered or self.gone:
            return
        on_gone, self.on_gone, self.keep_alive = self.on_gone, None, False
        if on_gone is not None:
            on_gone()
        error = error_body(self.path, 401, REVOKED)
        if self.streams:
            if self.path.startswith(OPENAI):
                self.stream(b"data: %b\n\n" % error)
            self.end_stream(401)
        else:
            self.respond(401, error, extra=(BEARER, CLOSE))
        self.gone = True  # for steps that go on

    def pass_on(self, answer: bytes, *, last: bool) -> None:
        """Send an answer, including its head, that another process made and logged."""
        if self._settle():
            self.client.answered(self, (answer,), last=last or not self.keep_alive or self.client.ending)

    def _settle(self) -> bool:
        if self.gone or self.answered:
            return False
        self.end_reading()
        self.answered, self.on_gone, self.then = True, None, None
        return True

    def leave(self) -> None:
        if self.answered or self.gone:
            return
        self.gone = True
        self.end_reading()
        if self.on_gone is not None:
            self.on_gone()
        self.on_gone = self.on_room = self.then = None
        self.end(None)


OPENAI = "/v1/"
"""Paths that begin so get errors in the form of OpenAI's API."""


def error_body(path: str, status: int, text: str, code: str | None = None, param: str | None = None) -> bytes:
    """The body of an error answer, in the form that clients of the path expect."""
    if not path.startswith(OPENAI):
        return v2_json.encode_error(text)
    kind = ERROR_KINDS.get(status, "invalid_request_error" if status < 500 else "server_error")
    return v2_json.encode({"error": {"message": printable(text), "type": kind, "param": param, "code": code}})


ERROR_KINDS = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error", 504: "timeout_error"}


@cache
def _head(status: int, content_type: bytes) -> bytes:
    """Return the beginning of an answer up to its length; cached, as few differ."""
    status_line = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}".encode()
    return b"%b\r\ncontent-type: %b\r\ncontent-length: " % (status_line, content_type)


def announced_length(headers: Mapping[bytes, bytes]) -> int | None:
    """Return the body's length, None if chunked; the parser admits only numbers."""
    if TRANSFER_ENCODING in headers:
        return None
    length = headers.get(CONTENT_LENGTH)
    return 0 if length is None else int(length)


# Bodies ------------------------------------------------------------------------------------------


def read_body(exchange: HttpExchange, largest_bytes: int, then: Then, reading: Reading | None = None) -> None:
    """Call `then` with the whole body, held by `reading`; raises `TooLarge` as soon as known."""
    if length_within(exchange, largest_bytes) is None or reading is not None:
        exchange.measure = _Measure(largest_bytes, reading)
    exchange.then = then


def length_within(exchange: HttpExchange, largest_bytes: int) -> int | None:
    length = announced_length(exchange.headers)
    if length is not None and length > largest_bytes:
        raise too_large(length, largest_bytes)
    return length


class _Measure:
    def __init__(self, largest_bytes: int, reading: Reading | None) -> None:
        self._largest_bytes, self._reading, self._total = largest_bytes, reading, 0

    def __call__(self, part_bytes: int) -> None:
        self._total += part_bytes
        if self._total > self._largest_bytes:
            raise too_large(self._total, self._largest_bytes)
        if self._reading is not None:
            self._reading.hold(part_bytes)


def too_large(size_bytes: int, largest_bytes: int) -> TooLarge:
    return TooLarge(f"the body has {size_bytes} bytes or more, at most {largest_bytes} are taken")
