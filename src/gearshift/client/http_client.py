"""A small HTTP/1.1 client for load: kept connections, one write per request, httptools.

It costs a fraction of a general client, which matters if the generator shares a core with the
server.
"""

import asyncio
import ssl
from collections.abc import Mapping
from types import TracebackType

import httptools

from gearshift.errors import NoAnswer
from gearshift.support.http import Response, address_of
from gearshift.support.of_process import OfProcess


class _Connection(asyncio.Protocol):
    """One connection with at most one request; it is in `_Pool.all` while it is open."""

    def __init__(self, pool: "_Pool") -> None:
        self._pool = pool
        self._parser = httptools.HttpResponseParser(self)
        self._answer: asyncio.Future[Response] | None = None
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []
        self.usable = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]
        self.usable = True
        self._pool.all.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.usable = False
        self._pool.all.discard(self)
        self._pool.free.pop(self, None)
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(NoAnswer("the connection was closed"))

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self.close()

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        if not self._parser.should_keep_alive():
            self.usable = False
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(Response(self._parser.get_status_code(), self._headers, b"".join(self._body)))

    async def exchange(self, request: bytes) -> Response:
        self._headers, self._body = {}, []
        self._parser = httptools.HttpResponseParser(self)
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._answer

    def close(self) -> None:
        self.usable = False
        self._transport.abort()


class _Pool:
    """Connections of one process; those in `free` have no request on them."""

    def __init__(self) -> None:
        self.free: dict[_Connection, None] = {}
        self.all: set[_Connection] = set()


class HttpClient:
    """Connections to one server, one per open request; a forked process makes its own."""

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
        for connection in list(self._pool.own().all):
            connection.close()

    def request_bytes(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> bytes:
        """Return a whole request, to be sent any number of times; a body is JSON by default."""
        address = self._address
        host = f"[{address.host}]" if ":" in address.host else address.host
        head = f"{method} {address.prefix}{path} HTTP/1.1\r\nHost: {host}:{address.port}\r\nAccept: */*\r\n"
        if body:
            head += f"Content-Length: {len(body)}\r\n"
            headers = {"Content-Type": "application/json", **(headers or {})}
        head += "".join([f"{name}: {value}\r\n" for name, value in (headers or {}).items()])
        return head.encode() + b"\r\n" + body

    async def response_to(self, request: bytes, *, within_s: float) -> Response:
        """Raises `NoAnswer` on a broken connection or after `within_s`."""
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
