"""The state of a service as plain data for operators."""

from collections.abc import Set as AbstractSet
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from gearshift.cascade import Cascade
from gearshift.gear import LoadRange, LoadUnit
from gearshift.plans.plan_tables import PlanTables
from gearshift.runtime.router.pipeline import Pipeline
from gearshift.runtime.router.router import Router

State = Literal["starting", "serving", "draining"]


class ServedPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The plan file that is served, and its SHA-256."""

    path: str
    sha256: str


class ReplicaStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A replica: its samples, and whether its worker is ready.

    A `failing` one is out of service, because too many of its batches, or requests, failed.
    `slowdown` is its observed over its profiled run time, shared with those that are alike; 1 where
    that is not learnt.
    """

    id: str
    model: str
    devices: list[str]
    ready: bool
    waiting: int
    running: int
    slowdown: float = 1.0
    failing: bool = False


class DisagreementStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The `audited` early answers of a gear's stage, and those the strongest model disagrees with.

    `low` and `high` bound the share for all such answers, at 99.9 % at all times at once;
    `planned_low` and `planned_high` bound it by the profile's records, None if these have no such
    answers. `alarm` is `above` or `below` if the two intervals do not overlap.
    """

    gear: int
    stage: int
    model: str
    audited: int
    disagreed: int
    low: float
    high: float
    planned_low: float | None
    planned_high: float | None
    alarm: Literal["", "above", "below"]


class AdaptingStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How far load, run times and answers have moved from those the plan was made for.

    `load_distance` is the Kolmogorov distance between measured and planned load over the latest
    `window_s`; 0 before that time has passed, or if the plan does not say. `load_factor` is the
    factor by which measured load is multiplied. `slow_or_fast_models` have run times that differ
    from the profile. `audits_dropped` found no slack.
    """

    load_distance: float
    load_drifts: bool
    window_s: float
    load_factor: float
    slow_or_fast_models: list[str]
    disagreement: list[DisagreementStatus]
    audits_dropped: int


class ReplanStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Planning again from the live load: whether it runs, the last outcome, and the plan on offer.

    `offered` names a file in the folder given by `--plans`, for `gearshift swap`.
    """

    running: bool = False
    last: Literal["", "offered", "swapped", "not_better", "failed"] = ""
    reason: str = ""
    offered: str | None = None


class PipelineStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A pipeline: the gear in force with its range and the cascades of its nodes, and its requests.

    Gears go from 0 to `last_gear`. `load` is the load that chose the gear at the last tick,
    `rate_qps` the arrivals alone, both in requests per second; with a `load_unit`, `load` is in
    that. `pinned` is true while an operator keeps the gear. `waiting` counts samples in queues,
    beyond `most_waiting` requests are refused; `open_requests` are accepted and not answered yet.
    Language models whose answers are not as recorded are `drifting_models`.
    """

    name: str
    load: float
    load_unit: LoadUnit | UnsetType = UNSET
    rate_qps: float
    gear: int
    last_gear: int
    pinned: bool
    load_range: LoadRange
    cascades: dict[str, tuple[Cascade, ...]]
    waiting: int
    most_waiting: int
    open_requests: int
    drifting_models: list[str] = []
    adapting: AdaptingStatus | None = None
    replan: ReplanStatus | None = None


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """A service: its plan, its pipelines and replicas, and what it holds.

    `waiting` counts samples in queues, `open_requests` accepted requests that are not answered
    yet, both of all pipelines; `held_bytes` are the bytes of requests being read or not answered,
    beyond `most_held_bytes` requests are refused. `degraded_models` have no replica that answers.
    The fields of a `PipelineStatus` are repeated here where there is only one; `operator` is its
    name, and `cascade` that of its only node.
    """

    plan: ServedPlan
    operator: str | UnsetType = UNSET
    state: State
    uptime_s: float
    load: float | UnsetType = UNSET
    rate_qps: float | UnsetType = UNSET
    gear: int | UnsetType = UNSET
    last_gear: int | UnsetType = UNSET
    pinned: bool | UnsetType = UNSET
    load_range: LoadRange | UnsetType = UNSET
    cascade: Cascade | UnsetType = UNSET
    replicas: list[ReplicaStatus]
    waiting: int
    open_requests: int
    held_bytes: int
    most_waiting: int | UnsetType = UNSET
    most_held_bytes: int
    degraded_models: list[str] = []
    adapting: AdaptingStatus | None = None
    replan: ReplanStatus | None = None
    pipelines: list[PipelineStatus] = []


def status_of(
    plan: ServedPlan,
    tables: PlanTables,
    router: Router,
    *,
    state: State,
    uptime_s: float,
    ready: AbstractSet[int],
    degraded: list[str],
    held_bytes: int,
    most_held_bytes: int,
    pipelines: list[PipelineStatus],
) -> Status:
    status = Status(
        plan=plan,
        state=state,
        uptime_s=uptime_s,
        replicas=_replicas(tables, router, ready),
        waiting=router.waiting,
        open_requests=sum(each.open_requests for each in pipelines),
        held_bytes=held_bytes,
        most_held_bytes=most_held_bytes,
        pipelines=pipelines,
        degraded_models=degraded,
    )
    return with_only_pipeline(status) if len(pipelines) == 1 else status


def with_only_pipeline(status: Status) -> Status:
    """`status` with its only pipeline's fields, as earlier versions have them."""
    (only,) = status.pipelines
    (cascades, *others) = only.cascades.values()
    return msgspec.structs.replace(
        status,
        operator=only.name,
        load=only.load,
        rate_qps=only.rate_qps,
        gear=only.gear,
        last_gear=only.last_gear,
        pinned=only.pinned,
        load_range=only.load_range,
        cascade=UNSET if others or len(cascades) > 1 else cascades[0],
        most_waiting=only.most_waiting,
        adapting=only.adapting,
        replan=only.replan,
    )


def pipeline_status(
    tables: PlanTables,
    pipeline: Pipeline,
    *,
    most_waiting: int,
    open_requests: int,
    adapting: AdaptingStatus | None,
) -> PipelineStatus:
    of, gear = tables.pipelines[pipeline.number], pipeline.gear
    return PipelineStatus(
        name=of.name,
        load=pipeline.load,
        rate_qps=pipeline.rate_qps,
        gear=gear,
        last_gear=of.gears - 1,
        pinned=pipeline.pinned,
        load_range=of.load_range(gear),
        cascades={node: tables.cascades(gear, of.first_node + n) for n, node in enumerate(of.nodes)},
        waiting=pipeline.waiting,
        most_waiting=most_waiting,
        open_requests=open_requests,
        adapting=adapting,
    )


def _replicas(tables: PlanTables, router: Router, ready: AbstractSet[int]) -> list[ReplicaStatus]:
    waiting, running, failing = router.queue_lengths(), router.running_lengths(), router.failing.ejections.is_failing
    return [
        ReplicaStatus(
            id=replica_id,
            model=tables.model_of(replica),
            devices=tables.devices_of(replica),
            ready=replica in ready,
            waiting=waiting[replica],
            running=running[replica],
            slowdown=router.slowdown.of(replica),
            failing=failing(replica),
        )
        for replica, replica_id in enumerate(tables.replica_ids)
    ]


def shift_facts(pipeline: Pipeline, before: int, after: int) -> dict[str, object]:
    """The reason of the shift is the rate, the backlog, or an operator's pin."""
    metered = "backlog" if pipeline.load > pipeline.slowdown * (pipeline.scaling.factor * pipeline.rate_qps) else "rate"
    return {
        "before": before,
        "after": after,
        "direction": "downshift" if after > before else "upshift",
        "reason": "pin" if pipeline.pinned else metered,
        "load": round(pipeline.load, 3),
        "rate_qps": round(pipeline.rate_qps, 3),
        "waiting": pipeline.waiting,
    }
