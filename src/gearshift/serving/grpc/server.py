"""Serve inference, health and reflection over gRPC, on the event loop of the HTTP front end."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import grpc
import msgspec
from google.protobuf.message import Message

from gearshift.errors import InvalidInput
from gearshift.observability.metrics import Metrics
from gearshift.observability.tracing import Tracing
from gearshift.runtime.service.room import UNBOUNDED, Room, RoomOfItsOwn
from gearshift.runtime.service.service import Service
from gearshift.serving.door import metadata
from gearshift.serving.door.bounds import most_waiting_bytes
from gearshift.serving.door.deadline_headers import SendingTimes
from gearshift.serving.door.exchange import Exchange
from gearshift.serving.door.keys import Keys
from gearshift.serving.door.settings import ServerSettings
from gearshift.serving.door.signature import Signature
from gearshift.serving.grpc import health as grpc_health
from gearshift.serving.grpc import reflection as grpc_reflection
from gearshift.serving.grpc.arrivals import WINDOW_BYTES, Arrivals
from gearshift.serving.grpc.calls import Answers, May, guarded, in_bytes, send, streaming, write
from gearshift.serving.grpc.health_pb2 import HealthCheckRequest
from gearshift.serving.grpc.inference import GrpcInference
from gearshift.serving.grpc.messages import Messages
from gearshift.serving.grpc.reflection_pb2 import ServerReflectionRequest
from gearshift.serving.grpc.sockets import GrpcSockets
from gearshift.serving.operate.control import Control
from gearshift.v2 import grpc_messages_pb2 as pb
from gearshift.v2 import tensors as v2
from gearshift.v2.grpc_status import SERVICE

LONGEST_SILENCE_S = 10.0
"""Bound on the time to the HTTP/2 handshake."""
MOST_CALLS_OF_CONNECTION = 1024
Asked = TypeVar("Asked", bound=Message)


class GrpcServer:
    """Answers gRPC requests for the pipelines of `served` within the settings' bounds; checks keys."""

    def __init__(
        self,
        control: Control,
        served: Sequence[Signature],
        *,
        settings: ServerSettings,
        limits: v2.Limits,
        metrics: Metrics,
        keys: Keys | None,
        tracing: Tracing | None = None,
        times: SendingTimes | None = None,
    ) -> None:
        self._control = control
        self._settings, self._metrics, self._keys = settings, metrics, keys
        self._server: Any = None
        self._sockets = GrpcSockets()
        shared: Any = {"most_bytes": most_waiting_bytes(settings) // 2, "longest_s": settings.longest_read_s}
        self._answers = Answers(self._room, self._sockets, **shared)
        largest_bytes = settings.largest_body_bytes
        arrivals = Arrivals(self._room, self._sockets, largest_bytes=largest_bytes, **shared)
        self._messages = Messages(control, served, arrivals, largest_bytes=largest_bytes, limits=limits)
        self._inference = GrpcInference(
            control, self._room, self._messages, self._answers, tracing=tracing, times=times or SendingTimes()
        )
        self._reflection = grpc_reflection.Reflection()
        services = (SERVICE, grpc_health.SERVICE, *grpc_reflection.SERVICES)
        self._health = grpc_health.Health(lambda: self._service.ready, services)

    @property
    def _service(self) -> Service:
        return self._control.service

    def _room(self) -> Room:
        """The room of the only pipeline; with several, one that bounds bytes alone."""
        pipelines = self._service.pipelines
        if len(pipelines) == 1:
            return next(iter(pipelines.values())).room
        return RoomOfItsOwn(UNBOUNDED, self._service.held, refused=lambda: None)

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
        self._messages.end()

    def _handlers(self) -> dict[str, dict[str, Any]]:
        """Return the handlers per service; the server's health needs no key."""
        user = admin = None
        if self._keys is not None:
            user, admin = self._keys.admit_user, self._keys.admit_admin
        told = {"ServerReflectionInfo": streaming("ServerReflectionInfo", self._reflect, user)}
        return {
            SERVICE: self._inference_methods(user, admin),
            grpc_health.SERVICE: self._health_methods(user),
            **dict.fromkeys(grpc_reflection.SERVICES, told),
        }

    def _inference_methods(self, user: May | None, admin: May | None) -> dict[str, Any]:
        return {
            "ServerLive": self._wordless("ServerLive", lambda: pb.ServerLiveResponse(live=True)),
            "ServerReady": self._wordless("ServerReady", lambda: pb.ServerReadyResponse(ready=self._service.ready)),
            "ModelReady": self._unary(pb.ModelReadyRequest, self._model_ready, user),
            "ServerMetadata": self._unary(pb.ServerMetadataRequest, self._server_metadata, user),
            "ModelMetadata": self._unary(pb.ModelMetadataRequest, self._model_metadata, user),
            "ModelConfig": self._unary(pb.ModelConfigRequest, self._model_config, user),
            "ModelStatistics": self._unary(pb.ModelStatisticsRequest, self._model_statistics, user),
            "RepositoryIndex": self._unary(pb.RepositoryIndexRequest, self._repository_index, user),
            "RepositoryModelLoad": self._unary(pb.RepositoryModelLoadRequest, self._refuse_loading, admin),
            "RepositoryModelUnload": self._unary(pb.RepositoryModelUnloadRequest, self._refuse_unloading, admin),
            "ModelInfer": grpc.stream_unary_rpc_method_handler(guarded("ModelInfer", self._inference.infer, user)),
            "ModelStreamInfer": streaming("ModelStreamInfer", self._inference.infer_stream, user),
        }

    def _health_methods(self, user: May | None) -> dict[str, Any]:
        """Return the health handlers.

        With keys, Check still answers anybody, but without waiting for a message: it could name
        any size.
        """
        health, check = self._health, self._wordless("Check", lambda: self._health.check(grpc_health.WHOLE_SERVER))
        if user is None:
            check = self._unary(HealthCheckRequest, lambda asked: health.check(asked.service), None)
        watch = streaming("Watch", self._watch, user)
        return {"Check": check, "List": self._wordless("List", health.list), "Watch": watch}

    def _wordless(self, method: str, answer: Callable[[], Message]) -> Any:
        """Return the handler of a method without arguments; it does not wait for the message."""

        async def call(context: Any, exchange: Exchange) -> bytes:
            return in_bytes(answer())

        return grpc.stream_unary_rpc_method_handler(guarded(method, call, None))

    def _unary(self, asked: type[Asked], answer: Callable[[Asked], Message], may: May | None) -> Any:

        async def call(context: Any, exchange: Exchange) -> bytes:
            return in_bytes(answer(await self._messages.small(asked, await self._messages.receive(context))))

        return grpc.stream_unary_rpc_method_handler(guarded(asked.__name__.removesuffix("Request"), call, may))

    # Health and reflection -----------------------------------------------------------------------

    async def _watch(self, context: Any, exchange: Exchange) -> None:
        asked = await self._messages.small(HealthCheckRequest, await self._messages.receive(context))
        await self._health.watch(asked.service, lambda status: write(context, in_bytes(status)))

    async def _reflect(self, context: Any, exchange: Exchange) -> None:
        unread = self._answers.of(context.peer())
        try:
            while (data := await self._messages.next(context)) is not None:
                answer = in_bytes(self._reflection.answer(await self._messages.small(ServerReflectionRequest, data)))
                unread.add(len(answer))
                await send(context, answer, unread)
        finally:
            unread.close()

    # Metadata ------------------------------------------------------------------------------------

    def _model_ready(self, asked: pb.ModelReadyRequest) -> pb.ModelReadyResponse:
        model = self._messages.model(asked.name, asked.version)
        return pb.ModelReadyResponse(ready=self._service.pipelines[model.name].ready)

    def _server_metadata(self, asked: pb.ServerMetadataRequest) -> pb.ServerMetadataResponse:
        return pb.ServerMetadataResponse(**msgspec.to_builtins(metadata.server_metadata()))

    def _model_metadata(self, asked: pb.ModelMetadataRequest) -> pb.ModelMetadataResponse:
        content = metadata.model_metadata(self._messages.model(asked.name, asked.version))
        return pb.ModelMetadataResponse(**msgspec.to_builtins(content))

    def _model_config(self, asked: pb.ModelConfigRequest) -> pb.ModelConfigResponse:
        model = self._messages.model(asked.name, asked.version)
        most_rows = metadata.most_rows(self._messages.limits, self._service.pipelines[model.name].most_waiting)
        return pb.ModelConfigResponse(config=msgspec.to_builtins(metadata.model_config(model, most_rows)))

    def _model_statistics(self, asked: pb.ModelStatisticsRequest) -> pb.ModelStatisticsResponse:
        every = list(self._control.pipelines)
        first = self._messages.model(asked.name or every[0], asked.version).name
        names = [first] if asked.name else every
        statistics = metadata.statistics({name: self._metrics.totals(name) for name in names})
        return pb.ModelStatisticsResponse(**msgspec.to_builtins(statistics))

    def _repository_index(self, asked: pb.RepositoryIndexRequest) -> pb.RepositoryIndexResponse:
        index = metadata.repository_index(self._control.ready_by_name(), ready_only=asked.ready)
        return pb.RepositoryIndexResponse(models=msgspec.to_builtins(index))

    def _refuse_loading(self, asked: pb.RepositoryModelLoadRequest) -> pb.RepositoryModelLoadResponse:
        metadata.refuse_loading("load")

    def _refuse_unloading(self, asked: pb.RepositoryModelUnloadRequest) -> pb.RepositoryModelUnloadResponse:
        metadata.refuse_loading("unload")
