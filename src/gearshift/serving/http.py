"""The HTTP front end: a bare ASGI application, and the connection class that bounds headers and sees clients leave."""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from gearshift.errors import GearshiftError, InvalidInput, NotReady, QueueFull, TooLarge
from gearshift.model import TensorSpec
from gearshift.observability.metrics import CONTENT_TYPE, Metrics, NoMetrics
from gearshift.request import NO_DEADLINE_NS
from gearshift.runtime.service import Service
from gearshift.serving import v2, v2_json

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Headers = Sequence[tuple[bytes, bytes]]

JSON = b"application/json"
RETRY_AFTER = (b"retry-after", b"1")
CLOSE = (b"connection", b"close")
LINGER_S = 2.0
CONNECTION = "gearshift.connection"
HEAD_TOO_LARGE = b"431 Request Header Fields Too Large"
TOO_SLOW = b"408 Request Timeout"

log = logging.getLogger(__name__)


class ClientGone(Exception):
    """The client closed its connection while its request was being read."""


class HeadTooLarge(Exception):
    """The head of a request is over the bound."""


class Application:
    """Answers HTTP requests for one operator; settings are bounds in bytes."""

    def __init__(
        self,
        service: Service,
        operator: str,
        *,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        largest_body_bytes: int,
        metrics: Metrics | NoMetrics | None = None,
    ) -> None:
        self._service, self._operator = service, operator
        self._inputs = {spec.name: spec for spec in inputs}
        self._output_names = tuple(spec.name for spec in outputs)
        self._largest_body_bytes = largest_body_bytes
        self._metrics = metrics or NoMetrics()
        self._server_metadata = v2_json.encode(v2.server_metadata())
        self._model_metadata = v2_json.encode(v2.model_metadata(operator, inputs, outputs))
        model = f"/v2/models/{operator}"
        version = f"{model}/versions/{v2.MODEL_VERSION}"
        self._infer_paths = frozenset({f"{model}/infer", f"{version}/infer"})
        self._gets: dict[str, Callable[[Send], Awaitable[None]]] = {
            "/v2": self._get_server,
            "/v2/health/live": self._get_live,
            "/livez": self._get_live,
            "/v2/health/ready": self._get_ready,
            "/readyz": self._get_ready,
            "/metrics": self._get_metrics,
            model: self._get_model,
            version: self._get_model,
            f"{model}/ready": self._get_model_ready,
            f"{version}/ready": self._get_model_ready,
        }

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request; every error becomes a status, and what is our fault an id that the log explains."""
        if scope["type"] != "http":
            return
        try:
            await self._route(scope, receive, send)
        except ClientGone:
            return
        except TooLarge as error:
            await _respond_before_body_is_read(receive, send, error.http_status, str(error))
        except (QueueFull, NotReady) as error:
            closing = [] if self._service.accepting else [CLOSE]
            await _respond_error(send, error.http_status, str(error), [RETRY_AFTER, *closing])
        except GearshiftError as error:
            await _respond_error(send, error.http_status, str(error))
        except Exception as error:  # noqa: BLE001  the door to the outside
            await _respond_fault(send, error)

    async def _route(self, scope: Message, receive: Receive, send: Send) -> None:
        path, method = scope["path"], scope["method"]
        if path in self._infer_paths:
            if method != "POST":
                await _respond_error(send, 405, f"{method} is not allowed here, POST is", [(b"allow", b"POST")])
                return
            await self._infer(scope, receive, send)
            return
        answer = self._gets.get(path)
        if answer is not None:
            if method not in ("GET", "HEAD"):
                await _respond_error(send, 405, f"{method} is not allowed here, GET is", [(b"allow", b"GET, HEAD")])
                return
            await answer(send)
            return
        await _respond_error(send, 404, self._not_found(path))

    def _not_found(self, path: str) -> str:
        parts = path.split("/")
        if parts[:3] == ["", "v2", "models"] and len(parts) > 3 and parts[3] != self._operator:
            return f"there is no model {parts[3][:64]!r}; this server has {self._operator!r}"
        return f"there is nothing at {path[:200]!r}"

    async def _infer(self, scope: Message, receive: Receive, send: Send) -> None:
        length = self._body_length(scope["headers"])
        with self._service.reading(length or 0) as hold:
            body = await _read_body(receive, self._largest_body_bytes, hold if length is None else None)
        request = v2_json.parse_request(body, self._inputs, self._output_names)
        deadline_ns = NO_DEADLINE_NS
        if request.timeout_us:
            deadline_ns = self._service.now_ns() + request.timeout_us * 1000
        connection: Connection | None = scope.get(CONNECTION)
        if connection is not None:
            connection.on_gone = asyncio.current_task()
        try:
            answer = await self._service.infer(
                request.inputs, priority=request.priority, deadline_ns=deadline_ns, payload_bytes=len(body)
            )
        except asyncio.CancelledError:
            if connection is not None and connection.gone:
                return
            raise
        finally:
            if connection is not None:
                connection.on_gone = None
        if answer.outcome == "failed":
            await _respond_failed(send, answer.reason)
            return
        await _respond(send, 200, v2_json.encode_answer(self._operator, request, answer))

    def _body_length(self, headers: Headers) -> int | None:
        """What Content-Length says; raises `TooLarge` when it is over the bound, so before the body is read."""
        length = None
        for name, value in headers:
            if name == b"content-length":
                length = int(value)
            elif name == b"content-encoding" and value.lower() != b"identity":
                raise InvalidInput("the body is compressed", where="header content-encoding", remedy="send it plain")
            elif name == b"inference-header-content-length":
                raise InvalidInput("binary tensors are not taken", remedy="write tensors in JSON")
        if length is not None and length > self._largest_body_bytes:
            raise _too_large(length, self._largest_body_bytes)
        return length

    async def _get_server(self, send: Send) -> None:
        await _respond(send, 200, self._server_metadata)

    async def _get_model(self, send: Send) -> None:
        await _respond(send, 200, self._model_metadata)

    async def _get_live(self, send: Send) -> None:
        await _respond(send, 200, b'{"live":true}')

    async def _get_ready(self, send: Send) -> None:
        if self._service.ready:
            await _respond(send, 200, b'{"ready":true}')
        else:
            await _respond(send, 503, b'{"ready":false}', extra=[RETRY_AFTER])

    async def _get_model_ready(self, send: Send) -> None:
        ready = self._service.ready
        body = v2_json.encode_readiness(self._operator, ready)
        await _respond(send, 200 if ready else 503, body, extra=[] if ready else [RETRY_AFTER])

    async def _get_metrics(self, send: Send) -> None:
        await _respond(send, 200, self._metrics.text(), content_type=CONTENT_TYPE.encode())


# Reading and answering -----------------------------------------------------------------------------------------------


async def _read_body(receive: Receive, largest_bytes: int, hold: Callable[[int], None] | None) -> bytes:
    """The whole body; `hold` is told of each chunk of one whose length was not given before."""
    parts: list[bytes] = []
    total, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        part, more = message.get("body", b""), message.get("more_body", False)
        parts.append(part)
        total += len(part)
        if total > largest_bytes:
            raise _too_large(total, largest_bytes)
        if hold is not None:
            hold(len(part))
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _too_large(size_bytes: int, largest_bytes: int) -> TooLarge:
    return TooLarge(f"the body has {size_bytes} bytes or more, at most {largest_bytes} are taken")


async def _respond(
    send: Send, status: int, body: bytes, *, content_type: bytes = JSON, extra: Headers = (), more: bool = False
) -> None:
    headers = [(b"content-type", content_type), (b"content-length", str(len(body)).encode()), *extra]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": more})


async def _respond_error(send: Send, status: int, text: str, extra: Headers = ()) -> None:
    await _respond(send, status, v2_json.encode_error(text), extra=extra)


async def _respond_before_body_is_read(receive: Receive, send: Send, status: int, text: str) -> None:
    """Answer, take and forget what the client still sends for a while, then close.

    Closed at once, the connection would be reset under a client that is still sending, and the answer lost.
    """
    await _respond(send, status, v2_json.encode_error(text), extra=[CLOSE], more=True)
    try:
        async with asyncio.timeout(LINGER_S):
            while (await receive()).get("more_body", False):
                pass
    except TimeoutError:
        pass
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _respond_failed(send: Send, reason: str) -> None:
    number = secrets.token_hex(6)
    log.error("request failed, id %s: %s", number, reason)
    await _respond_error(send, 500, f"{reason} (id {number})")


async def _respond_fault(send: Send, error: Exception) -> None:
    number = secrets.token_hex(6)
    log.error("fault, id %s", number, exc_info=error)
    await _respond_error(send, 500, f"an internal error; the server's log explains id {number}")


# Connections ---------------------------------------------------------------------------------------------------------


class JoiningTransport:
    """A transport that sends what is written in one go in one go: a response's head and body leave in one packet."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._pending: list[bytes] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Send `data` with all else that is written before the loop goes on."""
        if not self._pending:
            self._loop.call_soon(self._flush)
        self._pending.append(data)

    def close(self) -> None:
        """Send what is pending, then close."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._pending:
            data = b"".join(self._pending)
            self._pending.clear()
            self._transport.write(data)


class Connection(HttpToolsProtocol):
    """uvicorn's connection, with bounds, and the cancelling of requests whose client is gone.

    `longest_read_s` is how long a client may take over one request, head and body; it runs from when the connection
    opens or from the request's first byte, and not while a complete request waits for its answer.
    """

    largest_header_bytes = 64 << 10
    longest_read_s = 60.0
    most_connections = 10_000
    on_gone: "asyncio.Task[Any] | None" = None
    gone = False
    _header_bytes = -1
    """Bytes since the current request began; -1 outside of its headers."""
    _reading = False
    """Whether a request has begun and is not complete."""
    _read_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client is there; one too many is sent away."""
        joining = JoiningTransport(cast(asyncio.Transport, transport), self.loop)
        super().connection_made(cast(asyncio.Transport, joining))
        if len(self.connections) > self.most_connections:
            self.transport.close()
        else:
            self._start_read_timer()

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        self.scope[CONNECTION] = self  # type: ignore[literal-required]
        self._header_bytes = 0
        self._reading = True

    def on_headers_complete(self) -> None:
        """Its headers are complete; raises `HeadTooLarge`, which comes back as `send_400_response`."""
        self._header_bytes = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if self._header_bytes > self.largest_header_bytes:
            raise HeadTooLarge
        self._header_bytes = -1
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Its body is complete."""
        super().on_message_complete()
        self._reading = False
        self._stop_read_timer()

    def data_received(self, data: bytes) -> None:
        """Refuse headers without end, and requests that are never complete."""
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._header_bytes >= 0:
            self._header_bytes += len(data)
            if self._header_bytes > self.largest_header_bytes:
                self._refuse(HEAD_TOO_LARGE)
                return
        if self._reading or not self._answering:
            self._start_read_timer()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP, or a head over the bound."""
        if self._header_bytes > self.largest_header_bytes:
            self._refuse(HEAD_TOO_LARGE)
        else:
            super().send_400_response(msg)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone: what it waits for is not needed any more."""
        super().connection_lost(exc)
        self._stop_read_timer()
        self.gone = True
        if self.on_gone is not None:
            self.on_gone.cancel()

    @property
    def _answering(self) -> bool:
        """Whether a complete request waits for its answer."""
        return self.cycle is not None and not self.cycle.more_body and not self.cycle.response_complete

    def _start_read_timer(self) -> None:
        if self._read_timer is None:
            self._read_timer = self.loop.call_later(self.longest_read_s, self._read_too_long)

    def _stop_read_timer(self) -> None:
        if self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None

    def _read_too_long(self) -> None:
        self._read_timer = None
        if self.transport.is_closing():
            return
        if self._answering or self.flow.read_paused:  # it is our turn, not the client's
            self._start_read_timer()
        elif not self._reading or (self.cycle and self.cycle.response_started and not self.cycle.response_complete):
            self.transport.close()
        else:
            self._refuse(TOO_SLOW)

    def _refuse(self, status: bytes) -> None:
        self.transport.write(b"HTTP/1.1 " + status + b"\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
        self.transport.close()


def connection_class(*, largest_header_bytes: int, longest_read_s: float, most_connections: int) -> type[Connection]:
    """`Connection` with these bounds."""
    bounds = {
        "largest_header_bytes": largest_header_bytes,
        "longest_read_s": longest_read_s,
        "most_connections": most_connections,
    }
    return type("BoundedConnection", (Connection,), bounds)
