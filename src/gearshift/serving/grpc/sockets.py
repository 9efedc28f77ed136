"""The sockets of gRPC connections, which the library keeps to itself, found among the open files of this process.

The library says neither how much of a message has come, nor lets one connection be closed.  The kernel knows the
first, as bytes that a connection has received in all, and does the second.  Where the system has no such books
(`/proc`, `TCP_INFO`), connections are not found.
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
"""Where `tcpi_bytes_received` is in Linux's `struct tcp_info`, since 4.1."""

End = tuple[str, int]


class GrpcSockets:
    """Connections to `port`, by the far end as the library writes it (`ipv4:127.0.0.1:1234`)."""

    def __init__(self) -> None:
        self.port = 0
        self._files: dict[End, int] = {}

    def knows(self, peer: str) -> bool:
        """Whether its file was found when they were looked through."""
        return _end_of(peer) in self._files

    def look_through(self) -> None:
        """Find the connections that are open now."""
        self._files = {}
        with suppress(OSError):
            for name in os.listdir(OPEN_FILES):
                with suppress(OSError), _socket(int(name)) as sock:
                    if sock.family in FAMILIES and sock.getsockname()[1] == self.port:
                        self._files[_plain(sock.getpeername())] = int(name)

    def received_bytes(self, peer: str) -> int | None:
        """Bytes that the connection has received since it was opened; None if it is not known."""
        if not self.knows(peer):
            return None
        with suppress(OSError), self._opened(peer) as sock:
            known = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _RECEIVED_AT + _RECEIVED.size)
            if len(known) == _RECEIVED_AT + _RECEIVED.size:
                return int(_RECEIVED.unpack_from(known, _RECEIVED_AT)[0])
        return None

    def cut(self, peer: str) -> None:
        """End the connection, with all calls on it."""
        if not self.knows(peer):
            self.look_through()
        with suppress(OSError), self._opened(peer) as sock:
            sock.shutdown(socket.SHUT_RDWR)

    def _opened(self, peer: str) -> socket.socket:
        """Its socket, once more; raises `OSError` where it is not known, or is another's meanwhile."""
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
    """The socket that an open file is, once more, so that it may be closed; raises `OSError` where it is none."""
    if not stat.S_ISSOCK(os.fstat(file).st_mode):
        raise OSError(f"{file} is no socket")
    return socket.socket(fileno=os.dup(file))


def _end_of(peer: str) -> End:
    host, _, port = unquote(peer.partition(":")[2]).rpartition(":")
    return _plain((host.strip("[]"), int(port) if port.isdecimal() else 0))


def _plain(name: tuple[str, int] | tuple[str, int, int, int]) -> End:
    """The same for an IPv4 address that was written as one of IPv6."""
    host = name[0].partition("%")[0]
    mapped = ipaddress.IPv6Address(host).ipv4_mapped if ":" in host else None
    return str(mapped or host), name[1]
