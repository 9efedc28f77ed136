"""Infer over gRPC: one request per call, or a stream of them."""

import asyncio
from collections.abc import Callable
from typing import Any
from weakref import WeakValueDictionary

from gearshift.clock import NS_PER_S
from gearshift.errors import DeadlinePassed, QueueFull, RequestFailed
from gearshift.observability.tracing import Tracing
from gearshift.request import NO_DEADLINE_NS
from gearshift.runtime.service.room import Client, Reading, Room
from gearshift.serving.door.deadline_headers import REQUEST_START, SLO_MS, SendingTimes
from gearshift.serving.door.exchange import Exchange
from gearshift.serving.grpc.calls import LONGEST_TEXT, Answers, Tasks, Unread, in_bytes, metadata_of, send
from gearshift.serving.grpc.messages import Messages
from gearshift.serving.operate.control import Control
from gearshift.v2 import grpc_messages_pb2 as pb
from gearshift.v2.bodies import InferRequest
from gearshift.v2.grpc_status import SERVICE
from gearshift.v2.grpc_tensors import NOTHING, Values, encode_answer, parameters, varint

STREAM_REQUESTS = 64
"""Bound on unanswered requests of one stream."""
LONGEST_REASON = 360
"""Characters of a failure's reason; leaves room for an id after it."""
ONLY_ANSWER: Values = {"triton_final_response": True}
"""Added to answers on a stream: Triton's protocol allows several per request, this server sends
one."""
StreamAnswers = asyncio.Queue[asyncio.Task[bytes] | tuple[type[Exception], str] | None]
"""Pending answers of a stream in order of requests, then the error that ended it, or None."""


class GrpcInference:
    """Answers requests; a message whose pipeline is not known yet is held in the room that `room` returns."""

    def __init__(
        self,
        control: Control,
        room: Callable[[], Room],
        messages: Messages,
        answers: Answers,
        *,
        tracing: Tracing | None,
        times: SendingTimes,
    ) -> None:
        self._control, self._room = control, room
        self._only = next(iter(control.pipelines)) if len(control.pipelines) == 1 else ""
        self._messages, self._answers = messages, answers
        self._tracing, self._times = tracing, times
        self._clients: WeakValueDictionary[str, Client] = WeakValueDictionary()

    async def infer(self, context: Any, exchange: Exchange) -> bytes:
        self._trace(context, exchange)
        with self._reading(0) as reading:
            data = await self._messages.receive(context)
            reading.hold(len(data))
            asked = await self._messages.request(data, reading, exchange)
        del data
        answer = await self._answer(*asked, context, exchange)
        unread = self._answers.of(context.peer())
        unread.add(len(answer))
        unread.offer()
        call: Any = asyncio.current_task()  # ends when the client has the answer
        call.add_done_callback(unread.close)
        return answer

    def _reading(self, announced_bytes: int) -> Reading:
        """Raises `NotReady`, `QueueFull` or `TooLarge` where the server's only pipeline refuses requests now."""
        if self._only:
            return self._control.pipelines[self._only].inference.reading(announced_bytes)
        return Reading(self._room())

    def _trace(self, context: Any, exchange: Exchange) -> None:
        if self._tracing is not None:
            headers = {name: value for name, value in context.invocation_metadata() if isinstance(value, str)}
            exchange.span = self._tracing.begin(
                self._only, headers, **{"rpc.system.name": "grpc", "rpc.method": f"{SERVICE}/ModelInfer"}
            )

    async def _answer(
        self,
        model: str,
        request: InferRequest,
        payload_bytes: int,
        context: Any,
        exchange: Exchange,
        more: Values = NOTHING,
    ) -> bytes:
        """Return the encoded answer with `more` parameters.

        A client that leaves cancels this call, which takes its waiting samples out of their queue.
        """
        if exchange.span is not None and not self._only:
            exchange.span.of(model)
        said, now_ns = metadata_of(context), self._control.service.now_ns()
        told = self._times.told(said.get(REQUEST_START), said.get(SLO_MS), now_ns)
        deadline_ns, remaining_s = told.deadline_ns(now_ns, request.timeout_us), context.time_remaining()
        if remaining_s is not None:  # the deadline of the call counts first
            deadline_ns = min(NO_DEADLINE_NS, now_ns + round(remaining_s * NS_PER_S))
        answer = await self._control.pipelines[model].infer(
            request.inputs,
            priority=request.priority,
            bulk=request.bulk,
            deadline_ns=deadline_ns,
            sent_ns=told.sent_ns,
            payload_bytes=payload_bytes,
            client=self._client_of(context),
            span=exchange.span,
        )
        if answer.outcome == "failed":
            raise RequestFailed(exchange.failed(answer.reason[:LONGEST_REASON]))
        return encode_answer(model, request, answer, more)

    def _client_of(self, context: Any) -> Client:
        """Return the account of the call's connection; it lives as long as calls hold it."""
        return self._clients.setdefault(context.peer(), Client())

    async def infer_stream(self, context: Any, exchange: Exchange) -> None:
        """Answer in order of requests; an error is an answer too, and the stream goes on."""
        answers: StreamAnswers = asyncio.Queue(STREAM_REQUESTS - 1)
        unread = self._answers.of(context.peer())
        tasks = Tasks()
        try:
            tasks.begin(self._read_stream(context, tasks, answers, unread))
            while isinstance(answer := await answers.get(), asyncio.Task):
                await send(context, await answer, unread)
        finally:
            tasks.cancel()
            unread.close()
        if answer is not None:
            kind, text = answer
            raise kind(text)

    async def _read_stream(self, context: Any, tasks: "Tasks", answers: StreamAnswers, unread: Unread) -> None:
        why = None
        try:
            while (data := await self._messages.next(context)) is not None:
                await answers.put(tasks.begin(self._infer_streamed([data], context, unread)))
                del data
        except Exception as error:  # noqa: BLE001  raised again by `infer_stream`
            told = isinstance(error, QueueFull | DeadlinePassed)
            why = (type(error), str(error)) if told else (RuntimeError, repr(error))
        await answers.put(why)  # not the error, whose traceback holds requests

    async def _infer_streamed(self, sent: list[bytes], context: Any, unread: Unread) -> bytes:
        exchange = Exchange("ModelStreamInfer request")
        status = "OK"
        try:
            self._trace(context, exchange)
            with self._reading(len(sent[0])) as reading:
                reading.hold(len(sent[0]))
                asked = await self._messages.request(sent.pop(), reading, exchange)
            answer = await self._answer(*asked, context, exchange, ONLY_ANSWER)
            response = b"".join((b"\x12", varint(len(answer)), answer))  # infer_response
        except Exception as error:  # noqa: BLE001  every error becomes an answer
            told = exchange.text_of(error, LONGEST_TEXT)
            which = pb.ModelInferResponse(id=exchange.offered, parameters=parameters(ONLY_ANSWER))
            response, status = in_bytes(pb.ModelStreamInferResponse(error_message=told, infer_response=which)), "error"
        exchange.end(status)
        unread.add(len(response))
        return response
