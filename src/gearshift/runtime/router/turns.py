"""Chooses replicas in turn (`policies/routing.py`), by the shares of those that are alive."""

from itertools import pairwise

from gearshift.plans.plan_tables import PlanTables, whole_shares
from gearshift.policies.routing import carry_turns, choose_replica


class Turns:
    """The rings of all models, in the last shared gear; `lost` marks replicas to skip."""

    def __init__(self, tables: PlanTables) -> None:
        self._tables = tables
        self._replicas, self._models = len(tables.replica_ids), len(tables.models)
        self._model_begin: list[int] = tables.model_begin.tolist()
        self._planned: list[int] = tables.shares.tolist()
        self._shares = list(self._planned)
        self.lost = [False] * self._replicas
        self._last = [-1] * self._models
        self._following = [-1] * self._replicas
        self._due = [0] * self._replicas
        self._stride = [0] * self._replicas
        self.share(0)

    def choose(self, model: int) -> int:
        """The replica of `model` that is due; -1 if none has a share."""
        return choose_replica(model, self._last, self._following, self._due, self._stride)

    def sharing(self, model: int) -> list[int]:
        return [r for r in range(self._model_begin[model], self._model_begin[model + 1]) if self._stride[r] > 0]

    def lives(self, model: int) -> bool:
        return self._last[model] >= 0

    def share(self, gear: int) -> None:
        base = gear * self._replicas
        for model, (begin, end) in enumerate(pairwise(self._model_begin)):
            carry_turns(self._shares, base, model, begin, end, self._last, self._following, self._due, self._stride)

    def share_among_the_living(self, gear: int) -> None:
        """Divide lost replicas' shares among the others in proportion, or evenly if all are 0."""
        for g in range(self._tables.pipeline.gears):
            base = g * self._replicas
            for model, (begin, end) in enumerate(pairwise(self._model_begin)):
                if self._tables.stage_of[g * self._models + model] < 0:
                    continue
                planned = [0 if self.lost[r] else self._planned[base + r] for r in range(begin, end)]
                weights = planned if any(planned) else [not self.lost[r] for r in range(begin, end)]
                shares = whole_shares(weights) if any(weights) else [0] * len(weights)
                self._shares[base + begin : base + end] = shares
        self.share(gear)
