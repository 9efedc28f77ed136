"""Answer the requests of OpenAI's API: completions of chats and of texts, and the list of models."""

import time
from functools import partial
from urllib.parse import unquote

import msgspec

from gearshift.errors import InvalidInput, require
from gearshift.observability.tracing import Tracing
from gearshift.runtime.engines.answers.answer_stream import AnswerStream
from gearshift.runtime.engines.language_service import LanguageService
from gearshift.runtime.engines.requests.asked import CHAT, TEXT, Asked
from gearshift.runtime.service.room import Reading
from gearshift.serving.door.deadline_headers import SendingTimes, Told
from gearshift.serving.http.application import Found
from gearshift.serving.http.arriving import Arriving
from gearshift.serving.http.attempts import respond_error
from gearshift.serving.http.http_exchange import HttpExchange, Work
from gearshift.serving.http.inference import CONTENT_ENCODING
from gearshift.serving.http.routes import INFER_HEADERS, POST, Header, Route
from gearshift.serving.http.routes import TEXT as TEXT_SCHEMA
from gearshift.serving.openai import bodies
from gearshift.serving.openai.readers import StreamedAnswer, WholeAnswer
from gearshift.serving.openai.spans import trace_visit
from gearshift.v2 import json as v2_json

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
        times: SendingTimes,
        tracing: Tracing | None = None,
    ) -> None:
        self._arriving = Arriving(largest_body_bytes=largest_body_bytes, times=times, tracing=tracing)
        self._service, self._name = service, service.tables.pipeline
        self._model = Model(id=self._name, created=int(time.time()))

    def put_in_force(self, service: LanguageService) -> None:
        """Let another service of the same pipeline answer from now on."""
        self._service = service

    @property
    def routes(self) -> list[Found]:
        return [(route, route.step(self)) for route in routes_of(self._name)]

    def chat(self, exchange: HttpExchange) -> None:
        self._receive(exchange, CHAT)

    def text(self, exchange: HttpExchange) -> None:
        self._receive(exchange, TEXT)

    def models(self, exchange: HttpExchange) -> None:
        exchange.respond(200, v2_json.encode(Models([self._model])))

    def no_model(self, exchange: HttpExchange) -> None:
        name = unquote(exchange.path.rpartition("/")[2])[:200]
        text = f"there is no model {name!r}, this server has {self._name!r}"
        respond_error(exchange, 404, text, (), "model_not_found", "model")

    def model(self, exchange: HttpExchange) -> None:
        exchange.respond(200, v2_json.encode(self._model))

    def _receive(self, exchange: HttpExchange, path: str) -> None:
        self._arriving.trace(exchange, self._name)
        require(
            CONTENT_ENCODING not in exchange.headers, "bodies are taken as they are", where="header content-encoding"
        )
        told = self._arriving.told(exchange, self._service.now_ns)
        self._arriving.read(exchange, told, self._service.reading, partial(self._ask, path))

    def _ask(self, path: str, told: Told, reading: Reading, exchange: HttpExchange) -> Work | None:
        if sum(map(len, exchange.parts)) > bodies.LARGE_BYTES:
            exchange.on_gone = exchange.parts.clear  # nothing waits for its turn that is not counted
            return self._ask_in_steps(path, told, exchange)
        body = exchange.take_body()
        exchange.end_reading()
        self._submit(exchange, told, bodies.read_body(path, body, self._name))
        return None

    async def _ask_in_steps(self, path: str, told: Told, exchange: HttpExchange) -> None:
        async with self._arriving.large:
            if exchange.gone:
                return
            asked = await bodies.read_large_body(path, exchange.take_body(), self._name)
        exchange.end_reading()
        if not exchange.gone:
            self._submit(exchange, told, asked)

    def _submit(self, exchange: HttpExchange, told: Told, asked: Asked) -> None:
        service, asked.whole = self._service, _decides_at_the_end(exchange)
        asked.id, asked.client = exchange.id, exchange.client.held
        asked.deadline_ns = told.deadline_ns(service.now_ns())
        if exchange.span is not None:
            exchange.span.accepted(service.now_ns())
            asked.visited = partial(trace_visit, exchange.span, self._name)
        kind = StreamedAnswer if asked.streamed else WholeAnswer
        reader = kind(exchange, self._name, service.tables.models, asked)
        try:
            stream = service.submit(asked, reader)
        except BaseException:
            reader.left()
            raise
        exchange.on_gone = partial(_gone, service, stream, reader)


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
