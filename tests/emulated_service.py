"""A service of language models over emulated engines, all in this event loop."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import msgspec

from gearshift.clock import to_ns
from gearshift.gear import GearPlan
from gearshift.profiles.engines.engine_tables import engine_tables
from gearshift.profiles.engines.language_profile import LanguageProfile
from gearshift.runtime.engines.answers.answer_stream import DONE, AnswerStream
from gearshift.runtime.engines.emulated.engine import EmulatedEngine
from gearshift.runtime.engines.language_service import LanguageService
from gearshift.runtime.engines.replicas.engine_replica import EngineReplica
from gearshift.runtime.engines.requests.asked import CHAT, Asked, held_bytes_of
from gearshift.runtime.engines.upstream.call import Fault
from gearshift.runtime.engines.upstream.chunk import decode_chunk


@dataclass(eq=False)
class Reading:
    """A `Reader` that keeps what it is given."""

    begun: int = 0
    chunks: list[bytes] = field(default_factory=list)
    stream: AnswerStream | None = None
    fault: Fault | None = None
    error: Exception | None = None
    over: asyncio.Event = field(default_factory=asyncio.Event)
    ends: int = 0

    shows: bool = True
    """Whether a client sees what comes, so that no other engine can take over."""

    @property
    def shown(self) -> bool:
        return self.shows and bool(self.chunks)

    def again(self) -> None:
        assert not self.shown
        self.chunks.clear()
        self.begun = 0

    def begin(self, stream: AnswerStream) -> None:
        self.begun += 1
        self.stream = stream

    def chunk(self, data: bytes) -> None:
        assert self.begun == 1
        assert data != DONE
        self.chunks.append(data)

    def ended(self, stream: AnswerStream) -> None:
        self._end()

    def failed(self, fault: Fault) -> None:
        self.fault = fault
        self._end()

    def broke(self, error: Exception) -> None:
        self.error = error
        self._end()

    def _end(self) -> None:
        self.ends += 1
        self.over.set()

    @property
    def text(self) -> str:
        decoded = [decode_chunk(data).first for data in self.chunks]
        return "".join(str(one.delta.content or "") for one in decoded if one is not None and one.delta is not None)


class EmulatedService:
    """Use it in `async with`; engines are in the order of the tables' replicas."""

    def __init__(self, profile: LanguageProfile, plan: GearPlan, **options: Any) -> None:
        self.profile, self.tables = profile, engine_tables(plan, profile)
        self._replica_options = {
            name: options.pop(name) for name in ("longest_silence_s", "probe_s", "longest_probe_s") if name in options
        }
        self._options = options
        self.engines: list[EmulatedEngine] = []
        self.all: Sequence[EngineReplica] = []
        self.service: LanguageService

    async def __aenter__(self) -> Self:
        self.engines = [EmulatedEngine(self.profile, one) for one in self.tables.engines]
        ports = [await engine.start() for engine in self.engines]
        self.all = [
            EngineReplica(id, self.engines[n].name, url=f"http://127.0.0.1:{ports[n]}/v1", **self._replica_options)
            for n, id in enumerate(self.tables.replicas)
        ]
        for replica in self.all:
            await replica.start()
        self.service = LanguageService(
            self.tables,
            self,
            certainty_of=lambda model, so_far, prompt_tokens, decide_at: self.profile.certainty_of(
                model, so_far, prompt_tokens=prompt_tokens, decide_at=decide_at
            ),
            **self._options,
        )
        for number, replica in enumerate(self.all):
            replica.watch(self.service, number)
        self.service.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.service.stop()
        for replica in self.all:
            await replica.stop()
        for engine in self.engines:
            await engine.stop()
        assert self.service.held.held_bytes == 0
        assert self.service.open_requests == 0

    def suspect(self, replica: int, fault: Fault) -> None:
        self.all[replica].suspect(fault)

    def submit(self, record: int, reader: Reading, **fields: Any) -> AnswerStream:
        return submit_to(self.service, record, reader, **fields)

    async def ask(self, record: int, **fields: Any) -> Reading:
        reader = Reading()
        self.submit(record, reader, **fields)
        async with asyncio.timeout(30):
            await reader.over.wait()
        await asyncio.sleep(0)
        assert reader.ends == 1
        return reader


def submit_to(service: LanguageService, record: int, reader: Reading, **fields: Any) -> AnswerStream:
    own = "whole", "choices", "id", "most_tokens", "streamed"
    asked = {name: fields.pop(name) for name in own if name in fields}
    if (deadline_s := fields.pop("deadline_s", None)) is not None:
        asked["deadline_ns"] = service.now_ns() + to_ns(deadline_s)
    content = {"messages": [{"role": "user", "content": f"record {record}"}], **fields}
    raw = {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in content.items()}
    asked.setdefault("id", str(record))
    held = held_bytes_of(sum(len(value) for value in raw.values()), len(raw))
    return service.submit(Asked(path=CHAT, fields=raw, prompt_bytes=40, held_bytes=held, **asked), reader)
