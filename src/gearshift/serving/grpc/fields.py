"""Bound serialised gRPC requests before they are parsed.

An empty field has 2 bytes, and dozens of times as many once parsed; a number may have 1 byte, and
then has 8.  The parser holds the interpreter lock until it is done.  So this module bounds what a
message may contain, and keeps the largest part, raw contents, from the parser.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gearshift.errors import InvalidInput, require

MOST_FIELDS = 1 << 16
MOST_NUMBERS = 1 << 20
"""Bound on shapes and typed contents together."""
MOST_TEXT_BYTES = 1 << 20
"""Bound on names, ids and parameters together."""
SEND_RAW = "send tensors in raw_input_contents"


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
