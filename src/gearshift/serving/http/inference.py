"""Answer HTTP requests about one pipeline: inference, and what it takes and gives."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

from gearshift.errors import InvalidInput
from gearshift.observability.metrics import Totals
from gearshift.request import NO_DEADLINE_NS, Answer
from gearshift.runtime.service.answers import raise_if_refused
from gearshift.runtime.service.room import Reading
from gearshift.serving.door import compression, metadata
from gearshift.serving.door.deadline_headers import NOTHING_TOLD, Told
from gearshift.serving.door.signature import Signature
from gearshift.serving.http.arriving import SLO_HEADER, START_HEADER, Arriving
from gearshift.serving.http.attempts import RETRY_AFTER, Attempts, respond_error
from gearshift.serving.http.http_exchange import JSON, Headers, HttpExchange, Work, length_within, too_large
from gearshift.serving.http.known_request import MOST_IN_VAIN, KnownBody
from gearshift.serving.operate.control import Control
from gearshift.v2 import json as v2_json
from gearshift.v2 import large_json, records
from gearshift.v2 import tensors as v2
from gearshift.v2.binary import BULK_HEADER
from gearshift.v2.bodies import InferRequest
from gearshift.v2.packing import Buffer

BINARY = b"application/octet-stream"
CONTENT_ENCODING = b"content-encoding"
INFERENCE_HEADER = b"inference-header-content-length"
ACCEPT_ENCODING = b"accept-encoding"
BULK = BULK_HEADER.encode()
OUTCOME, GEAR = b"x-gearshift-outcome", b"x-gearshift-gear"

Answered = Callable[[HttpExchange, InferRequest, Answer], Work | None]


class ReadMetrics(Protocol):
    """The metrics of a server that handlers read."""

    def text(self) -> bytes: ...

    def totals(self, operator: str) -> Totals: ...


class ModelHandlers:
    """Answers to HTTP requests for the pipeline of `served`."""

    def __init__(
        self,
        control: Control,
        served: Signature,
        attempts: Attempts,
        arriving: Arriving,
        *,
        limits: v2.Limits,
        metrics: ReadMetrics,
    ) -> None:
        self.served, self._control, self._pipeline = served, control, control.pipelines[served.name]
        self.attempt, self._metrics, self._arriving = attempts.attempt, metrics, arriving
        self._name = served.name
        self._specs = {spec.name: spec for spec in served.inputs}
        self._output_names = tuple(spec.name for spec in served.outputs)
        self._limits = limits
        self._model_metadata = v2_json.encode(metadata.model_metadata(served))

    # Inference -----------------------------------------------------------------------------------

    def infer(self, exchange: HttpExchange) -> None:
        head, arriving = exchange.headers, self._arriving
        if arriving.tracing is not None:
            arriving.trace(exchange, self._name)
        told = NOTHING_TOLD
        if SLO_HEADER in head or START_HEADER in head:
            told = arriving.told(exchange, self._pipeline.inference.now_ns)
        if exchange.complete and CONTENT_ENCODING not in head:
            length = length_within(exchange, arriving.largest_body_bytes)
            self._pipeline.inference.require_room(1, length or 0, bulk=_is_bulk(head))  # before it is parsed
            body = exchange.take_body()
            if len(body) > arriving.largest_body_bytes:
                raise too_large(len(body), arriving.largest_body_bytes)
            if len(body) <= large_json.LARGE_BYTES or _text_bytes(exchange, len(body)) <= large_json.LARGE_BYTES:
                self._infer_small(exchange, body, told)
                return
            exchange.parts.append(body)
        arriving.read(exchange, told, partial(self._pipeline.inference.reading, bulk=_is_bulk(head)), self._infer_body)

    def _infer_body(self, told: Told, reading: Reading, exchange: HttpExchange) -> Work | None:
        body_bytes = sum(map(len, exchange.parts))
        if _text_bytes(exchange, body_bytes) > large_json.LARGE_BYTES or CONTENT_ENCODING in exchange.headers:
            exchange.on_gone = exchange.parts.clear  # nothing waits that is not counted
            return self._infer_in_steps(exchange, told, reading)
        body = exchange.take_body()
        exchange.end_reading()
        self._infer_small(exchange, body, told)
        return None

    async def _infer_in_steps(self, exchange: HttpExchange, told: Told, reading: Reading) -> None:
        try:
            if exchange.gone:
                return
            if CONTENT_ENCODING in exchange.headers:
                await self._decompress(exchange, partial(_hold, exchange, reading))
            body_bytes = sum(map(len, exchange.parts))
            if _text_bytes(exchange, body_bytes) <= large_json.LARGE_BYTES:
                body = exchange.take_body()
                exchange.end_reading()
                self._infer_small(exchange, body, told)
                return
            async with self._arriving.large:
                if exchange.gone:
                    return
                body, exchange.on_gone = exchange.take_body(), None
                request = await large_json.parse_request(
                    body,
                    self._specs,
                    self._output_names,
                    _header_bytes(exchange),
                    self._limits,
                    partial(_hold, exchange, reading),
                )
        except _Left:
            return
        exchange.end_reading()
        if not exchange.gone:
            self._submit(exchange, request, body_bytes, told)

    async def _decompress(self, exchange: HttpExchange, hold: large_json.Hold) -> None:
        encoding = exchange.headers[CONTENT_ENCODING].lower()
        body, exchange.on_gone = exchange.take_body(), None
        body = await compression.decompress(body, encoding, self._arriving.largest_body_bytes, hold)
        if exchange.gone:
            raise _Left
        exchange.parts.append(body)
        exchange.on_gone = exchange.parts.clear

    def _infer_small(self, exchange: HttpExchange, body: bytes, told: Told) -> None:
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
        self._submit(exchange, request, len(body), told)

    def predict(self, exchange: HttpExchange) -> None:
        """Answer plain records (`v2/records`)."""
        told, body = self._arriving.told(exchange, self._pipeline.inference.now_ns), exchange.take_body()
        self._pipeline.inference.require_room(1, len(body))
        request, alone = records.parse_records(body, self._specs, self._limits)
        self._submit(exchange, request, len(body), told, partial(self._predicted, alone))

    def _submit(
        self,
        exchange: HttpExchange,
        request: InferRequest,
        body_bytes: int,
        told: Told,
        answered: Answered | None = None,
    ) -> None:
        if request.id:
            exchange.offer(request.id)
        deadline_ns = NO_DEADLINE_NS
        if request.timeout_us or told is not NOTHING_TOLD:
            deadline_ns = told.deadline_ns(self._pipeline.inference.now_ns(), request.timeout_us)
        exchange.on_gone = self._pipeline.submit(
            request.inputs,
            partial(self.attempt, exchange, answered or self._answered, request.without_inputs()),
            priority=request.priority,
            bulk=request.bulk,
            deadline_ns=deadline_ns,
            sent_ns=told.sent_ns,
            payload_bytes=body_bytes,
            client=exchange.client.held,
            span=exchange.span,
        )

    def _answered(self, exchange: HttpExchange, request: InferRequest, answer: Answer) -> Work | None:
        if not _has_outputs(exchange, answer):
            return None
        if large_json.is_large(request, answer):
            return self._respond_in_steps(exchange, request, [answer])
        body, header_bytes = v2_json.encode_answer(self._name, request, answer)
        return self._respond(exchange, [body], len(body), header_bytes)

    def _predicted(self, alone: bool, exchange: HttpExchange, request: InferRequest, answer: Answer) -> Work | None:
        if not _has_outputs(exchange, answer):
            return None
        body = records.encode_records(request, answer, alone)
        exchange.respond(200, body, extra=[(OUTCOME, answer.outcome.encode()), (GEAR, b"%d" % answer.gear)])
        return None

    async def _respond_in_steps(self, exchange: HttpExchange, request: InferRequest, kept: list[Answer]) -> None:
        """`kept` alone has the answer, and lets go of it where the client leaves."""
        exchange.on_gone = kept.clear  # as while a body waits
        async with self._arriving.large:
            if exchange.gone:
                return
            body, header_bytes = await large_json.encode_answer(self._name, request, kept.pop())
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

    # Metadata ------------------------------------------------------------------------------------

    def model(self, exchange: HttpExchange) -> None:
        exchange.respond(200, self._model_metadata)

    def config(self, exchange: HttpExchange) -> None:
        most_rows = metadata.most_rows(self._limits, self._pipeline.inference.most_waiting)
        exchange.respond(200, v2_json.encode(metadata.model_config(self.served, most_rows)))

    def statistics(self, exchange: HttpExchange) -> None:
        statistics = metadata.statistics({self._name: self._metrics.totals(self._name)})
        exchange.respond(200, v2_json.encode(statistics))

    def ready(self, exchange: HttpExchange) -> None:
        pipeline = self._control.service.pipelines[self._name]
        ready = pipeline.ready
        body = v2_json.encode_readiness(self._name, ready, degraded=bool(pipeline.degraded))
        exchange.respond(200 if ready else 503, body, extra=[] if ready else [RETRY_AFTER])


def _has_outputs(exchange: HttpExchange, answer: Answer) -> bool:
    """Whether there is an answer to send, and a client for it; a failed one is answered here."""
    if exchange.gone:
        return False
    raise_if_refused(answer)
    if answer.outcome == "failed":
        respond_error(exchange, 500, exchange.failed(answer.reason))
    return answer.outcome != "failed"


async def _respond_compressed(
    exchange: HttpExchange, body: Sequence[Buffer], encoding: bytes, content_type: bytes, extra: Headers
) -> None:
    exchange.respond_in_parts(200, await compression.compress(body, encoding), content_type, extra)


class _Left(Exception):
    """The client has left while its body was read."""


def _hold(exchange: HttpExchange, reading: Reading, more_bytes: int) -> None:
    """Hold further bytes of a body; raises `_Left` where nobody waits for an answer, so that no more is made."""
    if exchange.gone:
        raise _Left
    reading.hold(more_bytes)


def _text_bytes(exchange: HttpExchange, body_bytes: int) -> int:
    header_bytes = _header_bytes(exchange)
    return body_bytes if header_bytes is None else header_bytes


def _is_bulk(headers: Mapping[bytes, bytes]) -> bool:
    """Whether the head says that the body asks for bulk work; if that is untrue, its rows find no room later."""
    return headers.get(BULK, b"").lower() == b"true"


def _header_bytes(exchange: HttpExchange) -> int | None:
    """Return the length of the JSON part if binary tensors follow it, else None."""
    value = exchange.headers.get(INFERENCE_HEADER)
    if value is None:
        return None
    if not value.isdigit() or len(value) > 18:
        raise InvalidInput("is no number of bytes", where="header inference-header-content-length")
    return int(value)
