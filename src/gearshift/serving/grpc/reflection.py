"""gRPC server reflection: lists the services and describes their messages."""

from collections.abc import Mapping
from typing import Any

import grpc
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.text_format import MessageToString, Parse

from gearshift.serving.grpc import health_pb2 as grpc_health_pb2
from gearshift.serving.grpc import reflection_pb2 as grpc_reflection_pb2
from gearshift.serving.grpc.reflection_pb2 import (
    ErrorResponse,
    FileDescriptorResponse,
    ListServiceResponse,
    ServerReflectionRequest,
    ServerReflectionResponse,
    ServiceResponse,
)
from gearshift.v2 import grpc_messages_pb2

SERVICES = ("grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection")
FILES: Mapping[str, Any] = {
    "inference": grpc_messages_pb2,
    "grpc.health.v1": grpc_health_pb2,
    "grpc.reflection.v1": grpc_reflection_pb2,
    "grpc.reflection.v1alpha": grpc_reflection_pb2,
}
"""Descriptors by the package under which clients know them."""


class Reflection:
    def __init__(self) -> None:
        self._pool = DescriptorPool()
        self._names: list[str] = []
        for package, module in FILES.items():
            self._pool.AddSerializedFile(_published(module.DESCRIPTOR, package).SerializeToString())
            self._names += [f"{package}.{service}" for service in module.DESCRIPTOR.services_by_name]

    def answer(self, asked: ServerReflectionRequest) -> ServerReflectionResponse:
        """Answer one question; for an unknown name the answer contains an error."""
        answer = ServerReflectionResponse(valid_host=asked.host, original_request=asked)
        match kind := asked.WhichOneof("message_request"):
            case "list_services":
                services = [ServiceResponse(name=name) for name in self._names]
                answer.list_services_response.CopyFrom(ListServiceResponse(service=services))
            case "file_by_filename" | "file_containing_symbol":
                try:
                    file = self._file(kind, getattr(asked, kind))
                    answer.file_descriptor_response.CopyFrom(FileDescriptorResponse(file_descriptor_proto=[file]))
                except KeyError:
                    answer.error_response.CopyFrom(_error(grpc.StatusCode.NOT_FOUND, "there is nothing of this name"))
            case _:
                answer.error_response.CopyFrom(_error(grpc.StatusCode.NOT_FOUND, "there are no extensions"))
        return answer

    def _file(self, kind: str, name: str) -> bytes:
        pool: Any = self._pool
        find = pool.FindFileByName if kind == "file_by_filename" else pool.FindFileContainingSymbol
        file: bytes = find(name).serialized_pb
        return file


def _published(ours: Any, package: str) -> FileDescriptorProto:
    file = FileDescriptorProto()
    ours.CopyToProto(file)
    file.name = f"{package}.proto"
    return Parse(MessageToString(file).replace(ours.package, package), FileDescriptorProto())


def _error(status: grpc.StatusCode, text: str) -> ErrorResponse:
    return ErrorResponse(error_code=status.value[0], error_message=text)
