"""Many identical devices: a slice's plan made wide, confirmed on the whole trace."""

from typing import Any

import numpy as np
import pytest

from gearshift.hardware import Device, Hardware, identical_devices
from gearshift.objective import Objective
from gearshift.planner.search import search_space
from gearshift.planner.search.optimal import PLANNER
from gearshift.planner.search.search_space import slices_of
from gearshift.planner.space.request import PlanRequest
from gearshift.workload import Trace
from tests.unit.planner.little import PROFILE

plan = PLANNER.plan


def request(devices: int, **changed: Any) -> PlanRequest:
    generator = np.random.default_rng(0)
    arrivals_ns = np.sort(generator.integers(0, 4 * 10**9, 4 * 300 * devices))
    fields: dict[str, Any] = {
        "profile": PROFILE,
        "trace": Trace(arrivals_ns, 4.0),
        "hardware": identical_devices(devices),
        "objective": Objective(latency_s=0.05),
        "ranges": 4,
        "most_candidates": 6,
    }
    return PlanRequest(**(fields | changed))


def test_few_devices_or_unlike_ones_are_planned_for_whole() -> None:
    assert slices_of(request(64)) == 1
    assert slices_of(request(65)) == 2
    unlike = Hardware(devices=tuple(Device(id=str(i), memory_bytes=(4 + i) << 30) for i in range(70)))
    assert slices_of(request(70, hardware=unlike)) == 1


@pytest.mark.long
def test_a_wide_plan_uses_all_devices_and_holds_on_the_whole_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_space, "LARGEST_SLICE", 3)
    made = plan(request(7))
    assert {d for r in made.placement.replicas for d in r.device_ids} == {f"cpu-{i}" for i in range(7)}
    assert made.predictions["task"].share_late <= 0.05
    assert made.predictions["task"].requests == 4 * 300 * 7
    gears = made.pipelines["task"].gears
    assert gears[0].load_range.to is not None
    assert gears[0].load_range.to == pytest.approx(gears[0].predicted.load_qps)  # type: ignore[union-attr]
    monkeypatch.setattr(search_space, "LARGEST_SLICE", 64)
    assert made.predictions["task"].accuracy == pytest.approx(plan(request(7)).predictions["task"].accuracy, abs=0.03)
