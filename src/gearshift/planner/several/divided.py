"""Devices divided among pipelines, by their work, and each planned alone on its own."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import msgspec

from gearshift.gear import GearPlan
from gearshift.hardware import Hardware
from gearshift.planner.contract.so_far import Search
from gearshift.planner.search.plan_search import PlanSearch
from gearshift.planner.several.coordinate import of_pipeline
from gearshift.planner.several.request import SeveralRequest
from gearshift.planner.space.request import silent


def plans_on_own_devices(several: SeveralRequest, so_far: Search[SeveralRequest]) -> dict[str, GearPlan]:
    """A plan of each pipeline, each on other devices; raises `Infeasible` for the first without one."""
    plans = {}
    for name, hardware in _hardware_of_each(several):
        part = so_far.part(replace(several.requests[name], hardware=hardware), silent)
        so_far.tell(f"planning {name} on devices of its own", 0.05)
        with of_pipeline(name):
            made = PlanSearch(part).most_accurate(part.request)
        plans[name] = msgspec.structs.replace(made, hardware=several.hardware)
    return plans


def _hardware_of_each(several: SeveralRequest) -> Iterator[tuple[str, Hardware]]:
    begin = 0
    for name, count in shares(_work(several), len(several.hardware.devices)).items():
        yield name, Hardware(devices=several.hardware.devices[begin : begin + count])
        begin += count


def _work(several: SeveralRequest) -> dict[str, float]:
    """The device time per second that each pipeline would take with its slowest model, one sample at a time."""
    return {
        name: several.busy_qps[name] * max(curve.seconds(1) for curve in request.profile.whole_curves)
        for name, request in several.requests.items()
    }


def shares(work: Mapping[str, float], devices: int) -> dict[str, int]:
    """At least one device for each, and each further one where most work is left per device."""
    counts = dict.fromkeys(work, 1)
    for _ in range(devices - len(work)):
        counts[max(work, key=lambda name: work[name] / counts[name])] += 1
    return counts
