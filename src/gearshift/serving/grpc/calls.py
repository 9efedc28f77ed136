"""One gRPC call: access, errors as a status, answers, and the tasks of a stream."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, TypeVar

import grpc
from google.protobuf.message import Message

from gearshift.errors import GearshiftError, NotReady, QueueFull
from gearshift.serving.door.exchange import REQUEST_ID, Exchange
from gearshift.serving.grpc.answers import Unread
from gearshift.v2.grpc_status import RETRY_AFTER, STATUS

LONGEST_TEXT = 500
"""Characters of an error's text; it travels in a header, whose size clients bound."""
Sent = TypeVar("Sent")
May = Callable[[Mapping[bytes, bytes]], None]
Call = Callable[[Any, Exchange], Awaitable[Sent]]
Refusal = tuple[grpc.StatusCode, str, tuple[tuple[str, str], ...]]


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
            return None, (status, text_of(error, exchange), (*again, (REQUEST_ID, exchange.id)))
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


def text_of(error: Exception, exchange: Exchange) -> str:
    """Return the text for the client: the error's own, or an id for errors of the server."""
    if isinstance(error, GearshiftError):
        return str(error)[:LONGEST_TEXT]
    return exchange.fault(error)
