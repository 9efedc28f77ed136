"""The table of HTTP routes: path, method, handler, bound on the body, who may ask, and the description.

A server answers by this table (`application`) and describes itself from it (`openapi`).
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pkgutil import resolve_name
from types import MethodType
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from gearshift.runtime.router.status import Status
from gearshift.serving.door.metadata import IndexEntry, ModelConfiguration, ModelMetadata, ServerMetadata, Statistics
from gearshift.serving.http.handlers import Handlers
from gearshift.serving.http.http_exchange import HttpExchange, Then, Work
from gearshift.serving.http.inference import ModelHandlers
from gearshift.serving.operate.control import DRAIN_PATH, GEAR_PATH, STATUS_PATH, SWAP_PATH, DrainBody, GearBody
from gearshift.serving.operate.promise import EVENTS_PATH, PROMISE_PATH, Promise
from gearshift.serving.operate.swap import SwapBody, SwapResult
from gearshift.serving.pages.live import LIVE_PATH, Look
from gearshift.v2.binary import BULK_HEADER
from gearshift.v2.bodies import IndexBody, InferAnswer, InferBody
from gearshift.v2.records import MOST_BYTES
from gearshift.v2.tensors import MODEL_VERSION

Who = Literal["anybody", "user", "admin", "operator"]
"""Anybody needs no key and may use any host name.  A user, and also an admin, needs a key if the
server has keys; an operator needs one of administration, or without keys this machine."""
Struct = type[msgspec.Struct]
Schema = dict[str, Any]

GET, POST = ("GET", "HEAD"), ("POST",)
LITERAL_PATHS = re.compile("/v2/gearshift|/v2/repository|/metrics")
"""Paths that begin so count only as they are written: proxies restrict access to them."""
MOST_BODY_BYTES = 4096
BAD_BODY, LARGE_BODY = "The body makes no sense", "The body is too large"


class Error(msgspec.Struct):
    """Why a request was refused or failed."""

    error: str


class Live(msgspec.Struct):
    """The process is alive."""

    live: bool


class Ready(msgspec.Struct):
    """Requests are let in and answered; `degraded` while some model has no replica that answers."""

    ready: bool
    name: str | UnsetType = UNSET
    degraded: bool | UnsetType = UNSET


class Header(NamedTuple):
    """A header of a request, with the JSON schema of its value."""

    name: str
    description: str
    schema: Schema


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """How one path is answered; a part `{name}` of the path stands for any text without a slash.

    `handler`, of `Handlers` or, with a `model`, of that one's `ModelHandlers`, is called when a body
    of at most `most_body_bytes` has arrived; without that bound when the head has arrived.  One in a
    file of its own is named as `module:function`, of the handlers and the exchange.  With
    `still_answered` connections beyond the bound on connections are answered, too.  All other
    fields are for the description: `body` and `answer`
    in JSON (`array_of`: a list of these; neither: text of `content_type`), or `binary` as well;
    `records` has a pipeline's inputs and outputs by name for each row;
    `unready` is the answer 503, and `errors` describes other statuses; `refused`: it has no answer
    but errors.
    """

    path: str
    handler: Callable[[Any, HttpExchange], Work | None] | str
    methods: tuple[str, ...] = GET
    model: str = ""
    who: Who = "user"
    most_body_bytes: int | None = None
    still_answered: bool = False
    summary: str
    headers: tuple[Header, ...] = ()
    body: Struct | None = None
    body_required: bool = True
    binary: bool = False
    records: bool = False
    answer: Struct | None = None
    array_of: Struct | None = None
    content_type: str = "text/plain"
    unready: Struct | None = None
    errors: Mapping[int, str] = field(default_factory=dict)
    refused: bool = False

    def step(self, handlers: object) -> Then:
        """The handler, of these `handlers`."""
        return MethodType(resolve_name(self.handler) if isinstance(self.handler, str) else self.handler, handlers)


def routes_of(models: Sequence[str], *, has_dashboard: bool = True) -> tuple[Route, ...]:
    server = [route for route in SERVER if has_dashboard or route.handler is not Handlers.dashboard]
    return (*server, *ADMINISTRATION, *(route for name in models for route in model_routes(name)), *LOADING, *HEALTH)


def model_routes(name: str) -> tuple[Route, ...]:
    """The routes of one pipeline, whose handlers are those of `ModelHandlers`."""
    model = f"/v2/models/{name}"
    return (
        *_of_model(name, model),
        *_of_model(name, f"{model}/versions/{MODEL_VERSION}"),
        Route(
            path=f"/predict/{name}",
            methods=POST,
            model=name,
            handler=ModelHandlers.predict,
            most_body_bytes=MOST_BYTES,
            summary="Inference of plain records: an object of inputs, or a list of them",
            headers=(SLO_HEADER, START_HEADER),
            records=True,
            errors={
                400: "A field is missing, unknown, or does not fit",
                406: "JSON cannot carry an output",
                413: "The body is too large; send fewer records, or tensors to the path above",
                429: "Queues or held bytes are at their bound",
                500: "A row has failed, or a fault of the server",
                503: "Starting, ending, or without a worker",
                504: "The deadline cannot be kept; the text begins with why",
            },
        ),
    )


_statistics = partial(Route, summary="What was answered, in Triton's form", answer=Statistics)
_health = partial(Route, who="anybody", still_answered=True)
_live = partial(_health, handler=Handlers.alive, summary="Whether the process is alive", answer=Live)
_ready = partial(_health, handler=Handlers.ready, summary="Whether requests are answered", answer=Ready, unready=Ready)
_steering = partial(Route, methods=POST, who="operator", most_body_bytes=MOST_BODY_BYTES)

HEALTH = (
    _live(path="/livez"),
    _live(path="/v2/health/live"),
    _ready(path="/readyz"),
    _ready(path="/v2/health/ready"),
)

SERVER = (
    Route(path="/", handler=Handlers.front, summary="A page about the server", content_type="text/html"),
    Route(
        path="/dashboard",
        handler=Handlers.dashboard,
        who="anybody",
        summary="A live page; what it shows it asks for, with the key that it is given",
        content_type="text/html",
    ),
    Route(path="/docs", handler=Handlers.docs, summary="A page about this API", content_type="text/html"),
    Route(path="/v2", handler=Handlers.server, summary="The server", answer=ServerMetadata),
    Route(
        path="/metrics",
        handler=Handlers.metrics,
        still_answered=True,
        summary="Metrics in Prometheus format",
    ),
    Route(
        path="/openapi.json",
        handler=Handlers.describe,
        summary="This description",
        content_type="application/json",
    ),
    _statistics(path="/v2/models/stats", handler=Handlers.statistics),
    Route(
        path="/v2/repository/index",
        methods=POST,
        handler=Handlers.index,
        most_body_bytes=MOST_BODY_BYTES,
        summary="The pipelines and their state",
        body=IndexBody,
        body_required=False,
        array_of=IndexEntry,
        errors={400: BAD_BODY, 413: LARGE_BODY},
    ),
)

ADMINISTRATION = (
    Route(path=PROMISE_PATH, handler=Handlers.promise, summary="What the plan in force promises", answer=Promise),
    Route(
        path=EVENTS_PATH,
        handler=Handlers.events,
        summary="The latest events of the journal",
        content_type="application/json",
    ),
    Route(
        path=LIVE_PATH,
        handler=Handlers.live,
        summary="A look at the server; with `Accept: text/event-stream` one each second",
        headers=(
            Header("accept", "`text/event-stream` for a stream of looks.", {"type": "string"}),
            Header("last-event-id", "The Unix time from which on the past is wanted.", {"type": "string"}),
        ),
        answer=Look,
    ),
    Route(
        path=STATUS_PATH,
        handler=Handlers.status,
        still_answered=True,
        summary="What the server is doing",
        answer=Status,
    ),
    _steering(
        path=GEAR_PATH,
        handler=Handlers.gear,
        summary="Keep a gear, or let the load choose again",
        body=GearBody,
        answer=Status,
        errors={400: BAD_BODY, 413: LARGE_BODY},
    ),
    _steering(
        path=DRAIN_PATH,
        handler=Handlers.drain,
        summary="Refuse new requests and answer those accepted, or let new ones in again",
        body=DrainBody,
        body_required=False,
        answer=Status,
        errors={400: BAD_BODY, 413: LARGE_BODY, 503: "The server is ending"},
    ),
    _steering(
        path=SWAP_PATH,
        handler=Handlers.swap,
        summary="Put another plan in force",
        body=SwapBody,
        answer=SwapResult,
        errors={
            400: BAD_BODY,
            409: "The plan before goes on, or another swap is under way",
            413: LARGE_BODY,
            503: "The server is starting or ending",
        },
    ),
)

STILL_ANSWERED = frozenset(route.path for route in (*SERVER, *ADMINISTRATION, *HEALTH) if route.still_answered)


def _loading(verb: str, handler: Callable[[Handlers, HttpExchange], Work | None]) -> Route:
    summary = f"No model can be {verb}ed on its own"
    return Route(
        path=f"/v2/repository/models/{{model}}/{verb}",
        methods=POST,
        handler=handler,
        who="admin",
        summary=summary,
        errors={400: summary},
        refused=True,
    )


LOADING = (_loading("load", Handlers.refuse_load), _loading("unload", Handlers.refuse_unload))

TEXT = {"type": "string"}
SLO_HEADER = Header(
    "x-slo-ms",
    "A deadline in ms, up to 4503599627370, where the body has no timeout.",
    {"type": "string", "pattern": r"^[0-9]{1,15}(\.[0-9]{1,15})?$"},
)
START_HEADER = Header("x-request-start", "When it was sent: `t=` and Unix time in s, ms or us.", TEXT)
INFER_HEADERS = (
    SLO_HEADER,
    START_HEADER,
    Header(BULK_HEADER, "`true` for bulk work, so that its body is read though online room is full.", TEXT),
    Header("inference-header-content-length", "How much of the body is JSON.", {"type": "integer", "minimum": 0}),
    Header(
        "content-encoding", "How the body is compressed.", {"type": "string", "enum": ["gzip", "deflate", "identity"]}
    ),
    Header("accept-encoding", "How a large answer may be compressed.", TEXT),
    Header("x-request-id", "The request's id in the log, given back.", TEXT),
)


def _of_model(name: str, path: str) -> tuple[Route, ...]:
    return (
        Route(path=path, model=name, handler=ModelHandlers.model, summary="The pipeline", answer=ModelMetadata),
        Route(
            path=f"{path}/config",
            model=name,
            handler=ModelHandlers.config,
            summary="The pipeline as Triton would configure it",
            answer=ModelConfiguration,
        ),
        Route(
            path=f"{path}/ready",
            model=name,
            handler=ModelHandlers.ready,
            summary="Whether the pipeline is ready",
            answer=Ready,
            unready=Ready,
        ),
        _statistics(path=f"{path}/stats", model=name, handler=ModelHandlers.statistics),
        Route(
            path=f"{path}/infer",
            methods=POST,
            model=name,
            handler=ModelHandlers.infer,
            summary="Inference",
            headers=INFER_HEADERS,
            body=InferBody,
            binary=True,
            answer=InferAnswer,
            errors={
                400: "A field, tensor, parameter or header does not fit",
                406: "JSON cannot carry an output; ask for it in binary",
                413: LARGE_BODY,
                429: "Queues or held bytes are at their bound",
                500: "A row has failed, or a fault of the server",
                503: "Starting, ending, or without a worker",
                504: "The deadline cannot be kept; the text begins with why",
            },
        ),
    )
