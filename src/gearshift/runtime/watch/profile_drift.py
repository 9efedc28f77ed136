"""Compares the run times of batches with the profiled ones."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gearshift.plans.plan_tables import PlanTables
from gearshift.policies.watch.drift import episode, run_times_are_wrong

SPAN_TICKS = 100
"""Ten seconds."""


@dataclass(slots=True)
class _Sum:
    observed_ns: int = 0
    predicted_ns: int = 0
    batches: int = 0

    @property
    def ratio(self) -> float:
        return self.observed_ns / max(1, self.predicted_ns)


@dataclass(frozen=True, slots=True)
class ModelTimes:
    """A model's observed over profiled time in ten seconds; `changed`: drift began or ended."""

    model: int
    by_size: dict[int, float]
    ratio: float
    changed: bool


class ProfileDrift:
    """Sums batches by model and size; `run_ns` (replicas, sizes) is the profile, if known."""

    def __init__(self, tables: PlanTables, run_ns: Sequence[Sequence[int]]) -> None:
        self._model_of: list[int] = tables.replica_model.tolist()
        self._run_ns = run_ns
        self._sums: list[dict[int, _Sum]] = [{} for _ in tables.models]
        self._against = [0] * len(tables.models)
        self.drifting = [False] * len(tables.models)
        self._ticks = 0

    def batch_finished(self, replica: int, size: int, took_ns: int) -> None:
        if took_ns <= 0 or not self._run_ns or size >= len(self._run_ns[replica]):
            return
        sums = self._sums[self._model_of[replica]]
        one = sums.get(size)
        if one is None:
            one = sums[size] = _Sum()
        one.observed_ns += took_ns
        one.predicted_ns += self._run_ns[replica][size]
        one.batches += 1

    def ticked(self) -> Iterator[ModelTimes]:
        self._ticks += 1
        if self._ticks % SPAN_TICKS:
            return
        for model, sums in enumerate(self._sums):
            if not sums:
                continue
            whole = _Sum(
                sum(one.observed_ns for one in sums.values()),
                sum(one.predicted_ns for one in sums.values()),
                sum(one.batches for one in sums.values()),
            )
            wrong = run_times_are_wrong(whole.observed_ns, whole.predicted_ns, whole.batches)
            before = self.drifting[model]
            self.drifting[model], self._against[model] = episode(before, self._against[model], wrong)
            by_size = {size: one.ratio for size, one in sums.items()}
            yield ModelTimes(model, by_size, whole.ratio, before != self.drifting[model])
            sums.clear()
