"""Answer HTTP requests, one handler for each kind; `routes` says which path has which."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from gearshift.errors import GearshiftError, InvalidInput, NoAccess, NotReady, QueueFull, TooLarge, TooLargeInside
from gearshift.model import TensorSpec
from gearshift.observability.metrics import CONTENT_TYPE, Metrics
from gearshift.observability.tracing import Tracing
from gearshift.request import NO_DEADLINE_NS, Answer
from gearshift.runtime.service.answers import raise_if_refused
from gearshift.runtime.service.room import Reading
from gearshift.serving.door import compression, deadline_headers, metadata
from gearshift.serving.http.http_exchange import (
    CLOSE,
    JSON,
    Headers,
    HttpExchange,
    Work,
    length_within,
    read_body,
    too_large,
)
from gearshift.serving.http.known_request import MOST_IN_VAIN, KnownBody
from gearshift.serving.operate.control import Control, Inference, decode
from gearshift.serving.operate.swap import SwapBody, Swaps
from gearshift.v2 import json as v2_json
from gearshift.v2 import large_json
from gearshift.v2 import tensors as v2
from gearshift.v2.bodies import InferRequest
from gearshift.v2.packing import Buffer

Refusal = tuple[int, str, Headers]
"""Status, text and further headers of an error answer."""

BINARY = b"application/octet-stream"
CONTENT_ENCODING = b"content-encoding"
INFERENCE_HEADER = b"inference-header-content-length"
ACCEPT_ENCODING = b"accept-encoding"
SLO_MS, REQUEST_START = deadline_headers.SLO_MS.encode(), deadline_headers.REQUEST_START.encode()
RETRY_AFTER = (b"retry-after", b"1")
LONGEST_TEXT = 2000
"""Characters of an error's text, which may quote long values from the request."""


class Handlers:
    """Answers to HTTP requests for one operator; bounds are in bytes.

    Steps that need not wait are plain functions; those that wait return a coroutine.
    """

    def __init__(
        self,
        control: Control,
        operator: str,
        *,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        largest_body_bytes: int,
        limits: v2.Limits = v2_json.DEFAULT_LIMITS,
        metrics: Metrics | None = None,
        tracing: Tracing | None = None,
        swaps: Swaps | None = None,
        times: deadline_headers.SendingTimes | None = None,
    ) -> None:
        self._control = control
        self.operator, self.inputs, self.outputs = operator, inputs, outputs
        self._swaps = swaps
        self._times = times or deadline_headers.SendingTimes()
        self._specs = {spec.name: spec for spec in inputs}
        self._output_names = tuple(spec.name for spec in outputs)
        self._largest_body_bytes = largest_body_bytes
        self._given_limits = self._limits_now = limits
        self._metrics = metrics or Metrics()
        self._tracing = tracing
        self._server_metadata = v2_json.encode(metadata.server_metadata())
        self._model_metadata = v2_json.encode(metadata.model_metadata(operator, inputs, outputs))
        self.description = b"{}"
        """The server's own description; `Application` sets it, which knows routes and keys."""
        self._waiting: set[asyncio.Task[None]] = set()
        self._large = asyncio.Lock()
        """Only one large body is read or written at a time, so that the event loop runs between
        its steps."""

    @property
    def _service(self) -> Inference:
        return self._control.inference

    @property
    def _limits(self) -> v2.Limits:
        most_waiting = self._control.inference.most_waiting
        if most_waiting != self._limits_now.most_rows:
            self._limits_now = v2.limits_beside(self._given_limits, most_waiting)
        return self._limits_now

    def attempt(self, exchange: HttpExchange, step: Callable[..., Work | None], *given: Any) -> None:
        """Do a step and answer its errors; an internal one as an id that the log explains.

        The error is not kept: its traceback holds the frames, and so the request.
        """
        work, refusal = None, None
        try:
            work = step(exchange, *given)
        except Exception as error:  # noqa: BLE001  every error becomes an answer
            refusal = self._refusal(exchange, error)
        if refusal is not None:  # outside `except`: answering may begin the next request
            respond_error(exchange, *refusal)
        elif work is not None:
            task = asyncio.get_running_loop().create_task(self._wait(exchange, work))
            self._waiting.add(task)
            task.add_done_callback(self._waiting.discard)

    async def _wait(self, exchange: HttpExchange, work: Work) -> None:
        refusal = None
        try:
            await work
        except Exception as error:  # noqa: BLE001  every error becomes an answer
            refusal = self._refusal(exchange, error)
        if refusal is not None:
            respond_error(exchange, *refusal)

    def _refusal(self, exchange: HttpExchange, error: Exception) -> Refusal:
        extra: Headers = ()
        if isinstance(error, TooLarge) and not isinstance(error, TooLargeInside):
            extra = (CLOSE,)
        elif isinstance(error, NoAccess):
            extra = ((b"www-authenticate", b"Bearer"),)
        elif isinstance(error, (QueueFull, NotReady)):
            again = (RETRY_AFTER[0], b"%d" % error.retry_after_s) if isinstance(error, QueueFull) else RETRY_AFTER
            extra = (again,) if self._service.accepting else (again, CLOSE)
        if isinstance(error, GearshiftError):
            return error.http_status, str(error)[:LONGEST_TEXT], extra
        return 500, exchange.fault(error), extra

    # Inference -----------------------------------------------------------------------------------

    def infer(self, exchange: HttpExchange) -> None:
        head = exchange.headers
        if self._tracing is not None:
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in head.items()}
            route = {"http.request.method": exchange.method, "http.route": exchange.path}
            exchange.span = self._tracing.begin(headers, **route)
        slo_us = v2.timeout_us_of_slo(head[SLO_MS].decode("latin-1")) if SLO_MS in head else 0
        sent_ns = None
        if REQUEST_START in head:
            sent_ns = self._times.sent_ns(head[REQUEST_START].decode("latin-1"), self._service.now_ns())
        if exchange.complete and CONTENT_ENCODING not in head:
            length = length_within(exchange, self._largest_body_bytes)
            self._service.require_room(1, length or 0)  # before it is parsed
            body = exchange.take_body()
            if len(body) > self._largest_body_bytes:
                raise too_large(len(body), self._largest_body_bytes)
            if len(body) <= large_json.LARGE_BYTES or _text_bytes(exchange, body) <= large_json.LARGE_BYTES:
                self._infer_small(exchange, body, sent_ns, slo_us)
                return
            exchange.parts.append(body)
        reading = self._service.reading(length_within(exchange, self._largest_body_bytes) or 0)
        exchange.release = reading.close
        read_body(exchange, self._largest_body_bytes, partial(self._infer_body, sent_ns, slo_us, reading), reading)

    def _infer_body(self, sent_ns: int | None, slo_us: int, reading: Reading, exchange: HttpExchange) -> Work | None:
        body = exchange.take_body()
        if _text_bytes(exchange, body) > large_json.LARGE_BYTES or CONTENT_ENCODING in exchange.headers:
            return self._infer_in_steps(exchange, body, sent_ns, slo_us, reading)
        exchange.end_reading()
        self._infer_small(exchange, body, sent_ns, slo_us)
        return None

    async def _infer_in_steps(
        self, exchange: HttpExchange, body: bytes, sent_ns: int | None, slo_us: int, reading: Reading
    ) -> None:
        encoding = exchange.headers.get(CONTENT_ENCODING)
        if encoding is not None:
            body = await compression.decompress(body, encoding.lower(), self._largest_body_bytes, reading.hold)
        if _text_bytes(exchange, body) <= large_json.LARGE_BYTES:
            exchange.end_reading()
            if not exchange.gone:
                self._infer_small(exchange, body, sent_ns, slo_us)
            return
        async with self._large:
            if exchange.gone:
                return
            request = await large_json.parse_request(
                body, self._specs, self._output_names, _header_bytes(exchange), self._limits, reading.hold
            )
        exchange.end_reading()
        if not exchange.gone:
            self._submit(exchange, request, len(body), sent_ns, slo_us)

    def _infer_small(self, exchange: HttpExchange, body: bytes, sent_ns: int | None, slo_us: int) -> None:
        header_bytes = _header_bytes(exchange)
        limits, known = self._limits, exchange.known_head
        request = None if known is None or known.body is None else known.body.read(body, limits)
        if request is None:
            request = v2_json.parse_request(body, self._specs, self._output_names, header_bytes, limits)
            if known is not None and known.bodies_left and header_bytes is None:
                known.bodies_left -= 1
                known.body = KnownBody.of(body, request, self._specs, limits)
        elif known is not None:
            known.bodies_left = MOST_IN_VAIN
        self._submit(exchange, request, len(body), sent_ns, slo_us)

    def _submit(
        self, exchange: HttpExchange, request: InferRequest, body_bytes: int, sent_ns: int | None, slo_us: int
    ) -> None:
        if request.id:
            exchange.offer(request.id)
        deadline_ns, limit_us = NO_DEADLINE_NS, request.timeout_us or slo_us
        if limit_us:
            deadline_ns = deadline_headers.deadline_ns_of(sent_ns, self._service.now_ns(), limit_us)
        exchange.on_gone = self._control.submit(
            request.inputs,
            partial(self.attempt, exchange, self._answered, request.without_inputs()),
            priority=request.priority,
            deadline_ns=deadline_ns,
            sent_ns=sent_ns,
            payload_bytes=body_bytes,
            client=exchange.client.held,
            span=exchange.span,
        )

    def _answered(self, exchange: HttpExchange, request: InferRequest, answer: Answer) -> Work | None:
        if exchange.gone:
            return None
        raise_if_refused(answer)
        if answer.outcome == "failed":
            respond_error(exchange, 500, exchange.failed(answer.reason))
            return None
        if large_json.is_large(request, answer):
            return self._respond_in_steps(exchange, request, answer)
        body, header_bytes = v2_json.encode_answer(self.operator, request, answer)
        return self._respond(exchange, [body], len(body), header_bytes)

    async def _respond_in_steps(self, exchange: HttpExchange, request: InferRequest, answer: Answer) -> None:
        async with self._large:
            body, header_bytes = await large_json.encode_answer(self.operator, request, answer)
        work = self._respond(exchange, body, sum(len(part) for part in body), header_bytes)
        if work is not None:
            await work

    def _respond(
        self, exchange: HttpExchange, body: Sequence[Buffer], body_bytes: int, header_bytes: int | None
    ) -> Work | None:
        content_type = JSON if header_bytes is None else BINARY
        extra: Headers = () if header_bytes is None else ((INFERENCE_HEADER, str(header_bytes).encode()),)
        if body_bytes >= compression.SMALLEST_BYTES and ACCEPT_ENCODING in exchange.headers:
            encoding = compression.chosen_encoding(exchange.headers[ACCEPT_ENCODING])
            if encoding is not None:
                extra = (*extra, (CONTENT_ENCODING, encoding), (b"vary", ACCEPT_ENCODING))
                return _respond_compressed(exchange, body, encoding, content_type, extra)
        exchange.respond_in_parts(200, body, content_type, extra)
        return None

    # Metadata and administration -----------------------------------------------------------------

    def server(self, exchange: HttpExchange) -> None:
        exchange.respond(200, self._server_metadata)

    def model(self, exchange: HttpExchange) -> None:
        exchange.respond(200, self._model_metadata)

    def config(self, exchange: HttpExchange) -> None:
        most_rows = self._limits.most_rows or self._control.inference.most_waiting
        config = metadata.model_config(self.operator, self.inputs, self.outputs, most_rows)
        exchange.respond(200, v2_json.encode(config))

    def statistics(self, exchange: HttpExchange) -> None:
        statistics = metadata.statistics(self.operator, self._metrics.totals(self.operator))
        exchange.respond(200, v2_json.encode(statistics))

    def index(self, exchange: HttpExchange) -> None:
        ready_only = v2_json.wants_ready_only(exchange.take_body())
        index = metadata.repository_index(self.operator, self._control.ready, ready_only=ready_only)
        exchange.respond(200, v2_json.encode(index))

    def status(self, exchange: HttpExchange) -> None:
        exchange.respond(200, v2_json.encode(self._control.status()))

    def gear(self, exchange: HttpExchange) -> None:
        exchange.respond(200, v2_json.encode(self._control.pin_or_free(exchange.take_body())))

    def drain(self, exchange: HttpExchange) -> None:
        exchange.respond(200, v2_json.encode(self._control.drain_or_not(exchange.take_body())))

    async def swap(self, exchange: HttpExchange) -> None:
        asked = decode(exchange.take_body(), SwapBody)
        if self._swaps is None:
            raise InvalidInput("this server cannot change its plan", remedy="use `gearshift serve`")
        exchange.respond(200, v2_json.encode(await self._swaps.swap(asked)))

    def describe(self, exchange: HttpExchange) -> None:
        exchange.respond(200, self.description)

    def live(self, exchange: HttpExchange) -> None:
        exchange.respond(200, b'{"live":true}')

    def ready(self, exchange: HttpExchange) -> None:
        if self._control.ready:
            exchange.respond(200, b'{"ready":true}')
        else:
            exchange.respond(503, b'{"ready":false}', extra=[RETRY_AFTER])

    def model_ready(self, exchange: HttpExchange) -> None:
        ready = self._control.ready
        body = v2_json.encode_readiness(self.operator, ready)
        exchange.respond(200 if ready else 503, body, extra=[] if ready else [RETRY_AFTER])

    def metrics(self, exchange: HttpExchange) -> None:
        exchange.respond(200, self._metrics.text(), content_type=CONTENT_TYPE.encode())

    def refuse_load(self, exchange: HttpExchange) -> None:
        metadata.refuse_loading("load")

    def refuse_unload(self, exchange: HttpExchange) -> None:
        metadata.refuse_loading("unload")


async def _respond_compressed(
    exchange: HttpExchange, body: Sequence[Buffer], encoding: bytes, content_type: bytes, extra: Headers
) -> None:
    exchange.respond_in_parts(200, await compression.compress(body, encoding), content_type, extra)


def respond_error(exchange: HttpExchange, status: int, text: str, extra: Headers = ()) -> None:
    exchange.respond(status, v2_json.encode_error(text), extra=extra)


def _text_bytes(exchange: HttpExchange, body: bytes) -> int:
    header_bytes = _header_bytes(exchange)
    return len(body) if header_bytes is None else header_bytes


def _header_bytes(exchange: HttpExchange) -> int | None:
    """Return the length of the JSON part if binary tensors follow it, else None."""
    value = exchange.headers.get(INFERENCE_HEADER)
    if value is None:
        return None
    if not value.isdigit() or len(value) > 18:
        raise InvalidInput("is no number of bytes", where="header inference-header-content-length")
    return int(value)
