"""Workers on other machines: they connect to the router over TCP, and prove that they belong to its run.

    router                                    worker
      | <------------- connects ---------------- |
      | --- Challenge: a number used once -----> |
      | <-- Hello: which worker, and the proof - |    an HMAC of both under the run's secret
      | --- Load, Run, Ping, ... --------------> |    from here on as over a Unix socket

The secret itself never crosses, and the frames after it are neither encrypted nor signed.
"""

import asyncio
import hmac
import logging
import os
import secrets
import socket
from collections.abc import Callable

import gearshift
from gearshift.errors import InvalidInput
from gearshift.observability.seldom import Seldom
from gearshift.runtime.messages import Challenge, Hello, Message
from gearshift.runtime.seats import Seats
from gearshift.runtime.transport import BlockingConnection, Bounds, EndOfStream, FrameProtocol
from gearshift.runtime.worker import main_loop

LONGEST_GREETING_S = 10.0
MOST_STRANGERS, MOST_STRANGERS_OF_ADDRESS = 256, 64
SECRET_BYTES = 32
GREETING = Bounds(header=4096, body=0)

Arrived = Callable[[Hello, FrameProtocol], None]

log = logging.getLogger(__name__)


def proof_of(secret: bytes, nonce: bytes, worker: int) -> bytes:
    """What a worker shows to be let in."""
    return hmac.digest(secret, nonce + str(worker).encode(), "sha256")


def keep_alive(sock: socket.socket) -> None:
    """Have the kernel end a connection whose other side has been silent for some 25 s, as it does not exist."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in ((socket.TCP_KEEPIDLE, 10), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 3)):
        sock.setsockopt(socket.IPPROTO_TCP, option, value)


# The router's side ---------------------------------------------------------------------------------------------------


class Listener:
    """Takes the connections of a run's workers on one address; `arrived` gets each that has proved itself.

    Up to `MOST_STRANGERS` others may be open at once, each for `LONGEST_GREETING_S` and with a frame of 4 KiB; where
    one more comes the oldest goes, of an address with more than `MOST_STRANGERS_OF_ADDRESS` first.
    """

    def __init__(self, secret: bytes, arrived: Arrived) -> None:
        self._secret, self._arrived = secret, arrived
        self._strangers = Seats(MOST_STRANGERS_OF_ADDRESS)
        self._seldom = Seldom(log)
        self._server: asyncio.Server | None = None

    async def start(self, host: str) -> tuple[str, int]:
        """Listen on any free port of `host` alone; its address.  Raises `InvalidInput` where that cannot be."""
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
        """Take no more, and end those that have not said who they are."""
        if self._server is not None:
            self._server.close()
        for stranger in tuple(self._strangers):
            stranger.abort()

    def add(self, stranger: "_Stranger", address: str | None) -> None:
        """One has come."""
        if len(self._strangers) >= MOST_STRANGERS:
            oldest = self._strangers.longest_waited_for()
            if oldest is not None:
                self._strangers.remove(oldest)
                oldest.abort()
        self._strangers.add(stranger, address)

    def remove(self, stranger: "_Stranger") -> None:
        """It has left, or said who it is."""
        self._strangers.remove(stranger)

    def greeted(self, stranger: "_Stranger", message: Message, nonce: bytes) -> None:
        """Let it in where its answer to `nonce` is right, else end it."""
        if isinstance(message, Hello) and hmac.compare_digest(
            message.proof, proof_of(self._secret, nonce, message.worker)
        ):
            self.remove(stranger)
            self._arrived(message, stranger)
        else:
            self._seldom.warning("a connection to the port for workers did not know the run's secret, and was closed")
            stranger.abort()


class _Stranger(FrameProtocol):
    """A connection that has to say first who it is."""

    def __init__(self, listener: Listener) -> None:
        super().__init__(self._greeted, self._left, GREETING)
        self._listener, self._nonce = listener, secrets.token_bytes(SECRET_BYTES)
        self._timer: asyncio.TimerHandle | None = None
        self.waited_for_since_s = asyncio.get_running_loop().time()
        """It has yet to say who it is."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask who it is."""
        super().connection_made(transport)
        name = transport.get_extra_info("peername")  # none where it has left by now
        self._listener.add(self, name[0] if name else None)
        keep_alive(transport.get_extra_info("socket"))
        self._timer = asyncio.get_running_loop().call_later(LONGEST_GREETING_S, self.abort)
        self.send(Challenge(nonce=self._nonce))

    def _greeted(self, message: Message, body: memoryview) -> None:
        self._forget_timer()
        self._listener.greeted(self, message, self._nonce)

    def _left(self) -> None:
        self._forget_timer()
        self._listener.remove(self)

    def _forget_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


# The worker's side ---------------------------------------------------------------------------------------------------


def serve_router(address: tuple[str, int], worker: int, secret: bytes) -> int:
    """Connect to the router at `address` and do as it says until it says `Stop`; the status of `main_loop`.

    Raises `EndOfStream` or `OSError` when the connection cannot be made, or ends.
    """
    with socket.create_connection(address, timeout=LONGEST_GREETING_S) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        keep_alive(sock)
        connection = BlockingConnection(sock, GREETING)
        challenge, _ = connection.receive()
        if not isinstance(challenge, Challenge):
            raise EndOfStream
        proof = proof_of(secret, challenge.nonce, worker)
        here, version = sock.getsockname()[0], gearshift.__version__
        connection.send(Hello(worker=worker, proof=proof, host=here, pid=os.getpid(), version=version))
        sock.settimeout(None)
        connection.widen_bounds()
        return main_loop(connection)
