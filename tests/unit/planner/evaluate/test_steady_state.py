import numpy as np
import pytest

from gearshift.cascade import Cascade
from gearshift.hardware import Device, Hardware, identical_devices
from gearshift.objective import Objective
from gearshift.planner.evaluate.cells import Batching
from gearshift.planner.evaluate.steady_state import GRID_STEP, SAMPLES, SteadyState
from gearshift.planner.space.hosts import place_everywhere
from gearshift.profiles.profile import PART_B, PredictionRecords, Profile, RunTimeCurve
from tests.worlds import BATCH_SIZES, synthetic_profile

FASTEST = Cascade(models=("m0",))
PROFILE = synthetic_profile(models=2, samples=200, fastest_s=0.001)
ONE_MODEL = synthetic_profile(models=1, samples=20).predictions


def steady(
    *, latency_s: float = 0.02, devices: int = 1, percentile: float = 0.95, profile: Profile = PROFILE, seed: int = 0
) -> SteadyState:
    hardware = identical_devices(devices)
    objective = Objective(latency_s=latency_s, percentile=percentile)
    where = place_everywhere(profile, hardware)
    return SteadyState(profile, hardware, where, objective, seed=seed, samples=SAMPLES)


def test_a_cell_is_simulated_once() -> None:
    table = steady()
    first = table.cell(FASTEST, 100.0, Batching(4))
    assert table.cell(FASTEST, 100.0, Batching(4)) == first
    assert table.simulated == 1


def test_that_a_cascade_holds_is_told_by_the_first_batch_with_which_it_does() -> None:
    table = steady()
    assert table.holds(FASTEST, 100.0)
    assert table.simulated == 1


@pytest.mark.parametrize("size", BATCH_SIZES)
def test_a_cell_is_what_a_gear_with_its_batch_alone_gives(size: int) -> None:
    table = steady()
    batching = Batching(size)
    assert table.cell(FASTEST, 700.0, batching) == table.simulate(FASTEST, 700.0, table.settings(FASTEST, batching))


def test_a_cell_is_the_same_whatever_was_simulated_before() -> None:
    table, other = steady(), steady()
    other.cell(FASTEST, 700.0, Batching(32))
    assert table.cell(FASTEST, 100.0, Batching(4)) == other.cell(FASTEST, 100.0, Batching(4))


@pytest.mark.parametrize(
    ("measured", "kept"),
    [((1,), [1]), ((1, 2), [1, 2]), ((1, 2, 3), [1, 2, 3]), ((1, 2, 4, 8), [1, 2, 4, 8]), ((4, 5, 6), [4, 6])],
)
def test_largest_batches_are_about_a_doubling_apart(measured: tuple[int, ...], kept: list[int]) -> None:
    curve = RunTimeCurve(model="m0", batch_sizes=measured, median_s=measured, p95_s=measured)
    table = steady(profile=Profile(operator="task", curves=(curve,), predictions=ONE_MODEL))
    assert table.batch_sizes() == kept


def test_a_device_with_little_to_do_answers_in_its_run_time() -> None:
    cell = steady().cell(FASTEST, 1.0, Batching(1))
    assert cell.stable
    assert cell.latency_s == pytest.approx(0.0011, rel=0.01)
    assert cell.utilisation == pytest.approx(0.0011, rel=0.05)


def test_more_load_than_a_device_can_carry_is_not_stable() -> None:
    # A batch of 1 takes 1.1 ms: 909 per second; batches of 32 take 16.6 ms: 1928 per second.
    assert not steady().cell(FASTEST, 1000.0, Batching(1)).stable
    assert steady(latency_s=1.0).cell(FASTEST, 1000.0, Batching(32)).stable
    assert not steady(latency_s=1.0).cell(FASTEST, 2100.0, Batching(32)).stable


def test_a_cascade_whose_queue_grows_without_end_does_not_hold_though_the_run_was_too_short_to_be_late() -> None:
    table = steady(latency_s=10.0)
    assert table.cell(FASTEST, 2500.0, Batching(32)).share_late == 0.0
    assert not table.holds(FASTEST, 2500.0)


def test_the_best_batch_has_no_more_late_than_any_other() -> None:
    table = steady(latency_s=0.01)
    batching, cell = table.best(FASTEST, 1000.0)
    others = table.cells((FASTEST, 1000.0, Batching(other)) for other in BATCH_SIZES)
    assert cell == table.cell(FASTEST, 1000.0, batching)
    assert all((not o.stable, o.share_late) >= (not cell.stable, cell.share_late) for o in others)


def test_a_cascade_holds_up_to_its_capacity_and_not_beyond() -> None:
    table = steady(latency_s=0.02)
    capacity = table.capacity_qps(FASTEST, least_qps=10.0, most_qps=5000.0)
    assert table.holds(FASTEST, capacity)
    assert not table.holds(FASTEST, capacity * GRID_STEP**2)
    assert 909 < capacity < 1928


def test_capacity_is_zero_where_the_cascade_holds_nowhere() -> None:
    assert steady(latency_s=0.001).capacity_qps(FASTEST, least_qps=1.0, most_qps=100.0) == 0.0


def test_capacity_is_no_more_than_was_asked_about() -> None:
    assert steady().capacity_qps(FASTEST, least_qps=1.0, most_qps=50.0) == 50.0


def test_two_devices_carry_at_least_twice_as_much_as_one() -> None:
    one, two = (steady(devices=devices).capacity_qps(FASTEST, least_qps=10.0, most_qps=9000.0) for devices in (1, 2))
    assert two > 1.95 * one


def test_devices_that_are_hardly_ever_idle_are_stable_while_their_batches_keep_up() -> None:
    cell = steady(devices=4).cell(FASTEST, 4 * 1400.0, Batching(32))  # of 4 x 1928 that batches of 32 could carry
    assert cell.latency_s < 0.006
    assert cell.stable


def test_cells_see_part_a_alone() -> None:
    records = PROFILE.predictions
    certainty = records.certainty.copy()
    certainty[:, records.indices(PART_B)] = -9.0
    changed = Profile(
        operator="task",
        curves=PROFILE.curves,
        predictions=PredictionRecords(
            models=records.models, quality=records.quality, certainty=certainty, part=records.part
        ),
    )
    cascade = Cascade(models=("m0", "m1"), thresholds=(0.3,))
    assert steady(profile=changed).cell(cascade, 200.0, Batching(4)) == steady().cell(cascade, 200.0, Batching(4))


def test_load_shares_of_a_model_add_up_to_one_in_proportion_to_speed() -> None:
    shape = (1, 2)
    profile = Profile(
        operator="task",
        curves=tuple(
            RunTimeCurve(model="m", device_kind=kind, batch_sizes=(1,), median_s=(s,), p95_s=(s,))
            for kind, s in (("fast", 0.001), ("slow", 0.003))
        ),
        predictions=PredictionRecords(
            models=("m",), quality=np.ones(shape), certainty=np.ones(shape), part=np.array([0, 1], dtype=np.int8)
        ),
    )
    hardware = Hardware(devices=(Device(id="f", kind="fast"), Device(id="s", kind="slow")))
    table = SteadyState(profile, hardware, place_everywhere(profile, hardware), Objective(), seed=0)
    assert table.balance(Cascade(models=("m",))).shares == pytest.approx({"m@f": 0.75, "m@s": 0.25})


def test_a_replica_whose_model_is_not_in_the_cascade_gets_no_share_and_no_batch_beyond_its_profile() -> None:
    settings = {s.replica: s for s in steady().settings(FASTEST, Batching(1000))}
    assert (settings["m0@cpu-0"].load_share, settings["m1@cpu-0"].load_share) == (1.0, 0.0)
    assert {s.largest_batch_size for s in settings.values()} == {32}


def test_cells_are_shared_between_objectives_and_judged_by_each() -> None:
    table = steady(latency_s=1.0)
    cell = table.cell(FASTEST, 900.0, Batching(8))
    strict = table.judged_by(Objective(latency_s=cell.latency_s / 2))
    assert strict.cell(FASTEST, 900.0, Batching(8)).share_late > 0.05 >= cell.share_late
    assert strict.simulated == table.simulated == 1


def test_another_seed_draws_other_arrivals() -> None:
    assert steady(seed=1).cell(FASTEST, 500.0, Batching(4)) != steady(seed=2).cell(FASTEST, 500.0, Batching(4))


@pytest.mark.parametrize("percentile", [0.5, 0.8, 0.9, 0.95, 0.99])
def test_a_cell_meets_an_objective_that_is_its_own_percentile(percentile: float) -> None:
    at = steady(percentile=percentile, latency_s=1.0).cell(FASTEST, 900.0, Batching(8)).latency_s
    assert steady(percentile=percentile, latency_s=at).cell(FASTEST, 900.0, Batching(8)).share_late <= 1 - percentile


@pytest.mark.parametrize("percentile", [0.5, 0.8, 0.9, 0.95, 0.99])
def test_a_cell_misses_an_objective_just_below_its_percentile(percentile: float) -> None:
    at = steady(percentile=percentile, latency_s=1.0).cell(FASTEST, 900.0, Batching(8)).latency_s
    below = steady(percentile=percentile, latency_s=at * (1 - 1e-9)).cell(FASTEST, 900.0, Batching(8))
    assert below.share_late > 1 - percentile
