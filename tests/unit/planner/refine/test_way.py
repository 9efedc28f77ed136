from dataclasses import replace

import msgspec
import numpy as np
import pytest

from gearshift.planner.refine.way import Pair, Way, fastest_size, gain_at, pairs_of
from gearshift.plans.plan_tables import plan_tables
from tests.unit.planner.refine import worlds


def pair_on(count: int) -> Pair:
    return next(pair for pair in pairs_of(worlds.request(count)) if (pair.first, pair.later) == ("m0", "m3"))


def test_pairs_rise_in_accuracy_and_fit_the_devices() -> None:
    pairs = {(pair.first, pair.later) for pair in pairs_of(worlds.request(1))}
    assert ("m0", "m4") in pairs
    assert all(first < later for first, later in pairs)


def test_models_that_fit_no_device_leave_the_pairs_of_the_others() -> None:
    given = worlds.request(1)
    (device,) = given.hardware.devices
    huge = tuple(
        msgspec.structs.replace(curve, memory_bytes=2 * device.memory_bytes) if curve.model in ("m2", "m3") else curve
        for curve in given.profile.curves
    )
    pairs = {(p.first, p.later) for p in pairs_of(replace(given, profile=replace(given.profile, curves=huge)))}
    assert ("m0", "m4") in pairs
    assert not {"m2", "m3"} & {model for pair in pairs for model in pair}


def test_the_fastest_batch_is_the_one_with_the_least_time_per_row_that_is_short_enough() -> None:
    curve = worlds.request(1).profile.curve("m0", device_kind="gpu")
    assert fastest_size(curve, 1.0) == 64
    assert fastest_size(curve, curve.seconds(8)) == 8
    assert fastest_size(curve, 0.0) == 1


def test_more_devices_refine_a_larger_share_and_more_load_a_smaller_one() -> None:
    one, two = pair_on(1), pair_on(2)
    sizes = one.sizes(0.05)
    assert two.share_refined(500, two.sizes(0.05)) > one.share_refined(500, sizes) > one.share_refined(600, sizes)


def test_the_level_is_the_gain_of_the_last_row_that_the_devices_reach() -> None:
    pair = pair_on(1)
    sizes = pair.sizes(0.05)
    share = pair.share_refined(900, sizes)
    assert 0 < share < 1
    assert np.mean(pair.gains > pair.level(900, sizes)) <= share <= np.mean(pair.gains >= pair.level(900, sizes))


@pytest.mark.parametrize("least_gain", [0.0, 0.1, 0.3])
def test_rows_below_the_threshold_gain_more_than_the_least_and_others_do_not(least_gain: float) -> None:
    pair = pair_on(1)
    certainty = np.linspace(0, 1, 101)
    forwarded = certainty < pair.threshold(least_gain)
    assert np.array_equal(forwarded, gain_at(pair.table, certainty) > least_gain)


def test_a_busier_gear_forwards_fewer_rows() -> None:
    plan = pair_on(1).plan(Way())
    thresholds = [gear.cascade.thresholds[0] for gear in plan.pipeline.gears]
    assert thresholds == sorted(thresholds, reverse=True)
    assert thresholds[0] > thresholds[-1]


def test_the_plan_can_be_served_and_orders_by_gain() -> None:
    tables = plan_tables(pair_on(2).plan(Way(refine_for="gain")))
    assert tables.refine.refines
    assert tables.refine.queue_of.tolist() == [0, 0, 2, 2]
    assert tables.refine.for_gain.all()
