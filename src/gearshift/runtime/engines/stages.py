"""Tells the stages of requests: when each left its engine, with which outcome, and what that cost."""

import math

from gearshift.clock import Clock
from gearshift.observability.language_metrics import LanguageMetrics
from gearshift.profiles.engines.engine_tables import EngineTables
from gearshift.runtime.engines.answers.answer_stream import AnswerStream
from gearshift.runtime.engines.requests.engine_request import StageOutcome, StageVisit


class Stages:
    def __init__(self, tables: EngineTables, clock: Clock, metrics: LanguageMetrics) -> None:
        self._tables, self._clock, self._metrics = tables, clock, metrics

    def left(self, stream: AnswerStream, outcome: StageOutcome) -> StageVisit | None:
        """The request leaves its engine, if it has one: count the prompt where a token came.

        Gives the visit where the request wants to hear of it.
        """
        request, sent, stream.sent = stream.request, stream.sent, None
        if sent is None:
            return None
        model = self._tables.models[sent.model]
        counted = 0 if stream.usage is None else stream.usage.prompt_tokens
        prompt_tokens = counted or request.prompt_tokens[sent.model]
        if counted or stream.count:
            self._metrics.prompt.labels(model).inc(prompt_tokens)
        queued_ns, stream.queued_ns = stream.queued_ns, self._clock.now_ns()
        if stream.asked.visited is None:
            return None
        decided = stream.decided and outcome in ("answered", "unsure")
        return StageVisit(
            model=model,
            replica=self._tables.replicas[sent.replica],
            stage=sent.stage,
            queued_ns=queued_ns,
            sent_ns=sent.sent_ns,
            ended_ns=stream.queued_ns,
            prompt_tokens=prompt_tokens,
            output_tokens=stream.output_tokens,
            certainty=stream.certainty if decided else math.nan,
            outcome=outcome,
        )

    def gave_way(self, stream: AnswerStream, model: int, *, keep: bool) -> None:
        name = self._tables.models[model]
        self._metrics.discarded.labels(name).inc(stream.output_tokens)
        stream.give_way(name, keep=keep)
