"""A model with learned caches is one more model to plan with."""

import dataclasses
import functools

import msgspec
import numpy as np
import pytest

from gearshift.gear import GearPlan
from gearshift.hardware import identical_devices
from gearshift.planner.evaluate.confirm import workload_of
from gearshift.planner.search.optimal import PLANNER
from gearshift.planner.space.cascade_search import work_per_request_s
from gearshift.planner.space.request import PlanRequest
from gearshift.plans.plan_tables import plan_tables
from gearshift.profiles.profile import PART_B, Profile, RunTimeCurve
from gearshift.profiles.run_times import exits_of, run_times_ns
from gearshift.simulator.simulate import Simulation, simulate
from tests.conformance.virtual import run_virtually
from tests.unit.planner.little import little_request, little_trace
from tests.worlds import synthetic_profile

plan = PLANNER.plan

SMALL, LARGE, CACHED = "m0", "m1", "cached"
EARLY_SHARE = 0.7


@functools.cache
def profile(early_share: float = EARLY_SHARE) -> Profile:
    """`cached` answers as the large model; a share of samples leaves after a third of it, lookups cost a tenth."""
    base = synthetic_profile(models=2, samples=1000, fastest_s=0.001, growth=6.0)
    records, (small, large) = base.predictions, base.curves
    early = np.random.default_rng(1).random(1000) < early_share
    exits = np.zeros((3, 1000), dtype=np.int64)
    exits[2] = ~early

    def part(share: float, segment: int) -> RunTimeCurve:
        times = [tuple(share * s for s in seconds) for seconds in (large.median_s, large.p95_s)]
        return msgspec.structs.replace(large, model=CACHED, segment=segment, median_s=times[0], p95_s=times[1])

    with_exits = dataclasses.replace(
        records,
        models=(SMALL, LARGE, CACHED),
        quality=records.quality[[0, 1, 1]],
        certainty=records.certainty[[0, 1, 1]],
        exit_segment=exits,
    )
    after = msgspec.structs.replace(part(0.67, 1), overhead_per_batch_s=0.0)
    return dataclasses.replace(base, curves=(small, large, part(0.43, 0), after), predictions=with_exits)


def request(early_share: float = EARLY_SHARE) -> PlanRequest:
    trace = little_trace(low_qps=150, high_qps=330)
    return little_request(profile=profile(early_share), trace=trace, latency_s=0.06, ranges=2)


@functools.cache
def planned(early_share: float = EARLY_SHARE) -> GearPlan:
    return plan(request(early_share))


def replayed(made: GearPlan) -> Simulation:
    workload = workload_of(request().trace, profile(), part=PART_B, seed=0)
    return simulate(made, profile(), workload, log_rows=100_000)


def models_of(made: GearPlan) -> set[str]:
    return {model for gear in made.pipelines["task"].gears for model in gear.cascade.models}


def test_work_of_a_model_with_caches_is_that_of_its_recorded_exits() -> None:
    (device,) = identical_devices(1).devices
    work_s = work_per_request_s(profile(), device)
    share = 0.43 + 0.67 * profile().predictions.reach(CACHED, 2)[1]
    assert work_s[CACHED] / work_s[LARGE] == pytest.approx(share, rel=0.05)
    assert work_s[SMALL] < work_s[CACHED] < work_s[LARGE]


@pytest.mark.long
def test_the_planner_takes_the_model_with_caches_where_that_is_better() -> None:
    assert CACHED in models_of(planned())
    without = dataclasses.replace(
        profile(),
        curves=profile().curves[:2],
        predictions=dataclasses.replace(
            profile().predictions,
            models=(SMALL, LARGE),
            quality=profile().predictions.quality[:2],
            certainty=profile().predictions.certainty[:2],
            exit_segment=None,
        ),
    )
    plain = plan(dataclasses.replace(request(), profile=without))
    assert planned().predictions["task"].accuracy > plain.predictions["task"].accuracy + 0.005


def test_the_planner_leaves_caches_that_only_cost_alone() -> None:
    assert CACHED not in models_of(planned(0.0))


def test_what_such_a_plan_predicts_is_what_its_replay_gives() -> None:
    made = planned()
    tables, certainty = plan_tables(made), profile().predictions.certainty
    run = replayed(made)
    live = run_virtually(
        tables,
        list(run_times_ns(made, tables, profile())),
        certainty[profile().predictions.rows(tables.models)],
        run.workload,
        exits=exits_of(made, tables, profile()),
    )
    assert run.log == live.log
    assert run.finished_ns.tolist() == live.finished_ns.tolist()
    result = run.result(profile(), latency_objective_s=0.06)
    predicted = made.predictions["task"]
    assert result.accuracy == pytest.approx(predicted.accuracy, abs=0.02)
    assert result.latency_s.p95 == pytest.approx(predicted.latency_s.p95, rel=0.1)
    assert result.share_late <= 0.05
