import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from gearshift.objective import Objective
from gearshift.planner.evaluate.confirm import (
    REDRAW_WINDOW_NS,
    Confirmation,
    holds,
    least_objective_s,
    redrawn,
    replay,
    slowest_on_part_a,
    workload_of,
)
from gearshift.profiles.profile import PART_A, PART_B
from gearshift.result import percentile, wilson_interval
from gearshift.simulator.simulate import simulate
from gearshift.workload import Trace
from tests.unit.planner.little import PROFILE, little_request, little_trace, single_plan
from tests.worlds import synthetic_profile

TRACES = st.lists(st.integers(0, 2_000_000_000), min_size=1, max_size=200).map(
    lambda times: Trace(np.sort(np.array(times, dtype=np.int64)), max(times) / 1e9 + 0.05)
)


@settings(deadline=None, derandomize=True)
@given(TRACES, st.integers(0, 5))
def test_a_redrawn_trace_has_as_many_arrivals_in_every_100_ms(trace: Trace, seed: int) -> None:
    again = redrawn(trace, seed)
    counts = [np.bincount(t.arrivals_ns // REDRAW_WINDOW_NS, minlength=30).tolist() for t in (trace, again)]
    assert counts[0] == counts[1]
    assert again.duration_s == trace.duration_s


def test_seed_zero_leaves_the_trace_as_it_is() -> None:
    trace = little_trace()
    assert redrawn(trace, 0) is trace


def test_each_seed_draws_another_order_within_100_ms_and_the_same_seed_the_same() -> None:
    trace = little_trace()
    one, again, two = (redrawn(trace, seed).arrivals_ns.tolist() for seed in (1, 1, 2))
    assert one == again
    assert one != two


@pytest.mark.parametrize("part", [PART_A, PART_B])
def test_a_confirmation_serves_samples_of_its_part_alone(part: int) -> None:
    workload = workload_of(little_trace(), PROFILE, part=part, seed=3)
    assert set(PROFILE.predictions.part[workload.record].tolist()) == {part}


def test_the_bound_of_the_mean_share_late_is_students() -> None:
    shares = np.array([0.01, 0.02, 0.03, 0.04, 0.05])
    bound = Confirmation(shares, shares, confirmation(seeds=1).result).share_late_bound()
    expected = stats.ttest_1samp(shares, 0.0).confidence_interval(0.90).high
    assert bound == pytest.approx(expected)


def test_the_bound_of_one_run_is_its_share_late() -> None:
    assert Confirmation(np.array([0.03]), np.array([0.1]), confirmation(seeds=1).result).share_late_bound() == 0.03


def confirmation(*, seeds: int, part: int = PART_B) -> Confirmation:
    return replay(single_plan("m0"), little_request(latency_s=0.005), part=part, seeds=seeds)


def test_each_seed_is_one_simulated_run() -> None:
    got = confirmation(seeds=3)
    for seed in range(3):
        run = simulate(single_plan("m0"), PROFILE, workload_of(little_trace(), PROFILE, part=PART_B, seed=seed))
        assert got.share_late[seed] == pytest.approx(float(np.mean(run.latency_s > 0.005)))
        assert got.latency_s[seed] == percentile(run.latency_s, 0.95)


def test_the_figures_are_means_over_the_seeds_and_the_latency_interval_spans_them() -> None:
    got = confirmation(seeds=4)
    assert got.result.share_late == pytest.approx(got.share_late.mean())
    assert got.result.latency_s.p95 == pytest.approx(got.latency_s.mean())
    assert got.result.latency_p95_interval_s == (got.latency_s.min(), got.latency_s.max())


def test_the_accuracy_interval_is_no_narrower_than_the_recorded_samples_allow() -> None:
    got = confirmation(seeds=3)
    independent = len(PROFILE.predictions.indices(PART_B))
    assert got.result.accuracy_interval == wilson_interval(got.result.accuracy, independent)


def test_a_confirmation_is_the_same_each_time() -> None:
    assert confirmation(seeds=3).result == confirmation(seeds=3).result


def test_judged_by_another_objective_the_same_runs_have_its_share_late() -> None:
    got, tighter_s = confirmation(seeds=3), float(np.median(confirmation(seeds=3).slowest_s[0]))
    other = replay(single_plan("m0"), little_request(latency_s=tighter_s), part=PART_B, seeds=3)
    judged = got.judged_by(tighter_s)
    assert judged.share_late == pytest.approx(other.share_late, abs=1e-3)
    assert judged.result.share_late == pytest.approx(other.result.share_late, abs=1e-3)
    assert judged.result.goodput_qps == pytest.approx(other.result.goodput_qps, rel=1e-3)
    assert other.result.share_late > 0


@pytest.mark.parametrize("percentile_", [0.9, 0.95, 0.99])
def test_the_least_objective_holds_and_a_tighter_one_does_not(percentile_: float) -> None:
    request = little_request(objective=Objective(latency_s=1.0, percentile=percentile_))
    got = replay(single_plan("m0"), request, part=PART_B, seeds=5)
    least_s = least_objective_s(got.slowest_s, got.result.requests, percentile_)
    assert got.judged_by(least_s).share_late_bound() <= 1 - percentile_
    assert got.judged_by(0.99 * least_s).share_late_bound() > 1 - percentile_


@pytest.mark.parametrize("limit_s", [1.0, 0.05, 0.01, 0.004, 0.002, 0.0005])
def test_the_slowest_latencies_alone_tell_whether_a_plan_holds(limit_s: float) -> None:
    made, request = single_plan("m0"), little_request(latency_s=limit_s)
    got, slowest_s = replay(made, request, part=PART_A), slowest_on_part_a(made, request)
    assert all(np.array_equal(a, b) for a, b in zip(slowest_s, got.slowest_s, strict=True))
    assert holds(slowest_s, len(request.trace), limit_s, 0.95) == got.holds(0.95)


def test_a_workload_is_drawn_once_for_each_trace_seed_and_part() -> None:
    trace = little_trace()
    drawn = workload_of(trace, PROFILE, part=PART_A, seed=1)
    assert workload_of(trace, PROFILE, part=PART_A, seed=1) is drawn
    for other in (workload_of(trace, PROFILE, part=PART_B, seed=1), workload_of(trace, PROFILE, part=PART_A, seed=2)):
        assert other.record.tolist() != drawn.record.tolist()


def test_a_workload_is_drawn_anew_for_other_records() -> None:
    trace, other = little_trace(), synthetic_profile(models=3, samples=100, fastest_s=0.001)
    workload_of(trace, PROFILE, part=PART_A, seed=1)
    assert workload_of(trace, other, part=PART_A, seed=1).record.max() < 100
