"""The HTTP server: its listening sockets and all connections accepted from them."""

import asyncio
import socket
from collections.abc import Callable

from gearshift.serving.door.bounds import most_waiting_bytes
from gearshift.serving.door.settings import ServerSettings
from gearshift.serving.door.sockets import BACKLOG, server_context
from gearshift.serving.http.connection import Connection
from gearshift.serving.http.connections import Connections, Handler
from gearshift.serving.http.tls_listener import TlsListener


class HttpServer:
    """Serves HTTP requests with `handler`, from `start` to `stop`; it handles no signals."""

    def __init__(
        self,
        handler: Handler,
        settings: ServerSettings,
        count: Callable[[int], int] = int,
        count_unsent: Callable[[int], int] = int,
    ) -> None:
        self._settings = settings
        connections_here = settings.most_connections / settings.front_ends
        self._connections = Connections(
            handler=handler,
            largest_header_bytes=settings.largest_header_bytes,
            longest_read_s=settings.longest_read_s,
            first_byte_s=settings.first_byte_s,
            keep_alive_s=settings.keep_alive_s,
            most_connections=settings.most_connections,
            most_of_address=max(1, int(settings.address_share * connections_here)),
            most_unsent_bytes=most_waiting_bytes(settings) // 2,
            count=count,
            count_unsent=count_unsent,
        )
        self._servers: list[asyncio.AbstractServer | TlsListener] = []

    async def start(self, *socks: socket.socket) -> None:
        certificate, key = self._settings.tls_certificate, self._settings.tls_key
        for sock in socks:
            if certificate is not None and key is not None:
                listener = TlsListener(sock, self._connections, server_context(certificate, key))
                listener.start()
                self._servers.append(listener)
            else:
                server = await asyncio.get_running_loop().create_server(
                    lambda: Connection(self._connections), sock=sock, backlog=BACKLOG
                )
                self._servers.append(server)

    @property
    def open(self) -> int:
        return len(self._connections.open)

    def stop_listening(self) -> None:
        """Accept no more connections; open ones are closed after their next answer."""
        self._connections.ending = True
        for server in self._servers:
            server.close()

    def pin(self, cores: frozenset[int]) -> None:
        """Do nothing: it runs in this process."""

    async def stop(self, longest_s: float) -> None:
        """Close idle connections now, others after their answer, the rest after `longest_s`."""
        self.stop_listening()
        for connection in list(self._connections.open):
            connection.end()
        try:
            async with asyncio.timeout(longest_s):
                await self._connections.closed()
        except TimeoutError:
            for connection in list(self._connections.open):
                connection.abort()
            await self._connections.closed()
