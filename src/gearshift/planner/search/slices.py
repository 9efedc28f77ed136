"""Plan for a slice of very many identical devices, then widen the plan to all of them.

Under round robin a slice of one in k devices sees every k-th request. So the slice is planned for
the trace thinned to every k-th arrival; the whole is k slices, each with its part of every load
share, and its ranges begin at k times the slice's load. The whole is confirmed on the whole trace.
"""

import dataclasses
import math
from collections.abc import Callable

import msgspec

from gearshift.errors import Infeasible
from gearshift.gear import Gear, GearPlan, ReplicaSettings
from gearshift.hardware import Hardware
from gearshift.placement import Placement, Replica
from gearshift.planner.evaluate.spike_recovery import confirmed_to_recover
from gearshift.planner.space.request import LARGEST_MARGIN, PlanRequest
from gearshift.workload import Trace

LARGEST_SLICE = 64
MARGIN_STEP = 1.05
DEFAULT_MARGIN = 1.15


def slices_of(request: PlanRequest) -> int:
    """Number of slices: 1 up to `LARGEST_SLICE` devices, or where devices or replicas differ."""
    devices = request.hardware.devices
    alike = {(d.node, d.kind, d.cores, d.memory_bytes, d.price_to_compare) for d in devices}
    wide = any(c.tensor_parallel > 1 for c in request.profile.whole_curves)
    return 1 if len(alike) > 1 or wide else math.ceil(len(devices) / LARGEST_SLICE)


def plan_by_slices(
    request: PlanRequest,
    slices: int,
    plan_slice: Callable[[PlanRequest], GearPlan],
    *,
    on_time: Callable[[], None] = lambda: None,
) -> GearPlan:
    """The confirmed plan for all devices; raises `Infeasible`, and what `on_time` raises."""
    margin = request.least_margin
    while True:
        made = widened(plan_slice(slice_of(request, slices, margin)), request, slices)
        if (found := confirmed_to_recover(made, request, seeds=1, on_time=on_time)) is not None:
            return found
        margin = (margin or DEFAULT_MARGIN) * MARGIN_STEP
        if margin > LARGEST_MARGIN:
            raise Infeasible(f"a plan for one of {slices} slices of the devices does not hold on all of them")


def slice_of(request: PlanRequest, slices: int, margin: float | None) -> PlanRequest:
    trace = request.trace
    devices = request.hardware.devices
    return dataclasses.replace(
        request,
        trace=Trace(arrivals_ns=trace.arrivals_ns[::slices], duration_s=trace.duration_s),
        hardware=Hardware(devices=devices[: len(devices) // slices]),
        max_qps=None if request.max_qps is None else request.max_qps / slices,
        least_margin=margin,
    )


def widened(made: GearPlan, request: PlanRequest, slices: int) -> GearPlan:
    """Copy the slice's plan to all devices: device i repeats device i modulo the slice."""
    ids = [d.id for d in request.hardware.devices]
    size = len(made.hardware.devices)
    place = {d.id: i for i, d in enumerate(made.hardware.devices)}
    copies = [
        (
            replica,
            Replica(id=f"{replica.model}@{ids[i]}", model=replica.model, device_ids=(ids[i],), cores=replica.cores),
        )
        for replica in made.placement.replicas
        for i in range(place[replica.device_ids[0]], len(ids), size)
    ]
    name, pipeline = next(iter(made.pipelines.items()))
    gears = tuple(_widened_gear(gear, copies, slices) for gear in pipeline.gears)
    return msgspec.structs.replace(
        made,
        hardware=request.hardware,
        placement=Placement(replicas=tuple(copy for _, copy in copies)),
        pipelines={name: msgspec.structs.replace(pipeline, gears=gears)},
    )


def _widened_gear(gear: Gear, copies: list[tuple[Replica, Replica]], slices: int) -> Gear:
    settings = {s.replica: s for s in gear.replicas}
    total: dict[str, float] = {}
    for replica, copy in copies:
        total[copy.model] = total.get(copy.model, 0.0) + settings[replica.id].load_share

    def settings_of(replica: Replica, copy: Replica) -> ReplicaSettings:
        share = settings[replica.id].load_share
        part = share / total[copy.model] if share > 0 else 0.0
        return msgspec.structs.replace(settings[replica.id], replica=copy.id, load_share=part)

    to = gear.load_range.to
    predicted = gear.predicted
    return msgspec.structs.replace(
        gear,
        load_range=msgspec.structs.replace(
            gear.load_range, from_=gear.load_range.from_ * slices, to=None if to is None else to * slices
        ),
        replicas=tuple(settings_of(replica, copy) for replica, copy in copies),
        predicted=None
        if predicted is None
        else msgspec.structs.replace(predicted, load_qps=predicted.load_qps * slices),
    )
