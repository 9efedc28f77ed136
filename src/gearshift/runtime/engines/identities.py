"""Tells of engines that may be others than the plan was made for."""

import logging
from collections.abc import Mapping, Sequence

from gearshift.observability.journal import Journal
from gearshift.observability.language_metrics import LanguageMetrics
from gearshift.profiles.engines.engine_tables import EngineTables
from gearshift.runtime.engines.replicas.identity import FINGERPRINT, NAMED, Identity
from gearshift.runtime.engines.served_engines import Engines

REPLAN = "if it is, profile and plan anew, as certainty, quality and times may have changed"
"""The remedy where an engine may be another, by its answers or by what it says of itself."""

log = logging.getLogger(__name__)


class Identities:
    """`before_of` has what the endpoint of each model said when it was profiled."""

    def __init__(
        self,
        tables: EngineTables,
        engines: Engines,
        before_of: Mapping[str, Mapping[str, Sequence[str]]],
        metrics: LanguageMetrics,
        journal: Journal,
    ) -> None:
        models = [tables.models[model] for model in tables.replica_model]
        self._of = [Identity(one.name, before_of.get(model)) for one, model in zip(engines.all, models, strict=True)]
        self._replicas, self._metrics, self._journal = tables.replicas, metrics, journal

    def said(self, replica: int, what: str, value: str) -> None:
        """The engine has told something of itself, which should stay the same."""
        if sentence := self._of[replica].told(what, value):
            id = self._replicas[replica]
            log.warning("the engine of replica %r may be another than was planned for: %s; %s", id, sentence, REPLAN)
            self._journal.write("engine_changed", replica=id, what=sentence)
            self._metrics.changes.labels(id).inc()

    def begun(self, replica: int, model: object, fingerprint: object) -> None:
        """The first chunk of an answer names a model and a fingerprint."""
        self.said(replica, NAMED, model if isinstance(model, str) else "")
        self.said(replica, FINGERPRINT, fingerprint if isinstance(fingerprint, str) else "")
