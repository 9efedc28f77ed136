import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.planner.fewest_devices import Growing, Reached, least_devices, saving, wanted_accuracies
from gearshift.cascade import Cascade
from gearshift.planner.space.cascade_search import CandidateCascade
from gearshift.profiles.profile import PART_A
from tests.unit.planner.little import PROFILE


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
