"""Requests to one OpenAI-compatible endpoint, whose answers are streamed: HTTP/1.1 over kept connections.

No request costs a task, unless a connection must be opened for it. Closing its connection is how an
endpoint learns that a request is cancelled.
"""

import asyncio
import errno
import ssl
from collections.abc import Callable
from urllib.parse import urlsplit

from gearshift.runtime.engines.upstream.call import Call, Fault, Listener
from gearshift.runtime.engines.upstream.connection import UpstreamConnection
from gearshift.runtime.engines.upstream.masked import hiding
from gearshift.runtime.remote.masking import Mask

CONNECT_S = 5.0
LONGEST_REST_S = 5.0
"""For the end of an answer whose `[DONE]` has come; its connection is then given up."""
OWN_BOUNDS = errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL
"""Errors of this machine, which tell nothing of an endpoint."""
NO_MORE = "this machine can open no more connections to its engines: raise its bound on open files, or try again later"
MOST_KEPT = 256
"""Idle connections that are kept."""


class EngineLink:
    """The connections to an endpoint; `url` is the part before `/chat/completions`.

    A request whose answer makes no progress for `longest_silence_s` fails (`look`, which the owner
    calls now and then).
    """

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        longest_silence_s: float = 300.0,
        trust: ssl.SSLContext | None = None,
    ) -> None:
        parts = urlsplit(url)
        self.url, self._host, self.mask = url, str(parts.hostname), Mask(key)
        secure = parts.scheme == "https"
        self._port = parts.port or (443 if secure else 80)
        self._tls = (trust or ssl.create_default_context()) if secure else None
        self._prefix, self._longest_silence_s = parts.path.rstrip("/"), longest_silence_s
        authority = f"[{self._host}]" if ":" in self._host else self._host
        host = authority if parts.port is None else f"{authority}:{parts.port}"
        authorization = "" if key is None else f"authorization: Bearer {key}\r\n"
        self._headers = f"host: {host}\r\n{authorization}accept: text/event-stream\r\naccept-encoding: identity\r\n"
        self._loop = asyncio.get_running_loop()
        self.now_s: Callable[[], float] = self._loop.time
        self.heard_s = float("-inf")
        self.calls: set[Call] = set()
        """Those that are not over."""
        self._kept: list[UpstreamConnection] = []
        self.resting: dict[UpstreamConnection, float] = {}
        """Connections whose answer is over but for its last bytes, and since when."""
        self._opening: set[asyncio.Task[None]] = set()
        self._closed = False

    def post(self, path: str, body: bytes, listener: Listener, *, request_id: str = "") -> Call:
        """Send a JSON body to `path`, such as `/chat/completions`; nothing is heard before this returns."""
        named = f"x-request-id: {request_id}\r\n" if request_id else ""
        head = (
            f"POST {self._prefix}{path} HTTP/1.1\r\n{self._headers}{named}content-type: application/json\r\n"
            f"content-length: {len(body)}\r\n\r\n"
        )
        return self._send(Call(self, (head.encode(), body), hiding(self.mask, listener)))

    def get(self, path: str, listener: Listener) -> Call:
        head = f"GET {self._prefix}{path} HTTP/1.1\r\n{self._headers}\r\n"
        return self._send(Call(self, (head.encode(),), hiding(self.mask, listener)))

    def look(self) -> None:
        """Fail the requests whose answers made no progress for too long."""
        for connection, since_s in list(self.resting.items()):
            if since_s < self.now_s() - LONGEST_REST_S:
                connection.drop()
        now_s, link_s = self.now_s(), self._longest_silence_s
        for call in [call for call in self.calls if not call.paused]:
            longest_s = min(link_s, call.longest_silence_s)
            if call.heard_s < now_s - longest_s:
                call.cancel()
                why = f"{self.url} sent nothing of an answer for {longest_s:.3g} s"
                call.listener.failed(Fault(why, given_kind="stalled"))

    def heard_within(self, last_s: float) -> bool:
        """Whether the endpoint has sent anything in the `last_s`."""
        return self.heard_s >= self.now_s() - last_s

    def fail_all(self, fault: Fault) -> None:
        for call in list(self.calls):
            call.cancel()
            call.listener.failed(fault)

    def close(self) -> None:
        """Close all connections; requests that are not over hear nothing more."""
        self._closed = True
        for call in list(self.calls):
            call.cancel()
        for task in self._opening:
            task.cancel()
        for connection in (*self._kept, *self.resting):
            connection.transport.abort()
        self._kept.clear()
        self.resting.clear()

    def _send(self, call: Call) -> Call:
        self.calls.add(call)
        while self._kept:
            connection = self._kept.pop()
            if not connection.transport.is_closing():
                connection.send(call)
                return call
        self.send_anew(call)
        return call

    def send_anew(self, call: Call) -> None:
        """Send the request over a new connection."""
        task = self._loop.create_task(self._open(call))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    async def _open(self, call: Call) -> None:
        try:
            async with asyncio.timeout(CONNECT_S):
                _, connection = await self._loop.create_connection(
                    lambda: UpstreamConnection(self), self._host, self._port, ssl=self._tls
                )
        except Exception as error:  # noqa: BLE001  a name that cannot be encoded is no OSError
            if call in self.calls:
                self.calls.discard(call)
                if isinstance(error, OSError) and error.errno in OWN_BOUNDS:
                    call.listener.failed(Fault(f"{NO_MORE} ({error})", status=503, retry_after_s=1, for_clients=True))
                    return
                said = str(error) or f"no connection within {CONNECT_S:g} s"
                call.listener.failed(Fault(f"{self.url} cannot be reached: {said}", unreachable=True))
            return
        if call in self.calls:
            connection.send(call)
        else:
            self.keep(connection)

    def keep(self, connection: UpstreamConnection) -> None:
        if self._closed or len(self._kept) >= MOST_KEPT:
            connection.transport.abort()
        else:
            self._kept.append(connection)

    def forget(self, connection: UpstreamConnection) -> None:
        self.resting.pop(connection, None)
        if connection in self._kept:
            self._kept.remove(connection)
