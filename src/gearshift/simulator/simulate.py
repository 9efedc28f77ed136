"""Simulate a gear plan on a workload, by the compiled kernel."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gearshift.clock import NEVER_NS, NS_PER_S, to_ns
from gearshift.decisions import Ending
from gearshift.errors import require
from gearshift.gear import GearPlan
from gearshift.plans.plan_tables import PlanTables, plan_tables
from gearshift.policies.cores.demand import CORES_EFFECT_S, Scaling, SharedCores
from gearshift.profiles.profile import Profile
from gearshift.profiles.run_times import (
    NO_FRONT_END,
    Exits,
    FrontEnd,
    exits_of,
    expected_ns,
    front_end_of,
    gear_times_ns,
    run_times_ns,
)
from gearshift.profiles.several import Profiles, as_one, profile_of
from gearshift.profiles.tuples import JointRecords
from gearshift.request import Late
from gearshift.simulator.items import items_of
from gearshift.simulator.kernel import loop as kernel
from gearshift.simulator.kernel.arrays import make_outcome, make_plan, make_settings, make_state
from gearshift.simulator.kernel.gear_cores import make_cores, side_by_side
from gearshift.simulator.kernel.graph_arrays import make_graph, most_items, recorded_tuples
from gearshift.simulator.kernel.load_scaling import make_scaling
from gearshift.simulator.kernel.queues import NONE, make_queues
from gearshift.simulator.kernel.recorded_rows import RecordedRows, recorded_rows
from gearshift.simulator.scaled_cores import (
    cores_of,
    held_by_log,
    most_rows,
    serve_scaled,
    shared_cores,
    times_on_cores,
)
from gearshift.simulator.simulation import UNBOUNDED, Simulation
from gearshift.simulator.whole_kernel import no_records, takes_whole_kernel
from gearshift.support.compiling.by_address import by_address
from gearshift.workload import Workload

__all__ = ["UNBOUNDED", "Prepared", "Simulation", "prepare", "simulate", "simulate_tables"]


def simulate(
    plan: GearPlan,
    profiles: Profiles,
    workload: Workload,
    *,
    joint: Mapping[str, JointRecords] = {},
    most_waiting: int | Sequence[int] = UNBOUNDED,
    late: Late = "refuse",
    scaling: Scaling | None = None,
    scaler_cores: int | None = None,
    log_rows: int = 0,
) -> Simulation:
    """Serve `workload` by `plan` in virtual time. Keeps no state from an earlier run.

    `profiles` are by operator where there are several; `joint` are the joint records of pipelines
    of several nodes, whose tuples the workload then names. `most_waiting` bounds the queued samples
    of each pipeline as the server's admission does, with one bound for all, or one for each. `late`
    says whether unanswered samples that would miss their deadlines are refused, or answered late;
    `log_rows` is how many decisions to keep.

    With `scaling` a scaler gives workers the cores that deadlines, or else the plan's latency
    objective, require, no fewer than the gear in force where it has some, out of `scaler_cores`,
    by default the plan's; `static` divides them evenly among workers for the whole run. With a
    scaler in `COMPARED`, requests without a deadline get the latency objective as theirs, and
    requests that would miss it are refused.
    """
    require(
        scaler_cores is None or scaling is not None,
        f"{scaler_cores} cores are given to share, and no scaler",
        remedy="give `scaling` too",
    )
    how: Any = {"most_waiting": most_waiting, "late": late, "log_rows": log_rows}
    if scaling is None:
        return prepare(plan, profiles, joint).run(workload, **how)
    from gearshift.simulator.compared.table import COMPARED, SCALERS

    require(not joint, "cores are not scaled for pipelines of several nodes", remedy="leave `scaling` out")
    require(
        scaling.scaler in SCALERS, f"there is no scaler {scaling.scaler!r}", remedy=f"use one of {', '.join(SCALERS)}"
    )
    profile = as_one(profiles)
    if scaling.scaler == "static":
        return _on_constant_cores(plan, profile, workload, scaler_cores, **how)
    tables = plan_tables(plan)
    given_ns = workload.deadline_ns
    given_ns = np.full(len(workload), UNBOUNDED) if given_ns is None else given_ns
    objective_s = plan.pipelines[tables.pipeline.name].objective.latency_s
    by_objective_ns = UNBOUNDED if objective_s is None else workload.arrivals_ns + to_ns(objective_s)
    due_ns = np.where(given_ns < UNBOUNDED, given_ns, by_objective_ns)
    if scaling.scaler in COMPARED:
        require(
            late == "refuse" and most_waiting == UNBOUNDED and not log_rows,
            f"{scaling.scaler} refuses what would be late, has a queue without bound and keeps no log",
        )
        require(bool((due_ns < UNBOUNDED).all()), f"{scaling.scaler} needs a deadline", remedy="give --slo-ms")
        return _compared(plan, profile, tables, replace(workload, deadline_ns=due_ns), scaling, scaler_cores)
    shared, times = shared_cores(plan, tables, profile, scaling, scaler_cores)
    prepared = replace(prepare(plan, profile), core_run_ns=side_by_side(times))
    given = replace(workload, deadline_ns=given_ns)
    return prepared.run(given, effect_s=scaling.effect_s, shared=shared, due_ns=due_ns, **how)


def _on_constant_cores(
    plan: GearPlan, profile: Profile, workload: Workload, cores: int | None, **how: Any
) -> Simulation:
    prepared = prepare(plan, profile)
    if cores is not None:
        run_ns = times_on_cores(plan, prepared.tables, profile, prepared.run_ns, cores)
        prepared = replace(prepared, run_ns=run_ns)
    run = prepared.run(workload, **how)
    held = cores_of(plan) if cores is None else cores
    return run if held is None else replace(run, held=np.array([[0, held]], dtype=np.int64))


def _compared(
    plan: GearPlan, profile: Profile, tables: PlanTables, workload: Workload, scaling: Scaling, cores: int | None
) -> Simulation:
    from gearshift.simulator.compared.scalers import simulate_compared

    run, n = simulate_compared(plan, tables, profile, workload, scaling, cores), len(workload)
    return Simulation(
        tables=tables,
        workload=workload,
        finished_ns=run.finished_ns,
        written_ns=run.finished_ns,
        model=np.zeros(n, dtype=np.int8),
        gear=np.zeros(n, dtype=np.int16),
        ended=np.where(run.finished_ns < 0, Ending.INFEASIBLE, Ending.ANSWERED).astype(np.int8),
        busy_s=np.full(len(tables.device_ids), run.duration_s * run.busy_core_s / run.core_seconds),
        batches=run.batches[None],
        arrived_in_gear=np.bincount([0], weights=[n], minlength=tables.pipeline.gears).astype(np.int64),
        shifts=np.empty((0, 2), dtype=np.int64),
        shifted=np.empty(0, dtype=np.int64),
        log=[],
        held=run.cores,
        front_end_s=profile.front_end_s,
    )


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """A plan resolved to the arguments of `simulate_tables`, for any workload.

    `records` are the numbers of recorded samples, or tuples, of the pipelines.
    """

    tables: PlanTables
    run_ns: NDArray[np.int64]
    certainty: NDArray[np.float64]
    exits: Exits | None
    core_run_ns: NDArray[np.int64] | None
    front_end: FrontEnd
    records: tuple[int, ...] = ()
    recorded: RecordedRows | None = None
    expected_ns: NDArray[np.int64] | None = None

    def run(self, workload: Workload, **how: Any) -> Simulation:
        if workload.pipeline is not None or self.recorded is not None:
            self._require_recorded(workload)
        return simulate_tables(
            self.tables,
            self.run_ns,
            self.certainty,
            workload,
            recorded=self.recorded,
            exits=self.exits,
            expected_ns=self.expected_ns,
            core_run_ns=self.core_run_ns,
            front_end=self.front_end,
            **how,
        )

    def _require_recorded(self, workload: Workload) -> None:
        for number, records in enumerate(self.records):
            own = True if workload.pipeline is None else workload.pipeline == number
            named = int(workload.record.max(where=own, initial=0))
            require(
                named < records,
                f"the workload names sample {named} of pipeline {self.tables.pipelines[number].name!r}, "
                f"but there are records of {records} samples",
                remedy="draw the workload from these records",
            )


def prepare(plan: GearPlan, profiles: Profiles, joint: Mapping[str, JointRecords] = {}) -> Prepared:
    """Resolve a plan once for several workloads; raises as `simulate`."""
    tables, records, profile = plan_tables(plan), tuple(_records(plan, profiles, joint)), as_one(profiles)
    certainty = np.ascontiguousarray(profile.predictions.certainty[profile.predictions.rows(tables.models)])
    times, exits = gear_times_ns(plan, tables, profile), exits_of(plan, tables, profile)
    return Prepared(
        tables=tables,
        records=records,
        recorded=recorded_rows(plan, tables, joint, profiles) if tables.graph.is_graph else None,
        run_ns=run_times_ns(plan, tables, profile),
        certainty=certainty,
        exits=exits,
        expected_ns=None if exits is None else expected_ns(plan, tables, profile),
        core_run_ns=None if times is None else side_by_side(times),
        front_end=front_end_of(profile),
    )


def _records(plan: GearPlan, profiles: Profiles, joint: Mapping[str, JointRecords]) -> Iterator[int]:
    for name, pipeline in plan.pipelines.items():
        each = [profile_of(node.operator, profiles) for node in pipeline.nodes.values()]
        yield len(joint[name]) if name in joint else len(each[0].predictions.part)


def simulate_tables(
    tables: PlanTables,
    run_ns: NDArray[np.int64],
    certainty: NDArray[np.float64],
    workload: Workload,
    *,
    recorded: RecordedRows | None = None,
    exits: Exits | None = None,
    expected_ns: NDArray[np.int64] | None = None,
    core_run_ns: NDArray[np.int64] | None = None,
    effect_s: float = CORES_EFFECT_S,
    shared: SharedCores | None = None,
    due_ns: NDArray[np.int64] | None = None,
    front_end: FrontEnd = NO_FRONT_END,
    most_waiting: int | Sequence[int] = UNBOUNDED,
    late: Late = "refuse",
    by_arrival: bool = False,
    knows_waits: bool = True,
    learns_slowdown: bool | None = None,
    log_rows: int = 0,
) -> Simulation:
    """As `simulate`, with the plan already resolved.

    `certainty` (models, records) is in the order of the tables. `core_run_ns` (replicas, cores +
    1, sizes), where cores change with the gear, replaces `run_ns`; additional cores arrive
    `effect_s` after they are asked for. With `shared` a scaler chooses the cores, no fewer than
    the gear's, by when samples are due (n,): `due_ns`, or their deadlines. With `by_arrival`
    queues are in order of arrival; deadlines otherwise work as usual. Without `knows_waits`, for
    baselines, choices by the time left ignore queues. Where it `learns_slowdown`, gears and refinement
    go by how much slower batches are than `expected_ns`, by default `run_ns`; by default for plans that
    refine, and where run times vary and are not those of learned caches or of cores that change.
    `front_end` is the cost of a request outside of queues and batches; where cores are shared, the
    router's part of it delays nothing else.
    """
    require(
        recorded is not None or int(workload.record.max()) < certainty.shape[1],
        f"the workload names sample {int(workload.record.max())}, "
        f"but there are records of {certainty.shape[1]} samples",
        remedy="draw the workload from this profile",
    )
    require(
        shared is None or (workload.deadline_ns is not None and core_run_ns is not None),
        "a scaler goes by deadlines and by run times on several core counts",
        remedy="give requests deadlines, and times by cores",
    )
    require(
        not tables.refine.refines or (shared is None and workload.bulk_gear is None),
        "a plan that orders by gain is not simulated with scaled cores or bulk work",
        remedy="leave them out",
    )
    varies = workload.run_factors is not None and exits is None and core_run_ns is None
    learns = tables.refine.refines or varies if learns_slowdown is None else learns_slowdown
    n, replicas, pipelines = len(workload), len(tables.replica_ids), len(tables.pipelines)
    _require_pipelines(tables, workload)
    by_deadline = workload.deadline_ns is not None or exits is not None or core_run_ns is not None or tables.chooses
    several = len(tables.pipeline_of) > 1 or tables.graph.is_graph or tables.chooses or workload.bulk_gear is not None
    whole = takes_whole_kernel() and (by_deadline or several or tables.refine.refines)
    by_deadline, several = by_deadline or whole, several or whole
    deadline_ns = np.full(n, UNBOUNDED) if workload.deadline_ns is None else workload.deadline_ns
    cores = make_cores(tables, core_run_ns, round(effect_s * NS_PER_S), shared)
    if core_run_ns is not None:
        run_ns = core_run_ns[np.arange(replicas), cores.in_force]
    if shared is not None:
        front_end = FrontEnd(front_end.elsewhere_s + (front_end.arrival_ns + front_end.answer_ns) / NS_PER_S)
        log_rows = most_rows(n, tables)
    bounds = [most_waiting] * pipelines if isinstance(most_waiting, int) else most_waiting
    require(len(bounds) == pipelines, f"there are {len(bounds)} bounds on waiting samples, and {pipelines} pipelines")
    plan = make_plan(tables, run_ns, expected_ns, exits, bounds)
    tuples = np.full(n, NONE) if recorded is None else recorded_tuples(tables, workload, recorded)
    graph = None if recorded is None else make_graph(tables, tuples, recorded)
    if whole and recorded is None and not tables.refine.refines:  # which never have several nodes
        graph = make_graph(tables, tuples, no_records(tables))
    items = 0 if recorded is None else most_items(tuples, recorded)
    settings = make_settings(
        tables,
        front_end,
        first_item=UNBOUNDED if recorded is None else n,
        several=several,
        by_deadline=by_deadline,
        refuses=late == "refuse",
        by_exit=exits is not None,
        knows_waits=knows_waits,
        learns_slowdown=learns,
    )
    due = deadline_ns if by_deadline else np.zeros(0, dtype=np.int64)
    state = make_state(tables, workload, run_ns, due, items, several=several, learns_slowdown=learns)
    by_urgency = by_deadline or workload.priority is not None
    of_bulk = 0 if workload.bulk_gear is None else replicas
    queues = make_queues(workload, items, replicas + of_bulk, by_urgency=by_urgency, by_arrival=by_arrival)
    out = make_outcome(tables, workload, run_ns.shape[1] - 1, log_rows, items)
    continues = np.zeros(0, dtype=np.bool_) if workload.continues is None else workload.continues
    scaling, samples = make_scaling(tables), (workload.arrivals_ns, continues, np.asarray(certainty))

    given = by_address(kernel.Given(plan, settings, state, queues, graph, scaling, cores, out, *samples))

    def run_until(until_ns: int) -> None:
        kernel.run(given, until_ns)

    if shared is None:
        run_until(NEVER_NS)
        held = _held_in_gears(tables, out.shifts[: state.run.shifts, :2])
        log = [tuple(row) for row in out.log[: min(state.run.logged, log_rows)].tolist()]
    else:
        log = serve_scaled(
            shared, run_until, plan, state, queues, cores, out, deadline_ns if due_ns is None else due_ns
        )
        held = held_by_log(tables, shared, log)
    return Simulation(
        tables=tables,
        workload=workload,
        finished_ns=out.finished_ns,
        written_ns=out.written_ns,
        model=out.model[:n],
        gear=out.gear[:n],
        ended=out.ended[:n],
        items=None if recorded is None else items_of(state, out, n),
        busy_s=out.busy_ns / NS_PER_S,
        batches=out.batches,
        arrived_in_gear=out.arrived_in_gear,
        shifts=out.shifts[: state.run.shifts, :2],
        shifted=out.shifts[: state.run.shifts, 2],
        log=log,
        held=held,
        waited=state.pipelines.most_waiting.copy(),
        front_end_s=front_end.elsewhere_s,
    )


def _require_pipelines(tables: PlanTables, workload: Workload) -> None:
    names = [pipeline.name for pipeline in tables.pipelines]
    if workload.pipeline is None:
        require(len(names) == 1, f"the plan has pipelines {names}, and the workload does not say whose samples are")
    else:
        named = int(workload.pipeline.max()) + 1
        require(named <= len(names), f"the workload has samples of {named} pipelines, and the plan has {names}")


def _held_in_gears(tables: PlanTables, shifts: NDArray[np.int64]) -> NDArray[np.int64]:
    if not len(tables.cores):
        return np.zeros((0, 2), dtype=np.int64)
    in_force = np.concatenate([[[0, 0]], shifts])
    cores = tables.cores.reshape(-1, len(tables.replica_ids)).sum(axis=1)
    return np.stack([in_force[:, 0], cores[in_force[:, 1]]], axis=1)
