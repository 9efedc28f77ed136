"""Receive, decompress and parse the messages of gRPC calls, within bounds."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from google.protobuf.message import DecodeError, Message

from gearshift.errors import InvalidInput, TooLarge, UnknownModel
from gearshift.model import TensorSpec
from gearshift.runtime.service.room import Reading
from gearshift.serving.door.compression import DEFLATE, GZIP, decompress
from gearshift.serving.door.exchange import Exchange
from gearshift.serving.grpc.arrivals import Arrivals
from gearshift.serving.grpc.fields import MOST_FIELDS, Split
from gearshift.serving.operate.control import Control
from gearshift.v2 import grpc_messages_pb2 as pb
from gearshift.v2 import tensors as v2
from gearshift.v2.bodies import InferRequest
from gearshift.v2.grpc_tensors import memory_bytes, parse_request

LARGE_BYTES = 64 << 10
"""Larger messages are parsed in a thread, after their fields have been counted."""
FIELDS_PER_TENSOR = 16
"""Fields allowed per tensor: an input, its contents, its raw contents, an output and the rest."""
COMPRESSED = {b"\x1f\x8b": GZIP, b"x\x01": DEFLATE, b"x\x5e": DEFLATE, b"x\x9c": DEFLATE, b"x\xda": DEFLATE}
"""First bytes of a compressed message; no message of the protocol begins with them."""
Asked = TypeVar("Asked", bound=Message)
Sent = TypeVar("Sent")


class Messages:
    """Messages for one operator, of up to `largest_bytes`; large ones are parsed in a thread."""

    def __init__(
        self,
        control: Control,
        operator: str,
        arrivals: Arrivals,
        *,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        largest_bytes: int,
        limits: v2.Limits,
    ) -> None:
        self._control, self._operator, self._arrivals = control, operator, arrivals
        self._specs = {spec.name: spec for spec in inputs}
        self._output_names = tuple(spec.name for spec in outputs)
        self._largest_bytes, self._given_limits = largest_bytes, limits
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="grpc-reader")

    @property
    def limits(self) -> v2.Limits:
        return v2.limits_beside(self._given_limits, self._control.service.most_waiting)

    def end(self) -> None:
        self._reader.shutdown(wait=False, cancel_futures=True)

    async def next(self, context: Any) -> bytes | None:
        """Return the next message of a stream; None if its client sends no more."""
        return await self._arrivals.receive(context, may_rest=True)

    async def receive(self, context: Any) -> bytes:
        data = await self._arrivals.receive(context)
        if data is None:
            raise InvalidInput("the call has no message", remedy="send one")
        return data

    async def small(self, asked: type[Asked], data: bytes) -> Asked:
        data = await self._plain(data, LARGE_BYTES, _hold_nothing)
        if len(data) > LARGE_BYTES:
            raise TooLarge(f"the message has {len(data)} bytes, this method takes {LARGE_BYTES}")
        return parsed(asked, data)

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

    async def request(self, data: bytes, reading: Reading, exchange: Exchange) -> tuple[InferRequest, int]:
        data = await self._plain(data, self._largest_bytes, reading.hold)
        if len(data) <= LARGE_BYTES:
            message = parsed(pb.ModelInferRequest, data)
            raw: Sequence[bytes | memoryview] = message.raw_input_contents
        else:
            split = await self._in_thread(partial(Split, data, self._most_fields))
            message, raw = await self._in_thread(partial(parsed, pb.ModelInferRequest, split.rest)), split.raw
        exchange.offer(message.id)
        self.check_model(message.model_name, message.model_version)
        v2.require_few_tensors(len(message.inputs), len(message.outputs), self.limits)
        reading.hold(memory_bytes(message, raw, self._specs, len(data)) - len(data))
        parse = partial(parse_request, message, raw, self._specs, self._output_names, self.limits)
        return (parse() if len(data) <= LARGE_BYTES else await self._in_thread(parse)), len(data)

    @property
    def _most_fields(self) -> int:
        return max(MOST_FIELDS, FIELDS_PER_TENSOR * self.limits.most_tensors)

    def check_model(self, name: str, version: str) -> None:
        if name != self._operator:
            raise UnknownModel(f"there is no model {name[:64]!r}; this server has {self._operator!r}")
        if version not in ("", v2.MODEL_VERSION):
            raise UnknownModel(f"model {name!r} has no version {version[:64]!r}, only {v2.MODEL_VERSION!r}")


def parsed(kind: type[Asked], data: bytes) -> Asked:
    try:
        message: Asked = kind.FromString(data)
    except DecodeError:
        raise InvalidInput(f"the message is no {kind.__name__}", remedy="see the protocol's definition") from None
    return message


def _hold_nothing(more_bytes: int) -> None:
    """Messages up to `LARGE_BYTES` need no room."""
