"""Placements: everything that fits, wide replicas within a node, and a bound that nothing beats."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gearshift.errors import InvalidInput
from gearshift.hardware import Device, Hardware, identical_devices
from gearshift.planner.evaluate.balance import balanced
from gearshift.planner.space.cascade_search import CandidateCascade, pareto_cascades, work_per_request_s
from gearshift.planner.space.placement_search import FULLEST, PlacementSearch
from gearshift.profiles.profile import PredictionRecords, Profile, RunTimeCurve
from tests.often import often
from tests.worlds import synthetic_profile

GIB = 1 << 30


def profile_of(*curves: tuple[str, float, int, int]) -> Profile:
    """Models given as (name, seconds at batch 1, GiB, tensor_parallel)."""
    models = tuple(dict.fromkeys(name for name, *_ in curves))
    shape = (len(models), 20)
    generator = np.random.default_rng(0)
    quality = (generator.random(shape) < np.linspace(0.6, 0.95, len(models))[:, None]).astype(float)
    return Profile(
        operator="task",
        curves=tuple(
            RunTimeCurve(
                model=name, batch_sizes=(1,), median_s=(s,), p95_s=(s,), memory_bytes=gib * GIB, tensor_parallel=k
            )
            for name, s, gib, k in curves
        ),
        predictions=PredictionRecords(
            models=models,
            quality=quality,
            certainty=generator.random(shape),
            part=np.arange(20, dtype=np.int8) % 2,
        ),
    )


def candidates_of(profile: Profile) -> list[CandidateCascade]:
    return pareto_cascades(profile, {c.model: c.seconds(1) for c in profile.curves}, most=20)


def test_where_everything_fits_everything_is_everywhere() -> None:
    profile = synthetic_profile(models=3, samples=100)
    search = PlacementSearch(profile, identical_devices(3))
    assert [c.patterns for c in search.classes] == [((("m0", 1), ("m1", 1), ("m2", 1)),)]
    assert len(search.placement(((3,),)).replicas) == 9


def test_only_patterns_to_which_nothing_can_be_added_are_of_use() -> None:
    profile = profile_of(("a", 0.001, 1, 1), ("b", 0.002, 2, 1), ("c", 0.004, 3, 1))
    search = PlacementSearch(profile, identical_devices(1, memory_bytes=4 * GIB))
    assert set(search.classes[0].patterns) == {(("a", 1), ("b", 1)), (("a", 1), ("c", 1))}


def test_the_dear_model_gets_more_devices_where_accuracy_asks_for_it() -> None:
    profile = profile_of(("cheap", 0.001, 1, 1), ("dear", 0.02, 1, 1))
    search = PlacementSearch(profile, identical_devices(4, memory_bytes=GIB))
    candidates = candidates_of(profile)
    (low,) = search.best(candidates, np.array([10.0]), np.array([1.0]))
    (high,) = search.best(candidates, np.array([2500.0]), np.array([1.0]))
    count = {layout: sum(r.model == "dear" for r in search.placement(layout).replicas) for layout in (low, high)}
    assert count[low] > count[high]


def test_a_model_over_two_devices_stays_within_a_node() -> None:
    profile = profile_of(("small", 0.01, 1, 1), ("wide", 0.1, 6, 2))
    devices = tuple(Device(id=f"{n}{i}", node=n, memory_bytes=4 * GIB) for n in "ab" for i in range(3))
    search = PlacementSearch(profile, Hardware(devices=devices))
    assert sorted(c.size for c in search.classes) == [1, 2]
    (layout,) = search.best(candidates_of(profile), np.array([5.0]), np.array([1.0]))
    placement = search.placement(layout)
    wide = [r for r in placement.replicas if r.model == "wide"]
    assert len(wide) == 2
    assert all(len({d[0] for d in r.device_ids}) == 1 and r.tensor_parallel == 2 for r in wide)


def test_a_model_that_fits_no_device_is_left_out_and_none_at_all_is_said() -> None:
    profile = profile_of(("a", 0.001, 1, 1), ("b", 0.002, 9, 1))
    search = PlacementSearch(profile, identical_devices(1, memory_bytes=4 * GIB))
    assert search.placement(((1,),)).models == ("a",)
    with pytest.raises(InvalidInput, match="no model fits"):
        PlacementSearch(profile, identical_devices(1, memory_bytes=GIB // 2))


@settings(max_examples=often(40), deadline=None)
@given(data=st.data())
def test_no_memory_is_exceeded_and_the_bound_is_the_balance_that_can_be_reached(data: st.DataObject) -> None:
    models = data.draw(st.integers(1, 4))
    profile = profile_of(
        *((f"m{i}", 0.001 * 3**i, data.draw(st.integers(1, 4), label="GiB"), 1) for i in range(models))
    )
    devices = data.draw(st.integers(1, 5))
    hardware = identical_devices(devices, memory_bytes=data.draw(st.integers(4, 6)) * GIB)
    search = PlacementSearch(profile, hardware)
    candidates = candidates_of(profile)
    (layout,) = search.best(candidates, np.array([50.0, 200.0, 800.0]), np.array([0.5, 0.3, 0.2]))
    placement = search.placement(layout)
    memory = {c.model: c.memory_bytes for c in profile.curves}
    for device in hardware.devices:
        held = [r.model for r in placement.replicas if device.id in r.device_ids]
        assert sum(memory[m] for m in held) <= device.memory_bytes
        assert len(held) == len(set(held))
    cheapest = min(candidates, key=lambda c: c.work_s)
    work_s = work_per_request_s(profile, hardware.devices[0])
    reach = dict(zip(cheapest.cascade.models, cheapest.reach, strict=True))
    if set(reach) <= set(placement.models):
        made = balanced(placement, {r.id: work_s[r.model] for r in placement.replicas}, reach)
        from gearshift.planner.space.placement_search import Bound

        bound = Bound(search, candidates, np.array([1.0]), np.array([1.0]), np.inf)
        assert FULLEST / made.utilisation_per_qps == pytest.approx(bound.score(layout)[1], rel=1e-3)
