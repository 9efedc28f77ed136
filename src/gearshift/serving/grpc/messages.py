"""Receive, decompress, bound and parse the messages of gRPC calls."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from google.protobuf.message import DecodeError, Message

from gearshift.errors import InvalidInput, TooLarge, UnknownModel, require
from gearshift.runtime.service.room import Reading
from gearshift.serving.door.compression import DEFLATE, GZIP, decompress
from gearshift.serving.door.exchange import Exchange
from gearshift.serving.door.signature import Signature, unknown_model
from gearshift.serving.grpc.arrivals import Arrivals
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
MOST_FIELDS = 1 << 16
MOST_NUMBERS = 1 << 20
"""Bound on shapes and typed contents together."""
MOST_TEXT_BYTES = 1 << 20
"""Bound on names, ids and parameters together."""
SEND_RAW = "send tensors in raw_input_contents"
Asked = TypeVar("Asked", bound=Message)
Sent = TypeVar("Sent")


class Messages:
    """Messages for the pipelines of `served`, of up to `largest_bytes`; large ones are parsed in a thread."""

    def __init__(
        self,
        control: Control,
        served: Sequence[Signature],
        arrivals: Arrivals,
        *,
        largest_bytes: int,
        limits: v2.Limits,
    ) -> None:
        self._control, self._arrivals = control, arrivals
        self._served = {each.name: each for each in served}
        self._specs = {each.name: {spec.name: spec for spec in each.inputs} for each in served}
        self._output_names = {each.name: tuple(spec.name for spec in each.outputs) for each in served}
        self._largest_bytes, self.limits = largest_bytes, limits
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="grpc-reader")

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

    async def request(self, data: bytes, reading: Reading, exchange: Exchange) -> tuple[str, InferRequest, int]:
        """Return the model's name, the request, and the bytes of its message."""
        data = await self._plain(data, self._largest_bytes, reading.hold)
        if len(data) <= LARGE_BYTES:
            message = parsed(pb.ModelInferRequest, data)
            raw: Sequence[bytes | memoryview] = message.raw_input_contents
        else:
            split = await self._in_thread(partial(Split, data, self._most_fields))
            message, raw = await self._in_thread(partial(parsed, pb.ModelInferRequest, split.rest)), split.raw
        exchange.offer(message.id)
        name, limits = self.model(message.model_name, message.model_version).name, self.limits
        v2.require_few_tensors(len(message.inputs), len(message.outputs), limits)
        reading.hold(memory_bytes(message, raw, self._specs[name], len(data)) - len(data))
        parse = partial(parse_request, message, raw, self._specs[name], self._output_names[name], limits)
        request = parse() if len(data) <= LARGE_BYTES else await self._in_thread(parse)
        return name, request, len(data)

    @property
    def _most_fields(self) -> int:
        return max(MOST_FIELDS, FIELDS_PER_TENSOR * self.limits.most_tensors)

    def model(self, name: str, version: str) -> Signature:
        """Raises `UnknownModel` for one that is not served, or not in this version."""
        if name not in self._served:
            raise unknown_model(name, list(self._served))
        if version not in ("", v2.MODEL_VERSION):
            raise UnknownModel(f"model {name!r} has no version {version[:64]!r}, only {v2.MODEL_VERSION!r}")
        return self._served[name]


def parsed(kind: type[Asked], data: bytes) -> Asked:
    try:
        message: Asked = kind.FromString(data)
    except DecodeError:
        raise InvalidInput(f"the message is no {kind.__name__}", remedy="see the protocol's definition") from None
    return message


def _hold_nothing(more_bytes: int) -> None:
    """Messages up to `LARGE_BYTES` need no room."""


# Fields -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Kind:
    """Fields of a message by number: nested messages, and packed numbers with least bytes."""

    messages: Mapping[int, "Kind"] = field(default_factory=dict)
    packed: Mapping[int, int] = field(default_factory=dict)
    elements: int = 0
    """The field whose contents are elements of a tensor."""
    raw: int = 0
    """The field whose contents are a whole tensor."""


_PARAMETERS = Kind({2: Kind()})
_CONTENTS = Kind(packed={1: 1, 2: 1, 3: 1, 4: 1, 5: 1, 6: 4, 7: 8}, elements=8)
REQUEST = Kind(
    {4: _PARAMETERS, 5: Kind({4: _PARAMETERS, 5: _CONTENTS}, packed={3: 1}), 6: Kind({2: _PARAMETERS})}, raw=7
)
"""`ModelInferRequest`, by the numbers of `grpc_messages.proto`."""


class Split:
    """A request in `data`, split into `raw` contents and the `rest`, which is still to be parsed.

    An empty field has 2 bytes, and dozens of times as many once parsed; a number may have 1 byte,
    and then has 8.  The parser holds the interpreter lock until it is done.  So what a message may
    contain is bounded before, and the largest part, raw contents, is kept from the parser.
    Raises `InvalidInput` if the rest has more than `most_fields` fields, too many numbers or too
    much text, or is no message.
    """

    def __init__(self, data: bytes, most_fields: int) -> None:
        self._data, self._most_fields = data, most_fields
        self._fields = self._numbers = self._text_bytes = 0
        self.raw: list[memoryview] = []
        self._rest: list[memoryview] = []
        self._rest_from = 0
        self._walk(REQUEST, 0, len(data))
        self._rest.append(memoryview(data)[self._rest_from :])
        self.rest = b"".join(self._rest)

    def _walk(self, kind: Kind, at: int, end: int) -> None:
        while at < end:
            begin = at
            self._fields += 1
            require(
                self._fields <= self._most_fields,
                f"the message has more than {self._most_fields} fields",
                remedy=f"send fewer, and {SEND_RAW}",
            )
            tag, at = self._varint(at, end)
            number, wire = tag >> 3, tag & 7
            self._require_message(number > 0)
            if wire == 0:
                _, at = self._varint(at, end)
            elif wire == 1:
                at += 8
            elif wire == 5:
                at += 4
            elif wire == 2:
                size, at = self._varint(at, end)
                self._require_message(at + size <= end)
                self._take(kind, number, begin, at, at + size)
                at += size
            else:
                self._require_message(False)
        self._require_message(at == end)

    def _take(self, kind: Kind, number: int, begin: int, at: int, end: int) -> None:
        inner = kind.messages.get(number)
        if inner is not None:
            self._walk(inner, at, end)
        elif number in kind.packed:
            self._numbers += (end - at) // kind.packed[number]
            what = f"the message has more than {MOST_NUMBERS} numbers in shapes and typed contents"
            require(self._numbers <= MOST_NUMBERS, what, remedy=SEND_RAW)
        elif number == kind.raw:
            view = memoryview(self._data)
            self.raw.append(view[at:end])
            self._rest.append(view[self._rest_from : begin])
            self._rest_from = end
        elif number != kind.elements:
            self._text_bytes += end - at
            what = f"the message has more than {MOST_TEXT_BYTES} bytes of names and parameters"
            require(self._text_bytes <= MOST_TEXT_BYTES, what, remedy=SEND_RAW)

    def _varint(self, at: int, end: int) -> tuple[int, int]:
        value = shift = 0
        while at < end and shift < 70:
            byte = self._data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value, at
            shift += 7
        raise no_request()

    def _require_message(self, holds: bool) -> None:
        if not holds:
            raise no_request()


def no_request() -> InvalidInput:
    return InvalidInput("the message is no ModelInferRequest", remedy="see the protocol's definition")
