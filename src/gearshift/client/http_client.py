"""A small HTTP/1.1 client for load: kept connections, one write per request, answers parsed by httptools.

It costs a fraction of a general client, which matters where the generator shares a core with what it measures.
"""

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from urllib.parse import urlsplit

import httptools

from gearshift.errors import InvalidInput, NoAnswer
from gearshift.support.of_process import OfProcess


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server is; `prefix` comes before every path."""

    host: str
    port: int
    secure: bool
    prefix: str


def address_of(base: str) -> Address:
    """The address in a URL; raises `InvalidInput` where it is none of a server."""
    try:
        parts = urlsplit(base)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidInput("this is no URL of a server", where=base, remedy="give it as http://HOST:PORT")
    secure = parts.scheme == "https"
    return Address(parts.hostname, port or (443 if secure else 80), secure, parts.path.rstrip("/"))


@dataclass(frozen=True, slots=True)
class Response:
    """A whole answer; names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class _Connection(asyncio.Protocol):
    """One connection, with at most one request on it; it is in its pool from its beginning to its end."""

    def __init__(self, pool: "_Pool") -> None:
        self._pool = pool
        self._parser = httptools.HttpResponseParser(self)
        self._answer: asyncio.Future[Response] | None = None
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []
        self.usable = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport, to write to."""
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]
        self.usable = True
        self._pool.all.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the request that waits for an answer."""
        self.usable = False
        self._pool.all.discard(self)
        self._pool.free.pop(self, None)
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(NoAnswer("the connection was closed"))

    def data_received(self, data: bytes) -> None:
        """Parse what came."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self.close()

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header of the answer."""
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        """A part of the answer's body."""
        self._body.append(body)

    def on_message_complete(self) -> None:
        """The answer is whole."""
        if not self._parser.should_keep_alive():
            self.usable = False
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(Response(self._parser.get_status_code(), self._headers, b"".join(self._body)))

    async def exchange(self, request: bytes) -> Response:
        """Send a whole request and wait for the whole answer."""
        self._headers, self._body = {}, []
        self._parser = httptools.HttpResponseParser(self)
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._answer

    def close(self) -> None:
        """End it at once."""
        self.usable = False
        self._transport.abort()


class _Pool:
    """Connections of one process; those in `free` have no request on them."""

    def __init__(self) -> None:
        self.free: dict[_Connection, None] = {}
        self.all: set[_Connection] = set()


class HttpClient:
    """Connections to one server, as many as requests are under way; a process that is forked off makes its own."""

    def __init__(self, base: str, *, tls: ssl.SSLContext | None = None) -> None:
        self._address = address_of(base)
        self._tls = (tls or ssl.create_default_context()) if self._address.secure else None
        self._pool = OfProcess(_Pool)

    async def __aenter__(self) -> "HttpClient":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections at once."""
        for connection in list(self._pool.own().all):
            connection.close()

    def request_bytes(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> bytes:
        """A whole request, to be sent as often as one likes; a body is JSON unless `headers` say otherwise."""
        address = self._address
        host = f"[{address.host}]" if ":" in address.host else address.host
        head = f"{method} {address.prefix}{path} HTTP/1.1\r\nHost: {host}:{address.port}\r\nAccept: */*\r\n"
        if body:
            head += f"Content-Length: {len(body)}\r\n"
            headers = {"Content-Type": "application/json", **(headers or {})}
        head += "".join([f"{name}: {value}\r\n" for name, value in (headers or {}).items()])
        return head.encode() + b"\r\n" + body

    async def exchange(self, request: bytes, *, within_s: float) -> tuple[int, bytes]:
        """Status and body of the answer; raises `NoAnswer` when the connection fails or `within_s` has passed."""
        response = await self.response_to(request, within_s=within_s)
        return response.status, response.body

    async def response_to(self, request: bytes, *, within_s: float) -> Response:
        """As `exchange`, with the headers."""
        connection: _Connection | None = None
        try:
            async with asyncio.timeout(within_s):
                connection = await self._connection()
                answer = await connection.exchange(request)
        except (TimeoutError, OSError) as error:
            if connection is not None:
                connection.close()
            raise NoAnswer(str(error) or "no answer in time", sent=connection is not None) from None
        except BaseException:
            if connection is not None:
                connection.close()
            raise
        if connection.usable:
            self._pool.own().free[connection] = None
        else:
            connection.close()
        return answer

    async def _connection(self) -> _Connection:
        pool = self._pool.own()
        while pool.free:
            connection, _ = pool.free.popitem()
            if connection.usable:
                return connection
        loop, address = asyncio.get_running_loop(), self._address
        _, connection = await loop.create_connection(
            lambda: _Connection(pool), address.host, address.port, ssl=self._tls
        )
        return connection
