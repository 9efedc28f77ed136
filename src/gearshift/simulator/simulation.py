"""The outcome of a simulation in plain data, and its figures."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gearshift.clock import NS_PER_S
from gearshift.decisions import Ending, LogRow
from gearshift.display import in_notebook
from gearshift.plans.plan_tables import PlanTables
from gearshift.profiles.several import Profiles, as_one
from gearshift.result import ServingResult, composed_quality, summarise
from gearshift.simulator.items import Items, NodeVisits, visits, visits_of
from gearshift.simulator.kernel.recorded_rows import is_graph
from gearshift.workload import Workload

UNBOUNDED = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """The simulated outcome of each sample (n,) and of the run.

    `finished_ns` is -1 for refused samples; `written_ns` is when the router had written the
    decision made at `finished_ns`; `model` answered, in gear `gear`; `ended` holds an `Ending`.
    `waited` (pipelines,) samples waited at once, those of a request that had just arrived
    included. `busy_s` is (devices,); `batches` (replicas, sizes) counts batches; `arrived_in_gear`
    counts samples by gear, the pipelines' gears one after another; `shifts` (k, 2) are nanoseconds
    and the gear from then on, of pipelines `shifted` (k,); `log` holds decisions, when asked for.
    Where cores change, `held` (k, 2) are nanoseconds and the total cores that replicas are asked
    to have from then on. `front_end_s` is added to every latency for work outside of the router,
    and `communication_s` (n,) where samples came over a network.
    """

    tables: PlanTables
    workload: Workload
    finished_ns: NDArray[np.int64]
    written_ns: NDArray[np.int64]
    model: NDArray[np.int8]
    gear: NDArray[np.int16]
    ended: NDArray[np.int8]
    busy_s: NDArray[np.float64]
    batches: NDArray[np.int64]
    arrived_in_gear: NDArray[np.int64]
    shifts: NDArray[np.int64]
    shifted: NDArray[np.int64]
    log: list[LogRow]
    held: NDArray[np.int64]
    waited: NDArray[np.int64] | None = None
    items: Items | None = None
    front_end_s: float = 0.0
    communication_s: NDArray[np.float64] | None = None

    @property
    def most_waiting(self) -> int | None:
        """The smallest bound on a pipeline's waiting samples that refuses none, if it is known."""
        return None if self.waited is None else int(self.waited.max())

    @property
    def latency_s(self) -> NDArray[np.float64]:
        """Seconds per request from sending to its last row's answer; NaN if refused."""
        seconds = (self.written_ns - self.workload.arrivals_ns) / NS_PER_S + self.front_end_s
        if self.communication_s is not None:
            seconds += self.communication_s
        seconds[self.finished_ns < 0] = np.nan
        return self._of_requests(seconds)

    def limit_s(self, latency_objective_s: float | None) -> float | NDArray[np.float64] | None:
        """The latency within which each request is in time: by its deadline, else the objective.

        Like `latency_s` it counts from sending. The front end's time is not part of a deadline,
        which is kept where the router has the answer by then.
        """
        deadline_ns = self.workload.deadline_ns
        if deadline_ns is None:
            return latency_objective_s
        writing_ns = self.written_ns - self.finished_ns
        given_s = (deadline_ns + writing_ns - self.workload.arrivals_ns) / NS_PER_S + self.front_end_s
        if self.communication_s is not None:
            given_s += self.communication_s
        objective_s = np.inf if latency_objective_s is None else latency_objective_s
        return self._of_requests(np.where(deadline_ns < UNBOUNDED, given_s, objective_s))

    def _of_requests(self, of_samples: NDArray[Any]) -> NDArray[Any]:
        if self.workload.continues is None:
            return of_samples
        return np.asarray(np.maximum.reduceat(of_samples, np.flatnonzero(~self.workload.continues)))

    @property
    def _by_time(self) -> int | None:
        """The requests that were answered by time; None where nothing is refined."""
        if not self.tables.refine.refines:
            return None
        return int(np.count_nonzero(self._of_requests(self.ended == Ending.TIME) & ~np.isnan(self.latency_s)))

    @property
    def duration_s(self) -> float:
        return max(self.workload.duration_s, float(self.written_ns.max()) / NS_PER_S)

    @property
    def core_s(self) -> float | None:
        """Core-seconds held, from when cores were asked for; None where cores never change."""
        if not len(self.held):
            return None
        until_s = [*(self.held[1:, 0] / NS_PER_S), self.duration_s]
        return float(self.held[:, 1] @ np.diff(until_s, prepend=0.0))

    def counted_from(self, origin_ns: int) -> "Simulation":
        """The same run with times counted from `origin_ns`, at or before the first arrival."""
        workload, deadline_ns = self.workload, self.workload.deadline_ns
        if deadline_ns is not None:
            deadline_ns = np.where(deadline_ns < UNBOUNDED, deadline_ns - origin_ns, deadline_ns)
        answered = self.finished_ns >= 0
        return replace(
            self,
            workload=replace(
                workload,
                arrivals_ns=workload.arrivals_ns - origin_ns,
                duration_s=workload.duration_s - origin_ns / NS_PER_S,
                deadline_ns=deadline_ns,
            ),
            finished_ns=np.where(answered, self.finished_ns - origin_ns, self.finished_ns),
            written_ns=np.where(answered, self.written_ns - origin_ns, self.written_ns),
            shifts=_earlier(self.shifts, origin_ns),
            held=_earlier(self.held, origin_ns),
            log=[(row[0] - origin_ns, *row[1:]) for row in self.log],
        )

    def of(self, pipeline: str) -> "Simulation":
        """The samples, gears and shifts of one pipeline; its devices and its log are those of all."""
        one = self.tables.pipeline_named(pipeline)
        if len(self.tables.pipelines) == 1:
            return self
        assert self.workload.pipeline is not None
        mine, shifted = self.workload.pipeline == one.number, self.shifted == one.number
        own = np.flatnonzero(mine)
        columns = ("arrivals_ns", "record", "deadline_ns", "priority", "continues", "pipeline")
        given = {name: getattr(self.workload, name) for name in columns}
        kept: dict[str, Any] = {name: None if column is None else column[own] for name, column in given.items()}
        return replace(
            self,
            workload=replace(self.workload, **kept),
            **{name: getattr(self, name)[own] for name in ("finished_ns", "written_ns", "model", "gear", "ended")},
            arrived_in_gear=self.arrived_in_gear[one.first_gear : one.first_gear + one.gears],
            shifts=self.shifts[shifted],
            shifted=self.shifted[shifted],
            waited=None if self.waited is None else self.waited[one.number : one.number + 1],
            items=None if self.items is None else self.items.of_rows(mine),
            communication_s=None if self.communication_s is None else self.communication_s[own],
        )

    def quality(self, profiles: Profiles) -> NDArray[np.float64]:
        """The quality of each answer; of samples that were refused there is none.

        In a graph it is the product over all items that were answered before.
        """
        predictions, answered = as_one(profiles).predictions, self.finished_ns >= 0
        rows = predictions.rows(self.tables.models)
        if self.items is not None:
            return self._composed_quality(predictions.quality[rows])[answered]
        quality: NDArray[np.float64] = predictions.quality[rows[self.model], self.workload.record]
        return quality if answered.all() else quality[answered]

    def _composed_quality(self, of_models: NDArray[np.float64]) -> NDArray[np.float64]:
        """By request row (n,), from quality (models, records)."""
        assert self.items is not None
        items = self.items.answered
        of_rows = composed_quality(of_models[items.model, items.record], items.row, len(self.workload))
        pipelines = [is_graph(self.tables, pipeline) for pipeline in self.tables.pipelines]
        alone = ~np.array(pipelines)[0 if self.workload.pipeline is None else self.workload.pipeline]
        alone = np.broadcast_to(alone, len(self.workload))
        of_rows[alone] *= of_models[self.model[alone], self.workload.record[alone]]
        return of_rows

    def at_nodes(self, pipeline: str | None = None) -> dict[str, NodeVisits]:
        """The items of each node of `pipeline`, or of the only one."""
        one = self.of(pipeline or self.tables.pipeline.name)
        tables = self.tables.pipeline_named(pipeline or self.tables.pipeline.name)
        if one.items is not None and is_graph(self.tables, tables):
            return visits(one.items, tables, self.tables.models)
        return {tables.nodes[0]: visits_of(len(one.model), one.model[one.finished_ns >= 0], self.tables.models)}

    def result(
        self, profiles: Profiles, *, latency_objective_s: float | None, pipeline: str | None = None
    ) -> ServingResult:
        """The figures of `pipeline`, or of the only one; devices are busy with all pipelines."""
        one, duration_s = self.of(pipeline or self.tables.pipeline.name), self.duration_s
        latency_s, limit_s = one.latency_s, one.limit_s(latency_objective_s)
        answered = ~np.isnan(latency_s)
        degraded = one._of_requests(one.ended == Ending.DEGRADED) & answered
        return summarise(
            latency_s=latency_s[answered],
            quality=one.quality(profiles),
            requests=len(latency_s),
            refused=int(np.count_nonzero(~answered)),
            degraded=int(np.count_nonzero(degraded)),
            latency_objective_s=limit_s[answered] if isinstance(limit_s, np.ndarray) else limit_s,
            duration_s=self.workload.duration_s,
            devices=len(self.tables.device_ids),
            utilisation={
                device: float(busy / duration_s)
                for device, busy in zip(self.tables.device_ids, self.busy_s, strict=True)
            },
            by_time=one._by_time,
            core_s=self.core_s,
            most_waiting=one.most_waiting,
            independent_samples=int(np.count_nonzero(np.bincount(one.workload.record))),
        )

    _repr_html_ = in_notebook


def _earlier(changes: NDArray[np.int64], by_ns: int) -> NDArray[np.int64]:
    """Move changes (k, 2) earlier by `by_ns`; what held before 0 then holds from 0."""
    return np.column_stack((np.maximum(changes[:, 0] - by_ns, 0), changes[:, 1])) if len(changes) else changes
