"""The HTTP front end: a bare ASGI application."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from typing import Any

from gearshift.errors import GearshiftError, InvalidInput, NoAccess, NotReady, QueueFull, TooLarge
from gearshift.model import TensorSpec
from gearshift.observability.metrics import CONTENT_TYPE, Metrics, NoMetrics
from gearshift.observability.tracing import Tracing
from gearshift.runtime.service import Service
from gearshift.runtime.status import ServedPlan
from gearshift.serving import compression, deadline_headers, openapi, v2, v2_json
from gearshift.serving import control as operators
from gearshift.serving.connection import CONNECTION, Connection
from gearshift.serving.exchange import REQUEST_ID, Exchange
from gearshift.serving.keys import Keys
from gearshift.serving.swap import SwapBody, Swaps

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Headers = Sequence[tuple[bytes, bytes]]

JSON = b"application/json"
BINARY = b"application/octet-stream"
CONTENT_LENGTH = b"content-length"
CONTENT_ENCODING = b"content-encoding"
INFERENCE_HEADER = b"inference-header-content-length"
ACCEPT_ENCODING = b"accept-encoding"
SLO_MS, REQUEST_START = deadline_headers.SLO_MS.encode(), deadline_headers.REQUEST_START.encode()
ID_HEADER = REQUEST_ID.encode()
HEADERS_READ = frozenset({CONTENT_LENGTH, CONTENT_ENCODING, ACCEPT_ENCODING, INFERENCE_HEADER, SLO_MS, REQUEST_START})
LOADING = re.compile("/v2/repository/models/[^/]+/(load|unload)")
OPEN_PATHS = frozenset({"/livez", "/readyz", "/v2/health/live", "/v2/health/ready"})
"""Those that ask for no key."""
LARGEST_INDEX_BODY_BYTES = 4096
RETRY_AFTER = (b"retry-after", b"1")
CLOSE = (b"connection", b"close")
LINGER_S = 2.0
EXCHANGE = "gearshift.exchange"


class ClientGone(Exception):
    """The client closed its connection while its request was being read."""


class Application:
    """Answers HTTP requests for one operator, of those who may ask; bounds are in bytes."""

    def __init__(
        self,
        service: Service,
        operator: str,
        *,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        largest_body_bytes: int,
        limits: v2.Limits = v2_json.DEFAULT_LIMITS,
        metrics: Metrics | NoMetrics | None = None,
        keys: Keys | None = None,
        tracing: Tracing | None = None,
        control: operators.Control | None = None,
        swaps: Swaps | None = None,
        times: deadline_headers.SendingTimes | None = None,
    ) -> None:
        self._control = control or operators.Control(service, ServedPlan(path="", sha256=""))
        self._operator, self._swaps = operator, swaps
        self._times = times or deadline_headers.SendingTimes()
        self._inputs = {spec.name: spec for spec in inputs}
        self._output_names = tuple(spec.name for spec in outputs)
        self._largest_body_bytes = largest_body_bytes
        self._limits = limits
        self._metrics = metrics or NoMetrics()
        self._keys, self._tracing = keys, tracing
        self._server_metadata = v2_json.encode(v2.server_metadata())
        self._model_metadata = v2_json.encode(v2.model_metadata(operator, inputs, outputs))
        self._model_config = v2_json.encode(v2.model_config(operator, inputs, outputs))
        self._description = v2_json.encode(openapi.describe(operator, inputs, outputs, locked=keys is not None))
        self._posts: dict[str, Callable[[Message, Receive, Send], Awaitable[None]]] = {
            "/v2/repository/index": self._post_index,
            operators.GEAR_PATH: self._post_gear,
            operators.DRAIN_PATH: self._post_drain,
            operators.SWAP_PATH: self._post_swap,
        }
        self._gets: dict[str, Callable[[Send], Awaitable[None]]] = {
            "/v2": self._get_server,
            "/v2/health/live": self._get_live,
            "/livez": self._get_live,
            "/v2/health/ready": self._get_ready,
            "/readyz": self._get_ready,
            "/metrics": self._get_metrics,
            "/openapi.json": self._get_description,
            "/v2/models/stats": self._get_statistics,
            operators.STATUS_PATH: self._get_status,
        }
        model = f"/v2/models/{operator}"
        for path in (model, f"{model}/versions/{v2.MODEL_VERSION}"):
            self._posts[f"{path}/infer"] = self._infer
            self._gets |= {
                path: self._get_model,
                f"{path}/ready": self._get_model_ready,
                f"{path}/config": self._get_config,
                f"{path}/stats": self._get_statistics,
            }

    @property
    def _service(self) -> Service:
        return self._control.service

    @property
    def paths(self) -> dict[str, str]:
        """The method of each path that is known."""
        return dict.fromkeys(self._gets, "get") | dict.fromkeys(self._posts, "post")

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request; every error becomes a status, and what is our fault an id that the log explains."""
        if scope["type"] != "http":
            return
        given = next((value for name, value in scope["headers"] if name == ID_HEADER), b"")
        exchange = scope[EXCHANGE] = Exchange(scope["method"], scope["path"], given.decode("latin-1"))
        status: int | None = None

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"].append((ID_HEADER, exchange.id.encode()))
            await send(message)

        try:
            await self._answer(scope, receive, answer, exchange)
        finally:
            exchange.end(status)

    async def _answer(self, scope: Message, receive: Receive, send: Send, exchange: Exchange) -> None:
        try:
            await self._route(scope, receive, send)
        except ClientGone:
            return
        except compression.TooLargeInside as error:
            await _respond_error(send, error.http_status, str(error))
        except TooLarge as error:
            await _respond_before_body_is_read(receive, send, error.http_status, str(error))
        except NoAccess as error:
            await _respond_error(send, error.http_status, str(error), [(b"www-authenticate", b"Bearer")])
        except (QueueFull, NotReady) as error:
            closing = [] if self._service.accepting else [CLOSE]
            await _respond_error(send, error.http_status, str(error), [RETRY_AFTER, *closing])
        except GearshiftError as error:
            await _respond_error(send, error.http_status, str(error))
        except Exception as error:  # noqa: BLE001  the door to the outside
            await _respond_error(send, 500, exchange.fault(error))

    async def _route(self, scope: Message, receive: Receive, send: Send) -> None:
        path, method = scope["path"], scope["method"]
        if path in operators.ADMINISTRATION:
            operators.require_operator(self._keys, scope, dict(scope["headers"]))
        elif self._keys is not None and path not in OPEN_PATHS:
            self._require_key(self._keys, path, scope["headers"])
        post = self._posts.get(path)
        if post is not None:
            if method != "POST":
                await _respond_error(send, 405, f"{method} is not allowed here, POST is", [(b"allow", b"POST")])
                return
            await post(scope, receive, send)
            return
        answer = self._gets.get(path)
        if answer is not None:
            if method not in ("GET", "HEAD"):
                await _respond_error(send, 405, f"{method} is not allowed here, GET is", [(b"allow", b"GET, HEAD")])
                return
            await answer(send)
            return
        loading = LOADING.fullmatch(path)
        if loading and method == "POST":
            v2.refuse_loading(loading[1])
        await _respond_error(send, 404, self._not_found(path))

    def _require_key(self, keys: Keys, path: str, headers: Headers) -> None:
        if LOADING.fullmatch(path):
            keys.require_admin(dict(headers))
        else:
            keys.require_user(dict(headers))

    def _not_found(self, path: str) -> str:
        parts = path.split("/")
        if parts[:3] == ["", "v2", "models"] and len(parts) > 3 and parts[3] != self._operator:
            return f"there is no model {parts[3][:64]!r}; this server has {self._operator!r}"
        return f"there is nothing at {path[:200]!r}"

    async def _infer(self, scope: Message, receive: Receive, send: Send) -> None:
        exchange: Exchange = scope[EXCHANGE]
        if self._tracing is not None:
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
            route = {"http.request.method": scope["method"], "http.route": scope["path"]}
            exchange.span = self._tracing.begin(headers, **route)
        head = {name: value for name, value in scope["headers"] if name in HEADERS_READ}
        length = self._body_length(head)
        slo_us = v2.timeout_us_of_slo(head[SLO_MS].decode("latin-1")) if SLO_MS in head else 0
        start = head[REQUEST_START].decode("latin-1") if REQUEST_START in head else None
        sent_ns = self._times.sent_ns(start, self._service.now_ns())
        with self._service.reading(length or 0) as hold:
            body = await _read_body(receive, self._largest_body_bytes, hold if length is None else None)
            if CONTENT_ENCODING in head:
                encoding = head[CONTENT_ENCODING].lower()
                body = await compression.decompress(body, encoding, self._largest_body_bytes, hold)
        header_bytes = _header_bytes(head[INFERENCE_HEADER]) if INFERENCE_HEADER in head else None
        request = v2_json.parse_request(body, self._inputs, self._output_names, header_bytes, self._limits)
        exchange.offer(request.id)
        connection: Connection | None = scope.get(CONNECTION)
        if connection is not None:
            connection.on_gone = asyncio.current_task()
        try:
            answer = await self._control.infer(
                request.inputs,
                priority=request.priority,
                deadline_ns=deadline_headers.deadline_ns_of(
                    sent_ns, self._service.now_ns(), request.timeout_us or slo_us
                ),
                sent_ns=sent_ns,
                payload_bytes=len(body),
                span=exchange.span,
            )
        except asyncio.CancelledError:
            if connection is not None and connection.gone:
                return
            raise
        finally:
            if connection is not None:
                connection.on_gone = None
        if answer.outcome == "failed":
            await _respond_error(send, 500, exchange.failed(answer.reason))
            return
        body, header_bytes = v2_json.encode_answer(self._operator, request, answer)
        content_type = JSON if header_bytes is None else BINARY
        extra = [] if header_bytes is None else [(INFERENCE_HEADER, str(header_bytes).encode())]
        if len(body) >= compression.SMALLEST_BYTES and ACCEPT_ENCODING in head:
            body = await _compressed(body, head[ACCEPT_ENCODING], extra)
        await _respond(send, 200, body, content_type=content_type, extra=extra)

    def _body_length(self, head: Mapping[bytes, bytes]) -> int | None:
        """What Content-Length says; raises `TooLarge` when it is over the bound, so before the body is read."""
        if CONTENT_LENGTH not in head:
            return None
        length = int(head[CONTENT_LENGTH])
        if length > self._largest_body_bytes:
            raise _too_large(length, self._largest_body_bytes)
        return length

    async def _get_server(self, send: Send) -> None:
        await _respond(send, 200, self._server_metadata)

    async def _get_model(self, send: Send) -> None:
        await _respond(send, 200, self._model_metadata)

    async def _get_config(self, send: Send) -> None:
        await _respond(send, 200, self._model_config)

    async def _get_statistics(self, send: Send) -> None:
        statistics = v2.model_statistics(self._operator, self._metrics.totals(self._operator))
        await _respond(send, 200, v2_json.encode({"model_stats": [statistics]}))

    async def _post_index(self, scope: Message, receive: Receive, send: Send) -> None:
        ready_only = v2_json.wants_ready_only(await _read_body(receive, LARGEST_INDEX_BODY_BYTES, None))
        index = v2.repository_index(self._operator, self._service.ready, ready_only=ready_only)
        await _respond(send, 200, v2_json.encode(index))

    async def _get_status(self, send: Send) -> None:
        await _respond(send, 200, v2_json.encode(self._control.status()))

    async def _post_gear(self, scope: Message, receive: Receive, send: Send) -> None:
        body = await _read_body(receive, operators.LARGEST_BODY_BYTES, None)
        await _respond(send, 200, v2_json.encode(self._control.pin_or_free(body)))

    async def _post_drain(self, scope: Message, receive: Receive, send: Send) -> None:
        await _read_body(receive, operators.LARGEST_BODY_BYTES, None)
        await _respond(send, 200, v2_json.encode(self._control.drain()))

    async def _post_swap(self, scope: Message, receive: Receive, send: Send) -> None:
        asked = operators.decode(await _read_body(receive, operators.LARGEST_BODY_BYTES, None), SwapBody)
        if self._swaps is None:
            raise InvalidInput("this server cannot change its plan", remedy="use `gearshift serve`")
        await _respond(send, 200, v2_json.encode(await self._swaps.swap(asked)))

    async def _get_description(self, send: Send) -> None:
        await _respond(send, 200, self._description)

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


async def _compressed(body: bytes, accepted: bytes, headers: list[tuple[bytes, bytes]]) -> bytes:
    """`body` as the client accepts it best; what it becomes is added to `headers`."""
    encoding = compression.chosen_encoding(accepted)
    if encoding is None:
        return body
    headers += [(CONTENT_ENCODING, encoding), (b"vary", ACCEPT_ENCODING)]
    return await compression.compress(body, encoding)


def _header_bytes(value: bytes) -> int:
    if not value.isdigit() or len(value) > 18:
        raise InvalidInput("is no number of bytes", where="header inference-header-content-length")
    return int(value)


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
