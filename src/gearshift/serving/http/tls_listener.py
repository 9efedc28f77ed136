"""A listening TLS socket that counts each client as a connection from its arrival.

An asyncio server reports a client only after the handshake, so that handshakes would have no
bound.
"""

import asyncio
import logging
import socket
import ssl

from gearshift.serving.door.sockets import BACKLOG
from gearshift.serving.http.connection import Connection
from gearshift.serving.http.connections import Connections

MOST_AT_ONCE = 64
PAUSE_S = 1.0
"""Pause after the system could not accept a client."""

log = logging.getLogger(__name__)


class TlsListener:
    def __init__(self, sock: socket.socket, connections: Connections, context: ssl.SSLContext) -> None:
        self._sock, self._all, self._context = sock, connections, context
        self._loop = asyncio.get_running_loop()
        self._pause: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._sock.setblocking(False)
        self._sock.listen(BACKLOG)
        self._loop.add_reader(self._sock.fileno(), self._accept)

    def close(self) -> None:
        if self._pause is not None:
            self._pause.cancel()
        if self._sock.fileno() >= 0:
            self._loop.remove_reader(self._sock.fileno())
            self._sock.close()

    def _accept(self) -> None:
        for _ in range(MOST_AT_ONCE):
            try:
                client, address = self._sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                log.warning("no client can be accepted for %g s (%s)", PAUSE_S, error.strerror)
                self._loop.remove_reader(self._sock.fileno())
                self._pause = self._loop.call_later(PAUSE_S, self.start)
                return
            Handshake(client, address[0], self._all, self._context)


class Handshake:
    """A TLS handshake within the time for a first byte; beyond the bound, the client is closed."""

    def __init__(self, client: socket.socket, address: str, connections: Connections, context: ssl.SSLContext) -> None:
        self._client, self._all, self._context = client, connections, context
        client.setblocking(False)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.waited_for_since_s = asyncio.get_running_loop().time()
        """It is always the client's turn during the handshake."""
        if connections.add(self, address) != "none":
            self._work = asyncio.get_running_loop().create_task(self._agree())
            self._work.add_done_callback(self._ended)
        else:
            connections.remove(self)
            client.close()

    def end(self) -> None:
        self.abort()

    def abort(self) -> None:
        self._work.cancel()

    def over(self) -> None:
        self._all.remove(self)

    async def _agree(self) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: _Secured(self, self._all),
                self._client,
                ssl=self._context,
                ssl_handshake_timeout=min(self._all.first_byte_s, self._all.longest_read_s),
            )
        except OSError as error:  # includes ssl.SSLError
            log.debug("a client did not agree on keys: %s", error)

    def _ended(self, work: asyncio.Task[None]) -> None:
        self.over()
        if work.cancelled():
            self._client.close()


class _Secured(Connection):
    def __init__(self, handshake: Handshake, connections: Connections) -> None:
        super().__init__(connections)
        self._handshake = handshake

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._handshake.over()
        super().connection_made(transport)
