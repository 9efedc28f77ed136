"""Workers on other machines: they connect over TCP, and both sides prove they know a secret.

    router                                      worker
      | <-------------- connects ---------------- |
      | --- Challenge: a number used once ------> |
      | <-- Hello: which worker, another number,  |
      |     and the proof ----------------------- |    an HMAC of all this under the run's secret
      | === Ping ===============================> |    sealed from here on: only who knows the secret can
      | <== Pong ================================ |
      | === Load, Run, Ping, ... ===============> |    as over a Unix socket

The secret itself is never sent. Each frame of `===` carries a tag under a key of its direction,
which is derived from the secret and both numbers: a third party between the two can neither add,
change, repeat nor reorder frames. It can read them, as nothing is encrypted, and end or delay the
connection.
"""

import asyncio
import hmac
import logging
import os
import secrets
import socket
from collections.abc import Callable

import msgspec

import gearshift
from gearshift.errors import InvalidInput
from gearshift.runtime.wire.messages import Challenge, Hello, Message, Ping, Pong
from gearshift.runtime.wire.seats import Seats
from gearshift.runtime.wire.transport import BlockingConnection, Bounds, EndOfStream, FrameError, FrameProtocol, Seal
from gearshift.runtime.workers.worker import main_loop

LONGEST_GREETING_S = 10.0
MOST_STRANGERS, MOST_STRANGERS_OF_ADDRESS = 256, 64
SECRET_BYTES = 32
GREETING = Bounds(header=4096, body=0, alone=True)
UNKNOWN = "it did not know the run's secret"

Arrived = Callable[[Hello, FrameProtocol], None]

log = logging.getLogger(__name__)


def proof_of(secret: bytes, challenge: Challenge, hello: Hello) -> bytes:
    return _derived(secret, b"proof", challenge, hello)


def seals_of(secret: bytes, challenge: Challenge, hello: Hello) -> tuple[Seal, Seal]:
    """The seals of the router's and the worker's frames, valid for this greeting only."""
    return (
        Seal(_derived(secret, b"to worker", challenge, hello)),
        Seal(_derived(secret, b"to router", challenge, hello)),
    )


def _derived(secret: bytes, purpose: bytes, challenge: Challenge, hello: Hello) -> bytes:
    greeting = msgspec.msgpack.encode((purpose, challenge, msgspec.structs.replace(hello, proof=b"")))
    return hmac.digest(secret, greeting, "sha256")


def number_used_once() -> bytes:
    return secrets.token_bytes(SECRET_BYTES)


def keep_alive(sock: socket.socket) -> None:
    """Have the kernel end a connection whose other side has been silent for about 25 s."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in ((socket.TCP_KEEPIDLE, 10), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 3)):
        sock.setsockopt(socket.IPPROTO_TCP, option, value)


# The router's side ---------------------------------------------------------------------------------------------------


class Listener:
    """Accepts workers' connections on one address; `arrived` gets the authenticated ones.

    Up to `MOST_STRANGERS` others may be open at once, each for `LONGEST_GREETING_S` and with
    frames of 4 KiB. When one more arrives, the oldest is closed, first of an address with more
    than `MOST_STRANGERS_OF_ADDRESS`.
    """

    def __init__(self, secret: bytes, arrived: Arrived) -> None:
        self._secret, self._arrived = secret, arrived
        self._strangers = Seats(MOST_STRANGERS_OF_ADDRESS)
        self._server: asyncio.Server | None = None

    async def start(self, host: str) -> tuple[str, int]:
        """Listen on any free port of `host` only; return the address. Raises `InvalidInput`."""
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(lambda: _Stranger(self), host, 0)
        except OSError as error:
            raise InvalidInput(
                f"cannot listen for workers on {host!r} ({error})",
                remedy="name an address of this machine that the nodes reach with --advertise-host",
            ) from error
        return host, self._server.sockets[0].getsockname()[1]

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for stranger in tuple(self._strangers):
            stranger.abort()

    def add(self, stranger: "_Stranger", address: str | None) -> None:
        if len(self._strangers) >= MOST_STRANGERS:
            oldest = self._strangers.longest_waited_for()
            if oldest is not None:
                self._strangers.remove(oldest)
                oldest.abort()
        self._strangers.add(stranger, address)

    def remove(self, stranger: "_Stranger") -> None:
        self._strangers.remove(stranger)

    def seals(self, challenge: Challenge, hello: Hello) -> tuple[Seal, Seal]:
        """Like `seals_of`; raises `FrameError` if the proof is wrong."""
        if not hmac.compare_digest(hello.proof, proof_of(self._secret, challenge, hello)):
            raise FrameError(UNKNOWN)
        return seals_of(self._secret, challenge, hello)

    def let_in(self, stranger: "_Stranger", hello: Hello) -> None:
        self.remove(stranger)
        self._arrived(hello, stranger)

    def turned_away(self, why: str) -> None:
        log.warning("a connection to the port for workers was closed, as %s", why)


class _Stranger(FrameProtocol):
    def __init__(self, listener: Listener) -> None:
        super().__init__(self._greeted, self._left, GREETING)
        self._listener, self._challenge = listener, Challenge(nonce=number_used_once())
        self._hello: Hello | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.waited_for_since_s = asyncio.get_running_loop().time()
        """Its turn begins with the connection, because it has to send its greeting."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        name = transport.get_extra_info("peername")  # None if it has left by now
        self._listener.add(self, name[0] if name else None)
        keep_alive(transport.get_extra_info("socket"))
        self._timer = asyncio.get_running_loop().call_later(LONGEST_GREETING_S, self.abort)
        self.send(self._challenge)

    def _greeted(self, message: Message, body: memoryview) -> None:
        if self._hello is not None:
            if not isinstance(message, Pong):
                raise FrameError(UNKNOWN)
            self._forget_timer()
            self._listener.let_in(self, self._hello)
        elif isinstance(message, Hello):
            to_worker, to_router = self._listener.seals(self._challenge, message)
            self._hello = message
            self.seal(to_worker, to_router)
            self.send(Ping())
        else:
            raise FrameError(UNKNOWN)

    def _left(self) -> None:
        self._forget_timer()
        self._listener.remove(self)
        if self.fault:
            self._listener.turned_away(self.fault)

    def _forget_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


# The worker's side ---------------------------------------------------------------------------------------------------


def serve_router(address: tuple[str, int], worker: int, secret: bytes) -> int:
    """Connect to the router at `address` and obey it until `Stop`; the status of `main_loop`.

    Raises `EndOfStream` or `OSError` when the connection ends, or for a false router.
    """
    with socket.create_connection(address, timeout=LONGEST_GREETING_S) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        keep_alive(sock)
        connection = BlockingConnection(sock, GREETING)
        try:
            greet(connection, worker, secret, sock.getsockname()[0])
            sock.settimeout(None)
            connection.widen_bounds()
            return main_loop(connection)
        except FrameError as error:
            log.error("the connection to the router at %s:%d ends: %s", *address, error)
            raise EndOfStream from None


def greet(connection: BlockingConnection, worker: int, secret: bytes, host: str) -> None:
    """Greet the router, and check its proof that it knows the secret; raises `FrameError`."""
    challenge, _ = connection.receive()
    if not isinstance(challenge, Challenge):
        raise FrameError("it is no port for workers")
    pid, version = os.getpid(), gearshift.__version__
    hello = Hello(worker=worker, nonce=number_used_once(), proof=b"", host=host, pid=pid, version=version)
    to_worker, to_router = seals_of(secret, challenge, hello)
    connection.send(msgspec.structs.replace(hello, proof=proof_of(secret, challenge, hello)))
    connection.seal(to_router, to_worker)
    ping, _ = connection.receive()
    if not isinstance(ping, Ping):
        raise FrameError("the router does not greet")
    connection.send(Pong())
