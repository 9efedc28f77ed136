"""Batches that are waited for: where they let a cascade hold more load, and that plans have them."""

import dataclasses

import msgspec
import numpy as np

from gearshift.cascade import Cascade
from gearshift.hardware import identical_devices
from gearshift.objective import Objective
from gearshift.planner.evaluate.cells import Batching
from gearshift.planner.evaluate.steady_state import SteadyState
from gearshift.planner.space.hosts import place_everywhere
from gearshift.profiles.profile import Profile
from tests.worlds import synthetic_profile

CASCADE = Cascade(models=("m0", "m1"), thresholds=(0.5,))
LATENCY_S = 0.05


def profile_with_flat_times() -> Profile:
    """A batch takes as long as a single request: full batches of the first model leave the second its device."""
    made = synthetic_profile(models=2, samples=1000, fastest_s=0.003)
    curves = tuple(
        msgspec.structs.replace(
            curve,
            median_s=curve.median_s[:1] * len(curve.batch_sizes),
            p95_s=curve.median_s[:1] * len(curve.batch_sizes),
        )
        if curve.model == "m0"
        else curve
        for curve in made.curves
    )
    return dataclasses.replace(made, curves=curves)


def steady(*, waits: bool = True, devices: int = 1) -> SteadyState:
    profile, hardware = profile_with_flat_times(), identical_devices(devices)
    placement = place_everywhere(profile, hardware)
    return SteadyState(profile, hardware, placement, Objective(latency_s=LATENCY_S), seed=0, waits=waits)


def test_a_cascade_holds_more_load_where_its_first_model_waits_for_fuller_batches() -> None:
    with_waits, without = (
        steady(waits=waits).capacity_qps(CASCADE, least_qps=10.0, most_qps=5000.0) for waits in (True, False)
    )
    assert with_waits > 1.02 * without


def test_a_capacity_is_held_by_the_batching_that_a_gear_gets_there() -> None:
    table = steady()
    qps = table.capacity_qps(CASCADE, least_qps=10.0, most_qps=5000.0)
    batching = table.batching(CASCADE, qps)
    assert table.meets(table.simulate(CASCADE, qps, table.settings(CASCADE, batching)))
    assert batching.least > 1


def test_a_cell_that_waits_is_what_a_gear_with_its_settings_gives() -> None:
    table, batching = steady(devices=2), Batching(16, 6, 0.01)
    assert table.cell(CASCADE, 300.0, batching) == table.simulate(CASCADE, 300.0, table.settings(CASCADE, batching))


def test_only_the_first_model_waits_and_where_hardly_anything_comes_it_is_still_in_time() -> None:
    table = steady()
    batching = table.batching(CASCADE, table.capacity_qps(CASCADE, least_qps=10.0, most_qps=5000.0))
    waits = {s.replica: s.longest_wait_s for s in table.settings(CASCADE, batching)}
    assert waits == {"m0@cpu-0": batching.longest_wait_s, "m1@cpu-0": 0.0}
    alone = table.simulate(CASCADE, 0.1, table.settings(CASCADE, batching))
    assert alone.latency_s <= LATENCY_S


def test_a_device_with_little_to_do_waits_for_none() -> None:
    assert steady().batching(CASCADE, 5.0).least == 1


def test_what_is_stable_at_some_load_is_stable_at_less() -> None:
    """Growth by less than what is drawn is known to: else the run just below a capacity looks overloaded."""
    table = SteadyState(
        profile_with_flat_times(),
        identical_devices(1),
        place_everywhere(profile_with_flat_times(), identical_devices(1)),
        Objective(latency_s=0.5),
        seed=0,
        waits=False,
    )
    stable = [table.cell(CASCADE, float(qps), Batching(32)).stable for qps in np.geomspace(100, 2000, 40)]
    assert stable == sorted(stable, reverse=True)
