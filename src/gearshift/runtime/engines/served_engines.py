"""The engines of a service of language models, and how they are asked."""

from collections.abc import Callable, Sequence
from typing import Protocol

from gearshift.policies.engines.deciding import DECIDES_BY_ID
from gearshift.profiles.engines.certainty import TokenCertainty
from gearshift.profiles.engines.engine_tables import EngineTables
from gearshift.runtime.engines.answers.answer_stream import AnswerStream
from gearshift.runtime.engines.answers.given_tokens import GivenTokens
from gearshift.runtime.engines.upstream.call import Call, Fault, Listener
from gearshift.runtime.engines.upstream.link import EngineLink
from gearshift.runtime.engines.upstream.refusals import CLIENTS_FAULTS

LOGPROBS = b"logprobs"

CertaintyOf = Callable[[str, TokenCertainty, int, int | None], float]
"""The certainty of a model's tokens after a prompt of so many, for a stage that decides there (None: at the end)."""


class Engine(Protocol):
    """A replica of the plan; `name` is its model's at the endpoint."""

    @property
    def link(self) -> EngineLink: ...

    @property
    def name(self) -> str: ...


class Engines(Protocol):
    """The replicas of a plan, in the order of its tables."""

    @property
    def all(self) -> Sequence[Engine]: ...

    def suspect(self, replica: int, fault: Fault) -> None:
        """It could not be reached: look whether it is there."""
        ...


class Asking:
    """Asks engines for answers; with `least_top` certainty needs so many of the likeliest tokens."""

    def __init__(self, tables: EngineTables, engines: Engines, least_top: int) -> None:
        self._engines, self._least_top, self._by_certainty = engines, least_top, models_by_certainty(tables)

    def decides(self, stream: AnswerStream, model: int) -> bool:
        """Whether the model's answer needs log-probabilities, to decide by."""
        return self._by_certainty[model] and model not in stream.no_logprobs

    def tokens_of(self, stream: AnswerStream, model: int) -> GivenTokens | None:
        """Where to keep the tokens of a stage that decides by them."""
        return GivenTokens(has_tools="tools" in stream.asked.fields) if self.decides(stream, model) else None

    def post(self, stream: AnswerStream, model: int, replica: int, listener: Listener) -> Call:
        engine = self._engines.all[replica]
        least = self._least_top if self.decides(stream, model) else stream.asked.top_logprobs
        return engine.link.post(stream.asked.path, stream.asked.body(engine.name, least_top_logprobs=least), listener)


def is_for_our_logprobs(stream: AnswerStream, fault: Fault) -> bool:
    """Whether an engine refuses log-probabilities that only the stage wants, which is not sure without them.

    llama.cpp's server gives none where tools are streamed.
    """
    ours = stream.asked.top_logprobs is None and stream.given is not None
    return ours and fault.status in CLIENTS_FAULTS and LOGPROBS in fault.body.lower()


def models_by_certainty(tables: EngineTables) -> list[bool]:
    """For each model whether a gear has it at a stage that decides by its certainty."""
    found = [False] * len(tables.models)
    for gear, stages in enumerate(tables.stage_count.tolist()):
        for row in range(gear * tables.most_stages, gear * tables.most_stages + stages - 1):
            if tables.decide_at[row] != DECIDES_BY_ID:
                found[int(tables.stage_models[row])] = True
    return found
