"""A world of large models that span devices and gain nothing from batches."""

import dataclasses
from typing import Any

import msgspec

from gearshift.hardware import GIB, Device, Hardware
from gearshift.objective import Objective
from gearshift.planner.space.request import PlanRequest
from gearshift.profiles.profile import Profile, RunTimeCurve
from tests.unit.planner.little import little_trace
from tests.worlds import synthetic_profile


def curve(model: str, seconds: float, *, degree: int = 1, gib: int = 1, kind: str = "gpu") -> RunTimeCurve:
    return RunTimeCurve(
        model=model,
        device_kind=kind,
        tensor_parallel=degree,
        batch_sizes=(1,),
        median_s=(seconds,),
        p95_s=(seconds,),
        memory_bytes=gib * GIB,
    )


CURVES = (
    curve("m0", 0.1, gib=10),
    curve("m0", 0.06, gib=10, degree=2),
    curve("m0", 0.2, gib=10, kind="old"),
    curve("m1", 0.4, gib=40, degree=2),
    curve("m1", 0.25, gib=40, degree=4),
    curve("m1", 0.8, gib=40, degree=2, kind="old"),
)
"""m1 fits no device alone."""


def spanning_profile(curves: tuple[RunTimeCurve, ...] = CURVES) -> Profile:
    return dataclasses.replace(synthetic_profile(models=2, samples=600), curves=curves)


def nodes(*counts: int, kind: str = "gpu", gib: int = 32) -> Hardware:
    """Devices n0/0, n0/1, ... on node n0, and so on."""
    return Hardware(
        devices=tuple(
            Device(id=f"n{node}/{i}", node=f"n{node}", kind=kind, memory_bytes=gib * GIB)
            for node, count in enumerate(counts)
            for i in range(count)
        )
    )


def mixed() -> Hardware:
    """Two nodes of four devices, the second of an older kind."""
    old = nodes(4, kind="old").devices
    return Hardware(
        devices=(
            *nodes(4).devices,
            *(msgspec.structs.replace(device, id=f"old/{i}", node="old") for i, device in enumerate(old)),
        )
    )


def spanning_request(**changed: Any) -> PlanRequest:
    fields: dict[str, Any] = {
        "profile": spanning_profile(),
        "trace": little_trace(low_qps=3, high_qps=8),
        "hardware": nodes(4),
        "objective": Objective(latency_s=2.0),
        "ranges": 4,
        "most_candidates": 6,
    }
    return PlanRequest(**(fields | changed))
