"""What a client that knows nothing but the reflection protocol learns of the server."""

from collections.abc import Iterator, Sequence
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from gearshift.serving.grpc.reflection import SERVICES
from gearshift.serving.grpc.reflection_pb2 import ServerReflectionRequest, ServerReflectionResponse
from gearshift.v2.grpc_status import SERVICE as INFERENCE
from tests.unit.serving.grpc.test_server import LONGEST_S, Served, keys, run, samples  # noqa: F401


async def ask(served: Served, service: str, asked: Sequence[ServerReflectionRequest]) -> list[ServerReflectionResponse]:
    async with grpc.aio.insecure_channel(served.address) as channel:
        call = channel.stream_stream(
            f"/{service}/ServerReflectionInfo",
            ServerReflectionRequest.SerializeToString,
            ServerReflectionResponse.FromString,
        )
        return [answer async for answer in call(iter(asked), timeout=LONGEST_S)]


def files_of(answers: Sequence[ServerReflectionResponse]) -> Iterator[bytes]:
    for answer in answers:
        yield from answer.file_descriptor_response.file_descriptor_proto


@pytest.mark.parametrize("service", SERVICES)
def test_every_service_is_listed_and_described_with_all_of_its_methods(service):
    async def use(served: Served) -> tuple[list[str], list[ServerReflectionResponse], Any]:
        (listed,) = await ask(served, service, [ServerReflectionRequest(list_services="")])
        names = [one.name for one in listed.list_services_response.service]
        answers = await ask(served, service, [ServerReflectionRequest(file_containing_symbol=name) for name in names])
        return names, answers, served.server._handlers()

    names, answers, handlers = run(use)
    assert names == [INFERENCE, "grpc.health.v1.Health", *SERVICES]
    files = [FileDescriptorProto.FromString(file) for file in files_of(answers)]
    described = {f"{file.package}.{one.name}": [m.name for m in one.method] for file in files for one in file.service}
    assert {name: set(methods) for name, methods in described.items()} == {
        name: set(methods) for name, methods in handlers.items()
    }


def test_a_client_makes_its_messages_from_what_it_is_told():
    async def use(served: Served) -> Any:
        asked = [ServerReflectionRequest(file_containing_symbol=INFERENCE)]
        (file,) = files_of(await ask(served, SERVICES[0], asked))
        pool = DescriptorPool()
        pool.AddSerializedFile(file)
        method = pool.FindMethodByName(f"{INFERENCE}.ModelInfer")
        request, response = GetMessageClass(method.input_type), GetMessageClass(method.output_type)
        assert method.input_type.full_name == "inference.ModelInferRequest"
        async with grpc.aio.insecure_channel(served.address) as channel:
            call = channel.unary_unary(f"/{INFERENCE}/ModelInfer", request.SerializeToString, response.FromString)
            return await call(request.FromString(samples(3).SerializeToString()), timeout=LONGEST_S)

    answer = run(use)
    assert answer.model_name == "sums"
    assert answer.outputs[0].name


@pytest.mark.parametrize(
    "asked",
    [
        {"file_containing_symbol": "inference.Nothing"},
        {"file_by_filename": "nothing.proto"},
        {"all_extension_numbers_of_type": "inference.ModelInferRequest"},
        {},
    ],
)
def test_what_there_is_not_is_an_error_in_the_answer_and_the_stream_goes_on(asked):
    async def use(served: Served) -> list[ServerReflectionResponse]:
        return await ask(
            served, SERVICES[0], [ServerReflectionRequest(**asked), ServerReflectionRequest(list_services="")]
        )

    error, listed = run(use)
    assert error.error_response.error_code == grpc.StatusCode.NOT_FOUND.value[0]
    assert listed.list_services_response.service


def test_with_keys_only_users_are_told(keys):  # noqa: F811
    async def use(served: Served) -> grpc.StatusCode:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await ask(served, SERVICES[0], [ServerReflectionRequest(list_services="")])
        return caught.value.code()

    assert run(use, keys) is grpc.StatusCode.UNAUTHENTICATED
