from itertools import pairwise

import msgspec

from gearshift.objective import Objective
from gearshift.plans.plan_tables import PlanTables, plan_tables
from gearshift.policies.load import METER_KEEPS_ARRIVALS
from gearshift.policies.load_scaling import TICKS_PER_ESTIMATE
from gearshift.runtime.router.pipeline import GearSettings, LoadScaling, Meter, Pipeline
from gearshift.workload import PlannedLoad
from tests.conformance.plans import MS
from tests.conformance.small import small_gear, small_plan


def two_gears() -> PlanTables:
    placed = {"a0": "d0", "a1": "d1", "b0": "d0"}
    gears = [
        small_gear(placed, "a b", (0.5,), load=(0, 100), minimum={"a0": 1, "a1": 2, "b0": 3}, largest=4),
        small_gear(placed, "b", load=(100, None), minimum={"a0": 4, "a1": 5, "b0": 6}, largest=8, wait_ms=7),
    ]
    return plan_tables(small_plan(placed, *gears))


def test_a_tick_counts_what_came_since_the_one_before() -> None:
    meter = Meter()
    for ms in range(40):
        meter.arrived(ms * MS)
    assert meter.tick(100 * MS) == 400
    meter.arrived(150 * MS)
    assert meter.counted == (1, METER_KEEPS_ARRIVALS)


def test_a_copy_goes_its_own_way() -> None:
    meter = Meter()
    meter.arrived(0)
    other = meter.copy()
    other.arrived(1)
    assert (meter.counted, other.counted) == ((1, 1), (2, 2))


def test_pipelines_beside_each_other_measure_and_shift_each_on_its_own() -> None:
    busy, idle = Pipeline(two_gears()), Pipeline(two_gears())
    for ms in range(40):
        busy.meter.arrived(ms * MS)
    gears = [one.tick(0, 100 * MS) for one in (busy, idle)]
    for one, gear in zip((busy, idle), gears, strict=True):
        one.shift(gear)
    assert [(one.gear, one.rate_qps) for one in (busy, idle)] == [(1, 400.0), (0, 0.0)]
    models = two_gears().models
    assert [models[one.first_model] for one in (busy, idle)] == ["b", "a"]


def test_a_pinned_pipeline_measures_the_load_and_keeps_its_gear() -> None:
    pipeline = Pipeline(two_gears())
    pipeline.pinned = True
    for ms in range(40):
        pipeline.meter.arrived(ms * MS)
    assert (pipeline.tick(0, 100 * MS), pipeline.load) == (0, 400.0)


def test_the_settings_of_replicas_are_those_of_the_gear_in_force() -> None:
    pipeline = Pipeline(two_gears())
    settings = GearSettings(two_gears(), [pipeline])
    assert (settings.minimum_queue_length, settings.largest_batch_size) == ([1, 2, 3], [4] * 3)
    pipeline.shift(1)
    settings.shift()
    assert (settings.minimum_queue_length, settings.largest_batch_size) == ([1, 1, 6], [8] * 3)  # a has no share
    assert settings.longest_wait_ns[2] == 7 * MS


def tables(*, over_s: float, objective: Objective) -> PlanTables:
    """A plan for loads that are evenly below 10, 20, 40 and above."""
    placed, edges = {"a0": "d0"}, [0.0, 10.0, 20.0, 40.0, None]
    gears = [small_gear(placed, "a", load=(low or 0.0, high)) for low, high in pairwise(edges)]
    plan = small_plan(placed, *gears, planned_load=PlannedLoad(shares=(0.25,) * 4, over_s=over_s))
    operator = msgspec.structs.replace(plan.pipelines["task"], objective=objective)
    return plan_tables(msgspec.structs.replace(plan, pipelines={"task": operator}))


def minute(scaling: LoadScaling, times: float) -> float:
    """The factor after a minute of loads that are so many times the planned ones."""
    for tick in range(TICKS_PER_ESTIMATE):
        scaling.ticked(times * (5.0, 14.0, 28.0, 57.0)[tick % 4])
    return scaling.factor


def test_the_factor_is_estimated_each_minute_once_the_planned_span_has_passed() -> None:
    scaling = LoadScaling(tables(over_s=180.0, objective=Objective(accuracy=0.9)).pipeline)
    assert [minute(scaling, 4.0), minute(scaling, 4.0)] == [1.0, 1.0]
    assert 0.25 < minute(scaling, 4.0) < 0.36  # from 10 / 28 on all loads are in their ranges


def test_minutes_before_the_planned_span_are_forgotten() -> None:
    scaling = LoadScaling(tables(over_s=120.0, objective=Objective(accuracy=0.9)).pipeline)
    factors = [minute(scaling, times) for times in (8.0, 8.0, 1.0, 1.0, 1.0)]
    assert factors[1] < 0.2
    assert factors[3] == factors[4] == 1.0


def test_a_load_as_planned_is_not_scaled() -> None:
    scaling = LoadScaling(tables(over_s=60.0, objective=Objective(accuracy=0.9)).pipeline)
    assert [minute(scaling, 1.0) for _ in range(3)] == [1.0] * 3


def test_a_plan_with_a_latency_objective_is_never_scaled() -> None:
    scaling = LoadScaling(tables(over_s=60.0, objective=Objective(accuracy=0.9, latency_s=0.1)).pipeline)
    assert [minute(scaling, 4.0) for _ in range(3)] == [1.0] * 3
