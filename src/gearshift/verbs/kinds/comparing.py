"""What planners of rows are compared on: a request for each number of devices and latency, of every shape."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from gearshift.errors import require
from gearshift.hardware import Hardware
from gearshift.objective import Objective
from gearshift.planner.space.request import Request
from gearshift.profiles.profile import Profile
from gearshift.profiles.several import as_one
from gearshift.profiles.store import read_profile
from gearshift.support.files import PathLike
from gearshift.traces.read import read_trace
from gearshift.verbs.planning.graph import pipeline_request
from gearshift.verbs.planning.hardware import hardware_of
from gearshift.verbs.planning.operator import plan_request
from gearshift.verbs.planning.several import named_profiles, several_request
from gearshift.workload import Trace

Devices = Sequence[int | Hardware | PathLike]


def requests_of_one(
    profile: Profile | PathLike, trace: Trace | PathLike, devices: Devices, latencies_s: Sequence[float], **asked: Any
) -> list[Request]:
    measured = profile if isinstance(profile, Profile) else read_profile(Path(profile))
    arrivals = trace if isinstance(trace, Trace) else read_trace(Path(trace))
    return [
        plan_request(measured, arrivals, devices=hardware, latency_s=slo_s, **asked)
        for hardware in _by_count(devices, measured, asked)
        for slo_s in sorted(set(latencies_s))
    ]


def requests_of_graph(
    profiles: Any,
    trace: Trace | PathLike,
    devices: Devices,
    latencies_s: Sequence[float],
    *,
    percentile: float = 0.95,
    **asked: Any,
) -> list[Request]:
    """Latencies and accuracies are of the whole graph, from one end to the other."""
    objective = Objective(percentile=percentile, latency_s=min(latencies_s))
    of_devices = {name: asked.pop(name, None) for name in ("memory_bytes", "price_per_hour")}
    base = pipeline_request(profiles, trace, objective=objective, devices=1, **asked)
    return [
        replace(base, hardware=hardware, objective=msgspec.structs.replace(objective, latency_s=latency_s))
        for hardware in _by_count(devices, as_one(base.profiles), of_devices)
        for latency_s in sorted(set(latencies_s))
    ]


def requests_of_several(
    profiles: Sequence[Profile | PathLike],
    traces: Mapping[str, Trace | PathLike],
    devices: Devices,
    latencies_s: Mapping[str, Sequence[float]],
    **asked: Any,
) -> list[Request]:
    """`latencies_s` has for each operator as many objectives: the first of all make the first run, and so on.

    The longest of a run stands for them, so that these must differ. Accuracies are means over all requests.
    """
    measured = named_profiles(profiles)
    return [
        several_request(list(measured.values()), traces, latency_s=slo_s, devices=hardware, **asked)
        for hardware in _by_count(devices, as_one(measured), asked)
        for slo_s in _together(latencies_s)
    ]


def _by_count(devices: Devices, profile: Profile, asked: dict[str, Any]) -> list[Hardware]:
    """The hardwares by rising numbers of devices; raises `InvalidInput` where two have the same."""
    memory_bytes, price = asked.pop("memory_bytes", None), asked.pop("price_per_hour", None)
    hardware: dict[int, Hardware] = {}
    for each in devices:
        on = hardware_of(each, profile, memory_bytes=memory_bytes, price=price)
        count = len(on.devices)
        require(hardware.setdefault(count, on) == on, f"two hardwares of {count} devices", remedy="compare them apart")
    return [hardware[count] for count in sorted(hardware)]


def _together(latencies_s: Mapping[str, Sequence[float]]) -> list[dict[str, float]]:
    """The objectives of each run, by operator, by the longest of them."""
    counts = {name: len(each) for name, each in latencies_s.items()}
    require(
        len(set(counts.values())) <= 1,
        f"operators have different numbers of latencies: {counts}",
        remedy="give each as many: the first of all belong together, and so on",
    )
    together = [dict(zip(latencies_s, each, strict=True)) for each in zip(*latencies_s.values(), strict=True)]
    longest = [max(each.values()) for each in together]
    require(
        len(set(longest)) == len(longest),
        f"the longest latencies of the runs are {[s * 1e3 for s in longest]} ms, and two are the same",
        remedy="compare these apart",
    )
    return sorted(together, key=lambda each: max(each.values()))
