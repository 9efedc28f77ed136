"""Find the sockets of gRPC connections, which the library hides, among this process's open files.

The library does not report how much of a message has arrived, and cannot close one connection.
The kernel knows the bytes that a connection has received, and can close it.  On systems without
`/proc` or `TCP_INFO`, connections are not found.
"""

import ipaddress
import os
import socket
import stat
import struct
from contextlib import suppress
from urllib.parse import unquote

OPEN_FILES = "/proc/self/fd"
FAMILIES = (socket.AF_INET, socket.AF_INET6)
_RECEIVED = struct.Struct("=Q")
_RECEIVED_AT = 128
"""Offset of `tcpi_bytes_received` in Linux's `struct tcp_info`, since 4.1."""

End = tuple[str, int]


class GrpcSockets:
    """Connections to `port`, by peer as the library writes it (`ipv4:127.0.0.1:1234`)."""

    def __init__(self) -> None:
        self.port = 0
        self._files: dict[End, int] = {}

    def knows(self, peer: str) -> bool:
        return _end_of(peer) in self._files

    def look_through(self) -> None:
        self._files = {}
        with suppress(OSError):
            for name in os.listdir(OPEN_FILES):
                with suppress(OSError), _socket(int(name)) as sock:
                    if sock.family in FAMILIES and sock.getsockname()[1] == self.port:
                        self._files[_plain(sock.getpeername())] = int(name)

    def received_bytes(self, peer: str) -> int | None:
        """Return the bytes received since the connection was opened; None if unknown."""
        if not self.knows(peer):
            return None
        with suppress(OSError), self._opened(peer) as sock:
            known = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _RECEIVED_AT + _RECEIVED.size)
            if len(known) == _RECEIVED_AT + _RECEIVED.size:
                return int(_RECEIVED.unpack_from(known, _RECEIVED_AT)[0])
        return None

    def cut(self, peer: str) -> None:
        if not self.knows(peer):
            self.look_through()
        with suppress(OSError), self._opened(peer) as sock:
            sock.shutdown(socket.SHUT_RDWR)

    def _opened(self, peer: str) -> socket.socket:
        """Duplicate its socket; raises `OSError` if unknown, or if the file has been reused."""
        end = _end_of(peer)
        file = self._files.get(end)
        if file is None:
            raise OSError(f"{peer} is not known")
        sock = _socket(file)
        with suppress(OSError):
            if sock.family in FAMILIES and _plain(sock.getpeername()) == end:
                return sock
        sock.close()
        del self._files[end]
        raise OSError(f"{peer} is gone")


def _socket(file: int) -> socket.socket:
    """Duplicate an open file as a socket that may be closed; raises `OSError` if it is none."""
    if not stat.S_ISSOCK(os.fstat(file).st_mode):
        raise OSError(f"{file} is no socket")
    return socket.socket(fileno=os.dup(file))


def _end_of(peer: str) -> End:
    host, _, port = unquote(peer.partition(":")[2]).rpartition(":")
    return _plain((host.strip("[]"), int(port) if port.isdecimal() else 0))


def _plain(name: tuple[str, int] | tuple[str, int, int, int]) -> End:
    """Return the same for an IPv4 address and its IPv6-mapped form."""
    host = name[0].partition("%")[0]
    mapped = ipaddress.IPv6Address(host).ipv4_mapped if ":" in host else None
    return str(mapped or host), name[1]
