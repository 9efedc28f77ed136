"""The socket that a server listens on."""

import errno
import ipaddress
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from gearshift.errors import InvalidInput

BACKLOG = 2048


@contextmanager
def bound_socket(host: str, port: int, *, shared: bool = False) -> Iterator[socket.socket]:
    """A socket that is not answered yet but holds its port; raises `InvalidInput` where it is in use.

    One that is `shared` lets others of this user have the same port, for `beside`.
    """
    remedy = "choose another with --port" if port else "end what holds ports here: none is free"
    if shared:
        with bound_socket(host, port) as alone:  # nobody else's, not even another server's that shares its own
            port = alone.getsockname()[1]
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        sock = socket.socket(family, kind, protocol)
    except OSError as error:
        raise InvalidInput(f"host {host!r} cannot be used ({error.strerror})", remedy="choose another") from None
    with sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        try:
            sock.bind(address)
            sock.listen(BACKLOG)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise InvalidInput(f"port {port} of {host} is in use", remedy=remedy) from None
            raise InvalidInput(f"port {port} of {host} cannot be used ({error.strerror})", remedy=remedy) from None
        yield sock


def beside(sock: socket.socket) -> socket.socket:
    """Another socket on the port of a shared one; the kernel spreads clients over both."""
    other = socket.socket(sock.family, sock.type, sock.proto)
    other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    other.bind(sock.getsockname())
    other.listen(BACKLOG)
    return other


def is_loopback(sock: socket.socket) -> bool:
    """Whether a bound socket is reached from this machine alone."""
    return ipaddress.ip_address(sock.getsockname()[0].partition("%")[0]).is_loopback
