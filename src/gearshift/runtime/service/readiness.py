"""Who can answer: replicas with a worker that is ready, and models that are not silent."""

from collections.abc import Iterator, Sequence

from gearshift.observability.journal import Journal
from gearshift.observability.metrics import Metrics
from gearshift.plans.plan_tables import PlanTables
from gearshift.policies.watch.lost_workers import is_silent
from gearshift.request import Sample


class ReadyReplicas:
    """Reports each change of `numbers`, the replicas whose worker is ready.

    Metrics are those of the service in force, None for others.
    """

    def __init__(self, tables: PlanTables, metrics: Metrics | None, journal: Journal) -> None:
        self._ids, self._models, self._metrics, self._journal = tables.replica_ids, tables.models, metrics, journal
        self._model_names = [tables.model_of(replica) for replica in range(len(tables.replica_ids))]
        self.numbers: set[int] = set()

    @property
    def every_model_has_one(self) -> bool:
        return len({self._model_names[replica] for replica in self.numbers}) == len(self._models)

    def came(self, replica: int) -> bool:
        """Note that a replica is ready; False if it was."""
        if replica in self.numbers:
            return False
        self.numbers.add(replica)
        self._count(replica)
        self._journal.write("replica_ready", replica=self._ids[replica])
        return True

    def lost(self, replica: int, how: str) -> None:
        self.numbers.discard(replica)
        self._count(replica)
        self._journal.write("replica_lost", replica=self._ids[replica], how=how)

    def report_to(self, metrics: Metrics | None) -> None:
        self._metrics = metrics
        for replica in range(len(self._ids)):
            self._count(replica)

    def _count(self, replica: int) -> None:
        if self._metrics is not None:
            model = self._model_names[replica]
            self._metrics.replicas_ready(model, sum(self._model_names[other] == model for other in self.numbers))


class Silence:
    """Models that have given no answers of late, such as those behind an endpoint that is down.

    Counts consecutive batches without an answer, by model, and judges them at each tick.
    """

    def __init__(self, models: Sequence[str]) -> None:
        self._models = tuple(models)
        self._batches = dict.fromkeys(self._models, 0)
        self._last_ns = dict.fromkeys(self._models, 0)
        self.models: frozenset[str] = frozenset()
        """The models that are silent now."""

    def samples_finished(self, model: str, samples: Sequence[Sample], now_ns: int) -> None:
        if not all(sample.unreached for sample in samples):
            self._batches[model] = 0
        else:
            self._batches[model] += 1
            self._last_ns[model] = now_ns

    def ticked(self, now_ns: int) -> Iterator[tuple[str, bool]]:
        """The models that became silent or stopped being so."""
        silent = {model for model in self._models if is_silent(self._batches[model], self._last_ns[model], now_ns)}
        changed, self.models = self.models ^ silent, frozenset(silent)
        for model in sorted(changed):
            yield model, model in silent
