"""Random small plans and workloads, with many ties: times are multiples of a millisecond, give or take a nanosecond."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec
import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from gearshift.cascade import Cascade
from gearshift.gear import Gear, GearPlan, LoadRange, PipelinePlan, ReplicaSettings, SourceFile, alone
from gearshift.hardware import Device, Hardware
from gearshift.objective import Objective
from gearshift.pipeline import Node
from gearshift.placement import Placement, Replica
from gearshift.plans.plan_tables import plan_tables
from gearshift.policies.cores.demand import Scaling, SharedCores
from gearshift.profiles.performance_model import planned_ns
from gearshift.profiles.run_times import Exits
from gearshift.profiles.tuples import JointRecords
from gearshift.request import NO_DEADLINE_NS
from gearshift.simulator.kernel.recorded_rows import RecordedRows
from gearshift.workload import Workload, merge_workloads

MS = 1_000_000
MOST_CORES = 4
MODELS = ("a", "b", "c", "d")
NO_SOURCE = SourceFile(path="", sha256="")


@dataclass(frozen=True)
class Case:
    """A plan, how long each replica's batches take (ns by size), certainties (models, records), and arrivals.

    With `exits`, samples leave early, and batches are expected to take `expected_ns` (replicas, sizes).  With
    `core_run_ns` (replicas, cores + 1, sizes) times go by the cores of the gear in force, which take `effect_ms` to
    be more; with `shared`, by those that a scaler chooses. Graphs have `joint` records by pipeline and conditions
    that hold, `holds` (edges, models, records), both also as the kernel reads them: `recorded`.
    """

    plan: GearPlan
    run_ns: list[NDArray[np.int64]]
    certainty: NDArray[np.float64]
    workload: Workload
    exits: Exits | None = None
    expected_ns: NDArray[np.int64] | None = None
    core_run_ns: NDArray[np.int64] | None = None
    effect_ms: int = 0
    shared: SharedCores | None = None
    joint: Mapping[str, JointRecords] = field(default_factory=dict)
    holds: NDArray[np.bool_] | None = None
    recorded: RecordedRows | None = None


@st.composite
def placements(draw: st.DrawFn) -> tuple[Hardware, Placement]:
    devices = draw(st.integers(1, 4))
    hardware = Hardware(devices=tuple(Device(id=f"d{i}") for i in range(devices)))
    replicas = []
    for model in MODELS[: draw(st.integers(1, 4))]:
        free = draw(st.permutations(range(devices)))
        while free:
            width = draw(st.sampled_from([1, 1, 1, 2, 3]))
            span, free = free[:width], free[width:]
            replicas.append(
                Replica(id=f"{model}{len(replicas)}", model=model, device_ids=tuple(f"d{i}" for i in sorted(span)))
            )
            if not draw(st.booleans()):
                break
    return hardware, Placement(replicas=tuple(replicas))


@st.composite
def gears(draw: st.DrawFn, placement: Placement, node: str = "task") -> tuple[Gear, ...]:
    starts = [0.0, *sorted(draw(st.lists(st.sampled_from([20.0, 50.0, 100.0, 200.0, 400.0]), unique=True, max_size=3)))]
    result = []
    for start, end in zip(starts, [*starts[1:], None], strict=True):
        order = draw(st.permutations(placement.models))
        models = tuple(order[: draw(st.integers(1, len(order)))])
        thresholds = tuple(draw(st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0])) for _ in models[1:])
        settings = []
        for model in placement.models:
            own = [r.id for r in placement.replicas if r.model == model]
            weights = [draw(st.integers(0, 3)) for _ in own] if model in models else [0] * len(own)
            if model in models and sum(weights) == 0:
                weights[0] = 1
            settings += [
                ReplicaSettings(
                    replica=replica,
                    load_share=weight / max(1, sum(weights)),
                    minimum_queue_length=draw(st.integers(1, 4)),
                    largest_batch_size=draw(st.integers(1, 4)),
                    longest_wait_s=draw(st.sampled_from([0.0, 0.001, 0.004, 0.02])),
                )
                for replica, weight in zip(own, weights, strict=True)
            ]
        result.append(
            Gear(
                load_range=LoadRange(from_=start, to=end),
                cascades=alone(node, Cascade(models=models, thresholds=thresholds)),
                replicas=tuple(settings),
            )
        )
    return tuple(result)


@st.composite
def workloads(draw: st.DrawFn, records: int, most: int = 300) -> Workload:
    seed = draw(st.integers(0, 2**32 - 1))
    generator = np.random.default_rng(seed)
    n = draw(st.integers(1, most))
    mean_gap_ms = draw(st.sampled_from([0.3, 1.0, 3.0, 20.0]))
    gaps = generator.poisson(mean_gap_ms, n)
    burst = generator.random(n) < draw(st.sampled_from([0.0, 0.5, 0.95]))
    arrivals_ns = np.cumsum(np.where(burst, 0, gaps)).astype(np.int64) * MS
    arrivals_ns += draw(st.sampled_from([0, 0, 150, 700])) * MS
    if draw(st.booleans()):  # so that one nanosecond more or less of a wait makes a difference
        arrivals_ns = np.sort(np.maximum(0, arrivals_ns + generator.integers(-1, 2, n)))
    deadline_ns, priority, continues = None, None, None
    if draw(st.booleans()):
        tightest_ms, loosest_ms = draw(st.sampled_from([(1, 60), (2, 12), (10, 40), (50, 500)]))
        deadline_ns = arrivals_ns + generator.integers(tightest_ms, loosest_ms, n) * MS
        deadline_ns += generator.integers(-1, 2, n)  # so that it is missed, or kept, by a nanosecond
        deadline_ns[generator.random(n) < draw(st.sampled_from([0.0, 0.3]))] = NO_DEADLINE_NS
    if draw(st.booleans()):
        priority = generator.integers(1, 4, n)
    if draw(st.booleans()):
        continues = np.concatenate([[False], (np.diff(arrivals_ns) == 0) & (generator.random(n - 1) < 0.5)])
        if deadline_ns is not None:
            for i in np.flatnonzero(continues):
                deadline_ns[i] = deadline_ns[i - 1]
    return Workload(
        arrivals_ns=arrivals_ns,
        record=generator.integers(0, records, n).astype(np.int32),
        duration_s=float(arrivals_ns[-1]) / 1e9,
        deadline_ns=deadline_ns,
        priority=priority,
        continues=continues,
    )


@st.composite
def pipelines(draw: st.DrawFn, placement: Placement, name: str = "task") -> PipelinePlan:
    return PipelinePlan(
        nodes={name: Node(operator=name)},
        output=name,
        objective=Objective(latency_s=0.1),
        gears=draw(gears(placement, name)),
        meter=draw(st.sampled_from(["backlog", "alpha"])),
        alpha=draw(st.sampled_from([0.5, 2.0, 8.0])),
        upshift_margin=draw(st.sampled_from([0.0, 0.1, 0.5, 1.0])),
        starvation_s=draw(st.sampled_from([None, 0.005, 0.03])),
    )


@st.composite
def cases(draw: st.DrawFn, names: Sequence[str] = ("task",)) -> Case:
    """A random case of pipelines `names`, which share models and replicas."""
    hardware, placement = draw(placements())
    plan = GearPlan(
        planner="random",
        hardware=hardware,
        placement=placement,
        pipelines={name: draw(pipelines(placement, name)) for name in names},
        profiles=dict.fromkeys(names, NO_SOURCE),
        traces=dict.fromkeys(names, NO_SOURCE),
    )
    sizes = np.arange(5)
    run_ns = [
        (draw(st.integers(1, 8)) + sizes * draw(st.integers(0, 3))).astype(np.int64) * MS for _ in placement.replicas
    ]
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    certainty = generator.integers(0, 5, (len(placement.models), 50)) / 4
    each = [draw(workloads(50)) for _ in names]
    workload = each[0] if len(each) == 1 else merge_workloads(each)
    return Case(plan=plan, run_ns=run_ns, certainty=certainty, workload=workload)


def cases_of_several() -> st.SearchStrategy[Case]:
    """Cases of two or three pipelines of one node, which share models and replicas."""
    return st.sampled_from([("p", "q"), ("p", "q", "r")]).flatmap(cases)


@st.composite
def cases_with_exits(draw: st.DrawFn) -> Case:
    """A random case whose models have one to three segments, each in one to eight milliseconds, and random exits."""
    case = draw(cases())
    tables = plan_tables(case.plan)
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    segments = generator.integers(1, 4, len(tables.models))
    base, growth = generator.integers(0, 6, (2, len(case.run_ns), 3))
    segment_ns = (1 + base[..., None] + growth[..., None] * np.arange(5)).astype(np.int64) * MS
    segment_ns[np.arange(3) >= segments[tables.replica_model][:, None]] = 0
    exits = generator.integers(0, segments[:, None], (len(segments), 50))
    whole_ns = segment_ns.sum(axis=1)
    expected_ns = (whole_ns * draw(st.sampled_from([0.3, 0.7, 1.0]))).astype(np.int64)
    return replace(case, run_ns=list(whole_ns), exits=Exits(segment_ns, exits), expected_ns=expected_ns)


@st.composite
def cases_with_cores(draw: st.DrawFn) -> Case:
    """A random case whose gears give every replica one to four cores, and times by cores that may rise with them."""
    case = draw(cases())
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    (operator,) = case.plan.pipelines.values()
    gears = tuple(
        msgspec.structs.replace(
            gear,
            replicas=tuple(
                msgspec.structs.replace(each, cores=int(generator.integers(1, MOST_CORES + 1)))
                for each in gear.replicas
            ),
        )
        for gear in operator.gears
    )
    replicas = len(case.plan.placement.replicas)
    devices = len(case.plan.hardware.devices)
    plan = msgspec.structs.replace(
        case.plan,
        hardware=msgspec.structs.replace(case.plan.hardware, pool_cores=max(devices, MOST_CORES * replicas)),
        pipelines={"task": msgspec.structs.replace(operator, gears=gears)},
    )
    base, growth = generator.integers(1, 9, (replicas, MOST_CORES + 1)), generator.integers(0, 4, replicas)
    by_cores = (base[..., None] + growth[:, None, None] * np.arange(5)).astype(np.int64) * MS
    return replace(case, plan=plan, core_run_ns=by_cores, effect_ms=draw(st.sampled_from([0, 5, 10, 100, 250])))


@st.composite
def cases_with_scaler(draw: st.DrawFn) -> Case:
    """A case with cores in which a scaler chooses them, by deadlines, of as many as the largest gear has, or more."""
    case = draw(cases_with_cores().filter(lambda case: case.workload.deadline_ns is not None))
    (operator,) = case.plan.pipelines.values()
    largest = max(sum(each.cores for each in gear.replicas) for gear in operator.gears)
    scaling = Scaling(
        scaler=draw(st.sampled_from(["exact", "exact", "paper"])),
        period_s=draw(st.sampled_from([0.02, 0.05, 0.1, 0.3])),
        effect_s=0.01,
        slo_s=0.05,
    )
    assert case.core_run_ns is not None
    shared = SharedCores(
        scaling=scaling,
        cores=largest + draw(st.integers(0, 3)),
        run_ns=[planned_ns(table, scaling.margin) for table in case.core_run_ns],
        most=[MOST_CORES] * len(case.core_run_ns),
        largest=4,
    )
    return replace(case, shared=shared)


@st.composite
def cases_with_shared_workers(draw: st.DrawFn) -> Case:
    """A case with a scaler whose gears have no cores; replicas on the same devices are one worker's."""
    case = draw(cases_with_scaler())
    assert case.shared is not None
    plan = msgspec.structs.replace(case.plan, hardware=msgspec.structs.replace(case.plan.hardware, pool_cores=None))
    devices = {replica.id: replica.device_ids for replica in plan.placement.replicas}
    workers: dict[tuple[str, ...], list[int]] = {}
    for number, replica in enumerate(plan_tables(plan).replica_ids):
        workers.setdefault(devices[replica], []).append(number)
    begin_with = [draw(st.integers(1, MOST_CORES)) for _ in workers]
    first = np.zeros(len(devices), dtype=np.int64)
    for numbers, cores in zip(workers.values(), begin_with, strict=True):
        first[numbers] = cores
    shared = replace(
        case.shared,
        scaling=replace(case.shared.scaling, scaler="exact"),
        cores=sum(begin_with) + draw(st.integers(0, 3)),
        workers=[*workers.values()],
        first=first.tolist(),
    )
    return replace(case, plan=plan, shared=shared)
