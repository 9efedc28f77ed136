from gearshift.plans.plan_tables import PlanTables, plan_tables
from gearshift.policies.load import METER_KEEPS_ARRIVALS
from gearshift.runtime.router.pipeline import GearSettings, Meter, Pipeline
from tests.conformance.plans import MS
from tests.conformance.small import small_gear, small_plan


def two_gears() -> PlanTables:
    placed = {"a0": "d0", "a1": "d1", "b0": "d0"}
    gears = [
        small_gear(placed, "a b", (0.5,), load=(0, 100), minimum={"a0": 1, "a1": 2, "b0": 3}, largest=4),
        small_gear(placed, "b", load=(100, None), minimum={"a0": 4, "a1": 5, "b0": 6}, largest=8, wait_ms=7),
    ]
    return plan_tables(small_plan(placed, *gears), "task")


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
    busy, idle = Pipeline(two_gears(), 0), Pipeline(two_gears(), 1)
    for ms in range(40):
        busy.meter.arrived(ms * MS)
    gears = [one.tick(0, 0, 100 * MS) for one in (busy, idle)]
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
    assert (pipeline.tick(0, 0, 100 * MS), pipeline.load) == (0, 400.0)


def test_the_settings_of_replicas_are_those_of_the_gear_in_force() -> None:
    settings = GearSettings(two_gears())
    assert (settings.minimum_queue_length, settings.largest_batch_size) == ([1, 2, 3], [4] * 3)
    settings.shift(1)
    assert (settings.minimum_queue_length, settings.largest_batch_size) == ([1, 1, 6], [8] * 3)  # a has no share
    assert settings.longest_wait_ns[2] == 7 * MS
