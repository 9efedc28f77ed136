"""Logs what fails: one line per replica within ten seconds, with counts."""

import logging
from collections import Counter
from collections.abc import Sequence

from gearshift.clock import NS_PER_S

PERIOD_S = 10

log = logging.getLogger(__name__)


class FailureLog:
    """Counts the failed `tries` (batches, requests) of each replica by reason, and logs the counts.

    The first failure is logged at the next tick, later ones once in `PERIOD_S`.
    """

    def __init__(self, replicas: Sequence[str], models: Sequence[str], tries: str = "batches") -> None:
        self._replicas, self._models, self._tries = replicas, models, tries
        self._counts: dict[int, Counter[str]] = {}
        self._told_ns: dict[int, int] = {}
        self._words: dict[int, str] = {}

    def failed(self, replica: int, reason: str, words: str = "") -> None:
        """A try failed; `words` say why, and those of the last one are logged."""
        self._counts.setdefault(replica, Counter())[reason] += 1
        self._words[replica] = words

    def ticked(self, now_ns: int) -> None:
        for replica in [*self._counts]:
            told_ns = self._told_ns.get(replica)
            if told_ns is not None and now_ns - told_ns < PERIOD_S * NS_PER_S:
                continue
            counts = self._counts.pop(replica)
            self._told_ns[replica] = now_ns
            reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(counts.items()))
            words = self._words.pop(replica)
            log.warning(
                "replica %s of model %r: %d %s failed (%s)%s",
                *(self._replicas[replica], self._models[replica], counts.total(), self._tries, reasons),
                f"; the last one: {words}" if words else "",
            )
