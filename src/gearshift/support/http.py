"""Ask an HTTP server and wait for its answer: bounded in time and bytes, without redirects and proxies."""

import http.client
import select
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from pathlib import Path
from urllib.parse import urlsplit

from gearshift.errors import InvalidInput
from gearshift.support.of_process import OfProcess

PART_BYTES = 256 << 10
"""Largest part of an answer that is read at once."""
LONGEST_NUMBER = 15
Failure = (OSError, http.client.HTTPException)
"""What `Connections` raises where no whole answer comes; `TimeoutError`, which is one of them, where it is late."""
LeftS = Callable[[], float]
"""The seconds that an exchange still has; raises where there are none."""


@dataclass(frozen=True, slots=True)
class Address:
    """A server's address; `prefix` comes before every path."""

    host: str
    port: int
    secure: bool
    prefix: str


def address_of(base: str) -> Address:
    try:
        parts = urlsplit(base)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidInput("this is no URL of a server", where=base, remedy="give it as http://HOST:PORT")
    secure = parts.scheme == "https"
    return Address(parts.hostname, port or (443 if secure else 80), secure, parts.path.rstrip("/"))


def tls_context(ca_file: Path | str | None, *, where: str = "", named: str = "") -> ssl.SSLContext:
    """The certificates to trust; raises `InvalidInput` if `ca_file` contains none."""
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:  # includes SSLError
        what = f"no certificates can be read{named} ({error})"
        raise InvalidInput(what, where=where or str(ca_file), remedy="name a PEM file") from None


@dataclass(frozen=True, slots=True)
class Response:
    """A whole answer, unless it is `too_large`; header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    too_large: bool = False


def left_until(end_s: float) -> LeftS:
    """The time left until `end_s` on the monotonic clock; raises `TimeoutError`."""

    def left_s() -> float:
        if (left := end_s - time.monotonic()) > 0:
            return left
        raise TimeoutError

    return left_s


class Connections:
    """Connections to one server, which are kept; threads may share them, and a forked process makes its own.

    `tls` is needed for a secure address. Of an answer no more than `largest_bytes`, or a little more, is read.
    """

    def __init__(
        self, address: Address, tls: ssl.SSLContext | None = None, largest_bytes: float = float("inf")
    ) -> None:
        self._address, self._tls, self._largest_bytes = address, tls, largest_bytes
        self._free = OfProcess(list[http.client.HTTPConnection])
        self._busy = OfProcess(set[http.client.HTTPConnection])

    def connected(self, left_s: LeftS) -> http.client.HTTPConnection:
        """A kept connection or a new one, for one `exchange`; raises `OSError` where there is no server."""
        while (kept := self._kept()) is not None:
            if not _readable(kept):
                kept.sock.settimeout(left_s())
                return kept
            kept.close()
        address = self._address
        if self._tls is None:
            new = http.client.HTTPConnection(address.host, address.port, timeout=left_s())
        else:
            new = http.client.HTTPSConnection(address.host, address.port, timeout=left_s(), context=self._tls)
        try:
            new.connect()
        except BaseException:
            new.close()
            raise
        return new

    def exchange(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        body: bytes | None,
        headers: Mapping[str, str],
        left_s: LeftS,
    ) -> Response:
        """Send a request and read the whole answer, each part in time; raises a `Failure`."""
        busy, keep = self._busy.own(), False
        busy.add(connection)
        try:
            connection.request(method, self._address.prefix + path, body, dict(headers))
            response = self._read(connection, left_s)
            keep = connection.sock is not None
            return response
        finally:
            busy.discard(connection)
            if keep:
                self._free.own().append(connection)
            else:
                connection.close()

    def cut_off(self) -> None:
        """Fail all open exchanges, even those whose answers trickle in."""
        for connection in list(self._busy.own()):
            if connection.sock is not None:
                with suppress(OSError):
                    socket.socket.shutdown(connection.sock, socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the kept connections."""
        while (kept := self._kept()) is not None:
            kept.close()

    def _kept(self) -> http.client.HTTPConnection | None:
        try:
            return self._free.own().pop()
        except IndexError:
            return None

    def _read(self, connection: http.client.HTTPConnection, left_s: LeftS) -> Response:
        sock = connection.sock  # the connection forgets it where it will not be kept
        with connection.getresponse() as response:
            parts, size_bytes, too_large = [], 0, False
            while part := response.read1(PART_BYTES):
                parts.append(part)
                size_bytes += len(part)
                if too_large := size_bytes > self._largest_bytes:
                    connection.close()
                    break
                sock.settimeout(left_s())
            if response.length and not too_large:
                raise http.client.IncompleteRead(b"", response.length)
        headers = {name.lower(): value for name, value in response.getheaders()}
        return Response(response.status, headers, b"".join(parts), too_large)


def fetched(url: str, *, within_s: float, largest_bytes: int) -> Response:
    """The answer to one GET; raises a `Failure`."""
    address, left_s = address_of(url), left_until(time.monotonic() + within_s)
    connections = Connections(address, tls_context(None) if address.secure else None, largest_bytes)
    try:
        return connections.exchange(connections.connected(left_s), "GET", "", None, {}, left_s)
    finally:
        connections.close()


def _readable(connection: http.client.HTTPConnection) -> bool:
    """Whether an idle connection is readable, which means that the server has closed it."""
    poller = select.poll()
    poller.register(connection.sock, select.POLLIN)
    return bool(poller.poll(0))


def asked_pause_s(retry_after: str) -> float | None:
    """Seconds to wait (RFC 9110, section 10.2.3); None if none, or a past date (clocks differ)."""
    if retry_after.isascii() and retry_after.isdigit():
        return float(retry_after[:LONGEST_NUMBER])
    try:
        date = parsedate_to_datetime(retry_after)
        left_s = (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() - time.time()
    except (ValueError, OverflowError):
        return None
    return left_s if left_s > 0 else None
