"""Tells of models whose answers are not as recorded: metric, journal and log."""

import logging
from collections.abc import Sequence

from gearshift.observability.journal import Journal
from gearshift.observability.language_metrics import LanguageMetrics
from gearshift.runtime.engines.answers.drift import AnswerDrift

REPLAN = "if it is, profile and plan anew, as certainty, quality and times may have changed"
"""The remedy where an engine may be another, by its answers or by what it says of itself."""

log = logging.getLogger(__name__)


def tell_drift(drift: AnswerDrift, models: Sequence[str], metrics: LanguageMetrics, journal: Journal) -> None:
    """Tell the changes since the last call."""
    for change in drift.changes():
        model = models[change.model]
        metrics.drift.labels(model).set(drift.drifts(change.model))
        told = {"model": model, "what": change.what, "drifting": change.drifting}
        served, recorded = round(change.served, 4), round(change.recorded, 4)
        journal.write("profile_drift", **told, served=served, recorded=recorded)
        if change.drifting:
            log.warning(
                "answers of model %r are not as recorded: %s is %g on average, and was %g; its engine may be "
                "another, or the prompts are; %s",
                *(model, change.what, served, recorded, REPLAN),
            )
