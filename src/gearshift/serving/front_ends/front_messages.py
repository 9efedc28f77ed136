"""Messages between the router's process and a front end, by receiver.

A request that a front end has parsed is a `Submit` with its tensors, and its answer an `Answered`.
Any other is passed on unchanged, as a `Head` and `Part`s until the last one, and its answer is
bytes for the client, a `Passed`.  Ids are the front end's.
"""

import msgspec

from gearshift.request import NO_DEADLINE_NS, Answer, BulkWork
from gearshift.runtime.wire.messages import TensorHeader
from gearshift.serving.door.settings import ServerSettings
from gearshift.serving.door.signature import Signature

# To a front end ----------------------------------------------------------------------------------


class Serve(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=True):
    """The first frame: serve clients of these pipelines; the front end replies `Listening`.

    The plan's order numbers them.
    `origin_ns` is the instant 0 of the service's clock on this machine's monotonic clock.
    """

    settings: ServerSettings
    served: tuple[Signature, ...]
    origin_ns: int


class Answered(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=True):
    """The answer to a `Submit`; the tensors of the body are its outputs."""

    id: int
    answer: Answer
    tensors: tuple[TensorHeader, ...] = ()


class Passed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=True):
    """The body is the answer to a passed-on request, with head; `last` closes the connection."""

    id: int
    last: bool


class LetIn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=True):
    """Ask the client of a passed-on request for its body (`Expect: 100-continue`)."""

    id: int


class StopListening(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=True):
    """Accept no more clients; connected ones are closed after their next answer."""


class End(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=True):
    """End, after giving clients `longest_s` to read their answers."""

    longest_s: float


# To the router -----------------------------------------------------------------------------------


class Listening(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=True):
    """The front end serves clients from now on."""


class Submit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=True):
    """A request for inference, as `ServedPipeline.submit` takes it; answered by `Answered`.

    `client` numbers the connections of this front end.
    """

    id: int
    client: int
    tensors: tuple[TensorHeader, ...]
    pipeline: int = 0
    priority: int = 0
    bulk: BulkWork | None = None
    deadline_ns: int = NO_DEADLINE_NS
    sent_ns: int | None = None
    payload_bytes: int = 0


class Head(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=True):
    """The head of a passed-on request; its body follows in parts.  `client` as in `Submit`."""

    id: int
    client: int
    method: str
    path: str
    headers: tuple[tuple[bytes, bytes], ...]
    keep_alive: bool
    address: str | None


class Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=True):
    """A part of the body of a passed-on request."""

    id: int
    last: bool


class Gone(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=True):
    """The client has left: its request needs no answer."""

    id: int


class Refused(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=True):
    """A request was refused for lack of room while it was read."""

    pipeline: int


class Untrusted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=True):
    """A sending time was ignored."""

    reason: str


ToFrontEnd = Serve | Answered | Passed | LetIn | StopListening | End
ToRouter = Listening | Submit | Head | Part | Gone | Refused | Untrusted
TO_FRONT_END: msgspec.msgpack.Decoder[ToFrontEnd] = msgspec.msgpack.Decoder(ToFrontEnd)
TO_ROUTER: msgspec.msgpack.Decoder[ToRouter] = msgspec.msgpack.Decoder(ToRouter)
