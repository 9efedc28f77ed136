"""Reports replicas that fail: in metric and journal, and in a line of the log per replica within ten seconds."""

import logging
from collections import Counter
from collections.abc import Callable, Sequence

from gearshift.clock import NS_PER_S
from gearshift.observability.journal import Journal

PERIOD_S = 10

log = logging.getLogger(__name__)


class OwnErrors:
    """Logs each kind of error of this process's own code once: it ends a request or a look, and the rest goes on."""

    def __init__(self) -> None:
        self._logged = set[str]()

    def log(self, where: str, error: Exception) -> None:
        kind = f"{where}: {type(error).__name__}"
        if kind not in self._logged:
            self._logged.add(kind)
            log.error("fault %s; the like is not logged again", where, exc_info=error)


class FailureLog:
    """Counts the failed `tries` (batches, requests) of each replica of `models` by reason, and logs the counts.

    The first failure is logged at the next tick, later ones once in `PERIOD_S`. `count` adds to the metric: it takes
    model, replica and reason.
    """

    def __init__(
        self,
        replicas: Sequence[str],
        models: Sequence[str],
        count: Callable[[str, str, str], None],
        journal: Journal,
        *,
        tries: str = "batches",
    ) -> None:
        self._replicas, self._models, self._tries = replicas, models, tries
        self._count, self._journal = count, journal
        self._counts: dict[int, Counter[str]] = {}
        self._told_ns: dict[int, int] = {}
        self._words = [""] * len(replicas)

    def failed(self, replica: int, reason: str, words: str = "") -> None:
        """A try failed; `words` say why, and those of the last one are logged."""
        self._count(self._models[replica], self._replicas[replica], reason)
        self._counts.setdefault(replica, Counter())[reason] += 1
        self._words[replica] = words

    def changed(self, replica: int, failing: bool) -> None:
        """The replica is taken out of service, or is back."""
        id, model, words = self._replicas[replica], self._models[replica], self._words[replica]
        if failing:
            why = {"reason": words} if words else {}
            self._journal.write("replica_failing", replica=id, model=model, **why)
            why_text = f": {words}" if words else ""
            log.error("replica %s of model %r fails, and gets single requests that try it%s", id, model, why_text)
        else:
            self._journal.write("replica_answers", replica=id, model=model)
            log.warning("replica %s of model %r answers again", id, model)

    def ticked(self, now_ns: int) -> None:
        for replica in [*self._counts]:
            told_ns = self._told_ns.get(replica)
            if told_ns is not None and now_ns - told_ns < PERIOD_S * NS_PER_S:
                continue
            counts = self._counts.pop(replica)
            self._told_ns[replica] = now_ns
            reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(counts.items()))
            words = self._words[replica]
            log.warning(
                "replica %s of model %r: %d %s failed (%s)%s",
                *(self._replicas[replica], self._models[replica], counts.total(), self._tries, reasons),
                f"; the last one: {words}" if words else "",
            )
