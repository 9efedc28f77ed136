"""Serve inference, health and reflection over gRPC, on the event loop of the HTTP front end."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import grpc
import msgspec
from google.protobuf.message import DecodeError, Message

from gearshift.clock import NS_PER_S
from gearshift.errors import (
    DeadlinePassed,
    GearshiftError,
    InvalidInput,
    NotReady,
    QueueFull,
    RequestFailed,
    TooLarge,
    UnknownModel,
)
from gearshift.model import TensorSpec
from gearshift.observability.metrics import Metrics
from gearshift.observability.tracing import Tracing
from gearshift.request import NO_DEADLINE_NS
from gearshift.runtime.service.room import Client, Reading, Room
from gearshift.runtime.service.service import Service
from gearshift.serving.door import metadata
from gearshift.serving.door.bounds import most_waiting_bytes
from gearshift.serving.door.compression import DEFLATE, GZIP, decompress
from gearshift.serving.door.deadline_headers import REQUEST_START, SLO_MS, SendingTimes, deadline_ns_of
from gearshift.serving.door.exchange import REQUEST_ID, Exchange
from gearshift.serving.door.keys import Keys
from gearshift.serving.door.settings import ServerSettings
from gearshift.serving.grpc import health as grpc_health
from gearshift.serving.grpc import reflection as grpc_reflection
from gearshift.serving.grpc.answers import Answers, Unread
from gearshift.serving.grpc.arrivals import WINDOW_BYTES, Arrivals
from gearshift.serving.grpc.fields import MOST_FIELDS, Split
from gearshift.serving.grpc.health_pb2 import HealthCheckRequest
from gearshift.serving.grpc.reflection_pb2 import ServerReflectionRequest
from gearshift.serving.grpc.sockets import GrpcSockets
from gearshift.serving.operate.control import Control
from gearshift.v2 import grpc_messages_pb2 as pb
from gearshift.v2 import tensors as v2
from gearshift.v2.bodies import InferRequest
from gearshift.v2.grpc_status import RETRY_AFTER, SERVICE, STATUS
from gearshift.v2.grpc_tensors import (
    NOTHING,
    Values,
    encode_answer,
    memory_bytes,
    parameters,
    parse_request,
    varint,
)

STREAM_REQUESTS = 64
"""Bound on unanswered requests of one stream."""
LONGEST_TEXT = 500
"""Characters of an error's text; it travels in a header, whose size clients bound."""
LONGEST_REASON = 360
"""Characters of a failure's reason; leaves room for an id after it."""
LARGE_BYTES = 64 << 10
"""Larger messages are parsed in a thread, after their fields have been counted."""
FIELDS_PER_TENSOR = 16
"""Fields allowed per tensor: an input, its contents, its raw contents, an output and the rest."""
LONGEST_SILENCE_S = 10.0
"""Bound on the time to the HTTP/2 handshake."""
MOST_CALLS_OF_CONNECTION = 1024
COMPRESSED = {b"\x1f\x8b": GZIP, b"x\x01": DEFLATE, b"x\x5e": DEFLATE, b"x\x9c": DEFLATE, b"x\xda": DEFLATE}
"""First bytes of a compressed message; no message of the protocol begins with them."""
ONLY_ANSWER: Values = {"triton_final_response": True}
"""Added to answers on a stream: Triton's protocol allows several per request, this server sends
one."""
Asked = TypeVar("Asked", bound=Message)
Sent = TypeVar("Sent")
May = Callable[[Mapping[bytes, bytes]], None]
Call = Callable[[Any, Exchange], Awaitable[Sent]]
StreamAnswers = asyncio.Queue[asyncio.Task[bytes] | tuple[type[Exception], str] | None]
"""Pending answers of a stream in order of requests, then the error that ended it, or None."""
Refusal = tuple[grpc.StatusCode, str, tuple[tuple[str, str], ...]]


class GrpcServer:
    """Answers gRPC requests for one operator within the settings' bounds; checks keys."""

    def __init__(
        self,
        control: Control,
        operator: str,
        *,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        settings: ServerSettings,
        limits: v2.Limits,
        metrics: Metrics,
        keys: Keys | None,
        tracing: Tracing | None = None,
        times: SendingTimes | None = None,
    ) -> None:
        self._control, self._operator = control, operator
        self._inputs, self._outputs = inputs, outputs
        self._specs = {spec.name: spec for spec in inputs}
        self._output_names = tuple(spec.name for spec in outputs)
        self._settings, self._given_limits, self._metrics, self._keys = settings, limits, metrics, keys
        self._tracing = tracing
        self._times = times or SendingTimes()
        self._clients: WeakValueDictionary[str, Client] = WeakValueDictionary()
        self._server: Any = None
        self._sockets = GrpcSockets()
        shared: Any = {"most_bytes": most_waiting_bytes(settings) // 2, "longest_s": settings.longest_read_s}
        self._answers = Answers(self._room, self._sockets, **shared)
        self._arrivals = Arrivals(self._room, self._sockets, largest_bytes=settings.largest_body_bytes, **shared)
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="grpc-reader")
        self._reflection = grpc_reflection.Reflection()
        services = (SERVICE, grpc_health.SERVICE, *grpc_reflection.SERVICES)
        self._health = grpc_health.Health(lambda: self._service.ready, services)

    @property
    def _service(self) -> Service:
        return self._control.service

    @property
    def _limits(self) -> v2.Limits:
        return v2.limits_beside(self._given_limits, self._service.most_waiting)

    def _room(self) -> Room:
        return self._control.service.room

    async def start(self) -> int:
        """Listen and return the port; raises `InvalidInput` if it cannot be used."""
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
                ("grpc.server_handshake_timeout_ms", math.ceil(min(LONGEST_SILENCE_S, settings.longest_read_s) * 1000)),
                ("grpc.max_concurrent_streams", MOST_CALLS_OF_CONNECTION),
                ("grpc.http2.bdp_probe", 0),  # it reads whole messages ahead
                ("grpc.http2.lookahead_bytes", WINDOW_BYTES),
                ("grpc.per_message_decompression", 0),  # else memory is taken before it is counted
            ],
            maximum_concurrent_rpcs=settings.most_grpc_calls,
        )
        self._server.add_generic_rpc_handlers(
            tuple(grpc.method_handlers_generic_handler(name, methods) for name, methods in self._handlers().items())
        )
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
        self._sockets.port = int(bound)
        return int(bound)

    async def stop(self, longest_s: float) -> None:
        """Refuse new calls and wait up to `longest_s` for current ones; may be called again."""
        self._health.end()
        if self._server is not None:
            await self._server.stop(longest_s)
        self._reader.shutdown(wait=False, cancel_futures=True)

    def _handlers(self) -> dict[str, dict[str, Any]]:
        """Return the handlers per service; the server's health needs no key."""
        user = admin = None
        if self._keys is not None:
            user, admin = self._keys.require_user, self._keys.require_admin
        told = {"ServerReflectionInfo": _stream("ServerReflectionInfo", self._reflect, user)}
        return {
            SERVICE: self._inference(user, admin),
            grpc_health.SERVICE: self._health_methods(user),
            **dict.fromkeys(grpc_reflection.SERVICES, told),
        }

    def _inference(self, user: May | None, admin: May | None) -> dict[str, Any]:
        return {
            "ServerLive": self._wordless("ServerLive", self._server_live),
            "ServerReady": self._wordless("ServerReady", self._server_ready),
            "ModelReady": self._unary(pb.ModelReadyRequest, self._model_ready, user),
            "ServerMetadata": self._unary(pb.ServerMetadataRequest, self._server_metadata, user),
            "ModelMetadata": self._unary(pb.ModelMetadataRequest, self._model_metadata, user),
            "ModelConfig": self._unary(pb.ModelConfigRequest, self._model_config, user),
            "ModelStatistics": self._unary(pb.ModelStatisticsRequest, self._model_statistics, user),
            "RepositoryIndex": self._unary(pb.RepositoryIndexRequest, self._repository_index, user),
            "RepositoryModelLoad": self._unary(pb.RepositoryModelLoadRequest, self._refuse_loading, admin),
            "RepositoryModelUnload": self._unary(pb.RepositoryModelUnloadRequest, self._refuse_unloading, admin),
            "ModelInfer": grpc.stream_unary_rpc_method_handler(_guarded("ModelInfer", self._infer, user)),
            "ModelStreamInfer": _stream("ModelStreamInfer", self._infer_stream, user),
        }

    def _health_methods(self, user: May | None) -> dict[str, Any]:
        """Return the health handlers.

        With keys, Check still answers anybody, but without waiting for a message: it could name
        any size.
        """
        health, check = self._health, self._wordless("Check", lambda: self._health.check(grpc_health.WHOLE_SERVER))
        if user is None:
            check = self._unary(HealthCheckRequest, lambda asked: health.check(asked.service), None)
        watch = _stream("Watch", self._watch, user)
        return {"Check": check, "List": self._wordless("List", health.list), "Watch": watch}

    def _wordless(self, method: str, answer: Callable[[], Message]) -> Any:
        """Return the handler of a method without arguments; it does not wait for the message."""

        async def call(context: Any, exchange: Exchange) -> bytes:
            return _bytes(answer())

        return grpc.stream_unary_rpc_method_handler(_guarded(method, call, None))

    def _unary(self, asked: type[Asked], answer: Callable[[Asked], Message], may: May | None) -> Any:

        async def call(context: Any, exchange: Exchange) -> bytes:
            return _bytes(answer(await self._small(asked, await self._message(context))))

        return grpc.stream_unary_rpc_method_handler(_guarded(asked.__name__.removesuffix("Request"), call, may))

    # Messages ------------------------------------------------------------------------------------

    async def _message(self, context: Any) -> bytes:
        data = await self._arrivals.receive(context)
        if data is None:
            raise InvalidInput("the call has no message", remedy="send one")
        return data

    async def _small(self, asked: type[Asked], data: bytes) -> Asked:
        data = await self._plain(data, LARGE_BYTES, _hold_nothing)
        if len(data) > LARGE_BYTES:
            raise TooLarge(f"the message has {len(data)} bytes, this method takes {LARGE_BYTES}")
        return _parsed(asked, data)

    async def _plain(self, data: bytes, largest_bytes: int, hold: Callable[[int], None]) -> bytes:
        """Decompress the message; the library leaves this to us so that bytes can be counted."""
        encoding = COMPRESSED.get(data[:2])
        if encoding is None:
            return data
        try:
            return await decompress(data, encoding, largest_bytes, hold)
        except TooLarge:
            raise
        except InvalidInput:
            raise InvalidInput(
                "the message is not compressed as it begins", where="grpc-encoding", remedy="compress all of it"
            ) from None

    async def _in_thread(self, work: Callable[[], Sent]) -> Sent:
        return await asyncio.get_running_loop().run_in_executor(self._reader, work)

    async def _request(self, data: bytes, reading: Reading, exchange: Exchange) -> tuple[InferRequest, int]:
        data = await self._plain(data, self._settings.largest_body_bytes, reading.hold)
        if len(data) <= LARGE_BYTES:
            message = _parsed(pb.ModelInferRequest, data)
            raw: Sequence[bytes | memoryview] = message.raw_input_contents
        else:
            split = await self._in_thread(partial(Split, data, self._most_fields))
            message, raw = await self._in_thread(partial(_parsed, pb.ModelInferRequest, split.rest)), split.raw
        exchange.offer(message.id)
        self._check_model(message.model_name, message.model_version)
        v2.require_few_tensors(len(message.inputs), len(message.outputs), self._limits)
        reading.hold(memory_bytes(message, raw, self._specs, len(data)) - len(data))
        parse = partial(parse_request, message, raw, self._specs, self._output_names, self._limits)
        return (parse() if len(data) <= LARGE_BYTES else await self._in_thread(parse)), len(data)

    @property
    def _most_fields(self) -> int:
        return max(MOST_FIELDS, FIELDS_PER_TENSOR * self._limits.most_tensors)

    # Inference -----------------------------------------------------------------------------------

    async def _infer(self, context: Any, exchange: Exchange) -> bytes:
        self._trace(context, exchange)
        with self._service.reading(0) as reading:
            data = await self._message(context)
            reading.hold(len(data))
            request, message_bytes = await self._request(data, reading, exchange)
        del data
        answer = await self._answer(request, message_bytes, context, exchange)
        unread = self._answers.of(context.peer())
        unread.add(len(answer))
        unread.offer()
        call: Any = asyncio.current_task()  # ends when the client has the answer
        call.add_done_callback(unread.close)
        return answer

    def _trace(self, context: Any, exchange: Exchange) -> None:
        if self._tracing is not None:
            headers = {name: value for name, value in context.invocation_metadata() if isinstance(value, str)}
            exchange.span = self._tracing.begin(
                headers, **{"rpc.system.name": "grpc", "rpc.method": f"{SERVICE}/ModelInfer"}
            )

    async def _answer(
        self,
        request: InferRequest,
        payload_bytes: int,
        context: Any,
        exchange: Exchange,
        more: Values = NOTHING,
    ) -> bytes:
        """Return the encoded answer with `more` parameters.

        A client that leaves cancels this call, which takes its waiting samples out of their queue.
        """
        metadata = _metadata_of(context)
        sent_ns = self._times.sent_ns(metadata.get(REQUEST_START), self._service.now_ns())
        answer = await self._control.infer(
            request.inputs,
            priority=request.priority,
            deadline_ns=self._deadline_ns(context.time_remaining(), sent_ns, request.timeout_us, metadata.get(SLO_MS)),
            sent_ns=sent_ns,
            payload_bytes=payload_bytes,
            client=self._client_of(context),
            span=exchange.span,
        )
        if answer.outcome == "failed":
            raise RequestFailed(exchange.failed(answer.reason[:LONGEST_REASON]))
        return encode_answer(self._operator, request, answer, more)

    def _client_of(self, context: Any) -> Client:
        """Return the account of the call's connection; it lives as long as calls hold it."""
        return self._clients.setdefault(context.peer(), Client())

    def _deadline_ns(self, remaining_s: float | None, sent_ns: int | None, timeout_us: int, slo_ms: str | None) -> int:
        """Return the deadline of the call, else of the parameters, else of metadata `x-slo-ms`."""
        if remaining_s is not None:
            return min(NO_DEADLINE_NS, self._service.now_ns() + round(remaining_s * NS_PER_S))
        limit_us = timeout_us or (0 if slo_ms is None else v2.timeout_us_of_slo(slo_ms))
        return deadline_ns_of(sent_ns, self._service.now_ns(), limit_us)

    async def _infer_stream(self, context: Any, exchange: Exchange) -> None:
        """Answer in order of requests; an error is an answer too, and the stream goes on."""
        answers: StreamAnswers = asyncio.Queue(STREAM_REQUESTS - 1)
        unread = self._answers.of(context.peer())
        tasks = Tasks()
        try:
            tasks.begin(self._read_stream(context, tasks, answers, unread))
            while isinstance(answer := await answers.get(), asyncio.Task):
                await _send(context, await answer, unread)
        finally:
            tasks.cancel()
            unread.close()
        if answer is not None:
            kind, text = answer
            raise kind(text)

    async def _read_stream(self, context: Any, tasks: "Tasks", answers: StreamAnswers, unread: Unread) -> None:
        why = None
        try:
            while (data := await self._arrivals.receive(context, may_rest=True)) is not None:
                await answers.put(tasks.begin(self._infer_streamed([data], context, unread)))
                del data
        except Exception as error:  # noqa: BLE001  raised again by `_infer_stream`
            told = isinstance(error, QueueFull | DeadlinePassed)
            why = (type(error), str(error)) if told else (RuntimeError, repr(error))
        await answers.put(why)  # not the error, whose traceback holds requests

    async def _infer_streamed(self, sent: list[bytes], context: Any, unread: Unread) -> bytes:
        exchange = Exchange("ModelStreamInfer request")
        status = "OK"
        try:
            self._trace(context, exchange)
            with self._service.reading(len(sent[0])) as reading:
                reading.hold(len(sent[0]))
                request, message_bytes = await self._request(sent.pop(), reading, exchange)
            answer = await self._answer(request, message_bytes, context, exchange, ONLY_ANSWER)
            response = b"".join((b"\x12", varint(len(answer)), answer))  # infer_response
        except Exception as error:  # noqa: BLE001  every error becomes an answer
            told = _told(error, exchange)
            which = pb.ModelInferResponse(id=exchange.offered, parameters=parameters(ONLY_ANSWER))
            response, status = _bytes(pb.ModelStreamInferResponse(error_message=told, infer_response=which)), "error"
        exchange.end(status)
        unread.add(len(response))
        return response

    # Health and reflection -----------------------------------------------------------------------

    async def _watch(self, context: Any, exchange: Exchange) -> None:
        asked = await self._small(HealthCheckRequest, await self._message(context))
        await self._health.watch(asked.service, lambda status: _write(context, _bytes(status)))

    async def _reflect(self, context: Any, exchange: Exchange) -> None:
        unread = self._answers.of(context.peer())
        try:
            while (data := await self._arrivals.receive(context, may_rest=True)) is not None:
                answer = _bytes(self._reflection.answer(await self._small(ServerReflectionRequest, data)))
                unread.add(len(answer))
                await _send(context, answer, unread)
        finally:
            unread.close()

    # Metadata ------------------------------------------------------------------------------------

    def _check_model(self, name: str, version: str) -> None:
        if name != self._operator:
            raise UnknownModel(f"there is no model {name[:64]!r}; this server has {self._operator!r}")
        if version not in ("", v2.MODEL_VERSION):
            raise UnknownModel(f"model {name!r} has no version {version[:64]!r}, only {v2.MODEL_VERSION!r}")

    def _server_live(self) -> pb.ServerLiveResponse:
        return pb.ServerLiveResponse(live=True)

    def _server_ready(self) -> pb.ServerReadyResponse:
        return pb.ServerReadyResponse(ready=self._service.ready)

    def _model_ready(self, asked: pb.ModelReadyRequest) -> pb.ModelReadyResponse:
        self._check_model(asked.name, asked.version)
        return pb.ModelReadyResponse(ready=self._service.ready)

    def _server_metadata(self, asked: pb.ServerMetadataRequest) -> pb.ServerMetadataResponse:
        return pb.ServerMetadataResponse(**msgspec.to_builtins(metadata.server_metadata()))

    def _model_metadata(self, asked: pb.ModelMetadataRequest) -> pb.ModelMetadataResponse:
        self._check_model(asked.name, asked.version)
        content = msgspec.to_builtins(metadata.model_metadata(self._operator, self._inputs, self._outputs))
        return pb.ModelMetadataResponse(**content)

    def _model_config(self, asked: pb.ModelConfigRequest) -> pb.ModelConfigResponse:
        self._check_model(asked.name, asked.version)
        most_rows = self._limits.most_rows or self._service.most_waiting
        config = metadata.model_config(self._operator, self._inputs, self._outputs, most_rows)
        return pb.ModelConfigResponse(config=msgspec.to_builtins(config))

    def _model_statistics(self, asked: pb.ModelStatisticsRequest) -> pb.ModelStatisticsResponse:
        self._check_model(asked.name or self._operator, asked.version)
        statistics = metadata.statistics(self._operator, self._metrics.totals(self._operator))
        return pb.ModelStatisticsResponse(**msgspec.to_builtins(statistics))

    def _repository_index(self, asked: pb.RepositoryIndexRequest) -> pb.RepositoryIndexResponse:
        index = metadata.repository_index(self._operator, self._service.ready, ready_only=asked.ready)
        return pb.RepositoryIndexResponse(models=msgspec.to_builtins(index))

    def _refuse_loading(self, asked: pb.RepositoryModelLoadRequest) -> pb.RepositoryModelLoadResponse:
        metadata.refuse_loading("load")

    def _refuse_unloading(self, asked: pb.RepositoryModelUnloadRequest) -> pb.RepositoryModelUnloadResponse:
        metadata.refuse_loading("unload")


class Tasks:
    """The tasks of one stream, which end with it.

    A cancelled `TaskGroup` would leave reference cycles for the garbage collector.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def begin(self, work: Coroutine[Any, Any, Sent]) -> asyncio.Task[Sent]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def cancel(self) -> None:
        for task in self._tasks:
            task.cancel()


# Calls and errors --------------------------------------------------------------------------------


def _guarded(method: str, call: Call[Sent], may: May | None) -> Callable[[Any, Any], Awaitable[Sent]]:
    """Wrap `call`: check access, turn errors into a status, and send the request id as trailer.

    The call starts with its metadata only; `call` receives messages when it wants them.
    """

    async def guarded(requests: Any, context: Any) -> Any:
        answer, refusal = await outcome(context)
        if refusal is None:
            return answer
        ending = [context.abort(*refusal)]
        del (
            requests,
            context,
        )  # the call keeps the error of abort and so this frame, which must not keep the call
        await ending.pop()

    async def outcome(context: Any) -> tuple[Sent | None, Refusal | None]:
        metadata = _metadata_of(context)
        exchange, status = Exchange(method, given=metadata.get(REQUEST_ID, "")), None
        try:
            if may is not None:
                may({name.encode(): _as_bytes(value) for name, value in metadata.items()})
            answer = await call(context, exchange)
            status = grpc.StatusCode.OK
            context.set_trailing_metadata(((REQUEST_ID, exchange.id),))
            return answer, None
        except Exception as error:  # noqa: BLE001  every error becomes an answer
            status = STATUS.get(
                error.http_status if isinstance(error, GearshiftError) else 500, grpc.StatusCode.INTERNAL
            )
            again = RETRY_AFTER if isinstance(error, NotReady) else ()
            if isinstance(error, QueueFull):
                again = ((RETRY_AFTER[0][0], str(1000 * error.retry_after_s)),)
            return None, (status, _told(error, exchange), (*again, (REQUEST_ID, exchange.id)))
        finally:
            exchange.end(None if status is None else status.name)

    return guarded


def _stream(method: str, call: Call[None], may: May | None) -> Any:
    return grpc.stream_stream_rpc_method_handler(_guarded(method, call, may))


async def _send(context: Any, data: bytes, unread: Unread) -> None:
    unread.offer()
    await _write(context, data)
    unread.take(len(data))


async def _write(context: Any, data: bytes) -> None:
    """Send one of several answers; cancel the call if the client is gone."""
    try:
        await context.write(data)
    except grpc.aio.InternalError:
        raise asyncio.CancelledError from None


def _metadata_of(context: Any) -> dict[str, Any]:
    metadata: dict[str, Any] = {}
    for name, value in context.invocation_metadata():
        metadata[name] = f"{metadata[name]}, {value}" if name in metadata and isinstance(value, str) else value
    return metadata


def _hold_nothing(more_bytes: int) -> None:
    """Messages up to `LARGE_BYTES` need no room."""


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
    """Return the text for the client: the error's own, or an id for errors of the server."""
    if isinstance(error, GearshiftError):
        return str(error)[:LONGEST_TEXT]
    return exchange.fault(error)
