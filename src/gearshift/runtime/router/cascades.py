"""Which model an item goes to: in its node's cascade of the gear in force."""

import math
from collections.abc import Callable, Sequence

from gearshift.plans.plan_tables import PlanTables
from gearshift.policies.next_step import ANSWER, next_step
from gearshift.policies.replanning import NO_CHOICE
from gearshift.request import NOT_BULK, Request, Sample
from gearshift.runtime.router.choosing import Chooser
from gearshift.runtime.router.pipeline import Pipeline


class Cascades:
    """The cascades of all nodes; `pipeline_of` (nodes,) has the gear of each.

    Where a gear allows a node several, `chooser` chooses one when an item begins, and again each
    time a stage has ended.
    """

    def __init__(self, tables: PlanTables, pipeline_of: Sequence[Pipeline]) -> None:
        self._pipeline_of: list[Pipeline] = [*pipeline_of]
        self._first_row: list[int] = tables.first_row.tolist()
        self._choice_begin: list[int] = tables.choice_begin.tolist()
        self._models, self._most_stages = len(tables.models), tables.most_stages
        self._stage_count: list[int] = tables.stage_count.tolist()
        self._stage_models: list[int] = tables.stage_models.tolist()
        self._thresholds: list[float] = tables.thresholds.tolist()
        self._stage_of: list[int] = tables.stage_of.tolist()
        self.chooser: Chooser | None = None

    def first_model(self, node: int, request: Request, now_ns: int) -> int:
        """The model with which an item of the request would begin now."""
        if request.bulk_gear != NOT_BULK:
            choice = self._kept(node, request)
        elif self.chooser is None:
            choice = self._first_row[node] + self._pipeline_of[node].gear
        else:
            choice = self.chooser.choice(node, request, 0, now_ns)
        return self._stage_models[choice * self._most_stages]

    def begin(self, sample: Sample, now_ns: int) -> int:
        """The model with which an item begins; in the log, if it was one of several."""
        if self.chooser is None or sample.request.bulk_gear != NOT_BULK:
            return self.first_model(sample.node, sample.request, now_ns)
        return self._stage_models[self.chooser.chosen(sample, now_ns) * self._most_stages]

    def next_step(self, sample: Sample, now_ns: int) -> int:
        """The model that comes after those that the sample has visited, or `ANSWER`."""
        node: int = sample.node
        if sample.request.bulk_gear != NOT_BULK:
            choice = self._kept(node, sample.request)
        elif self.chooser is None:
            choice = self._first_row[node] + self._pipeline_of[node].gear
        else:
            choice = self.chooser.chosen(sample, now_ns)
            if choice == NO_CHOICE:
                return ANSWER
        return next_step(
            self._stage_of[choice * self._models + sample.model],
            sample.certainty,
            sample.visited,
            self._stage_count[choice],
            self._stage_models,
            self._thresholds,
            choice * self._most_stages,
        )

    def after_skipping(self, sample: Sample, model: int, is_closed: Callable[[int], bool], now_ns: int) -> int:
        """Skip `model`, which gives no answer to a sample without one; the later model to ask, or `ANSWER`.

        Models that are closed are skipped, too. Where no later one is open, nothing is skipped.
        """
        before = sample.visited, sample.model, sample.certainty
        while True:
            sample.visited, sample.model, sample.certainty = sample.visited | 1 << model, model, -math.inf
            model = self.next_step(sample, now_ns)
            if model == ANSWER:
                sample.visited, sample.model, sample.certainty = before
                return ANSWER
            if not is_closed(model):
                sample.skipped = sample.visited
                sample.stage = sample.visited.bit_count()
                sample.unanswered = sample.unreached = sample.tried_again = False
                sample.raised_at = -1
                return model

    def stages(self, node: int) -> list[int]:
        """The models of a node in its gear in force, by the first cascade that it allows."""
        choice = self._choice_begin[self._first_row[node] + self._pipeline_of[node].gear]
        base = choice * self._most_stages
        return self._stage_models[base : base + self._stage_count[choice]]

    def _kept(self, node: int, request: Request) -> int:
        """The cascade that bulk work keeps at a node: of its gear's the last, which is the most accurate."""
        return self._choice_begin[self._first_row[node] + request.bulk_gear + 1] - 1
