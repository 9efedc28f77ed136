"""What crosses the socket between the router's process and a front end, by receiver.

A request that a front end has parsed itself is a `Submit` with its tensors, and its answer an `Answered`.  Any other is
passed on as it came, a `Head` and `Part`s until one is the last, and its answer is bytes for the client, a `Passed`.
Ids are the front end's.
"""

import msgspec

from gearshift.model import TensorSpec
from gearshift.request import NO_DEADLINE_NS, Answer
from gearshift.runtime.wire.messages import TensorHeader
from gearshift.serving.door.settings import ServerSettings

# To a front end ------------------------------------------------------------------------------------------------------


class Serve(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=True):
    """The first frame: answer clients of this operator; answered by `Listening`.

    `origin_ns` is where the service's clock is 0 on this machine's monotonic one.
    """

    settings: ServerSettings
    operator: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    origin_ns: int


class Answered(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=True):
    """What became of a `Submit`; the tensors of the body are its outputs."""

    id: int
    answer: Answer
    tensors: tuple[TensorHeader, ...] = ()


class Passed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=True):
    """The body is the answer to what was passed on, head and all; with `last` the connection ends after it."""

    id: int
    last: bool


class LetIn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=True):
    """The client of what was passed on may send the body that it has held back (`Expect: 100-continue`)."""

    id: int


class StopListening(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=True):
    """Take no more clients; those that are there leave after their next answer."""


class End(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=True):
    """End, and leave clients so long to take their answers."""

    longest_s: float


# To the router -------------------------------------------------------------------------------------------------------


class Listening(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=True):
    """Clients are answered from now on."""


class Submit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=True):
    """A request for inference, as `Service.submit` takes it; answered by `Answered`.

    `client` numbers the connections of this front end.
    """

    id: int
    client: int
    tensors: tuple[TensorHeader, ...]
    priority: int = 0
    deadline_ns: int = NO_DEADLINE_NS
    sent_ns: int | None = None
    payload_bytes: int = 0


class Head(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=True):
    """The head of a request that is passed on; its body comes in parts.  `client` as in `Submit`."""

    id: int
    client: int
    method: str
    path: str
    headers: tuple[tuple[bytes, bytes], ...]
    keep_alive: bool
    address: str | None


class Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=True):
    """More of the body of a request that is passed on."""

    id: int
    last: bool


class Gone(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=True):
    """The client has left: its request needs no answer."""

    id: int


class Refused(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=True):
    """A request was refused while it was read, for lack of room."""


class Untrusted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=True):
    """A time of sending did not count."""

    reason: str


TO_FRONT_END: msgspec.msgpack.Decoder[Serve | Answered | Passed | LetIn | StopListening | End] = (
    msgspec.msgpack.Decoder(Serve | Answered | Passed | LetIn | StopListening | End)
)
TO_ROUTER: msgspec.msgpack.Decoder[Listening | Submit | Head | Part | Gone | Refused | Untrusted] = (
    msgspec.msgpack.Decoder(Listening | Submit | Head | Part | Gone | Refused | Untrusted)
)
