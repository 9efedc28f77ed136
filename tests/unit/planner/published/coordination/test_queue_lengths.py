import pytest

from gearshift.cascade import Cascade
from gearshift.hardware import identical_devices
from gearshift.objective import Objective
from gearshift.planner.evaluate.steady_state import SAMPLES, SteadyState
from gearshift.planner.published.coordination.load_balance import tune
from gearshift.planner.space.hosts import place_everywhere
from tests.unit.planner.little import PROFILE

SHARES = {"m0@cpu-0": 1.0, "m1@cpu-0": 1.0}
CASCADE = Cascade(models=("m0", "m1"), thresholds=(0.3,))


def steady(latency_s: float) -> SteadyState:
    hardware = identical_devices(1)
    objective = Objective(latency_s=latency_s)
    where = place_everywhere(PROFILE, hardware)
    return SteadyState(PROFILE, hardware, where, objective, seed=0, samples=SAMPLES)


def test_a_load_that_holds_keeps_a_minimum_queue_length_of_one() -> None:
    tuned = tune(steady(0.05), CASCADE, 100.0, SHARES)
    assert tuned.holds
    assert {s.minimum_queue_length for s in tuned.replicas} == {1}
    assert {s.longest_wait_s for s in tuned.replicas} == {0.0}


LOAD_QPS = 500.0  # at which CASCADE keeps its device 96 % busy


def just_too_tight() -> SteadyState:
    """An objective that is missed by a little with a minimum queue length of 1."""
    return steady(0.985 * tune(steady(1.0), CASCADE, LOAD_QPS, SHARES).cell.latency_s)


def test_the_first_models_queue_is_raised_until_the_load_holds_and_no_further() -> None:
    tuned = tune(just_too_tight(), CASCADE, LOAD_QPS, SHARES)
    length = {s.replica: s.minimum_queue_length for s in tuned.replicas}
    assert tuned.holds
    assert length["m0@cpu-0"] > 1
    assert length["m1@cpu-0"] == 1
    assert not tune(just_too_tight(), CASCADE, LOAD_QPS, SHARES, longest=length["m0@cpu-0"] - 1).holds


def test_a_batch_starts_anyway_after_twice_the_time_in_which_the_queue_fills() -> None:
    replicas = tune(just_too_tight(), CASCADE, LOAD_QPS, SHARES).replicas
    first = next(s for s in replicas if s.replica == "m0@cpu-0")
    assert first.longest_wait_s == pytest.approx(2 * first.minimum_queue_length / LOAD_QPS)


def test_where_nothing_holds_the_search_ends_and_answers_the_best_that_was_seen() -> None:
    tuned = tune(steady(0.001), CASCADE, 300.0, SHARES)
    assert not tuned.holds
    assert tuned.cell.latency_s > 0.001
    assert not tune(steady(0.02), CASCADE, 5000.0, SHARES).holds


def test_batches_are_as_large_as_was_profiled() -> None:
    assert {s.largest_batch_size for s in tune(steady(0.05), CASCADE, 100.0, SHARES).replicas} == {32}
