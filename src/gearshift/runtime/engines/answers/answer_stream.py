"""The answer to one request: held while no stage has decided, then passed on as it comes."""

import asyncio
import math
from dataclasses import dataclass
from typing import Any, Protocol

from gearshift.clock import NS_PER_S
from gearshift.errors import printable
from gearshift.request import Outcome
from gearshift.runtime.engines.answers.endings import Ending, ending_of
from gearshift.runtime.engines.answers.given_tokens import GivenTokens
from gearshift.runtime.engines.answers.growth import Growth
from gearshift.runtime.engines.answers.halves import Halves
from gearshift.runtime.engines.answers.held import LARGEST_HELD_BYTES, MOST_HELD_CHUNKS, Held, NoRoom
from gearshift.runtime.engines.answers.second_engine import SecondEngine
from gearshift.runtime.engines.requests.asked import Asked
from gearshift.runtime.engines.requests.engine_request import NO_MOST_TOKENS, NOWHERE, EngineRequest, Sent
from gearshift.runtime.engines.upstream.call import Call, Fault
from gearshift.runtime.engines.upstream.chunk import NULL, BadAnswer, Chunk, Usage, decode_chunk
from gearshift.runtime.engines.upstream.connection import LARGEST_ERROR_BYTES
from gearshift.runtime.service.room import HeldBytes, has_room

DONE = b"[DONE]"
LONGEST_SAID, LONGEST_REASON = 200, 100
"""Bytes of an engine's error, and characters of the reason why its answer ended, for the log."""
FULL = "the server holds as many bytes of answers as it may"


@dataclass(frozen=True, slots=True)
class StageTokens:
    """The cost of one stage: tokens of the prompt (0: not known), and those it gave."""

    model: str
    prompt_tokens: int
    output_tokens: int


class Reader(Protocol):
    """Takes the answer on the client's behalf; `ended`, `failed` or `broke` comes last.

    Where one of its methods raises, `broke` follows. Until something is `shown`, another engine may
    take over, of which `again` tells.
    """

    @property
    def shown(self) -> bool: ...

    def again(self) -> None:
        """Forget what was given: another engine answers, and `begin` comes once more."""
        ...

    def begin(self, stream: "AnswerStream") -> None:
        """A stage has decided to answer, so that model, gear and certainty are known."""
        ...

    def chunk(self, data: bytes) -> None: ...

    def ended(self, stream: "AnswerStream") -> None: ...

    def failed(self, fault: Fault) -> None:
        """There is no answer, or after `begin` no whole one."""
        ...

    def broke(self, error: Exception) -> None:
        """End the client's answer, whatever state it is in: this process raised an error, or `NoRoom`."""
        ...


class Owner(Protocol):
    """The service that a stream belongs to."""

    def now_ns(self) -> int: ...

    def tokens_came(self, stream: "AnswerStream") -> None: ...

    def begun(self, stream: "AnswerStream", model: object, fingerprint: object) -> None:
        """The first chunk of an engine's answer, by which it says what it is."""
        ...

    def stage_ended(self, stream: "AnswerStream") -> None: ...

    def stage_failed(self, stream: "AnswerStream", fault: Fault) -> None: ...

    def broke(self, stream: "AnswerStream", error: Exception) -> None:
        """This process raised an error about it: it ends after whatever is being done now."""
        ...


class AnswerStream:
    """Listens to the engine that works on the request (`Listener`), and tells `owner` and `reader`.

    `held` are chunks that may not be shown yet. `whole_answer` are those of the last stage that
    ended and was not sure, with its `whole_usage`. `broken` is an error of this process, after which
    nothing more is heard. Methods that engines call raise nothing.
    """

    __slots__ = (
        "_all_count", "_done", "_finished", "_growth", "_halves", "_is_new", "_kept_bytes", "_memory", "_owner",
        "_reopened", "_whole_times",
        "answered_ns", "arrived_ns", "asked", "broken", "call", "certainty", "count", "deadline", "decided",
        "decided_model", "fault", "first_ns", "given", "held", "last_ns", "no_logprobs", "queued_ns", "reader",
        "request", "second", "sent", "stages", "usage", "whole_answer", "whole_usage",
    )  # fmt: skip

    def __init__(
        self, owner: Owner, request: EngineRequest, asked: Asked, reader: Reader, memory: HeldBytes, arrived_ns: int
    ) -> None:
        self._owner, self.request, self.asked, self.reader = owner, request, asked, reader
        self._memory, self._kept_bytes = memory, 0
        self.broken: Exception | None = None
        self.call: Call | None = None
        self.second: SecondEngine | None = None
        """Where it is asked as well."""
        self.arrived_ns = arrived_ns
        self.answered_ns = 0
        """When a stage decided to answer."""
        self.queued_ns = arrived_ns
        """When the present stage began to wait."""
        self.sent: Sent | None = None
        """Where it is now."""
        self.deadline: asyncio.TimerHandle | None = None
        self.fault = Fault("no engine is left that could answer")
        """The fault of the last stage that failed."""
        self.stages: list[StageTokens] = []
        """The tokens of stages that did not answer."""
        self.held, self.whole_answer = Held(memory), Held(memory)
        self.usage: Usage | None = None
        self.whole_usage: Usage | None = None
        self._whole_times = 0, 0, 0, 0
        self.no_logprobs: frozenset[int] = frozenset()
        """Models whose engines refused it for the log-probabilities that they were asked for beside the answer."""
        self.certainty, self.decided_model = math.nan, NOWHERE
        """By which a stage decided last, and its model."""
        self.begin_stage(None)

    def begin_stage(self, given: GivenTokens | None, *, held_tokens: int = NO_MOST_TOKENS) -> None:
        """At an engine that holds so many tokens."""
        self.given, self.count, self.usage, self._done, self._is_new = given, 0, None, False, True
        self._all_count = 0
        """As `count`, of all choices."""
        self.first_ns = self.last_ns = 0
        """When the present model's first and latest tokens came; 0 before."""
        self.decided = False
        """Whether `certainty` is the present stage's."""
        asked = self.asked
        self._growth = Growth(
            most_tokens=asked.most_tokens,
            held_tokens=held_tokens,
            choices=asked.choices,
            echo_bytes=asked.prompt_bytes if asked.echoes else 0,
        )
        self._halves = Halves()
        self._reopened: set[int] = set()
        """Choices that went on after that."""
        self._finished: dict[int, object] = {}
        """Choices that told why they ended, with the reason."""

    # From the engine -----------------------------------------------------------------------------

    def event(self, data: bytes) -> None:
        if self.broken is None:
            try:
                self._event(data)
            except Exception as error:  # noqa: BLE001  whatever it is, the client's answer ends
                self._owner.broke(self, error)

    def ended(self) -> None:
        self._over(Fault("it ended its answer before it was whole"))

    def failed(self, fault: Fault) -> None:
        self._over(fault)

    def _over(self, fault: Fault) -> None:
        """Its engine gives nothing more; an answer that was whole by then has not failed."""
        if self.broken is not None:
            return
        try:
            if self._is_whole:
                self._owner.stage_ended(self)
            else:
                self._owner.stage_failed(self, fault)
        except Exception as error:  # noqa: BLE001  as above
            self._owner.broke(self, error)

    @property
    def _is_whole(self) -> bool:
        return self._done or len(self._finished) >= self.asked.choices

    def _event(self, data: bytes) -> None:
        if data == DONE:
            self._done = True
            return
        if data == NULL:
            return
        data = self._halves.mend(data)
        try:
            chunk = decode_chunk(data)
        except BadAnswer as error:
            self._stop(Fault(f"it {error}", given_kind="unreadable"))
            return
        if chunk.error is not None:
            status = _status_of(chunk.error)
            self._stop(Fault(f"it ended its answer with an error: {_said(data)}", status, data[:LARGEST_ERROR_BYTES]))
            return
        if self._is_new:
            self._is_new = False
            self._owner.begun(self, chunk.model, chunk.system_fingerprint)
        try:
            self.usage = chunk.usage or self.usage
            all_tokens, ends = self._count(chunk)
        except BadAnswer as error:
            self._break(Fault(f"it {error}", given_kind="aborted" if isinstance(error, _Aborted) else "unreadable"))
            return
        if why := self._growth.add(all_tokens, len(data)):
            self._break(Fault(why))
            return
        if self.call is not None and (all_tokens or ends):
            self.call.progressed()
        if not chunk.choices:
            return
        tokens = self._listen(chunk)
        self._all_count += all_tokens
        if self.request.answered:
            self.reader.chunk(data)
            self._note_shown()
        elif not self.held.add(data):
            if not has_room(self._memory, len(data)):
                raise NoRoom(f"{FULL}; try again later")
            most = f"{LARGEST_HELD_BYTES} bytes or {MOST_HELD_CHUNKS} chunks"
            self._break(Fault(f"its answer of more than {most} would have to be held"))
            return
        if tokens:
            self.last_ns = self._owner.now_ns()
            if self.count == 0:
                self.first_ns = self.last_ns
            self.count += tokens
            self._owner.tokens_came(self)

    def _count(self, chunk: Chunk) -> tuple[int, bool]:
        """The tokens of all choices, and whether a choice has told why it ended.

        Raises `BadAnswer` for choices that nobody asked for, and for ends that leave it unclear whether
        an answer is whole. OpenRouter tells some ends twice, the second time with the usage.
        """
        all_tokens, ends = 0, False
        for choice in chunk.choices:
            index, reason, tokens = choice.index, choice.finish_reason, choice.token_count
            if not 0 <= index < self.asked.choices:
                raise BadAnswer(f"gave a choice {index}, of {self.asked.choices} that were asked for")
            all_tokens += tokens
            ending = ending_of(reason)
            if ending is Ending.BROKEN or (ending is Ending.UNKNOWN and not self.request.answered):
                raise _Aborted(f"broke off its answer: finish_reason {printable(str(reason)[:LONGEST_REASON])!r}")
            before = self._finished.get(index)
            if ending is Ending.NOT_YET:
                if tokens and before is not None:  # it was not the end
                    self._reopened.add(index)
                    del self._finished[index]
                continue
            if index in self._reopened or (before is not None and (tokens or reason != before)):
                raise BadAnswer(f"ended choice {index} twice")
            self._finished[index] = reason
            ends = ends or before is None
        return all_tokens, ends

    def _listen(self, chunk: Chunk) -> int:
        """Note the first choice's tokens; how many these are."""
        first = chunk.first
        if first is None:
            return 0
        if self.given is not None:
            self.given.add(first)
        return first.token_count

    def _break(self, fault: Fault) -> None:
        if self.call is not None:
            self.call.cancel()
        self._owner.stage_failed(self, fault)

    def _stop(self, fault: Fault) -> None:
        """Hear nothing more of the engine, whose answer may be whole by now."""
        if self.call is not None:
            self.call.cancel()
        self._over(fault)

    # Decisions -----------------------------------------------------------------------------------

    def give_way(self, model: str, *, keep: bool) -> None:
        """The stage has not answered; with `keep` its answer is whole, and may still be given."""
        prompt_tokens = 0 if self.usage is None else self.usage.prompt_tokens
        self.stages.append(StageTokens(model, prompt_tokens, self.output_tokens))
        if keep:
            self.whole_answer, self.held, self.whole_usage = self.held, self.whole_answer, self.usage
            self._whole_times = self.first_ns, self.last_ns, self.count, self._all_count
        self.held.take()
        self.begin_stage(None)

    def show(self, *, whole: bool) -> None:
        """Hand over what was held: of the present stage, or the `whole` answer of an earlier one."""
        if whole:
            self.usage = self.whole_usage
            self.first_ns, self.last_ns, self.count, self._all_count = self._whole_times
        shown = (self.whole_answer if whole else self.held).take()
        self.reader.begin(self)
        for data in shown:
            self.reader.chunk(data)
        self._note_shown()

    def take_back(self) -> None:
        """The engine failed, and nothing of its answer was seen: the reader forgets it."""
        self._give_back_kept()
        self.reader.again()

    def _note_shown(self) -> None:
        if self.reader.shown and not self.request.shown:
            self.request.shown = True
            self.whole_answer.take()

    def keep(self, size_bytes: int) -> None:
        """Count memory that the reader takes for the answer, until `let_go`; raises `NoRoom`."""
        if not has_room(self._memory, size_bytes):
            raise NoRoom(f"{FULL}; stream the answer, or try again later")
        self._kept_bytes += size_bytes
        self._memory.held_bytes += size_bytes

    def let_go(self) -> None:
        """Give back the memory of all that is held."""
        self.held.take()
        self.whole_answer.take()
        self._give_back_kept()

    def _give_back_kept(self) -> None:
        self._memory.held_bytes -= self._kept_bytes
        self._kept_bytes = 0

    @property
    def seen_ns(self) -> int:
        """When the client sees the first of it, of one that is not streamed all."""
        return max(self.last_ns, self.answered_ns) if self.request.seen_whole else self.answered_ns

    def times_s(self) -> dict[str, float]:
        """From arrival to the first token and to the last, and from the first to the decision."""
        return {
            "ttft_s": (self.answered_ns - self.arrived_ns) / NS_PER_S,
            "decision_s": (self.answered_ns - (self.first_ns or self.answered_ns)) / NS_PER_S,
            "total_s": (max(self.last_ns, self.answered_ns) - self.arrived_ns) / NS_PER_S,
        }

    @property
    def outcome(self) -> Outcome:
        if self.seen_ns > self.asked.deadline_ns:
            return "late"
        return "degraded" if self.request.degraded else "answered"

    @property
    def answers_certainty(self) -> float:
        """That of the model that the answer is of; nan where its stage decided nothing."""
        return self.certainty if self.decided_model == self.request.model else math.nan

    @property
    def output_tokens(self) -> int:
        """Those of all choices; llama.cpp's server tells those of one alone."""
        heard = self._all_count if self.asked.choices > 1 else self.count
        if self.usage is None:
            return heard
        counted = self.usage.completion_tokens
        return counted if self.asked.echoes else max(heard, counted)


class _Aborted(BadAnswer):
    """The engine says that it gave up."""


def _status_of(error: Any) -> int:
    """The status that an error in a stream stands for, as its `code` or another field tells; 0 where none does."""
    for name in ("code", "status", "status_code", "http_status") if isinstance(error, dict) else ():
        code = error.get(name)
        if isinstance(code, str) and len(code) == 3 and code.isdecimal():
            code = int(code)
        if isinstance(code, int) and 400 <= code <= 599:
            return code
    return 0


def _said(data: bytes) -> str:
    return printable(data[:LONGEST_SAID].decode(errors="replace"))
