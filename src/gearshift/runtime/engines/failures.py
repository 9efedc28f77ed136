"""Reports engines that fail: metric, journal, and a line in the log every 10 s for each at most."""

import logging
from collections.abc import Sequence

from gearshift.clock import NS_PER_S
from gearshift.errors import printable
from gearshift.observability.journal import Journal
from gearshift.observability.language_metrics import LanguageMetrics
from gearshift.profiles.engines.engine_tables import EngineTables
from gearshift.runtime.engines.upstream.call import Fault

LOG_EVERY_NS = 10 * NS_PER_S
LONGEST_REASON = 300

log = logging.getLogger(__name__)


class _Replica:
    __slots__ = ("count", "logged_ns", "reason")

    def __init__(self) -> None:
        self.count, self.reason = 0, ""
        self.logged_ns = -LOG_EVERY_NS


class Failures:
    def __init__(self, tables: EngineTables, metrics: LanguageMetrics, journal: Journal) -> None:
        self._models: Sequence[str] = [tables.models[model] for model in tables.replica_model]
        self._ids, self._metrics, self._journal = tables.replicas, metrics, journal
        self._replicas = [_Replica() for _ in tables.replicas]

    def failed(self, replica: int, fault: Fault, now_ns: int) -> None:
        """A try failed."""
        one = self._replicas[replica]
        self._metrics.engine_failed(self._models[replica], self._ids[replica], fault.kind)
        one.count, one.reason = one.count + 1, printable(fault.reason)[:LONGEST_REASON]
        self._log_if_due(replica, now_ns)

    def changed(self, replica: int, failing: bool) -> None:
        """The replica is taken out of service, or is back."""
        id, one = self._ids[replica], self._replicas[replica]
        if failing:
            self._journal.write("replica_failing", replica=id, model=self._models[replica], reason=one.reason)
            log.error("replica %r fails, and gets no requests but single ones that try it: %s", id, one.reason)
        else:
            self._journal.write("replica_answers", replica=id, model=self._models[replica])
            log.info("replica %r answers again", id)

    def look(self, now_ns: int) -> None:
        """Now and then: write the lines that were due later."""
        for replica, one in enumerate(self._replicas):
            if one.count:
                self._log_if_due(replica, now_ns)

    def _log_if_due(self, replica: int, now_ns: int) -> None:
        one = self._replicas[replica]
        if now_ns - one.logged_ns >= LOG_EVERY_NS:
            times = "once" if one.count == 1 else f"{one.count} times"
            log.warning("replica %r failed %s, the last time: %s", self._ids[replica], times, one.reason)
            one.count, one.logged_ns = 0, now_ns
