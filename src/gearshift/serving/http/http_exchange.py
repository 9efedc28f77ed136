"""One HTTP request as it arrives, and its answer as it leaves."""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import cache
from http import HTTPStatus
from typing import Any, Protocol

from gearshift.runtime.service.room import Client as Held
from gearshift.runtime.wire.transport import Buffer
from gearshift.serving.door.exchange import REQUEST_ID, Exchange
from gearshift.serving.http.known_head import CONTENT_LENGTH, EXPECT, KnownHead

ID_HEADER = REQUEST_ID.encode()
TRANSFER_ENCODING = b"transfer-encoding"
CONNECTION = b"connection"
JSON = b"application/json"
CLOSE = (CONNECTION, b"close")
KEEP_ALIVE = b"keep-alive"
_HEAD = b"%%b%%d\r\n%b: %%b\r\n%%b\r\n" % ID_HEADER
SMALL_PART_BYTES = 1 << 10
LARGE_BYTES = 64 << 10
"""From here on a body is handed to the socket beside its head, not copied behind it."""

Headers = Sequence[tuple[bytes, bytes]]
Then = Callable[["HttpExchange"], Coroutine[Any, Any, None] | None]


class Client(Protocol):
    """The connection on which the request came."""

    @property
    def held(self) -> Held:
        """Rows and bytes of the connection's unanswered requests."""
        ...

    @property
    def address(self) -> str | None:
        """Where the client is, by its address alone; None where that is not known."""
        ...

    @property
    def ending(self) -> bool:
        """Whether the server ends, so that each answer is its connection's last."""
        ...

    def vouch(self) -> None:
        """The client has shown a key: where there is no room it goes after those that have not."""
        ...

    def let_in(self, exchange: "HttpExchange") -> None:
        """Ask for the body, which the client holds back until then."""
        ...

    def answered(self, exchange: "HttpExchange", parts: Sequence[Buffer], *, last: bool) -> None:
        """Send the answer's bytes; with `last` close the connection after them."""
        ...


class HttpExchange(Exchange):
    """A request of which the head has arrived, `headers` by name in lower case, and its answer.

    It is `begun` once its handler has heard of it, and `complete` once all of it is there, which may be before that.
    `then` takes the whole body, and `measure` before that the size of each of its parts, where that is not known from
    the head.  `release` is called once when the body is read, or will not be; `on_gone` where the client leaves before
    it is answered.
    """

    __slots__ = (
        "answered", "begun", "client", "complete", "gone", "headers", "keep_alive", "known_head", "measure", "on_gone",
        "parts", "refusal", "release", "then",
    )  # fmt: skip

    def __init__(self, client: Client, method: str, path: str, headers: dict[bytes, bytes], keep_alive: bool) -> None:
        given = headers.get(ID_HEADER)
        super().__init__(method, path, given.decode("latin-1") if given else "")
        self.client, self.headers, self.keep_alive = client, headers, keep_alive
        self.parts: list[bytes | bytearray] = []
        self.begun = self.complete = self.answered = self.gone = False
        self.known_head: KnownHead | None = None
        """Where the client has sent the same head before."""
        self.then: Then | None = None
        self.measure: Callable[[int], None] | None = None
        self.release: Callable[[], None] | None = None
        self.on_gone: Callable[[], None] | None = None
        self.refusal: tuple[int, str] | None = None
        """What is answered when it is its turn, whatever it asks for."""

    def add_part(self, part: bytes) -> None:
        """A part of the body; small ones are put together, as each on its own would cost far more than its bytes."""
        last = self.parts[-1] if self.parts else None
        if last is None or len(part) >= SMALL_PART_BYTES:
            self.parts.append(part)
        elif isinstance(last, bytearray):
            last += part
        else:
            self.parts.append(bytearray(part))

    def take_body(self) -> bytes:
        """The whole body, once; it is not kept here, so that a request that waits holds it no more than once."""
        parts, self.parts = self.parts, []
        return parts[0] if len(parts) == 1 and isinstance(parts[0], bytes) else b"".join(parts)

    def end_reading(self) -> None:
        """The body is read, or nobody needs it."""
        self.measure = None
        if self.release is not None:
            self.release()
            self.release = None

    def respond(self, status: int, body: bytes, content_type: bytes = JSON, extra: Headers = ()) -> None:
        """Send the answer; nothing happens when the client is gone."""
        self.respond_in_parts(status, (body,), content_type, extra)

    def respond_in_parts(
        self, status: int, body: Sequence[Buffer], content_type: bytes = JSON, extra: Headers = ()
    ) -> None:
        """As `respond`, with a body that is sent part after part."""
        if not self._settle():
            return
        size = len(body[0]) if len(body) == 1 else sum(len(part) for part in body)
        unheard = not self.complete and EXPECT in self.headers  # its body may come now, or not
        last = not self.keep_alive or self.client.ending or unheard or CLOSE in extra
        if last and CLOSE not in extra:
            extra = (*extra, CLOSE)
        elif not last and CONNECTION in self.headers and KEEP_ALIVE in self.headers[CONNECTION].lower():
            extra = (*extra, (CONNECTION, KEEP_ALIVE))  # a client of HTTP/1.0 would else wait for the end
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

    def pass_on(self, answer: bytes, *, last: bool) -> None:
        """Send an answer, head and all, that was made elsewhere, where it is logged too."""
        if self._settle():
            self.client.answered(self, (answer,), last=last or not self.keep_alive or self.client.ending)

    def _settle(self) -> bool:
        """Whether there is somebody to answer, once."""
        if self.gone or self.answered:
            return False
        self.end_reading()
        self.answered, self.on_gone, self.then = True, None, None
        return True

    def leave(self) -> None:
        """The client is gone, or is sent away unheard."""
        if self.answered or self.gone:
            return
        self.gone = True
        self.end_reading()
        if self.on_gone is not None:
            self.on_gone()
        self.on_gone = self.then = None
        self.end(None)


@cache
def _head(status: int, content_type: bytes) -> bytes:
    """What an answer begins with, up to the number that is its length; there are few of them."""
    status_line = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}".encode()
    return b"%b\r\ncontent-type: %b\r\ncontent-length: " % (status_line, content_type)


def announced_length(headers: Mapping[bytes, bytes]) -> int | None:
    """How many bytes the body has, None where only its end will tell; the parser has let only numbers through."""
    if TRANSFER_ENCODING in headers:
        return None
    length = headers.get(CONTENT_LENGTH)
    return 0 if length is None else int(length)
