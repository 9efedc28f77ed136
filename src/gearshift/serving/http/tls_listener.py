"""A socket on which TLS is spoken: each client counts as a connection from the moment it is there.

An asyncio server tells of a client only once both have agreed on keys, so that any number could be on their way.
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
"""After the system had no means for another client."""

log = logging.getLogger(__name__)


class TlsListener:
    """Accepts clients on `sock` from `start` to `close`."""

    def __init__(self, sock: socket.socket, connections: Connections, context: ssl.SSLContext) -> None:
        self._sock, self._all, self._context = sock, connections, context
        self._loop = asyncio.get_running_loop()
        self._pause: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Listen."""
        self._sock.setblocking(False)
        self._sock.listen(BACKLOG)
        self._loop.add_reader(self._sock.fileno(), self._accept)

    def close(self) -> None:
        """Take no more clients; may be called twice."""
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
    """Agrees on keys with a client, within the time that it has for a first byte; one too many is sent away."""

    def __init__(self, client: socket.socket, address: str, connections: Connections, context: ssl.SSLContext) -> None:
        self._client, self._all, self._context = client, connections, context
        client.setblocking(False)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.waited_for_since_s = asyncio.get_running_loop().time()
        """The client has yet to ask for anything."""
        if connections.add(self, address) != "none":
            self._work = asyncio.get_running_loop().create_task(self._agree())
            self._work.add_done_callback(self._ended)
        else:
            connections.remove(self)
            client.close()

    def end(self) -> None:
        """Nothing was asked yet."""
        self.abort()

    def abort(self) -> None:
        """Cut it off."""
        self._work.cancel()

    def over(self) -> None:
        """It is a connection from here on, or none."""
        self._all.remove(self)

    async def _agree(self) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: _Secured(self, self._all),
                self._client,
                ssl=self._context,
                ssl_handshake_timeout=min(self._all.first_byte_s, self._all.longest_read_s),
            )
        except OSError as error:  # errors of TLS are some
            log.debug("a client did not agree on keys: %s", error)

    def _ended(self, work: asyncio.Task[None]) -> None:
        self.over()
        if work.cancelled():
            self._client.close()


class _Secured(Connection):
    """A client that speaks TLS."""

    def __init__(self, handshake: Handshake, connections: Connections) -> None:
        super().__init__(connections)
        self._handshake = handshake

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keys are agreed on."""
        self._handshake.over()
        super().connection_made(transport)
