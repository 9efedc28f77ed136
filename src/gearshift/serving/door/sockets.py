"""The sockets that a server listens on, and their TLS context."""

import errno
import ipaddress
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from gearshift.errors import InvalidInput

BACKLOG = 2048
TRIES = 8
"""Attempts to find a port that is free at all addresses."""
NONE_FREE = f"end what holds ports here: of {TRIES} tried none was free"
PEM = "name PEM files of a certificate chain and of its key, the key without a password"

Address = tuple[int, str | int, int]
"""Family, numeric host, scope."""


@contextmanager
def bound_socket(host: str, port: int, *, shared: bool = False) -> Iterator[socket.socket]:
    with _bound_to(_addresses(host, port)[:1], host, port, shared) as (sock,):
        yield sock


@contextmanager
def bound_sockets(host: str, port: int, *, shared: bool = False) -> Iterator[list[socket.socket]]:
    """Bind a socket for each address of `host` (`localhost` may have two), all on one port.

    Clients are not accepted yet.  Addresses that this machine lacks, such as IPv6 ones, are
    skipped.  Raises `InvalidInput` if none is left, or the port is in use; port 0 takes one that
    is free at all of them.  `shared` lets other sockets of this user have the same port, for
    `beside`.
    """
    with _bound_to(_addresses(host, port), host, port, shared) as socks:
        yield socks


@contextmanager
def _bound_to(addresses: list[Address], host: str, port: int, shared: bool) -> Iterator[list[socket.socket]]:
    for tries_left in reversed(range(1 if port else TRIES)):
        with ExitStack() as stack:
            try:
                socks = _all_bound(addresses, host, port, shared, stack)
            except _InUseError as error:
                if tries_left:
                    continue
                raise InvalidInput(error.what, remedy=error.remedy if port else NONE_FREE) from None
            yield socks
            return


def _all_bound(addresses: list[Address], host: str, port: int, shared: bool, stack: ExitStack) -> list[socket.socket]:
    socks: list[socket.socket] = []
    for address in addresses:
        try:
            sock = _bound(address, host, port, shared, stack)
        except _NotHereError as error:
            if socks or address is not addresses[-1]:
                continue
            raise InvalidInput(error.what, remedy=error.remedy) from None
        port = sock.getsockname()[1]
        socks.append(sock)
    return socks


class _InUseError(InvalidInput):
    """Another process holds the port."""


class _NotHereError(InvalidInput):
    """This machine does not have the address."""


def _addresses(host: str, port: int) -> list[Address]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise InvalidInput(f"host {host!r} cannot be used ({error.strerror})", remedy="choose another") from None
    kept = ((family, address[0], address[3] if len(address) > 3 else 0) for family, *_, address in found)
    return list(dict.fromkeys(kept))


def _bound(address: Address, host: str, port: int, shared: bool, stack: ExitStack) -> socket.socket:
    family, place, scope = address
    if shared:
        with ExitStack() as alone:  # refuse a port that another server already shares
            port = _bound(address, host, port, False, alone).getsockname()[1]
    try:
        sock = stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.bind((place, port, 0, scope) if family == socket.AF_INET6 else (place, port))
        sock.listen(BACKLOG)
    except OSError as error:
        what = f"port {port} of {host}" if place == host else f"port {port} of {host} ({place})"
        if error.errno == errno.EADDRINUSE:
            raise _InUseError(f"{what} is in use", remedy="choose another with --port") from None
        here = error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
        raise (InvalidInput if here else _NotHereError)(
            f"{what} cannot be used ({error.strerror})", remedy=f"choose another with {'--port' if here else '--host'}"
        ) from None
    return sock


def beside(sock: socket.socket) -> socket.socket:
    """Return another socket on the port of a shared one; the kernel spreads clients over both."""
    other = socket.socket(sock.family, sock.type, sock.proto)
    other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    other.bind(sock.getsockname())
    other.listen(BACKLOG)
    return other


def is_loopback(sock: socket.socket) -> bool:
    return ipaddress.ip_address(sock.getsockname()[0].partition("%")[0]).is_loopback


def server_context(certificate: str, key: str) -> ssl.SSLContext:
    """Load certificate and key; raises `InvalidInput` if unreadable or not a pair."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    where = f"{certificate} and {key}"
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except ssl.SSLError as error:
        reason = (error.reason or "no PEM").replace("_", " ").lower()
        raise InvalidInput(f"certificate and key cannot be used ({reason})", where=where, remedy=PEM) from None
    except OSError as error:
        raise InvalidInput(f"a file cannot be read ({error.strerror})", where=where, remedy=PEM) from None
    return context


def _no_password() -> str:
    """Return no password; otherwise OpenSSL would ask at the terminal."""
    return ""
