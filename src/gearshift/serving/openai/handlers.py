"""Answer the requests of OpenAI's API: completions of chats and of texts, and the list of models."""

import asyncio
import time
from functools import partial
from types import MethodType
from urllib.parse import unquote

import msgspec

from gearshift.clock import NS_PER_S
from gearshift.errors import InvalidInput, require
from gearshift.observability.tracing import Tracing
from gearshift.request import NO_DEADLINE_NS
from gearshift.runtime.engines.answers.answer_stream import AnswerStream
from gearshift.runtime.engines.language_service import LanguageService
from gearshift.runtime.engines.requests.asked import CHAT, TEXT
from gearshift.runtime.service.room import Reading
from gearshift.serving.door import deadline_headers
from gearshift.serving.http.application import Found
from gearshift.serving.http.http_exchange import HttpExchange, Work, error_body, length_within, read_body
from gearshift.serving.http.inference import CONTENT_ENCODING, REQUEST_START, SLO_MS
from gearshift.serving.http.routes import INFER_HEADERS, POST, Header, Route
from gearshift.serving.http.routes import TEXT as TEXT_SCHEMA
from gearshift.serving.openai import bodies
from gearshift.serving.openai.bodies import BadBody, Wanted
from gearshift.serving.openai.readers import StreamedAnswer, WholeAnswer
from gearshift.serving.openai.spans import trace_visit
from gearshift.v2 import json as v2_json
from gearshift.v2 import tensors as v2

DECIDES = b"x-gearshift-decide"
WHOLE, EARLY = b"whole", b"early"
OWNER = "gearshift"


class Model(msgspec.Struct):
    """A pipeline of language models."""

    id: str
    created: int
    owned_by: str = OWNER
    object: str = "model"


class Models(msgspec.Struct):
    data: list[Model]
    object: str = "list"


class OpenAIHandlers:
    """Answers for the pipeline of `service`."""

    def __init__(
        self,
        service: LanguageService,
        *,
        largest_body_bytes: int,
        times: deadline_headers.SendingTimes,
        tracing: Tracing | None = None,
    ) -> None:
        self._tracing = tracing
        self._service, self._largest_body_bytes, self._times = service, largest_body_bytes, times
        self._name = service.tables.pipeline
        self._large = asyncio.Lock()
        """Large bodies are read one at a time."""
        self._model = Model(id=self._name, created=int(time.time()))

    def put_in_force(self, service: LanguageService) -> None:
        """Let another service of the same pipeline answer from now on."""
        self._service = service

    @property
    def routes(self) -> list[Found]:
        return [(route, MethodType(route.handler, self)) for route in routes_of(self._name)]

    def chat(self, exchange: HttpExchange) -> None:
        self._receive(exchange, CHAT)

    def text(self, exchange: HttpExchange) -> None:
        self._receive(exchange, TEXT)

    def models(self, exchange: HttpExchange) -> None:
        exchange.respond(200, v2_json.encode(Models([self._model])))

    def no_model(self, exchange: HttpExchange) -> None:
        name = unquote(exchange.path.rpartition("/")[2])[:200]
        text = f"there is no model {name!r}, this server has {self._name!r}"
        exchange.respond(404, error_body(exchange.path, 404, text, "model_not_found", "model"))

    def model(self, exchange: HttpExchange) -> None:
        exchange.respond(200, v2_json.encode(self._model))

    def _receive(self, exchange: HttpExchange, path: str) -> None:
        head = exchange.headers
        if self._tracing is not None:
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in head.items()}
            route = {"http.request.method": exchange.method, "http.route": exchange.path}
            exchange.span = self._tracing.begin(self._name, headers, **route)
        require(CONTENT_ENCODING not in head, "bodies are taken as they are", where="header content-encoding")
        announced_bytes = length_within(exchange, self._largest_body_bytes) or 0
        self._service.require_room(announced_bytes)  # before it is read
        reading = Reading(self._service.room)
        exchange.release = reading.close
        deadline_ns = self._deadline_ns(exchange)
        read_body(exchange, self._largest_body_bytes, partial(self._ask, path, deadline_ns), reading)

    def _deadline_ns(self, exchange: HttpExchange) -> int:
        head, now_ns = exchange.headers, self._service.now_ns()
        if SLO_MS not in head:
            return NO_DEADLINE_NS
        start = head.get(REQUEST_START)
        sent_ns = None if start is None else self._times.sent_ns(start.decode("latin-1"), now_ns)
        return deadline_headers.deadline_ns_of(sent_ns, now_ns, v2.timeout_us_of_slo(head[SLO_MS].decode("latin-1")))

    def _ask(self, path: str, deadline_ns: int, exchange: HttpExchange) -> Work | None:
        if sum(map(len, exchange.parts)) > bodies.LARGE_BYTES:
            exchange.on_gone = exchange.parts.clear  # nothing waits for its turn that is not counted
            return self._ask_in_steps(path, deadline_ns, exchange)
        body = exchange.take_body()
        exchange.end_reading()
        try:
            self._submit(exchange, deadline_ns, bodies.read_body(path, body, self._name))
        except BadBody as error:
            _refuse(exchange, error)
        return None

    async def _ask_in_steps(self, path: str, deadline_ns: int, exchange: HttpExchange) -> None:
        try:
            async with self._large:
                if exchange.gone:
                    return
                wanted = await bodies.read_large_body(path, exchange.take_body(), self._name)
        except BadBody as error:
            _refuse(exchange, error)
            return
        exchange.end_reading()
        if not exchange.gone:
            self._submit(exchange, deadline_ns, wanted)

    def _submit(self, exchange: HttpExchange, deadline_ns: int, wanted: Wanted) -> None:
        wanted.asked.whole = _decides_at_the_end(exchange)
        asked, service = wanted.asked, self._service
        asked.id = exchange.id
        if exchange.span is not None:
            exchange.span.accepted(service.now_ns())
            asked.visited = partial(trace_visit, exchange.span, self._name)
        if deadline_ns != NO_DEADLINE_NS:
            asked.deadline_s = max(0.0, (deadline_ns - service.now_ns()) / NS_PER_S)
        kind = StreamedAnswer if wanted.stream else WholeAnswer
        reader = kind(exchange, self._name, service.tables.models, wanted)
        try:
            stream = service.submit(asked, reader)
        except BaseException:
            reader.left()
            raise
        exchange.on_gone = partial(_gone, service, stream, reader)


def _refuse(exchange: HttpExchange, error: BadBody) -> None:
    text, param, code = str(error), error.param or None, error.code or None
    exchange.respond(error.http_status, error_body(exchange.path, error.http_status, text, code, param))


def _gone(service: LanguageService, stream: AnswerStream, reader: StreamedAnswer | WholeAnswer) -> None:
    reader.left()
    service.withdraw(stream)


def _decides_at_the_end(exchange: HttpExchange) -> bool:
    how = exchange.headers.get(DECIDES, EARLY).lower()
    if how not in (WHOLE, EARLY):
        raise InvalidInput("is neither `early` nor `whole`", where="header x-gearshift-decide")
    return how == WHOLE


def routes_of(name: str) -> tuple[Route, ...]:
    completions = partial(
        Route,
        methods=POST,
        model=name,
        headers=(
            *(header for header in INFER_HEADERS if header.name.startswith("x-")),
            Header("x-gearshift-decide", "`whole`: no stage decides before the end of its answer.", TEXT_SCHEMA),
        ),
        body=bodies.CompletionBody,
        content_type="application/json",
        errors={
            400: "A field does not fit, or no model has room for the prompt",
            404: "There is no such model",
            413: "The body is too large",
            429: "As many requests wait as may, or as many bytes are held",
            502: "The engine failed",
            503: "Starting, ending, or without an engine",
            504: "The deadline passed before there was an answer",
        },
    )
    return (
        completions(path="/v1/chat/completions", handler=OpenAIHandlers.chat, summary="Completion of a chat"),
        completions(path="/v1/completions", handler=OpenAIHandlers.text, summary="Completion of a text"),
        Route(path="/v1/models", handler=OpenAIHandlers.models, summary="The models", answer=Models),
        Route(
            path="/v1/models/{model}",
            handler=OpenAIHandlers.no_model,
            summary="Another model, which there is none of",
            errors={404: "There is no such model"},
            refused=True,
        ),
        Route(path=f"/v1/models/{name}", handler=OpenAIHandlers.model, summary="The model", answer=Model),
    )
