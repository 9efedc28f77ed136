"""Parse one client's bytes with httptools: bound and check heads, and bound chunks."""

from typing import Any, Protocol

import httptools

from gearshift.serving.door.origins import HOST, host_name
from gearshift.serving.http.http_exchange import (
    CLOSE,
    CONNECTION,
    KEEP_ALIVE,
    TRANSFER_ENCODING,
    HttpExchange,
    announced_length,
)
from gearshift.serving.http.known_request import EXPECT, HEAD_END, KnownHead

MOST_HEADS_IN_VAIN = 8
"""After this many heads that differ from the previous one, the connection stops keeping heads."""
HEAD_TOO_LARGE = "the head of the request is larger than is taken"
LINGER_BYTES = 16 << 20
"""Bytes that are read from a client, and ignored, after its last answer."""
UPGRADE = b"upgrade"
VERSIONS = "1.1", "1.0"
LONGEST_LIST_BYTES = 8 << 10
"""Bound on the joined values of a header that is given several times."""
MOST_HEADERS = 100
MOST_CHUNKS, LEAST_CHUNK_BYTES = 16_384, 64
"""Chunks allowed, plus one per `LEAST_CHUNK_BYTES`: a chunk costs far more than its bytes."""


class TooMuch(Exception):
    """The head of a request exceeds a bound, or a body has too many small chunks."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status, self.text = status, text


class NotTaken(Exception):
    """The request is HTTP, but in a form that this server does not support."""


class Receiver(Protocol):
    """The connection whose bytes are parsed."""

    @property
    def deaf(self) -> bool:
        """Whether all further input is ignored."""
        ...

    def head_arrived(self, method: str, path: str, headers: dict[bytes, bytes], keep_alive: bool) -> HttpExchange: ...

    def body_arrived(self, exchange: HttpExchange) -> None: ...

    def close(self) -> None: ...


class RequestParser:
    """The parser of a connection; httptools calls its `on_` methods."""

    def __init__(self, connection: Receiver, largest_header_bytes: int) -> None:
        self._connection: Receiver | None = connection
        self._largest_header_bytes = largest_header_bytes
        self._parser: Any = httptools.HttpRequestParser(self)
        self.url, self._headers, self._head_bytes, self._more_lines = b"", dict[bytes, bytes](), 0, 0
        """The head being read; `_more_lines` counts repeated headers and trailers."""
        self._body_bytes, self._body_parts, self.unmeasured_bytes = 0, 0, 0
        """Counts for the body being read; `unmeasured_bytes` are not yet reported to the handler.
        """
        self.arriving: HttpExchange | None = None
        """The request whose body is being read."""
        self.completed: HttpExchange | None = None
        """The last request that was completed in the current input."""
        self._known_head: KnownHead | None = None
        self._heads_left = MOST_HEADS_IN_VAIN
        self._left_before, self.left = 0, 0
        """Bytes that are missing to end a request, before and after the current input; -1: unknown.
        At 0 the next input begins a request, so that its head can be a known one."""
        self.progress = False
        """Whether the current input had more than a part of a head, trailers or chunk extensions."""

    def feed(self, data: bytes | memoryview) -> None:
        """Parse `data`; raises the errors of httptools, with ours as their context."""
        self._left_before, self.left = self.left, -1
        self.progress = False
        self._parser.feed_data(data)

    def read_known(self, data: bytes) -> tuple[KnownHead, dict[bytes, bytes], bytes] | None:
        """Return head, headers and body of a whole request with the head of the previous one."""
        known = self._known_head
        request = None if known is None else known.read(data)
        if known is None or request is None:
            return None
        self._heads_left = MOST_HEADS_IN_VAIN
        return known, *request

    def keep_head(self, data: bytes | memoryview) -> None:
        """Keep the head if `data`, just parsed, was exactly one request."""
        before, completed, self.completed = self._left_before, self.completed, None
        self.left = request_left(before, data, completed or self.arriving)
        if before == self.left == 0 and completed is not None and self._heads_left and not completed.answered:
            self._heads_left -= 1
            self._known_head = KnownHead.of(bytes(data), completed.path, completed.headers)

    def close(self) -> None:
        """Let go of the connection, which holds this: without cycles all are freed at once."""
        self._connection = self._parser = self.arriving = None

    def body_left(self) -> int:
        exchange = self.arriving
        return 0 if exchange is None else (announced_length(exchange.headers) or 0) - self._body_bytes

    def without_upgrade(self) -> bytes:
        """Begin anew after an offer of another protocol; return the head without that offer."""
        first = b"%b %b HTTP/%b\r\n" % (
            self._parser.get_method(), self.url, self._parser.get_http_version().encode(),
        )  # fmt: skip
        others = [b"%b: %b\r\n" % pair for pair in self._headers.items() if pair[0] != UPGRADE]
        self._parser = httptools.HttpRequestParser(self)
        self.url, self._headers, self._head_bytes, self._more_lines = b"", {}, 0, 0
        return b"".join([first, *others, b"\r\n"])

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; after a body, a trailer, which is ignored."""
        headers = self._headers
        if self.arriving is None:
            self._head_bytes += len(name) + len(value) + 4
            name, value = name.lower(), value.strip(b" \t")
            if name in headers:  # a list, so that two codings or deadlines are refused
                value = headers[name] + b", " + value
                self._more_lines += 1
                if len(value) > LONGEST_LIST_BYTES:
                    raise TooMuch(431, HEAD_TOO_LARGE)
            headers[name] = value
        else:
            self._more_lines += 1
        if len(headers) + self._more_lines > MOST_HEADERS:
            raise TooMuch(431, HEAD_TOO_LARGE)

    def on_headers_complete(self) -> None:
        self.progress = True
        url, headers, parser, connection = self.url, self._headers, self._parser, self._connection
        if connection is None or connection.deaf:
            return
        if self._head_bytes + len(url) > self._largest_header_bytes:
            raise TooMuch(431, HEAD_TOO_LARGE)
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
        path = _path(url, headers)
        self.url, self._headers, self._head_bytes, self._more_lines = b"", {}, 0, 0
        self._body_bytes = self._body_parts = 0
        self.arriving = connection.head_arrived(method.decode(), path, headers, keep_alive)
        self.arriving.chunks = version != "1.0"

    def on_body(self, part: bytes) -> None:
        self.progress = True
        exchange, connection = self.arriving, self._connection
        if exchange is None or connection is None:
            return
        self._body_bytes += len(part)
        self._body_parts += 1
        if self._body_parts > MOST_CHUNKS and TRANSFER_ENCODING in exchange.headers:
            self._require_few_chunks()
        if exchange.answered:
            if self._body_bytes > LINGER_BYTES:
                connection.close()
            return
        exchange.add_part(part)
        if exchange.measure is not None:
            self.unmeasured_bytes += len(part)

    def _require_few_chunks(self) -> None:
        if self._body_parts > MOST_CHUNKS + self._body_bytes // LEAST_CHUNK_BYTES:
            raise TooMuch(413, "the body comes in too many small chunks; send larger ones")

    def on_message_complete(self) -> None:
        self.progress = True
        exchange = self.completed = self.arriving
        if exchange is not None and self._connection is not None:
            exchange.complete = True
            self._connection.body_arrived(exchange)


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
