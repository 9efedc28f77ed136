"""The metered load without simulation is the load that the simulator's router meters."""

import numpy as np
import pytest

from gearshift.planner.search.optimal import PLANNER
from gearshift.planner.space.metered import metered_loads, shares_of_ranges
from gearshift.planner.space.request import equal_ranges
from gearshift.simulator.simulate import simulate
from gearshift.workload import Trace, draw_workload
from tests.unit.planner.little import PROFILE, little_request, little_trace


def test_shares_of_ranges_are_what_the_simulator_counts() -> None:
    trace = little_trace(low_qps=40, high_qps=220)
    made = PLANNER.plan(little_request(trace=trace, max_qps=400.0, latency_s=0.03))
    gears = made.pipelines["task"].gears
    ends = np.array([g.load_range.to or 400.0 for g in gears])
    run = simulate(made, PROFILE, draw_workload(trace, PROFILE.predictions.indices(0), seed=0))
    assert shares_of_ranges(trace, ends) == pytest.approx(run.arrived_in_gear / len(trace), abs=0.02)


def test_a_trace_is_metered_once() -> None:
    trace = little_trace()
    assert metered_loads(trace) is metered_loads(trace)
    assert metered_loads(little_trace()) is not metered_loads(trace)


def test_a_trace_of_one_request_meets_nothing_metered() -> None:
    rates, arrived = metered_loads(Trace(np.array([250_000_000]), 1.0))
    assert rates[0] == 0
    assert arrived.tolist() == [0, 0, 1]
    assert shares_of_ranges(Trace(np.array([250_000_000]), 1.0), equal_ranges(10.0, 2)).tolist() == [1.0, 0.0]
