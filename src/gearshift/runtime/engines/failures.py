"""Reports engines that fail: metric, journal, and a line in the log every 10 s for each at most."""

import logging
from collections.abc import Sequence

from gearshift.errors import printable
from gearshift.observability.journal import Journal
from gearshift.observability.language_metrics import LanguageMetrics
from gearshift.profiles.engines.engine_tables import EngineTables
from gearshift.runtime.engines.upstream.call import Fault
from gearshift.runtime.faults.failure_log import FailureLog

LONGEST_REASON = 300

log = logging.getLogger(__name__)


class Failures:
    def __init__(self, tables: EngineTables, metrics: LanguageMetrics, journal: Journal) -> None:
        self._models: Sequence[str] = [tables.models[model] for model in tables.replica_model]
        self._ids, self._metrics, self._journal = tables.replicas, metrics, journal
        self._log = FailureLog(self._ids, self._models, tries="requests")
        self._reasons = [""] * len(self._ids)

    def failed(self, replica: int, fault: Fault) -> None:
        """A try failed."""
        self._metrics.failures.labels(self._models[replica], self._ids[replica], fault.kind).inc()
        self._reasons[replica] = printable(fault.reason)[:LONGEST_REASON]
        self._log.failed(replica, fault.kind, self._reasons[replica])

    def changed(self, replica: int, failing: bool) -> None:
        """The replica is taken out of service, or is back."""
        id, model, reason = self._ids[replica], self._models[replica], self._reasons[replica]
        if failing:
            self._journal.write("replica_failing", replica=id, model=model, reason=reason)
            log.error("replica %r fails, and gets no requests but single ones that try it: %s", id, reason)
        else:
            self._journal.write("replica_answers", replica=id, model=model)
            log.info("replica %r answers again", id)

    def look(self, now_ns: int) -> None:
        """Now and then: write the lines that are due."""
        self._log.ticked(now_ns)
