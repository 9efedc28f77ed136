"""A small HTTP/1.1 client for load: kept connections, one write per request, answers parsed by httptools.

It costs a fraction of a general client, which matters where the generator shares a core with what it measures.
"""

import asyncio
import ssl
from collections import deque
from types import TracebackType
from urllib.parse import urlsplit

import httptools

from gearshift.errors import InvalidInput


class NoAnswer(Exception):
    """A connection that could not be made, or that ended before the answer was whole."""


class _Connection(asyncio.Protocol):
    """One connection, with at most one request on it."""

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._answer: asyncio.Future[tuple[int, bytes]] | None = None
        self._body: list[bytes] = []
        self.usable = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport, to write to."""
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]
        self.usable = True

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the request that waits for an answer."""
        self.usable = False
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(NoAnswer("the connection was closed"))

    def data_received(self, data: bytes) -> None:
        """Parse what came."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self.close()

    def on_body(self, body: bytes) -> None:
        """A part of the answer's body."""
        self._body.append(body)

    def on_message_complete(self) -> None:
        """The answer is whole."""
        if not self._parser.should_keep_alive():
            self.usable = False
        if self._answer is not None and not self._answer.done():
            self._answer.set_result((self._parser.get_status_code(), b"".join(self._body)))

    async def exchange(self, request: bytes) -> tuple[int, bytes]:
        """Send a whole request; its status and body."""
        self._body = []
        self._parser = httptools.HttpResponseParser(self)
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._answer

    def close(self) -> None:
        """End it at once."""
        self.usable = False
        self._transport.abort()


class HttpClient:
    """Connections to one server, at most `connections` of them; `await` waits for a free one."""

    def __init__(self, base: str, *, connections: int) -> None:
        parts = urlsplit(base)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidInput("this is no URL of a server", where=base, remedy="give it as http://HOST:PORT")
        self._host = parts.hostname
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._port = parts.port or (443 if self._tls else 80)
        self._prefix = parts.path.rstrip("/")
        self._free: list[_Connection] = []
        self._all: set[_Connection] = set()
        self._most = connections
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._held = 0

    async def __aenter__(self) -> "HttpClient":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for connection in self._all:
            connection.close()

    def request_bytes(self, method: str, path: str, body: bytes = b"") -> bytes:
        """A whole request, to be sent as often as one likes."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        head = f"{method} {self._prefix}{path} HTTP/1.1\r\nHost: {host}:{self._port}\r\nAccept: */*\r\n"
        if body:
            head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        return head.encode() + b"\r\n" + body

    async def acquire(self) -> None:
        """Wait until one of the `connections` may be used; each needs one `release`."""
        if self._held >= self._most:
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            await turn
        else:
            self._held += 1

    def release(self) -> None:
        """Hand the turn to the next, if one waits."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._held -= 1

    async def exchange(self, request: bytes, *, within_s: float) -> tuple[int, bytes]:
        """Status and body of the answer; raises `NoAnswer` when the connection fails or `within_s` has passed."""
        connection: _Connection | None = None
        try:
            async with asyncio.timeout(within_s):
                connection = await self._connection()
                answer = await connection.exchange(request)
        except (TimeoutError, OSError) as error:
            if connection is not None:
                connection.close()
            raise NoAnswer(str(error) or "no answer in time") from None
        except BaseException:
            if connection is not None:
                connection.close()
            raise
        if connection.usable:
            self._free.append(connection)
        else:
            connection.close()
            self._all.discard(connection)
        return answer

    async def _connection(self) -> _Connection:
        while self._free:
            connection = self._free.pop()
            if connection.usable:
                return connection
            self._all.discard(connection)
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(_Connection, self._host, self._port, ssl=self._tls)
        self._all.add(connection)
        return connection
