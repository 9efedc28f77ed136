"""Answer HTTP requests: paths, methods, access, bodies and statuses of the HTTP front end."""

import asyncio
import re
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any
from urllib.parse import unquote

from gearshift.errors import GearshiftError, InvalidInput, NoAccess, NotReady, QueueFull, TooLarge, TooLargeInside
from gearshift.model import TensorSpec
from gearshift.observability.metrics import CONTENT_TYPE, Metrics
from gearshift.observability.tracing import Tracing
from gearshift.request import NO_DEADLINE_NS, Answer
from gearshift.runtime.router.status import ServedPlan
from gearshift.runtime.service.answers import raise_if_refused
from gearshift.runtime.service.room import Reading
from gearshift.serving.door import compression, deadline_headers, metadata
from gearshift.serving.door.keys import Keys
from gearshift.serving.door.origins import FETCH_SITE, ORIGIN, OwnNames
from gearshift.serving.http import openapi
from gearshift.serving.http.http_exchange import CLOSE, JSON, Headers, HttpExchange, Then, announced_length
from gearshift.serving.http.known_request import MOST_IN_VAIN, KnownBody
from gearshift.serving.operate import control as operators
from gearshift.serving.operate.swap import SwapBody, Swaps
from gearshift.v2 import json as v2_json
from gearshift.v2 import large_json
from gearshift.v2 import tensors as v2
from gearshift.v2.bodies import InferRequest
from gearshift.v2.packing import Buffer

Work = Coroutine[Any, Any, None]
Refusal = tuple[int, str, Headers]
"""Status, text and further headers of an error answer."""

BINARY = b"application/octet-stream"
CONTENT_ENCODING = b"content-encoding"
INFERENCE_HEADER = b"inference-header-content-length"
ACCEPT_ENCODING = b"accept-encoding"
SLO_MS, REQUEST_START = deadline_headers.SLO_MS.encode(), deadline_headers.REQUEST_START.encode()
LOADING = re.compile("/v2/repository/models/[^/]+/(load|unload)")
OF_OPERATORS = re.compile("/v2/gearshift|/v2/repository|/metrics")
ENCODED_SLASH = "%252F"
"""An encoded slash does not divide a path; otherwise it would bypass proxies that filter by
prefix."""
OPEN_PATHS = frozenset({"/livez", "/readyz", "/v2/health/live", "/v2/health/ready"})
"""Paths that need no key and accept any host name."""
LARGEST_INDEX_BODY_BYTES = 4096
RETRY_AFTER = (b"retry-after", b"1")
LONGEST_TEXT = 2000
"""Characters of an error's text, which may quote long values from the request."""


class Application:
    """Answers HTTP requests for one operator; checks keys and hosts; bounds are in bytes.

    Steps that need not wait are plain functions; those that wait return a coroutine.
    """

    def __init__(
        self,
        service: operators.Inference,
        operator: str,
        *,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        largest_body_bytes: int,
        limits: v2.Limits = v2_json.DEFAULT_LIMITS,
        metrics: Metrics | None = None,
        keys: Keys | None = None,
        names: OwnNames | None = None,
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
        self._given_limits = self._limits_now = limits
        self._outputs = outputs
        self._metrics = metrics or Metrics()
        self._keys, self._names, self._tracing = keys, names or OwnNames(), tracing
        self._server_metadata = v2_json.encode(metadata.server_metadata())
        self._model_metadata = v2_json.encode(metadata.model_metadata(operator, inputs, outputs))
        self._description = v2_json.encode(openapi.describe(operator, inputs, outputs, keys=keys))
        self._waiting: set[asyncio.Task[None]] = set()
        self._large = asyncio.Lock()
        """Only one large body is read or written at a time, so that the event loop runs between
        its steps."""
        self._posts: dict[str, Callable[[HttpExchange], None]] = {
            "/v2/repository/index": self._post_index,
            operators.GEAR_PATH: self._post_gear,
            operators.DRAIN_PATH: self._post_drain,
            operators.SWAP_PATH: self._post_swap,
        }
        self._gets: dict[str, Callable[[HttpExchange], None]] = {
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
    def _service(self) -> operators.Inference:
        return self._control.inference

    @property
    def _limits(self) -> v2.Limits:
        most_waiting = self._control.inference.most_waiting
        if most_waiting != self._limits_now.most_rows:
            self._limits_now = v2.limits_beside(self._given_limits, most_waiting)
        return self._limits_now

    @property
    def paths(self) -> dict[str, str]:
        return dict.fromkeys(self._gets, "get") | dict.fromkeys(self._posts, "post")

    # Called by the connection --------------------------------------------------------------------

    def begun(self, exchange: HttpExchange) -> None:
        """Route a request whose body may still be missing; errors in its head are answered now."""
        self._attempt(exchange, self._route)

    def measured(self, exchange: HttpExchange, part_bytes: int) -> None:
        self._attempt(exchange, _measure, part_bytes)

    def completed(self, exchange: HttpExchange) -> None:
        if exchange.then is not None:
            self._attempt(exchange, exchange.then)

    def _attempt(self, exchange: HttpExchange, step: Callable[..., Work | None], *given: Any) -> None:
        """Do a step and answer its errors; an internal one as an id that the log explains.

        The error is not kept: its traceback holds the frames, and so the request.
        """
        work, refusal = None, None
        try:
            work = step(exchange, *given)
        except Exception as error:  # noqa: BLE001  every error becomes an answer
            refusal = self._refusal(exchange, error)
        if refusal is not None:  # outside `except`: answering may begin the next request
            _respond_error(exchange, *refusal)
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
            _respond_error(exchange, *refusal)

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

    def _route(self, exchange: HttpExchange) -> None:
        path, method, headers = exchange.path, exchange.method, exchange.headers
        if path[-1:] == "/" or "%" in path or path[:1] != "/":
            path = _path_meant(path)
        if method == "POST" and (ORIGIN in headers or FETCH_SITE in headers):
            self._names.require_own_page(headers)
        if (self._keys is None or not self._keys.of_users) and path not in OPEN_PATHS:
            self._names.require_known(headers)
        if path in operators.ADMINISTRATION:
            operators.require_operator(self._keys, exchange.client.address, headers)
        elif self._keys is not None and path not in OPEN_PATHS:
            self._require_key(self._keys, path, headers)
            if self._keys.of_users:
                exchange.client.vouch()
        post = self._posts.get(path)
        if post is not None:
            if method != "POST":
                _respond_error(exchange, 405, f"{method} is not allowed here, POST is", [(b"allow", b"POST")])
                return
            post(exchange)
            return
        answer = self._gets.get(path)
        if answer is not None:
            if method not in ("GET", "HEAD"):
                _respond_error(exchange, 405, f"{method} is not allowed here, GET is", [(b"allow", b"GET, HEAD")])
                return
            answer(exchange)
            return
        loading = LOADING.fullmatch(path)
        if loading and method == "POST":
            metadata.refuse_loading(loading[1])
        _respond_error(exchange, 404, self._not_found(path))

    def _require_key(self, keys: Keys, path: str, headers: dict[bytes, bytes]) -> None:
        if LOADING.fullmatch(path):
            keys.require_admin(headers)
        else:
            keys.require_user(headers)

    def _not_found(self, path: str) -> str:
        parts = path.split("/")
        if parts[:3] == ["", "v2", "models"] and len(parts) > 3 and parts[3] != self._operator:
            return f"there is no model {parts[3][:64]!r}; this server has {self._operator!r}"
        return f"there is nothing at {path[:200]!r}"

    # Inference -----------------------------------------------------------------------------------

    def _infer(self, exchange: HttpExchange) -> None:
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
            length = _length_within(exchange, self._largest_body_bytes)
            self._service.require_room(1, length or 0)  # before it is parsed
            body = exchange.take_body()
            if len(body) > self._largest_body_bytes:
                raise _too_large(len(body), self._largest_body_bytes)
            if len(body) <= large_json.LARGE_BYTES or _text_bytes(exchange, body) <= large_json.LARGE_BYTES:
                self._infer_small(exchange, body, sent_ns, slo_us)
                return
            exchange.parts.append(body)
        reading = self._service.reading(_length_within(exchange, self._largest_body_bytes) or 0)
        exchange.release = reading.close
        _read(exchange, self._largest_body_bytes, partial(self._infer_body, sent_ns, slo_us, reading), reading)

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
                body, self._inputs, self._output_names, _header_bytes(exchange), self._limits, reading.hold
            )
        exchange.end_reading()
        if not exchange.gone:
            self._submit(exchange, request, len(body), sent_ns, slo_us)

    def _infer_small(self, exchange: HttpExchange, body: bytes, sent_ns: int | None, slo_us: int) -> None:
        header_bytes = _header_bytes(exchange) if INFERENCE_HEADER in exchange.headers else None
        limits, known = self._limits, exchange.known_head
        request = None if known is None or known.body is None else known.body.read(body, limits)
        if request is None:
            request = v2_json.parse_request(body, self._inputs, self._output_names, header_bytes, limits)
            if known is not None and known.bodies_left and header_bytes is None:
                known.bodies_left -= 1
                known.body = KnownBody.of(body, request, self._inputs, limits)
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
            partial(self._attempt, exchange, self._answered, request.without_inputs()),
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
            _respond_error(exchange, 500, exchange.failed(answer.reason))
            return None
        if large_json.is_large(request, answer):
            return self._respond_in_steps(exchange, request, answer)
        body, header_bytes = v2_json.encode_answer(self._operator, request, answer)
        return self._respond(exchange, [body], len(body), header_bytes)

    async def _respond_in_steps(self, exchange: HttpExchange, request: InferRequest, answer: Answer) -> None:
        async with self._large:
            body, header_bytes = await large_json.encode_answer(self._operator, request, answer)
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

    def _get_server(self, exchange: HttpExchange) -> None:
        exchange.respond(200, self._server_metadata)

    def _get_model(self, exchange: HttpExchange) -> None:
        exchange.respond(200, self._model_metadata)

    def _get_config(self, exchange: HttpExchange) -> None:
        inputs, outputs = list(self._inputs.values()), self._outputs
        most_rows = self._limits.most_rows or self._control.inference.most_waiting
        config = metadata.model_config(self._operator, inputs, outputs, most_rows)
        exchange.respond(200, v2_json.encode(config))

    def _get_statistics(self, exchange: HttpExchange) -> None:
        statistics = metadata.statistics(self._operator, self._metrics.totals(self._operator))
        exchange.respond(200, v2_json.encode(statistics))

    def _post_index(self, exchange: HttpExchange) -> None:
        _read(exchange, LARGEST_INDEX_BODY_BYTES, self._index)

    def _index(self, exchange: HttpExchange) -> None:
        ready_only = v2_json.wants_ready_only(exchange.take_body())
        index = metadata.repository_index(self._operator, self._control.ready, ready_only=ready_only)
        exchange.respond(200, v2_json.encode(index))

    def _get_status(self, exchange: HttpExchange) -> None:
        exchange.respond(200, v2_json.encode(self._control.status()))

    def _post_gear(self, exchange: HttpExchange) -> None:
        _read(exchange, operators.LARGEST_BODY_BYTES, self._gear)

    def _gear(self, exchange: HttpExchange) -> None:
        exchange.respond(200, v2_json.encode(self._control.pin_or_free(exchange.take_body())))

    def _post_drain(self, exchange: HttpExchange) -> None:
        _read(exchange, operators.LARGEST_BODY_BYTES, self._drain)

    def _drain(self, exchange: HttpExchange) -> None:
        exchange.respond(200, v2_json.encode(self._control.drain_or_not(exchange.take_body())))

    def _post_swap(self, exchange: HttpExchange) -> None:
        _read(exchange, operators.LARGEST_BODY_BYTES, self._swap)

    async def _swap(self, exchange: HttpExchange) -> None:
        asked = operators.decode(exchange.take_body(), SwapBody)
        if self._swaps is None:
            raise InvalidInput("this server cannot change its plan", remedy="use `gearshift serve`")
        exchange.respond(200, v2_json.encode(await self._swaps.swap(asked)))

    def _get_description(self, exchange: HttpExchange) -> None:
        exchange.respond(200, self._description)

    def _get_live(self, exchange: HttpExchange) -> None:
        exchange.respond(200, b'{"live":true}')

    def _get_ready(self, exchange: HttpExchange) -> None:
        if self._control.ready:
            exchange.respond(200, b'{"ready":true}')
        else:
            exchange.respond(503, b'{"ready":false}', extra=[RETRY_AFTER])

    def _get_model_ready(self, exchange: HttpExchange) -> None:
        ready = self._control.ready
        body = v2_json.encode_readiness(self._operator, ready)
        exchange.respond(200 if ready else 503, body, extra=[] if ready else [RETRY_AFTER])

    def _get_metrics(self, exchange: HttpExchange) -> None:
        exchange.respond(200, self._metrics.text(), content_type=CONTENT_TYPE.encode())


def _path_meant(path: str) -> str:
    """Normalise a path: decode it, and remove a host and trailing slashes.

    A path for operators is not normalised: proxies restrict access to those by the literal path.
    """
    _, _, authority_and_path = path.partition("://") if path[:1] != "/" else ("", "", path)
    plain = "/" + authority_and_path.partition("/")[2]
    meant = unquote(plain.replace("%2f", ENCODED_SLASH).replace("%2F", ENCODED_SLASH)).rstrip("/") or "/"
    return path if OF_OPERATORS.match(meant) else meant


# Reading and answering ---------------------------------------------------------------------------


def _read(exchange: HttpExchange, largest_bytes: int, then: Then, reading: Reading | None = None) -> None:
    """Call `then` with the whole body, held by `reading`; raises `TooLarge` as soon as known."""
    if _length_within(exchange, largest_bytes) is None or reading is not None:
        exchange.measure = _Measure(largest_bytes, reading)
    exchange.then = then


def _length_within(exchange: HttpExchange, largest_bytes: int) -> int | None:
    length = announced_length(exchange.headers)
    if length is not None and length > largest_bytes:
        raise _too_large(length, largest_bytes)
    return length


class _Measure:
    def __init__(self, largest_bytes: int, reading: Reading | None) -> None:
        self._largest_bytes, self._reading, self._total = largest_bytes, reading, 0

    def __call__(self, part_bytes: int) -> None:
        self._total += part_bytes
        if self._total > self._largest_bytes:
            raise _too_large(self._total, self._largest_bytes)
        if self._reading is not None:
            self._reading.hold(part_bytes)


def _measure(exchange: HttpExchange, part_bytes: int) -> None:
    if exchange.measure is not None:
        exchange.measure(part_bytes)


async def _respond_compressed(
    exchange: HttpExchange, body: Sequence[Buffer], encoding: bytes, content_type: bytes, extra: Headers
) -> None:
    exchange.respond_in_parts(200, await compression.compress(body, encoding), content_type, extra)


def _respond_error(exchange: HttpExchange, status: int, text: str, extra: Headers = ()) -> None:
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


def _too_large(size_bytes: int, largest_bytes: int) -> TooLarge:
    return TooLarge(f"the body has {size_bytes} bytes or more, at most {largest_bytes} are taken")
