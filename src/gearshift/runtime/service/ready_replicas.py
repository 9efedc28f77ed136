"""The replicas whose worker is ready; reports each change to metrics and journal."""

from gearshift.observability.journal import Journal
from gearshift.observability.metrics import Metrics
from gearshift.plans.plan_tables import PlanTables


class ReadyReplicas:
    """`numbers` of ready replicas. Metrics are those of the service in force, None for others."""

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
