"""Try other gears for one pipeline of a plan: in steady load among the others, and on all traces."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec
import numpy as np

from gearshift.clock import NS_PER_S
from gearshift.gear import Gear, GearPlan
from gearshift.planner.evaluate.cells import WARM_UP_SHARE, Cell, measured_in, random_arrivals, rank_of
from gearshift.planner.joint.request import PipelineRequest
from gearshift.planner.space.beside import at_all_loads, busy_qps, in_steady_load
from gearshift.profiles.profile import PART_A, Profile
from gearshift.profiles.several import as_one
from gearshift.profiles.tuples import JointRecords, samples_alone
from gearshift.result import percentile
from gearshift.simulator.flow import model_seconds, visits_of
from gearshift.simulator.simulate import Simulation, simulate
from gearshift.workload import Trace, Workload, draw_workload, merge_workloads

OWN_REQUESTS, LEAST_OWN, MOST_REQUESTS = 6_000, 500, 60_000
"""Requests of the pipeline that is tried in steady load, the fewest of them, and those of all pipelines.

Of the last two the fewest counts: beside much busier pipelines there are more in all."""


class Bottleneck(msgspec.Struct, frozen=True, kw_only=True):
    """The busiest device, the model that keeps it busiest, and the pipeline and node that use it most."""

    pipeline: str
    node: str
    model: str
    device: str


class Tried(NamedTuple):
    """A gear of one pipeline in steady load: the plan and run, and its cell.

    `late` is another pipeline that misses its objective then, or empty.
    """

    plan: GearPlan
    gear: Gear
    run: Simulation
    cell: Cell
    late: str

    @property
    def rank(self) -> tuple[bool, bool, float, float]:
        return (bool(self.late), *rank_of(self.cell))


@dataclass(frozen=True, slots=True, eq=False)
class Trying:
    """A plan, with the profiles of its operators, the joint records of its graphs, and its traces.

    Pipelines of one node need no joint records. In steady load each pipeline but the one that is
    tried has the 95th percentile of its trace's load, in the gear of that load.
    """

    plan: GearPlan
    profiles: Mapping[str, Profile]
    joint: Mapping[str, JointRecords]
    traces: Mapping[str, Trace]
    together: Profile = field(init=False)
    records: Mapping[str, JointRecords] = field(init=False)
    """The records of all pipelines; those of one node have their operator's samples."""

    def __post_init__(self) -> None:
        alone = {
            name: samples_alone(
                pipeline.output, self.profiles[pipeline.nodes[pipeline.output].operator].predictions.part
            )
            for name, pipeline in self.plan.pipelines.items()
            if name not in self.joint
        }
        object.__setattr__(self, "together", as_one(self.profiles))
        object.__setattr__(self, "records", {**alone, **self.joint})

    def request(self, name: str, limit_s: float) -> PipelineRequest:
        """A request for this pipeline on the plan's hardware, within `limit_s`; with the profiles of all."""
        pipeline = self.plan.pipelines[name]
        return PipelineRequest(
            name=name,
            nodes=pipeline.nodes,
            edges=pipeline.edges,
            output=pipeline.output,
            profiles=self.profiles,
            records=self.records[name],
            trace=self.traces[name],
            hardware=self.plan.hardware,
            objective=msgspec.structs.replace(pipeline.objective, latency_s=limit_s),
            ranges=len(pipeline.gears),
            seed=self.plan.seed,
        )

    def steady(self, name: str, gear: Gear, load_qps: float, limit_s: float) -> Tried:
        pipelines = {
            other: at_all_loads(one, gear) if other == name else in_steady_load(one, busy_qps(self.traces[other]))
            for other, one in self.plan.pipelines.items()
        }
        made = msgspec.structs.replace(self.plan, pipelines=pipelines, predictions={})
        run = self._run(made, self._steady_workload(name, load_qps))
        percentile_ = self.plan.pipelines[name].objective.percentile
        cell = measured_in(run.of(name), percentile_).judged(limit_s)
        return Tried(made, gear, run, cell, next((o for o in pipelines if o != name and self._is_late(run, o)), ""))

    def replay(self, made: GearPlan, *, part: int) -> Simulation:
        """All traces at once, with records of `part`."""
        workloads = [
            draw_workload(self.traces[name], self.records[name].indices(part), seed=made.seed)
            for name in made.pipelines
        ]
        return self._run(made, merge_workloads(workloads))

    def late_on_traces(self, name: str, k: int, gear: Gear, limit_s: float) -> dict[str, float]:
        """The share late of each pipeline on part A where gear `k` of pipeline `name` is `gear`."""
        pipeline = self.plan.pipelines[name]
        gears = (*pipeline.gears[:k], gear, *pipeline.gears[k + 1 :])
        changed = msgspec.structs.replace(pipeline, gears=gears, planned_load=None)
        made = msgspec.structs.replace(self.plan, pipelines={**self.plan.pipelines, name: changed})
        run = self.replay(made, part=PART_A)
        limits_s = {each: one.objective.latency_s for each, one in self.plan.pipelines.items()} | {name: limit_s}
        return {
            each: 0.0 if limit is None else float(np.mean(~(run.of(each).latency_s <= limit)))
            for each, limit in limits_s.items()
        }

    def bottleneck(self, made: GearPlan, run: Simulation) -> Bottleneck:
        """The bottleneck in a run of `made`."""
        tables = run.tables
        device = tables.device_ids[int(np.argmax(run.busy_s))]
        on_it = {replica.model for replica in made.placement.replicas if device in replica.device_ids}
        seconds = dict(zip(tables.models, model_seconds(made, self.together, run, device).tolist(), strict=True))
        model = max(sorted(on_it), key=lambda each: seconds[each])
        visits, number = visits_of(run), tables.models.index(model)
        pipeline, node = max(visits, key=lambda each: visits[each][number])
        return Bottleneck(pipeline=pipeline, node=node, model=model, device=device)

    def _run(self, made: GearPlan, workload: Workload) -> Simulation:
        return simulate(made, self.profiles, workload, joint=self.joint)

    def _steady_workload(self, name: str, load_qps: float) -> Workload:
        loads_qps = {other: busy_qps(trace) for other, trace in self.traces.items()} | {name: load_qps}
        share = load_qps / sum(loads_qps.values())
        own = max(LEAST_OWN, min(OWN_REQUESTS, round(MOST_REQUESTS * share)))
        gaps = np.random.default_rng([self.plan.seed, 1]).exponential(NS_PER_S / load_qps, own)
        arrivals_ns = np.cumsum(np.rint(gaps).astype(np.int64))
        duration_s = float(arrivals_ns[-1]) / NS_PER_S
        arrivals = {
            other: Trace(arrivals_ns=arrivals_ns, duration_s=duration_s)
            if other == name
            else random_arrivals(loads_qps[other], duration_s, seed=[self.plan.seed, 6, number])
            for number, other in enumerate(self.plan.pipelines)
        }
        return merge_workloads(
            [
                draw_workload(trace, self.records[other].indices(PART_A), seed=self.plan.seed)
                for other, trace in arrivals.items()
            ]
        )

    def _is_late(self, run: Simulation, name: str) -> bool:
        objective = self.plan.pipelines[name].objective
        latency_s = run.of(name).latency_s
        settled_s = latency_s[int(len(latency_s) * WARM_UP_SHARE) :]
        return objective.latency_s is not None and percentile(settled_s, objective.percentile) > objective.latency_s
