"""One gRPC call: access, errors as a status, the tasks of a stream, and answers until clients read them."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, TypeVar

import grpc
from google.protobuf.message import Message

from gearshift.errors import GearshiftError
from gearshift.runtime.service.room import HeldBytes, Room
from gearshift.serving.door.exchange import REQUEST_ID, Exchange
from gearshift.serving.door.open_exchanges import REVOKED, End
from gearshift.serving.grpc.sockets import GrpcSockets
from gearshift.v2.grpc_status import RETRY_PUSHBACK_MS, STATUS

LOOK_S = 0.25
"""Interval at which unread answers are checked."""

LONGEST_TEXT = 500
"""Characters of an error's text; it travels in a header, whose size clients bound."""
Sent = TypeVar("Sent")
May = Callable[[Mapping[bytes, bytes], End], End]
"""Raises for a call that is not let in; `Keys.admit_user` or `admit_admin`."""
Call = Callable[[Any, Exchange], Awaitable[Sent]]
Refusal = tuple[grpc.StatusCode, str, tuple[tuple[str, str], ...]]

log = logging.getLogger(__name__)


class Unread:
    """Answers that one call's client has not read; the current one was offered at `since_s`."""

    __slots__ = ("_answers", "_held", "held_bytes", "peer", "since_s")

    def __init__(self, answers: "Answers", peer: str, held: HeldBytes) -> None:
        self._answers, self._held = answers, held
        self.peer, self.held_bytes = peer, 0
        self.since_s: float | None = None

    def add(self, answer_bytes: int) -> None:
        self.held_bytes += answer_bytes
        self._held.held_bytes += answer_bytes
        self._answers.added(self, answer_bytes)

    def offer(self) -> None:
        self.since_s = asyncio.get_running_loop().time()

    def take(self, answer_bytes: int) -> None:
        self.since_s = None
        self.held_bytes -= answer_bytes
        self._held.held_bytes -= answer_bytes
        self._answers.removed(self, answer_bytes)

    def close(self, call: object = None) -> None:
        self.take(self.held_bytes)


class Answers:
    """Answers that clients have not read; their bytes are held in the room that `room` returns.

    A client that has not read an answer after `longest_s` is disconnected, and so is the slowest
    one while all hold more than `most_bytes`.  That ends all calls of its connection: the library
    does not end a call before its answer is read.
    """

    def __init__(self, room: Callable[[], Room], sockets: GrpcSockets, *, most_bytes: int, longest_s: float) -> None:
        self._room, self._sockets = room, sockets
        self._most_bytes, self._longest_s = most_bytes, longest_s
        self._unread: dict[Unread, None] = {}
        self._unread_bytes = 0
        self._timer: asyncio.TimerHandle | None = None

    def of(self, peer: str) -> Unread:
        return Unread(self, peer, self._room().held)

    def added(self, unread: Unread, answer_bytes: int) -> None:
        self._unread[unread] = None
        self._unread_bytes += answer_bytes
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LOOK_S, self._look)

    def removed(self, unread: Unread, answer_bytes: int) -> None:
        self._unread_bytes -= answer_bytes
        if unread.held_bytes == 0:
            self._unread.pop(unread, None)

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        now_s, left_bytes = loop.time(), self._unread_bytes
        offered = [(one.since_s, one) for one in self._unread if one.since_s is not None]
        for since_s, unread in sorted(offered, key=lambda pair: pair[0]):
            longest_s = LOOK_S if left_bytes > self._most_bytes else self._longest_s
            if now_s < since_s + longest_s:
                break
            log.debug("a client that does not take its answer is cut off: %d bytes are left", unread.held_bytes)
            self._sockets.cut(unread.peer)
            left_bytes -= unread.held_bytes
        self._timer = loop.call_later(LOOK_S, self._look) if self._unread else None


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


class Revoke:
    """Ends the call in whose task it is made, as its key is revoked."""

    __slots__ = ("is_done", "task")

    def __init__(self) -> None:
        self.task: Any = asyncio.current_task()
        self.is_done = False

    def __call__(self) -> None:
        self.is_done = True
        self.task.cancel()


def guarded(method: str, call: Call[Sent], may: May | None) -> Callable[[Any, Any], Awaitable[Sent]]:
    """Wrap `call`: check access, turn errors into a status, and send the request id as trailer.

    The call starts with its metadata only; `call` receives messages when it wants them.
    """

    async def answer_or_abort(requests: Any, context: Any) -> Any:
        answer, refusal = await outcome(context)
        if refusal is None:
            return answer
        ending = [context.abort(*refusal)]
        del requests, context  # the call keeps abort's error, and so this frame, which must not keep the call
        await ending.pop()

    async def outcome(context: Any) -> tuple[Sent | None, Refusal | None]:
        metadata = metadata_of(context)
        exchange, status = Exchange(method, given=metadata.get(REQUEST_ID, "")), None
        revoke = Revoke()
        try:
            if may is not None:
                headers = {name.encode(): _as_bytes(value) for name, value in metadata.items()}
                exchange.on_end = may(headers, revoke)
            answer = await call(context, exchange)
            status = grpc.StatusCode.OK
            context.set_trailing_metadata(((REQUEST_ID, exchange.id),))
            return answer, None
        except asyncio.CancelledError:
            if not revoke.is_done or revoke.task.uncancel():
                raise
            status = grpc.StatusCode.UNAUTHENTICATED
            return None, (status, REVOKED, ((REQUEST_ID, exchange.id),))
        except Exception as error:  # noqa: BLE001  every error becomes an answer
            status = STATUS.get(
                error.http_status if isinstance(error, GearshiftError) else 500, grpc.StatusCode.INTERNAL
            )
            again_s = error.retry_after_s if isinstance(error, GearshiftError) else None
            again = () if again_s is None else ((RETRY_PUSHBACK_MS, str(1000 * again_s)),)
            return None, (status, exchange.text_of(error, LONGEST_TEXT), (*again, (REQUEST_ID, exchange.id)))
        finally:
            exchange.end(None if status is None else status.name)

    return answer_or_abort


def streaming(method: str, call: Call[None], may: May | None) -> Any:
    return grpc.stream_stream_rpc_method_handler(guarded(method, call, may))


async def send(context: Any, data: bytes, unread: Unread) -> None:
    unread.offer()
    await write(context, data)
    unread.take(len(data))


async def write(context: Any, data: bytes) -> None:
    """Send one of several answers; cancel the call if the client is gone."""
    try:
        await context.write(data)
    except grpc.aio.InternalError:
        raise asyncio.CancelledError from None


def metadata_of(context: Any) -> dict[str, Any]:
    metadata: dict[str, Any] = {}
    for name, value in context.invocation_metadata():
        metadata[name] = f"{metadata[name]}, {value}" if name in metadata and isinstance(value, str) else value
    return metadata


def _as_bytes(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode()


def in_bytes(message: Message) -> bytes:
    data: bytes = message.SerializeToString()
    return data
