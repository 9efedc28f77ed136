import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.planner.constrained import OTHER_SEED, at_batch_one, highest_metered_qps, simulated_again
from benchmarks.planner.fewest_devices import Growing, Reached, least_devices, saving, wanted_accuracies
from benchmarks.planner.growth import KINDS, mixed_devices, several_kinds, slope
from benchmarks.shared.imported import halves, powers_of_two
from benchmarks.shared.judging import counting, judged
from gearshift.cascade import Cascade
from gearshift.hardware import GIB
from gearshift.planner.evaluate.cells import Batching
from gearshift.planner.evaluate.steady_state import SteadyState
from gearshift.planner.space.cascade_search import CandidateCascade
from gearshift.profiles.profile import PART_A, PART_B
from gearshift.workload import Trace
from tests.unit.planner.little import PROFILE, little_request, single_plan


@settings(deadline=None, derandomize=True)
@given(st.lists(st.integers(0, 3), min_size=10, max_size=10), st.integers(1, 30), st.integers(1, 8))
def test_the_fewest_devices_are_those_of_trying_every_number(steps: list[int], wanted: int, most: int) -> None:
    accuracies = np.cumsum([0, *steps])
    tried = []

    def plan_with(count: int) -> tuple[float, float] | None:
        tried.append(count)
        found = float(accuracies[count])
        return (found, found + 100) if found > 0 else None

    found = Growing(plan_with).fewest(wanted, most=most)
    enough = [n for n in range(1, most + 1) if accuracies[n] >= wanted]
    assert found == (Reached(enough[0], accuracies[enough[0]] + 100) if enough else None)
    assert len(tried) == len(set(tried))


def test_a_search_for_the_fewest_devices_may_begin_higher() -> None:
    assert Growing(lambda n: (n / 10, n / 10)).fewest(0.55, least=3, most=8) == Reached(6, 0.6)
    assert Growing(lambda n: (n / 10, n / 10)).fewest(0.55, least=6, most=8) == Reached(6, 0.6)
    assert Growing(lambda n: (n / 10, n / 10)).fewest(0.95, least=9, most=8) is None


def test_an_accuracy_between_two_choices_takes_the_work_of_a_mixture() -> None:
    choices = [
        CandidateCascade(cascade=Cascade(models=(m,)), accuracy=accuracy, work_s=work_s, reach=(1.0,))
        for m, accuracy, work_s in (("a", 0.6, 0.01), ("b", 0.7, 0.05), ("c", 0.8, 0.06))
    ]
    assert least_devices(choices, 0.8, 100.0) == 6
    assert least_devices(choices, 0.7, 101.0) == 3  # half a, half c: 0.035 s
    assert least_devices(choices, 0.5, 100.0) == 1
    assert least_devices(choices, 0.9, 100.0) == 1


def test_a_saving_is_counted_against_the_best_rival_that_reaches_the_cell() -> None:
    cell = {
        "optimal": Reached(2, 0.9),
        "single": Reached(6, 0.9),
        "model-switching": None,
        "cocktail+": Reached(5, 0.9),
    }
    assert saving(cell) == 2.5
    assert saving({**cell, "cocktail+": Reached(2.9, 0.9)}) is None
    assert saving({**cell, "optimal": None}) is None
    assert saving({**cell, "single": None, "cocktail+": None}) is None


def test_wanted_accuracies_lie_between_the_two_best_models() -> None:
    records = PROFILE.predictions
    ranked = sorted(records.quality[:, records.indices(PART_A)].mean(axis=1))
    assert wanted_accuracies(PROFILE, [0.0, 0.5, 1.0]) == pytest.approx(
        [ranked[-2], (ranked[-2] + ranked[-1]) / 2, ranked[-1]]
    )


def test_replays_and_cells_of_steady_state_are_counted_in_requests() -> None:
    request, made = little_request(), single_plan("m0")
    steady = SteadyState(request.profile, request.hardware, made.placement, request.objective, seed=0)
    with counting(keep_runs=True) as counted:
        points = judged([made], request, part=PART_A, seeds=2)
        assert counted.requests == 2 * len(request.trace)
        steady.cell(made.pipelines["task"].gears[0].cascade, 100.0, Batching(1))
    assert counted.requests == 2 * len(request.trace) + 12_000
    assert len(counted.runs) == 2
    assert points[0][0] < 0.03
    judged([made], request, part=PART_A, seeds=1)
    assert len(counted.runs) == 2


def test_a_plan_simulated_again_sees_other_arrivals_and_samples() -> None:
    request, made = little_request(), single_plan("m0")
    [again] = simulated_again([made], request)
    [before] = judged([made], request, part=PART_A, seeds=1)
    assert again != before
    assert OTHER_SEED != 0
    quality = request.profile.predictions.quality[0, request.profile.predictions.indices(PART_B)]
    assert again[1] == pytest.approx(float(quality.mean()), abs=0.01)


def test_at_batch_one_only_single_requests_have_run_times() -> None:
    for before, after in zip(PROFILE.curves, at_batch_one(PROFILE).curves, strict=True):
        assert (after.batch_sizes, after.median_s) == ((1,), before.median_s[:1])


def test_the_highest_metered_load_is_that_of_the_busiest_tenth_of_a_second() -> None:
    arrivals_ns = np.array([0, 10, 20, 150, 160], dtype=np.int64) * 10**6
    assert highest_metered_qps(Trace(arrivals_ns, 1.0)) == 30.0


def test_the_slope_of_a_power_is_its_exponent() -> None:
    counts = [16, 64, 256]
    assert slope(counts, [0.3 * n**1.25 for n in counts]) == pytest.approx(1.25)


def test_devices_of_several_kinds_all_have_run_times() -> None:
    profile, hardware = several_kinds(PROFILE), mixed_devices(6)
    for device in hardware.devices:
        slower, held = KINDS[device.kind]
        assert device.memory_bytes == held * GIB
        curve = profile.curve("m0", device_kind=device.kind)
        assert curve.median_s[0] == slower * PROFILE.curves[0].median_s[0]


def test_halves_are_halves_and_batches_powers_of_two() -> None:
    part = halves(10, seed=0)
    assert sorted(part.tolist()) == [0] * 5 + [1] * 5
    assert powers_of_two(100) == (1, 2, 4, 8, 16, 32, 64)
