"""What a service is doing, as plain data for operators."""

from collections.abc import Set as AbstractSet
from typing import Literal

import msgspec

from gearshift.cascade import Cascade
from gearshift.gear import LoadRange
from gearshift.plan_tables import PlanTables
from gearshift.runtime.router import Router

State = Literal["starting", "serving", "draining"]


class ServedPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The plan file that is served, and its SHA-256."""

    path: str
    sha256: str


class ReplicaStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A replica: whether its worker is ready, the samples that wait for it, and those in the batch it runs."""

    id: str
    model: str
    devices: list[str]
    ready: bool
    waiting: int
    running: int


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """A service: its plan, the gear in force with its range and its cascade, and what is held.

    `load` is what the gear was looked up by at the last tick, `rate_qps` the arrivals alone, both in requests per
    second.  `pinned` is true while an operator keeps the gear.  `waiting` counts samples in queues, `open_requests`
    accepted requests that are not answered yet, `held_bytes` those of requests being read or not answered.
    """

    plan: ServedPlan
    operator: str
    state: State
    uptime_s: float
    load: float
    rate_qps: float
    gear: int
    pinned: bool
    load_range: LoadRange
    cascade: Cascade
    replicas: list[ReplicaStatus]
    waiting: int
    open_requests: int
    held_bytes: int


def status_of(
    plan: ServedPlan,
    tables: PlanTables,
    router: Router,
    *,
    state: State,
    uptime_s: float,
    ready: AbstractSet[int],
    open_requests: int,
    held_bytes: int,
) -> Status:
    """The status of a service of `plan` whose replicas `ready` have a worker."""
    waiting, running = router.queue_lengths(), router.running_lengths()
    return Status(
        plan=plan,
        operator=tables.operator,
        state=state,
        uptime_s=uptime_s,
        load=router.load,
        rate_qps=router.rate_qps,
        gear=router.gear,
        pinned=router.pinned,
        load_range=tables.load_range(router.gear),
        cascade=tables.cascade(router.gear),
        replicas=[
            ReplicaStatus(
                id=replica_id,
                model=tables.models[tables.replica_model[replica]],
                devices=tables.devices_of(replica),
                ready=replica in ready,
                waiting=waiting[replica],
                running=running[replica],
            )
            for replica, replica_id in enumerate(tables.replica_ids)
        ],
        waiting=router.waiting,
        open_requests=open_requests,
        held_bytes=held_bytes,
    )


def shift_facts(router: Router, before: int, after: int) -> dict[str, object]:
    """What the journal says of a shift that `router` has just made; its reason is what the load was looked up by."""
    metered = "backlog" if router.load > router.rate_qps else "rate"
    return {
        "before": before,
        "after": after,
        "direction": "downshift" if after > before else "upshift",
        "reason": "pin" if router.pinned else metered,
        "load": round(router.load, 3),
        "rate_qps": round(router.rate_qps, 3),
        "waiting": router.waiting,
    }
