"""Chooses replicas in turn (`policies/routing.py`), by the shares of those in service."""

from collections.abc import Callable, Sequence
from itertools import pairwise

from gearshift.plans.plan_tables import PlanTables, whole_shares
from gearshift.policies.routing import carry_turns, choose_replica

Weigh = Callable[[int, int], int]
"""A replica's share, given its planned one."""


class Turns:
    """One pipeline's rings of all models, in the last gear that was shared out.

    `skipped` marks replicas that get nothing; `weigh` gives slow ones less.
    """

    def __init__(self, tables: PlanTables, number: int, skipped: Sequence[bool], weigh: Weigh | None = None) -> None:
        self._tables, self._number, self._skipped, self._weigh = tables, number, skipped, weigh
        self._first_gear = tables.pipelines[number].first_gear
        self._replicas, self._models = len(tables.replica_ids), len(tables.models)
        self._model_begin: list[int] = tables.model_begin.tolist()
        self._planned: list[int] = tables.shares.tolist()
        self._shares = list(self._planned)
        self._last = [-1] * self._models
        self._following = [-1] * self._replicas
        self._due = [0] * self._replicas
        self._stride = [0] * self._replicas

    def choose(self, model: int) -> int:
        """The replica of `model` that is due; -1 if none has a share."""
        return choose_replica(model, self._last, self._following, self._due, self._stride)

    def sharing(self, model: int) -> list[int]:
        return [r for r in range(self._model_begin[model], self._model_begin[model + 1]) if self._stride[r] > 0]

    def share(self, gear: int) -> None:
        base = (self._first_gear + gear) * self._replicas
        for model, (begin, end) in enumerate(pairwise(self._model_begin)):
            carry_turns(self._shares, base, model, begin, end, self._last, self._following, self._due, self._stride)

    def share_anew(self, gear: int) -> None:
        """Divide skipped replicas' shares among the others in proportion, or evenly if all are 0."""
        for g in range(self._tables.pipelines[self._number].gears):
            base = (self._first_gear + g) * self._replicas
            for begin, end in pairwise(self._model_begin):
                if not any(self._planned[base + begin : base + end]):
                    continue
                planned = [
                    0 if self._skipped[r] else self._share_of(r, self._planned[base + r]) for r in range(begin, end)
                ]
                weights = planned if any(planned) else [not self._skipped[r] for r in range(begin, end)]
                shares = whole_shares(weights) if any(weights) else [0] * len(weights)
                self._shares[base + begin : base + end] = shares
        self.share(gear)

    def _share_of(self, replica: int, planned: int) -> int:
        return planned if self._weigh is None or planned == 0 else self._weigh(replica, planned)
