"""How long a batch holds a replica's devices, as simulator and emulated devices both use it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gearshift.clock import NS_PER_S
from gearshift.errors import require
from gearshift.gear import GearPlan
from gearshift.placement import Replica
from gearshift.plans.plan_tables import PlanTables
from gearshift.plans.workers import Worker, scaled_workers
from gearshift.profiles.performance_model import Statistic, planned_ns
from gearshift.profiles.profile import Profile, RunTimeCurve

UNBOUNDED_ROWS = 1 << 30
ARRIVAL_SHARE = 0.5
"""An assumption: share of the router's time before queueing; the rest writes the answer."""


class FrontEnd(NamedTuple):
    """Time of a request outside of queues and batches.

    The router, which does one thing at a time, is busy for `arrival_ns` before the request is
    queued and for `answer_ns` when it is answered; `elsewhere_s` passes outside of the router.
    """

    elsewhere_s: float = 0.0
    arrival_ns: int = 0
    answer_ns: int = 0


NO_FRONT_END = FrontEnd()


def front_end_of(profile: Profile) -> FrontEnd:
    """The front end's times; the measured time of a lone request includes the router's."""
    arrival_ns = round(ARRIVAL_SHARE * profile.router_s * NS_PER_S)
    answer_ns = round(profile.router_s * NS_PER_S) - arrival_ns
    return FrontEnd(max(0.0, profile.front_end_s - profile.router_s), arrival_ns, answer_ns)


Place = tuple[str, str, int, int]
"""Model, device kind, tensor-parallel degree and cores."""


@dataclass(frozen=True, slots=True, eq=False)
class Exits:
    """Segment times and exits, by which batches of models with learned caches shrink.

    `segment_ns` (replicas, segments, sizes): nanoseconds that a segment takes for the remaining
    samples, 0 past a model's last segment. `exit_segment` (models, records): the segment after
    which each recorded sample leaves.
    """

    segment_ns: NDArray[np.int64]
    exit_segment: NDArray[np.int64]


def exits_of(plan: GearPlan, tables: PlanTables, profile: Profile) -> Exits | None:
    """The exits of the plan's models; None without learned caches. Raises as `run_times_ns`."""
    if all(curve.segment == 0 for curve in profile.curves):
        return None
    segment_ns = _segment_times_ns(plan, tables, profile, profile.segments)
    if segment_ns.shape[1] == 1:
        return None
    rows = profile.predictions.rows(tables.models)
    if profile.predictions.exit_segment is not None:
        return Exits(segment_ns, np.ascontiguousarray(profile.predictions.exit_segment[rows]))
    last = (segment_ns[tables.model_begin[:-1], :, 1] > 0).sum(axis=1) - 1
    return Exits(segment_ns, np.repeat(last[:, None], len(profile.predictions.part), axis=1))


def run_times_ns(plan: GearPlan, tables: PlanTables, profile: Profile) -> NDArray[np.int64]:
    """Nanoseconds (replicas, sizes) that a batch holds its devices if no sample leaves early.

    Raises `InvalidInput` when the profile lacks a replica's run times or a gear's batch is larger
    than measured.
    """
    whole_ns: NDArray[np.int64] = _segment_times_ns(plan, tables, profile, profile.segments).sum(axis=1)
    return whole_ns


def overheads_ns(plan: GearPlan, tables: PlanTables, profile: Profile) -> NDArray[np.int64]:
    """The part of `run_times_ns` (replicas, sizes) that is overhead around the models."""
    sizes = np.arange(int(tables.largest_batch_size.max()) + 1)
    curves = [
        profile.curve(model, device_kind=kind, tensor_parallel=tensor_parallel, cores=cores)
        for model, kind, tensor_parallel, cores in _places(plan, tables)
    ]
    per_batch_s = np.array([curve.overhead_per_batch_s for curve in curves])
    per_request_s = np.array([curve.overhead_per_request_s for curve in curves])
    seconds = (sizes > 0) * (per_batch_s[:, None] + per_request_s[:, None] * sizes)
    nanoseconds: NDArray[np.int64] = np.rint(seconds * NS_PER_S).astype(np.int64)
    return nanoseconds


def expected_ns(plan: GearPlan, tables: PlanTables, profile: Profile) -> NDArray[np.int64]:
    """Average of `run_times_ns` by the recorded exits; differs for models with learned caches."""
    return _segment_times_ns(plan, tables, profile, lambda *args, **place: (profile.curve(*args, **place),))[:, 0]


def _segment_times_ns(
    plan: GearPlan, tables: PlanTables, profile: Profile, curves_of: Callable[..., tuple[RunTimeCurve, ...]]
) -> NDArray[np.int64]:
    """Nanoseconds (replicas, segments, sizes), 0 past a model's last segment."""
    places, largest = _places(plan, tables), tables.largest_batch_size.reshape(-1, len(tables.replica_ids)).max(axis=0)
    known: dict[Place, list[NDArray[np.int64]]] = {}

    def tables_of(place: Place) -> list[NDArray[np.int64]]:
        if place not in known:
            model, kind, tensor_parallel, cores = place
            curves = curves_of(model, device_kind=kind, tensor_parallel=tensor_parallel, cores=cores)
            known[place] = [curve.table_ns() for curve in curves]
        return known[place]

    rows = [tables_of(place) for place in places]
    table = np.zeros((len(rows), max(map(len, rows)), int(largest.max()) + 1), dtype=np.int64)
    for r, (replica_id, segments) in enumerate(zip(tables.replica_ids, rows, strict=True)):
        measured = min(map(len, segments)) - 1
        require(
            largest[r] <= measured,
            f"a gear lets replica {replica_id!r} run batches of {largest[r]}, "
            f"but model {places[r][0]!r} was profiled to {measured}",
            remedy="profile larger batches, or make the plan anew",
        )
        for segment, row in enumerate(segments):
            table[r, segment, : largest[r] + 1] = row[: largest[r] + 1]
    return table


def _places(plan: GearPlan, tables: PlanTables) -> list[Place]:
    replicas = {replica.id: replica for replica in plan.placement.replicas}
    kinds = {device.id: device.kind for device in plan.hardware.devices}
    ordered = [replicas[replica_id] for replica_id in tables.replica_ids]
    return [(r.model, kinds[r.device_ids[0]], r.tensor_parallel, r.cores) for r in ordered]


def core_table_ns(
    replica: Replica, device_kind: str, profile: Profile, *, most_cores: int, largest: int, statistic: Statistic
) -> NDArray[np.int64]:
    """Nanoseconds (cores + 1, largest + 1) that a batch holds a replica by cores, with overheads.

    Core counts reach `most_cores`, or the largest measured one if that is less. Measured medians
    are used as they are; the performance model fills the gaps. Raises `InvalidInput` where cores
    were not varied from 1 on, or batches are too large.
    """
    key = {"device_kind": device_kind, "tensor_parallel": replica.tensor_parallel}
    model = profile.performance_model(replica.model, **key, statistic=statistic)  # type: ignore[arg-type]
    require(
        model.cores[0] == 1,
        f"model {replica.model!r} was profiled on {model.cores[0]} cores and more",
        remedy="profile it on 1 core too, so that a scaler knows what the fewest cores are good for",
    )
    there = sorted({curve.cores for curve in profile.curves if curve.model == replica.model})
    measured = {cores: profile.curve(replica.model, **key, cores=cores) for cores in there}  # type: ignore[arg-type]
    table = model.table_ns(
        most_cores=min(most_cores, model.cores[-1]),
        largest_batch_size=largest,
        overhead_per_batch_s=measured[1].overhead_per_batch_s,
        overhead_per_request_s=measured[1].overhead_per_request_s,
    )
    if statistic == "median":
        for cores, curve in measured.items():
            if cores < len(table):
                table[cores] = curve.table_ns()[: largest + 1]
    return table


def gear_times_ns(plan: GearPlan, tables: PlanTables, profile: Profile) -> list[NDArray[np.int64]] | None:
    """Median nanoseconds (cores + 1, sizes + 1) per replica, on every core count its gears use.

    None where the plan's gears change no cores. Raises as `core_table_ns`, and where a replica is
    given more cores than it was measured on.
    """
    if plan.hardware.pool_cores is None:
        return None
    return [_by_cores_ns(plan, tables, profile, number, "median") for number in range(len(tables.replica_ids))]


def cheapest_gear_ns(
    plan: GearPlan, tables: PlanTables, profile: Profile, *, scaler_cores: int | None = None
) -> NDArray[np.int64]:
    """Average nanoseconds (replicas, sizes) in the last gear.

    With `scaler_cores`, on an even share of these. Raises as `gear_times_ns`.
    """
    changed = gear_times_ns(plan, tables, profile)
    if changed is not None:
        cores = tables.cores.reshape(-1, len(tables.replica_ids))[-1].tolist()
        return np.stack([table[count] for table, count in zip(changed, cores, strict=True)])
    run_ns = expected_ns(plan, tables, profile)
    if scaler_cores is not None:
        workers = scaled_workers(plan, tables, printed=False)
        for worker in workers:
            for number in worker:
                table = _by_cores_ns(plan, tables, profile, number, "median", scaler_cores // len(workers))
                run_ns[number] = table[-1, : run_ns.shape[1]]
    return run_ns


def scaled_times_ns(
    workers: Sequence[Worker], plan: GearPlan, tables: PlanTables, profile: Profile, *, most_cores: int, margin: float
) -> dict[int, tuple[NDArray[np.int64], list[int]]]:
    """Per replica of `workers`: medians (cores + 1, sizes + 1), and flat times to plan with.

    A scaler plans with the larger of median and p95, plus the `margin`. Core counts reach
    `most_cores`, as far as all models that share the worker were measured. Raises as
    `gear_times_ns`.
    """
    found = {}
    for worker in workers:
        tables_of = {
            number: [_by_cores_ns(plan, tables, profile, number, which, most_cores) for which in ("median", "p95")]
            for number in worker
        }
        rows = min(len(medians) for medians, _ in tables_of.values())
        for number, (medians, p95s) in tables_of.items():
            found[number] = medians[:rows], planned_ns(np.maximum(medians, p95s)[:rows], margin)
    return found


def _by_cores_ns(
    plan: GearPlan, tables: PlanTables, profile: Profile, number: int, statistic: Statistic, most_cores: int = 0
) -> NDArray[np.int64]:
    replica = next(one for one in plan.placement.replicas if one.id == tables.replica_ids[number])
    kinds = {device.id: device.kind for device in plan.hardware.devices}
    cores = replica.cores
    if plan.hardware.pool_cores is not None:
        cores = int(tables.cores.reshape(-1, len(tables.replica_ids))[:, number].max())
    table = core_table_ns(
        replica,
        kinds[replica.device_ids[0]],
        profile,
        most_cores=max(cores, most_cores),
        largest=int(tables.largest_batch_size.max()),
        statistic=statistic,
    )
    require(
        len(table) > cores,
        f"replica {replica.id!r} is to have {cores} cores, and it was measured on up to {len(table) - 1}",
        remedy="profile it on more, or make the plan anew",
    )
    return table


def most_refined(tables: PlanTables, run_ns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Rows (replicas,) that a replica and those alike could refine within the objective, at the first of them.

    At least one batch of the largest size; none in a plan that does not refine. Where several pipelines
    use a model, the longest of their objectives counts. `run_ns` is (replicas, sizes).
    """
    replicas = len(tables.replica_ids)
    if not tables.refine.refines:
        return np.zeros(replicas, dtype=np.int64)
    largest = tables.largest_batch_size.reshape(-1, replicas).max(axis=0)
    within_ns = dict.fromkeys(tables.models, 0)
    for pipeline in tables.pipelines:
        for model in tables.models_used_by(pipeline.number):
            within_ns[model] = max(within_ns[model], pipeline.answer_within_ns)
    most = np.zeros(replicas, dtype=np.int64)
    for replica, leader in enumerate(tables.refine.queue_of.tolist()):
        sizes = np.arange(1, largest[replica] + 1)
        rows = within_ns[tables.model_of(replica)] // np.maximum(1, run_ns[replica, sizes] // sizes)
        most[leader] = min(UNBOUNDED_ROWS, most[leader] + max(int(rows.max()), int(largest[replica])))
    return most


def fastest_ns(tables: PlanTables, run_ns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Nanoseconds (models,) of one sample on its fastest replica; `run_ns` (replicas, sizes)."""
    return np.minimum.reduceat(run_ns[:, 1], tables.model_begin[:-1])
