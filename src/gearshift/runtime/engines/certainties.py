"""The certainty by which a stage decides, and whether it and the answer's length are as recorded."""

import logging
import math
from collections.abc import Sequence

from gearshift.observability.journal import Journal
from gearshift.observability.language_metrics import LanguageMetrics
from gearshift.policies.engines.deciding import DECIDES_AT_END
from gearshift.runtime.engines.answers.answer_stream import AnswerStream
from gearshift.runtime.engines.answers.drift import AnswerDrift
from gearshift.runtime.engines.identities import REPLAN
from gearshift.runtime.engines.routing.router import EngineRouter
from gearshift.runtime.engines.served_engines import CertaintyOf

log = logging.getLogger(__name__)


class Certainties:
    """`drift`, where there is one, compares answers with the recorded ones."""

    def __init__(
        self,
        models: Sequence[str],
        router: EngineRouter,
        *,
        certainty_of: CertaintyOf,
        drift: AnswerDrift | None,
        metrics: LanguageMetrics,
        journal: Journal,
    ) -> None:
        self._models, self._router = models, router
        self._metrics, self._journal = metrics, journal
        self.certainty_of, self.drift = certainty_of, drift

    def of(self, stream: AnswerStream, at: int) -> float:
        """At a token at which stages decide; -inf, so not sure, where no token has a log-probability."""
        request = stream.request
        decide_at = None if at == DECIDES_AT_END else at
        so_far = None if stream.given is None else stream.given.until(decide_at)
        if so_far is None or so_far.tokens == 0:
            stream.certainty = -math.inf
        else:
            model, prompt_tokens = self._models[request.model], request.prompt_tokens[request.model]
            stream.certainty = self.certainty_of(model, so_far, prompt_tokens, decide_at)
        stream.decided, stream.decided_model = True, request.model
        if self.drift is not None and _is_first(stream):
            self.drift.decided(
                request.model, decide_at, stream.certainty, self._router.gears.threshold_of(request.model)
            )
        return stream.certainty

    def stage_ended(self, stream: AnswerStream) -> None:
        """The answer is whole: compare its length, unless client or gear may have made it shorter."""
        if self.drift is not None and _is_first(stream) and not self._may_be_short(stream):
            self.drift.ended(stream.request.model, stream.output_tokens, stream.asked.most_tokens)

    def tell_drift(self) -> None:
        """Tell models whose answers are not as recorded, since the last call: metric, journal and log."""
        drift = self.drift
        if drift is None:
            return
        for change in drift.changes():
            model = self._models[change.model]
            self._metrics.drift.labels(model).set(drift.drifts(change.model))
            told = {"model": model, "what": change.what, "drifting": change.drifting}
            served, recorded = round(change.served, 4), round(change.recorded, 4)
            self._journal.write("profile_drift", **told, served=served, recorded=recorded)
            if change.drifting:
                log.warning(
                    "answers of model %r are not as recorded: %s is %g on average, and was %g; its engine may be "
                    "another, or the prompts are; %s",
                    *(model, change.what, served, recorded, REPLAN),
                )

    def go_on_from(self, before: "Certainties") -> None:
        """Take what `before` has learned, where it compares with the same records."""
        if self.drift is not None and before.drift is not None and self.drift.compares_as(before.drift):
            self.drift = before.drift

    @property
    def drifting_models(self) -> list[str]:
        """Models whose answers are not as recorded."""
        drift = self.drift
        return [] if drift is None else [name for model, name in enumerate(self._models) if drift.drifts(model)]

    def _may_be_short(self, stream: AnswerStream) -> bool:
        return "stop" in stream.asked.fields or self._router.gears.may_cut(stream.request)


def _is_first(stream: AnswerStream) -> bool:
    """Whether no other model has worked on a plain request, so that its answers are a fair sample of all."""
    request, asked = stream.request, stream.asked
    return request.visited == 1 << request.model and asked.choices == 1 and not asked.echoes
