"""The gRPC front end: the service `inference.GRPCInferenceService` on the event loop of the HTTP front end."""

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import grpc
import msgspec
from google.protobuf.message import DecodeError, Message

from gearshift.clock import NS_PER_S
from gearshift.errors import GearshiftError, InvalidInput, NotReady, QueueFull, RequestFailed, UnknownModel
from gearshift.model import TensorSpec
from gearshift.observability.metrics import Metrics, NoMetrics
from gearshift.observability.tracing import Tracing
from gearshift.request import NO_DEADLINE_NS
from gearshift.runtime.room import Client
from gearshift.runtime.service import Service
from gearshift.serving import grpc_messages_pb2 as pb
from gearshift.serving import v2
from gearshift.serving.control import Control
from gearshift.serving.deadline_headers import REQUEST_START, SLO_MS, SendingTimes, deadline_ns_of
from gearshift.serving.exchange import REQUEST_ID, Exchange
from gearshift.serving.grpc_tensors import encode_answer, parse_request, require_few_fields
from gearshift.serving.keys import Keys
from gearshift.serving.settings import ServerSettings

SERVICE = "inference.GRPCInferenceService"
STREAM_REQUESTS = 64
"""Requests of one stream that are at work at a time."""
LONGEST_TEXT = 500
"""Characters of an error's text; it travels in a header, which clients bound."""
LONGEST_REASON = 360
"""Of a failure, so that an id fits behind it."""
LARGE_BYTES = 64 << 10
"""From here on a message's fields are counted before it is parsed."""
FIELDS_PER_TENSOR = 4
"""An input, its raw contents, an output, and another for what a request has beside."""
RETRY_AFTER = (("grpc-retry-pushback-ms", "1000"),)
STATUS = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
}
"""What an error's HTTP status is in gRPC; all others are INTERNAL."""

Asked = TypeVar("Asked", bound=Message)
Sent = TypeVar("Sent")
May = Callable[[Mapping[bytes, bytes]], None]
Call = Callable[[Any, Any, Exchange], Awaitable[Sent]]


class GrpcServer:
    """Answers gRPC requests for one operator, of those who may ask, within the bounds of the settings."""

    def __init__(
        self,
        control: Control,
        operator: str,
        *,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        settings: ServerSettings,
        limits: v2.Limits,
        metrics: Metrics | NoMetrics,
        keys: Keys | None,
        tracing: Tracing | None = None,
        times: SendingTimes | None = None,
    ) -> None:
        self._control, self._operator = control, operator
        self._inputs, self._outputs = inputs, outputs
        self._specs = {spec.name: spec for spec in inputs}
        self._output_names = tuple(spec.name for spec in outputs)
        self._settings, self._limits, self._metrics, self._keys = settings, limits, metrics, keys
        self._tracing = tracing
        self._times = times or SendingTimes()
        self._clients: WeakValueDictionary[str, Client] = WeakValueDictionary()
        self._server: Any = None

    @property
    def _service(self) -> Service:
        return self._control.service

    async def start(self) -> int:
        """Listen, and answer on which port; raises `InvalidInput` where that cannot be used."""
        settings = self._settings
        host, port = settings.host, settings.grpc_port or 0
        self._server = grpc.aio.server(
            options=[
                ("grpc.so_reuseport", 0),
                ("grpc.max_receive_message_length", settings.largest_body_bytes),
                ("grpc.max_send_message_length", -1),
                ("grpc.max_metadata_size", settings.largest_header_bytes),
                ("grpc.absolute_max_metadata_size", settings.largest_header_bytes),
                ("grpc.max_allowed_incoming_connections", settings.most_connections),
                ("grpc.max_connection_idle_ms", settings.keep_alive_s * 1000),
                ("grpc.server_handshake_timeout_ms", math.ceil(settings.longest_read_s * 1000)),
            ],
            maximum_concurrent_rpcs=settings.most_grpc_calls,
        )
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, self._handlers()),))
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            if settings.tls_certificate is not None and settings.tls_key is not None:
                pair = Path(settings.tls_key).read_bytes(), Path(settings.tls_certificate).read_bytes()
                bound = self._server.add_secure_port(address, grpc.ssl_server_credentials([pair]))
            else:
                bound = self._server.add_insecure_port(address)
        except RuntimeError:
            raise InvalidInput(
                f"port {port} of {host} cannot be used for gRPC, or is in use", remedy="choose another with --grpc-port"
            ) from None
        await self._server.start()
        return int(bound)

    async def stop(self, longest_s: float) -> None:
        """Take no more calls, and end when those at work are done, or after `longest_s`; may be called again."""
        if self._server is not None:
            await self._server.stop(longest_s)

    def _handlers(self) -> dict[str, Any]:
        """The methods, and who may call them: anybody is told of the server's health."""
        user = admin = None
        if self._keys is not None:
            user, admin = self._keys.require_user, self._keys.require_admin
        return {
            "ServerLive": _unary(pb.ServerLiveRequest, self._server_live, None),
            "ServerReady": _unary(pb.ServerReadyRequest, self._server_ready, None),
            "ModelReady": _unary(pb.ModelReadyRequest, self._model_ready, user),
            "ServerMetadata": _unary(pb.ServerMetadataRequest, self._server_metadata, user),
            "ModelMetadata": _unary(pb.ModelMetadataRequest, self._model_metadata, user),
            "ModelConfig": _unary(pb.ModelConfigRequest, self._model_config, user),
            "ModelStatistics": _unary(pb.ModelStatisticsRequest, self._model_statistics, user),
            "RepositoryIndex": _unary(pb.RepositoryIndexRequest, self._repository_index, user),
            "RepositoryModelLoad": _unary(pb.RepositoryModelLoadRequest, self._refuse_loading, admin),
            "RepositoryModelUnload": _unary(pb.RepositoryModelUnloadRequest, self._refuse_unloading, admin),
            "ModelInfer": grpc.unary_unary_rpc_method_handler(_guarded("ModelInfer", self._infer, user)),
            "ModelStreamInfer": grpc.stream_stream_rpc_method_handler(
                _guarded("ModelStreamInfer", self._infer_stream, user)
            ),
        }

    # Inference -------------------------------------------------------------------------------------------------------

    async def _infer(self, data: bytes, context: Any, exchange: Exchange) -> bytes:
        return _bytes(await self._answer(data, context, exchange))

    async def _answer(self, data: bytes, context: Any, exchange: Exchange) -> pb.ModelInferResponse:
        """Answer the request in `data`; a client that leaves cancels this, and what still waits leaves its queue."""
        if self._tracing is not None:
            headers = {name: value for name, value in context.invocation_metadata() if isinstance(value, str)}
            exchange.span = self._tracing.begin(
                headers, **{"rpc.system.name": "grpc", "rpc.method": f"{SERVICE}/ModelInfer"}
            )
        with self._service.reading(len(data)):
            if len(data) > LARGE_BYTES:
                require_few_fields(data, FIELDS_PER_TENSOR * self._limits.most_tensors)
            message = _parsed(pb.ModelInferRequest, data)
            self._check_model(message.model_name, message.model_version)
            exchange.offer(message.id)
            request = parse_request(message, self._specs, self._output_names, self._limits)
        metadata = _metadata_of(context)
        sent_ns = self._times.sent_ns(metadata.get(REQUEST_START), self._service.now_ns())
        answer = await self._control.infer(
            request.inputs,
            priority=request.priority,
            deadline_ns=self._deadline_ns(context.time_remaining(), sent_ns, request.timeout_us, metadata.get(SLO_MS)),
            sent_ns=sent_ns,
            payload_bytes=len(data),
            client=self._client_of(context),
            span=exchange.span,
        )
        if answer.outcome == "failed":
            raise RequestFailed(exchange.failed(answer.reason[:LONGEST_REASON]))
        return encode_answer(self._operator, request, answer)

    def _client_of(self, context: Any) -> Client:
        """What the call's connection holds; it is remembered as long as it holds something."""
        return self._clients.setdefault(context.peer(), Client())

    def _deadline_ns(self, remaining_s: float | None, sent_ns: int | None, timeout_us: int, slo_ms: str | None) -> int:
        """On the service's clock: the call's own deadline, else that of the parameters, else of metadata `x-slo-ms`."""
        if remaining_s is not None:
            return min(NO_DEADLINE_NS, self._service.now_ns() + round(remaining_s * NS_PER_S))
        limit_us = timeout_us or (0 if slo_ms is None else v2.timeout_us_of_slo(slo_ms))
        return deadline_ns_of(sent_ns, self._service.now_ns(), limit_us)

    async def _infer_stream(self, requests: AsyncIterator[bytes], context: Any, exchange: Exchange) -> None:
        """Answer in the order of requests; an error is an answer too, and the stream goes on."""
        answers: asyncio.Queue[asyncio.Task[bytes] | None] = asyncio.Queue(STREAM_REQUESTS - 1)
        async with asyncio.TaskGroup() as group:

            async def read() -> None:
                async for data in requests:
                    await answers.put(group.create_task(self._infer_streamed(data, context)))
                await answers.put(None)

            group.create_task(read())
            while (answer := await answers.get()) is not None:
                await context.write(await answer)

    async def _infer_streamed(self, data: bytes, context: Any) -> bytes:
        exchange = Exchange("ModelStreamInfer request")
        try:
            response = pb.ModelStreamInferResponse(infer_response=await self._answer(data, context, exchange))
        except Exception as error:  # noqa: BLE001  the door to the outside
            response = pb.ModelStreamInferResponse(error_message=_told(error, exchange))
        exchange.end("error" if response.error_message else "OK")
        return _bytes(response)

    # All else --------------------------------------------------------------------------------------------------------

    def _check_model(self, name: str, version: str) -> None:
        if name != self._operator:
            raise UnknownModel(f"there is no model {name[:64]!r}; this server has {self._operator!r}")
        if version not in ("", v2.MODEL_VERSION):
            raise UnknownModel(f"model {name!r} has no version {version[:64]!r}, only {v2.MODEL_VERSION!r}")

    def _server_live(self, asked: pb.ServerLiveRequest) -> pb.ServerLiveResponse:
        return pb.ServerLiveResponse(live=True)

    def _server_ready(self, asked: pb.ServerReadyRequest) -> pb.ServerReadyResponse:
        return pb.ServerReadyResponse(ready=self._service.ready)

    def _model_ready(self, asked: pb.ModelReadyRequest) -> pb.ModelReadyResponse:
        self._check_model(asked.name, asked.version)
        return pb.ModelReadyResponse(ready=self._service.ready)

    def _server_metadata(self, asked: pb.ServerMetadataRequest) -> pb.ServerMetadataResponse:
        return pb.ServerMetadataResponse(**v2.server_metadata())

    def _model_metadata(self, asked: pb.ModelMetadataRequest) -> pb.ModelMetadataResponse:
        self._check_model(asked.name, asked.version)
        content = msgspec.to_builtins(v2.model_metadata(self._operator, self._inputs, self._outputs))
        return pb.ModelMetadataResponse(**content)

    def _model_config(self, asked: pb.ModelConfigRequest) -> pb.ModelConfigResponse:
        self._check_model(asked.name, asked.version)
        return pb.ModelConfigResponse(
            config=v2.model_config(self._operator, self._inputs, self._outputs, self._limits.most_rows)
        )

    def _model_statistics(self, asked: pb.ModelStatisticsRequest) -> pb.ModelStatisticsResponse:
        """Of the operator, also where no name is given."""
        self._check_model(asked.name or self._operator, asked.version)
        statistics = v2.model_statistics(self._operator, self._metrics.totals(self._operator))
        return pb.ModelStatisticsResponse(model_stats=[statistics])

    def _repository_index(self, asked: pb.RepositoryIndexRequest) -> pb.RepositoryIndexResponse:
        index = v2.repository_index(self._operator, self._service.ready, ready_only=asked.ready)
        return pb.RepositoryIndexResponse(models=index)

    def _refuse_loading(self, asked: pb.RepositoryModelLoadRequest) -> pb.RepositoryModelLoadResponse:
        v2.refuse_loading("load")

    def _refuse_unloading(self, asked: pb.RepositoryModelUnloadRequest) -> pb.RepositoryModelUnloadResponse:
        v2.refuse_loading("unload")


# Calls and errors ----------------------------------------------------------------------------------------------------


def _unary(asked: type[Asked], answer: Callable[[Asked], Message], may: May | None) -> Any:
    """The handler of a method that answers at once."""

    async def call(data: bytes, context: Any, exchange: Exchange) -> bytes:
        return _bytes(answer(_parsed(asked, data)))

    return grpc.unary_unary_rpc_method_handler(_guarded(asked.__name__.removesuffix("Request"), call, may))


def _guarded(method: str, call: Call[Sent], may: May | None) -> Callable[[Any, Any], Awaitable[Sent]]:
    """`call` for those who `may`, with every error as a status, and the request's id in the trailing metadata."""

    async def guarded(asked: Any, context: Any) -> Sent:
        metadata = _metadata_of(context)
        exchange, status = Exchange(method, given=metadata.get(REQUEST_ID, "")), None
        try:
            if may is not None:
                may({name.encode(): _as_bytes(value) for name, value in metadata.items()})
            answer = await call(asked, context, exchange)
            status = grpc.StatusCode.OK
            context.set_trailing_metadata(((REQUEST_ID, exchange.id),))
            return answer
        except Exception as error:  # the door to the outside
            status = STATUS.get(
                error.http_status if isinstance(error, GearshiftError) else 500, grpc.StatusCode.INTERNAL
            )
            again = RETRY_AFTER if isinstance(error, QueueFull | NotReady) else ()
            await context.abort(status, _told(error, exchange), (*again, (REQUEST_ID, exchange.id)))
            raise
        finally:
            exchange.end(None if status is None else status.name)

    return guarded


def _metadata_of(context: Any) -> dict[str, Any]:
    """What the call says of itself by name; what is given several times is one list, as in HTTP."""
    metadata: dict[str, Any] = {}
    for name, value in context.invocation_metadata():
        metadata[name] = f"{metadata[name]}, {value}" if name in metadata and isinstance(value, str) else value
    return metadata


def _as_bytes(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode()


def _bytes(message: Message) -> bytes:
    data: bytes = message.SerializeToString()
    return data


def _parsed(kind: type[Asked], data: bytes) -> Asked:
    try:
        message: Asked = kind.FromString(data)
    except DecodeError:
        raise InvalidInput(f"the message is no {kind.__name__}", remedy="see the protocol's definition") from None
    return message


def _told(error: Exception, exchange: Exchange) -> str:
    """What a client is told: the error's own text, or for what is our fault an id that the log explains."""
    if isinstance(error, GearshiftError):
        return str(error)[:LONGEST_TEXT]
    return exchange.fault(error)
