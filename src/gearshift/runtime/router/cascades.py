"""Which model an item goes to: in its node's cascade of the gear in force."""

from collections.abc import Sequence

from gearshift.plans.plan_tables import PlanTables
from gearshift.policies.next_step import next_step
from gearshift.request import Sample
from gearshift.runtime.router.pipeline import Pipeline


class Cascades:
    """The cascades of all nodes; `pipeline_of` (nodes,) has the gear of each."""

    def __init__(self, tables: PlanTables, pipeline_of: Sequence[Pipeline]) -> None:
        self._pipeline_of: list[Pipeline] = [*pipeline_of]
        self._first_row: list[int] = tables.first_row.tolist()
        self._models, self._most_stages = len(tables.models), tables.most_stages
        self._stage_count: list[int] = tables.stage_count.tolist()
        self._stage_models: list[int] = tables.stage_models.tolist()
        self._thresholds: list[float] = tables.thresholds.tolist()
        self._stage_of: list[int] = tables.stage_of.tolist()

    def first_model(self, node: int) -> int:
        row = self._first_row[node] + self._pipeline_of[node].gear
        return self._stage_models[row * self._most_stages]

    def next_step(self, sample: Sample) -> int:
        """The model that comes after those that the sample has visited, or `ANSWER`."""
        node: int = sample.node
        row = self._first_row[node] + self._pipeline_of[node].gear
        return next_step(
            self._stage_of[row * self._models + sample.model],
            sample.certainty,
            sample.visited,
            self._stage_count[row],
            self._stage_models,
            self._thresholds,
            row * self._most_stages,
        )
