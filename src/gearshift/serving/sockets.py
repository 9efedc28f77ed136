"""The socket that a server listens on."""

import errno
import ipaddress
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from gearshift.errors import InvalidInput

BACKLOG = 2048


@contextmanager
def bound_socket(host: str, port: int) -> Iterator[socket.socket]:
    """A socket that listens nowhere yet but holds its port; raises `InvalidInput` where it is in use."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        sock = socket.socket(family, kind, protocol)
    except OSError as error:
        raise InvalidInput(f"host {host!r} cannot be used ({error.strerror})", remedy="choose another") from None
    with sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(address)
            sock.listen(BACKLOG)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise InvalidInput(f"port {port} of {host} is in use", remedy="choose another with --port") from None
            raise InvalidInput(
                f"port {port} of {host} cannot be used ({error.strerror})", remedy="choose another with --port"
            ) from None
        yield sock


def is_loopback(sock: socket.socket) -> bool:
    """Whether a bound socket is reached from this machine alone."""
    return ipaddress.ip_address(sock.getsockname()[0].partition("%")[0]).is_loopback
