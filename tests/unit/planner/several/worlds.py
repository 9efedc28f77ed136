"""Two operators with three models each, on two devices, and ten seconds of traffic for each."""

import dataclasses
from typing import Any

import msgspec

from gearshift.hardware import Hardware, identical_devices
from gearshift.objective import Objective
from gearshift.planner.several.request import SeveralRequest
from gearshift.planner.space.request import PlanRequest
from gearshift.profiles.profile import Profile
from gearshift.workload import Trace
from tests.unit.planner.little import little_trace
from tests.worlds import synthetic_profile


def operator(
    name: str, *, fastest_s: float = 0.001, samples: int = 400, seed: int = 0, memory_bytes: int = 1 << 28
) -> Profile:
    """A synthetic profile whose models begin with the operator's name."""
    profile = synthetic_profile(models=3, samples=samples, fastest_s=fastest_s, seed=seed, memory_bytes=memory_bytes)
    return dataclasses.replace(
        profile,
        operator=name,
        curves=tuple(msgspec.structs.replace(curve, model=f"{name}-{curve.model}") for curve in profile.curves),
        predictions=dataclasses.replace(
            profile.predictions, models=tuple(f"{name}-{model}" for model in profile.predictions.models)
        ),
    )


CATS = operator("cats")
DOGS = operator("dogs", fastest_s=0.002, samples=300, seed=1)


def request_of(
    profile: Profile, *, latency_s: float, hardware: Hardware, trace: Trace | None = None, **changed: Any
) -> PlanRequest:
    fields: dict[str, Any] = {"ranges": 3, "most_candidates": 4, "objective": Objective(latency_s=latency_s)}
    trace = little_trace(low_qps=40, high_qps=160) if trace is None else trace
    return PlanRequest(profile=profile, trace=trace, hardware=hardware, **fields | changed)


def two_operators(*, devices: int = 2, cats_s: float = 0.05, dogs_s: float = 0.1, **changed: Any) -> SeveralRequest:
    hardware = identical_devices(devices)
    return SeveralRequest(
        requests={
            "cats": request_of(CATS, latency_s=cats_s, hardware=hardware, **changed),
            "dogs": request_of(
                DOGS,
                latency_s=dogs_s,
                hardware=hardware,
                trace=little_trace(low_qps=30, high_qps=90, seed=1),
                **changed,
            ),
        }
    )
