from itertools import pairwise

import numpy as np
import pytest

from gearshift.clock import NS_PER_S
from gearshift.planner.space.metered import metered_loads
from gearshift.plans.plan_tables import plan_tables
from gearshift.runtime.watch.drift import LiveTrace, LoadDrift, window_of
from gearshift.traces.generate import bursty, diurnal, steady
from gearshift.workload import PlannedLoad, Trace
from tests.conformance.small import small_gear, small_plan

EDGES = (0.0, 20.0, 40.0, 60.0, 80.0, 100.0)
SPAN_S = 600.0


def planned(*traces: Trace) -> LoadDrift:
    """The watch over a plan for these traces, with ranges of 20 requests a second."""
    loads = np.concatenate([metered_loads(trace)[0] for trace in traces])
    counts = np.bincount(np.searchsorted(EDGES[1:], loads, side="right"), minlength=len(EDGES))
    shares = tuple((counts / counts.sum()).tolist())
    gears = [
        small_gear({"a0": "d0"}, "a", load=(low, high)) for low, high in zip(EDGES, [*EDGES[1:], None], strict=True)
    ]
    plan = small_plan({"a0": "d0"}, *gears, planned_load=PlannedLoad(shares=shares, over_s=SPAN_S))
    return LoadDrift(plan_tables(plan).pipeline, SPAN_S)


def drifts(watch: LoadDrift, *traces: Trace) -> list[bool]:
    """Whether load had drifted, at each judgement."""
    return [
        watch.drifting for trace in traces for rate in metered_loads(trace)[0].tolist() if watch.ticked(float(rate))
    ]


def swing(seed: int, phase_s: float = 0.0, times: float = 1.0) -> Trace:
    """A rhythm of `SPAN_S` that begins at `phase_s`."""
    second = np.arange(SPAN_S) + phase_s
    rates = times * (45 + 35 * np.sin(2 * np.pi * second / SPAN_S))
    counts = np.random.default_rng(seed).poisson(rates)
    generator = np.random.default_rng([seed, 1])
    times_s = np.concatenate([at + generator.random(count) for at, count in enumerate(counts)])
    return Trace(np.sort(times_s * NS_PER_S).astype(np.int64), SPAN_S)


def test_the_planned_rhythm_is_no_drift_wherever_in_it_one_begins() -> None:
    plan = swing(1000)
    for seed in range(12):
        again = [swing(seed + 100 * part, phase_s=50.0 * seed) for part in range(2)]
        assert not any(drifts(planned(plan), *again))


@pytest.mark.parametrize("qps", [2.0, 20.0, 60.0, 300.0])
def test_a_steady_load_is_no_drift_even_at_the_edge_of_a_range(qps: float) -> None:
    plan = steady(qps, SPAN_S, seed=1000)
    for seed in range(4):
        assert not any(drifts(planned(plan), steady(qps, 2 * SPAN_S, seed=seed)))


def test_other_bursts_of_the_same_kind_are_no_drift() -> None:
    plan = bursty(20.0, 90.0, SPAN_S, bursts=8, seed=1000)
    for seed in range(6):
        others = bursty(20.0, 90.0, 2 * SPAN_S, bursts=14 + seed, seed=seed)
        assert not any(drifts(planned(plan), others))


@pytest.mark.parametrize("times", [0.5, 1.6, 3.0])
def test_another_level_of_load_is_a_drift_once_and_its_return_the_end(times: float) -> None:
    watch = planned(swing(1000))
    moved = [watch.drifting, *drifts(watch, swing(1), swing(2, times=times), swing(3), swing(4))]
    assert sum(a != b for a, b in pairwise(moved)) == 2
    assert not moved[-1]


def test_nothing_is_said_before_the_window_has_passed_or_of_a_plan_that_does_not_say() -> None:
    assert drifts(planned(swing(1)), swing(2, times=5.0)) == [True]
    watch = planned(swing(1))
    assert not any(watch.ticked(1000.0) for _ in range(int(SPAN_S * 10) - 1))
    gear = small_gear({"a0": "d0"}, "a")
    silent = LoadDrift(plan_tables(small_plan({"a0": "d0"}, gear)).pipeline, SPAN_S)
    assert not any(silent.ticked(1000.0) for _ in range(int(SPAN_S * 20)))


def test_the_window_is_the_traces_span_within_bounds() -> None:
    assert [window_of(span) for span in (0.0, 1000.0, 1e7)] == [300.0, 1000.0, 86_400.0]


def test_the_latest_arrivals_are_kept_by_second() -> None:
    trace = LiveTrace()
    for tenth in range(51):
        trace.ticked(tenth * NS_PER_S // 10)
        trace.arrived += 1 if tenth < 20 else 2
    assert trace.latest(100.0) == [10, 10, 20, 20, 20]
    assert trace.latest(2.0) == [20, 20]


def test_seconds_in_which_the_loop_was_held_up_count_as_empty() -> None:
    trace = LiveTrace()
    trace.ticked(0)
    trace.arrived = 3
    trace.ticked(4 * NS_PER_S)
    assert trace.latest(10.0) == [3, 0, 0, 0]


def test_a_night_that_does_not_end_is_a_drift() -> None:
    plan = diurnal(10.0, 90.0, SPAN_S, period_s=SPAN_S, seed=1)
    night = steady(10.0, 2 * SPAN_S, seed=2)
    assert any(drifts(planned(plan), night))


def recorded(trace: LiveTrace) -> list[tuple[list[int], float]]:
    told: list[tuple[list[int], float]] = []
    trace.record = lambda counts, past_s: told.append((counts, round(past_s, 3)))
    return told


def test_arrivals_are_recorded_ten_seconds_at_once() -> None:
    trace = LiveTrace()
    told = recorded(trace)
    for tenth in range(101):
        trace.ticked(tenth * NS_PER_S // 10 + 1_000_000)
        trace.arrived += 1
    assert told == [([10] * 10, 0.001)]


def test_the_end_records_the_second_that_has_begun() -> None:
    trace = LiveTrace()
    told = recorded(trace)
    trace.ticked(0)
    trace.arrived = 3
    trace.ticked(NS_PER_S)
    trace.arrived = 5
    trace.end(NS_PER_S + NS_PER_S // 4)
    trace.end(NS_PER_S + NS_PER_S // 2)
    assert told == [([3, 2], -0.75)]


def test_seconds_without_arrivals_are_not_recorded() -> None:
    trace = LiveTrace()
    told = recorded(trace)
    for second in range(100):
        trace.ticked(second * NS_PER_S)
    assert told == []
