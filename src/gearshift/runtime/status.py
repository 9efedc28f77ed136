"""What a service is doing, as plain data for operators."""

from typing import Literal

import msgspec

from gearshift.cascade import Cascade
from gearshift.gear import LoadRange

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
