"""The default bound on waiting samples, for plans that a planner has made."""

import numpy as np
import pytest

import gearshift
from gearshift.gear import GearPlan
from gearshift.planner.evaluate.confirm import workload_of
from gearshift.plans.plan_tables import plan_tables
from gearshift.profiles.backlog import Backlog, backlog_of
from gearshift.profiles.profile import PART_A, PART_B, Profile
from gearshift.simulator.simulate import prepare
from gearshift.traces.generate import bursty, steady
from gearshift.workload import Trace
from tests.often import first_short
from tests.worlds import synthetic_profile

OBJECTIVES_S = (0.03, 0.3)
"""From a few of the fastest model's batches to a few of the largest's."""


@pytest.fixture(scope="module")
def world() -> tuple[Profile, Trace]:
    return synthetic_profile(models=2, samples=400), bursty(150, 600, 8.0, bursts=2, seed=1)


@pytest.fixture(scope="module", params=first_short(OBJECTIVES_S))
def planned(request: pytest.FixtureRequest, world: tuple[Profile, Trace]) -> tuple[GearPlan, float, Backlog]:
    profile, trace = world
    plan = gearshift.plan(profile, trace, latency_s=request.param, ranges=5)
    return plan, request.param, backlog_of(plan, plan_tables(plan), profile)


def test_a_plan_refuses_nothing_on_its_own_trace(
    world: tuple[Profile, Trace], planned: tuple[GearPlan, float, Backlog]
) -> None:
    (profile, trace), (plan, _, backlog) = world, planned
    prepared = prepare(plan, profile)
    for part in (PART_A, PART_B):
        for seed in range(5):
            run = prepared.run(workload_of(trace, profile, part=part, seed=seed), most_waiting=backlog.most_waiting)
            assert (run.finished_ns >= 0).all()


def test_under_three_times_its_capacity_a_plan_answers_nearly_that_in_time(
    world: tuple[Profile, Trace], planned: tuple[GearPlan, float, Backlog]
) -> None:
    (profile, _), (plan, objective_s, backlog) = world, planned
    crowd = steady(3 * backlog.capacity_qps, 10.0, seed=2)
    run = gearshift.simulate(plan, crowd, profile=profile)
    result = run.result(profile, latency_objective_s=objective_s)
    assert result.goodput_qps > 0.85 * backlog.capacity_qps
    assert 0.6 < result.share_refused < 0.7
    late = gearshift.simulate(plan, crowd, profile=profile, most_waiting=10_000)
    assert late.result(profile, latency_objective_s=objective_s).goodput_qps < 0.2 * result.goodput_qps
    assert np.nanquantile(run.latency_s, 0.9) < objective_s  # the first come before the gear shifts
