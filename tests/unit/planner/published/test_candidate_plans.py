import functools
import math
from collections.abc import Sequence

import numpy as np
import pytest

from gearshift.cascade import Cascade
from gearshift.gear import LoadRange
from gearshift.hardware import identical_devices
from gearshift.objective import Objective
from gearshift.placement import Placement
from gearshift.planner.evaluate.confirm import replay
from gearshift.planner.published import candidate_plans
from gearshift.planner.published.candidate_plans import Assignment, Candidate, CandidatePlans, Tried
from gearshift.planner.space.cascade_search import CandidateCascade, evaluate_cascade
from gearshift.planner.space.hosts import place_everywhere
from gearshift.planner.space.request import PlanRequest
from gearshift.profiles.profile import PART_A, Profile
from gearshift.result import percentile
from gearshift.simulator.simulate import simulate
from gearshift.workload import draw_workload
from tests.unit.planner.little import PROFILE, little_request, little_trace
from tests.worlds import BATCH_SIZES, synthetic_profile

CASCADES = (
    Cascade(models=("m0",)),
    Cascade(models=("m0", "m1"), thresholds=(0.2,)),
    Cascade(models=("m1",)),
    Cascade(models=("m0", "m2"), thresholds=(0.3,)),
)
"""From cheapest to most accurate."""
SLOW = synthetic_profile(models=3, samples=1000, fastest_s=0.1)


def evaluated(profile: Profile, cascade: Cascade) -> CandidateCascade:
    work_s = {curve.model: curve.median_s[0] for curve in profile.curves}
    return evaluate_cascade(cascade, profile.predictions, work_s, part=PART_A)


def plans_for(request: PlanRequest) -> CandidatePlans:
    return CandidatePlans(request, [evaluated(request.profile, cascade) for cascade in CASCADES])


@functools.cache
def plans() -> CandidatePlans:
    return plans_for(little_request(latency_s=0.1, devices=2, max_qps=800.0))


def everywhere(request: PlanRequest) -> Placement:
    return place_everywhere(request.profile, request.hardware)


def candidate(*assignment: int, largest: int = 8, of: CandidatePlans | None = None) -> Candidate:
    return Candidate(assignment, everywhere((of or plans()).request), largest)


# What a candidate's plan says -----------------------------------------------------------------------------------------


def test_a_plan_has_each_ranges_cascade() -> None:
    made = plans().bare(candidate(3, 2, 1, 0))
    operator = made.pipelines["task"]
    assert [gear.cascade for gear in operator.gears] == [CASCADES[3], CASCADES[2], CASCADES[1], CASCADES[0]]
    assert [gear.load_range for gear in operator.gears] == [
        LoadRange(from_=0.0, to=200.0),
        LoadRange(from_=200.0, to=400.0),
        LoadRange(from_=400.0, to=600.0),
        LoadRange(from_=600.0),
    ]
    assert {gear.predicted for gear in operator.gears} == {None}


@pytest.mark.parametrize(
    ("assignment", "models"),
    [((0, 0), {"m0"}), ((2, 2), {"m1"}), ((3, 1), {"m0", "m1", "m2"}), ((2, 0), {"m0", "m1"})],
)
def test_the_models_of_an_assignment_are_those_of_its_cascades(assignment: Assignment, models: set[str]) -> None:
    assert plans().models(assignment) == models


def test_shares_of_each_model_in_a_cascade_add_up_and_others_have_none() -> None:
    asked = candidate(3, 2, 1, 0)
    model_of = {r.id: r.model for r in asked.placement.replicas}
    for gear in plans().bare(asked).pipelines["task"].gears:
        total = dict.fromkeys(model_of.values(), 0.0)
        for settings in gear.replicas:
            total[model_of[settings.replica]] += settings.load_share
        assert total == pytest.approx({m: float(m in gear.cascade.models) for m in total})


@pytest.mark.parametrize("largest", [1, 2, 8, 1000])
def test_no_batch_is_larger_than_the_candidates_or_the_largest_profiled(largest: int) -> None:
    for gear in plans().bare(candidate(3, 2, 1, 0, largest=largest)).pipelines["task"].gears:
        assert {s.largest_batch_size for s in gear.replicas} == {min(largest, BATCH_SIZES[-1])}
        assert all(s.minimum_queue_length <= largest for s in gear.replicas)


def test_a_batch_starts_once_its_queue_should_have_come_and_at_once_where_one_request_is_enough() -> None:
    """At 800 requests/s m1 must batch: each of its two replicas gets 400/s, so that q of them come in q / 400 s."""
    gears = plans().bare(candidate(2, 2, 2, 2)).pipelines["task"].gears
    waiting = {s.minimum_queue_length for s in gears[3].replicas}
    assert max(waiting) > 1
    for gear, top_qps in zip(gears, plans().upper_ends, strict=True):
        for s in gear.replicas:
            fill_s = s.minimum_queue_length / (s.load_share * top_qps) if s.load_share else 0.0
            assert s.longest_wait_s == pytest.approx(fill_s if s.minimum_queue_length > 1 else 0.0)


def test_requests_that_hardly_ever_come_are_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidate_plans, "LONGEST_WAIT_S", 1e-3)
    made = plans_for(plans().request)
    gears = made.bare(candidate(2, 2, 2, 2)).pipelines["task"].gears
    assert {s.longest_wait_s for s in gears[3].replicas if s.minimum_queue_length > 1} == {1e-3}


@pytest.mark.parametrize(
    ("profile", "assignment", "alpha"),
    [
        (PROFILE, (0, 0, 0, 0), 8.0),
        (PROFILE, (3, 0, 0, 0), 8.0),
        (SLOW, (0, 0, 0, 0), 1 / (4 * 0.1)),
        (SLOW, (2, 0, 0, 0), 1 / (4 * 0.3)),
        (SLOW, (3, 2, 0, 0), 1 / (4 * 0.9)),
    ],
)
def test_a_backlog_is_to_be_gone_after_four_runs_of_the_slowest_model_in_use(
    profile: Profile, assignment: Assignment, alpha: float
) -> None:
    of = plans_for(little_request(profile=profile, trace=little_trace(low_qps=1, high_qps=2)))
    made = of.bare(candidate(*assignment, of=of))
    assert made.pipelines["task"].alpha == pytest.approx(alpha, rel=1e-3)


# What simulation says of it -------------------------------------------------------------------------------------------


def test_a_candidate_is_judged_by_its_plan_on_the_searchs_workload() -> None:
    asked = candidate(3, 2, 1, 0)
    request, tried = plans().request, plans().tried(asked)
    workload = draw_workload(request.trace, request.profile.predictions.indices(PART_A), seed=0)
    run = simulate(plans().bare(asked), request.profile, workload)
    assert tried.latency_s == percentile(run.latency_s, 0.95)
    assert tried.accuracy == run.quality(request.profile).mean()
    assert tried.entered == {0, *run.shifts[:, 1].tolist()}
    assert len(tried.entered) > 1
    assert (tried.overload_s, tried.overloaded) == (0.0, None)
    assert tried.score == tried.accuracy / tried.latency_s


def test_the_percentile_is_the_objectives() -> None:
    def latency_s(p: float) -> float:
        of = plans_for(little_request(objective=Objective(latency_s=0.1, percentile=p), devices=2, max_qps=800.0))
        return of.tried(candidate(3, 2, 1, 0, of=of)).latency_s

    assert latency_s(0.5) < latency_s(0.9) < latency_s(0.99)


def test_what_was_tried_is_known_and_not_simulated_again(monkeypatch: pytest.MonkeyPatch) -> None:
    of = plans_for(plans().request)
    asked = candidate(1, 1, 0, 0, of=of)
    assert not of.known(asked)
    first = of.tried(asked)
    assert of.known(asked)
    assert not of.known(candidate(1, 0, 0, 0, of=of))
    assert not of.known(candidate(1, 1, 0, 0, largest=4, of=of))
    monkeypatch.setattr(candidate_plans, "Prepared", None)
    assert of.tried(candidate(1, 1, 0, 0, of=of)) is first


def overload(assignment: Sequence[int], scope: str) -> Tried:
    """On one device that runs nothing but single requests: m0 takes 1.1 ms, m1 3.1 ms; ranges end at 250, 500, ..."""
    request = little_request(objective=Objective(latency_s=0.1, scope=scope), max_qps=1000.0)
    of = plans_for(request)
    return of.tried(candidate(*assignment, largest=1, of=of))


def test_ranges_that_devices_cannot_carry_are_added_up_and_not_simulated() -> None:
    tried = overload((2, 2, 2, 0), "every-range")
    expected = (500 * 0.0031 - 1) + (750 * 0.0031 - 1) + (1000 * 0.0011 - 1)
    assert tried.overload_s == pytest.approx(expected, abs=1e-6)
    assert tried.overloaded == 1
    assert (tried.latency_s, tried.accuracy, tried.score) == (math.inf, 0.0, 0.0)
    assert tried.entered == frozenset()


def test_with_scope_trace_the_cheapest_cascade_may_be_overloaded_but_no_other() -> None:
    assert overload((0, 0, 0, 0), "every-range").overloaded == 3
    assert overload((0, 0, 0, 0), "trace").overloaded is None
    assert overload((0, 0, 0, 0), "trace").latency_s < math.inf
    assert overload((2, 2, 0, 0), "trace").overloaded == 1


def test_a_short_trace_is_searched_whole_and_a_result_on_it_stands() -> None:
    tried = plans().tried(candidate(1, 1, 0, 0))
    assert not plans().sampled
    assert np.array_equal(plans().workload.arrivals_ns, plans().request.trace.arrivals_ns)
    assert plans().on_the_whole_trace(tried) is tried


def test_what_was_searched_on_other_arrivals_is_replayed_on_the_trace() -> None:
    of = plans_for(little_request(latency_s=0.1, devices=2, max_qps=800.0, load="zipf"))
    tried = of.tried(candidate(1, 1, 0, 0, of=of))
    replayed = replay(of.bare(tried.candidate), of.request, part=PART_A, seeds=1)
    again = of.on_the_whole_trace(tried)
    assert of.sampled
    assert (again.latency_s, again.accuracy) == (float(replayed.latency_s[0]), replayed.result.accuracy)
    assert again.latency_s != tried.latency_s
    assert (again.candidate, again.entered) == (tried.candidate, tried.entered)


# Steady state ---------------------------------------------------------------------------------------------------------


def test_gears_are_predicted_at_the_upper_ends_of_their_ranges() -> None:
    asked = candidate(3, 2, 1, 0)
    made, bare = plans().predicted(asked), plans().bare(asked)
    for k, gear in enumerate(made.pipelines["task"].gears):
        cell = plans().cell(asked, k)
        assert gear.predicted is not None
        assert gear.predicted.load_qps == (200.0, 400.0, 600.0, 800.0)[k]
        assert gear.predicted.accuracy == plans().cascades[(3, 2, 1, 0)[k]].accuracy
        assert (gear.predicted.latency_p95_s, gear.predicted.utilisation) == (cell.latency_s, cell.utilisation)
        assert gear.replicas == bare.pipelines["task"].gears[k].replicas
    assert made.pipelines["task"].alpha == bare.pipelines["task"].alpha


def test_a_margin_is_more_load_and_equal_gears_share_a_cell() -> None:
    asked = candidate(2, 2, 1, 0)
    assert plans().cell(asked, 1, margin=1.15).utilisation > plans().cell(asked, 1).utilisation
    assert plans().cell(asked, 1).utilisation > plans().cell(asked, 0).utilisation
    assert plans().cell(asked, 1) is plans().cell(candidate(3, 2, 0, 0), 1)
    assert plans().cell(asked, 1) is not plans().cell(candidate(3, 2, 0, 0, largest=4), 1)


def test_load_goes_where_the_models_are_placed() -> None:
    """With m1 on one device alone, all its load is there."""
    request = plans().request
    first, second = identical_devices(2).devices
    kept = tuple(r for r in everywhere(request).replicas if r.model != "m1" or r.device_ids == (first.id,))
    asked = Candidate((2, 2, 0, 0), Placement(replicas=kept), 8)
    gear = plans().bare(asked).pipelines["task"].gears[0]
    shares = {s.replica: s.load_share for s in gear.replicas if s.load_share > 0}
    assert list(shares.values()) == [1.0]
    assert plans().tried(asked) != plans().tried(candidate(2, 2, 0, 0))
    assert {d for r in kept if r.model == "m0" for d in r.device_ids} == {first.id, second.id}
