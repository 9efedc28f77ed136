from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.planner.constrained_space import Assignment, Replays, front_of, front_search, search_all
from benchmarks.shared.judging import Point, volume, worst_model
from gearshift.cascade import Cascade
from gearshift.objective import Objective
from gearshift.planner.evaluate.confirm import replay
from gearshift.planner.search.optimal import restricted
from gearshift.planner.space.cascade_search import CandidateCascade, evaluate_cascade
from gearshift.planner.space.hosts import place_everywhere
from gearshift.planner.space.pareto import undominated
from gearshift.planner.space.request import PlanRequest
from gearshift.profiles.profile import PART_A, PredictionRecords, Profile, RunTimeCurve
from gearshift.workload import Trace
from tests.often import often
from tests.unit.planner.little import little_request

FAST_S, SLOW_S = 0.01, 0.04


def by_hand(*, requests: int, gap_s: float) -> PlanRequest:
    """A model that is half right in 10 ms, one that is always right in 40 ms; requests so far apart that none wait."""
    samples = 8
    quality = np.array([np.arange(samples) % 2 == 0, np.ones(samples)], dtype=np.float64)
    records = PredictionRecords(
        models=("fast", "slow"),
        quality=quality,
        certainty=np.ones((2, samples)),
        part=np.repeat([0, 1], 4).astype(np.int8),
    )
    curves = tuple(
        RunTimeCurve(model=m, batch_sizes=(1,), median_s=(s,), p95_s=(s,))
        for m, s in (("fast", FAST_S), ("slow", SLOW_S))
    )
    arrivals_ns = np.arange(requests, dtype=np.int64) * round(gap_s * 1e9)
    return little_request(
        profile=Profile(operator="task", curves=curves, predictions=records),
        trace=Trace(arrivals_ns, requests * gap_s),
        objective=Objective(latency_s=0.05, percentile=0.5, scope="trace"),
        ranges=2,
        max_qps=30.0,
    )


def single_models(request: PlanRequest) -> list[CandidateCascade]:
    work_s = {"fast": FAST_S, "slow": SLOW_S}
    records = request.profile.predictions
    return [evaluate_cascade(Cascade(models=(m,)), records, work_s, part=PART_A) for m in work_s]


def replays_of(request: PlanRequest) -> Replays:
    placement = place_everywhere(request.profile, request.hardware)
    return Replays(request, single_models(request), placement, part=PART_A, seed=0)


def test_where_one_range_is_visited_its_cascade_alone_decides() -> None:
    # 20 requests, 100 ms apart: ten a second, in the range [0, 15).
    space = search_all((2, 2), replays_of(by_hand(requests=20, gap_s=0.1)).replayed)
    fast, slow = [FAST_S, 0.5], [SLOW_S, 1.0]
    assert space.replays == 2
    assert space.points.tolist() == [[fast, fast], [slow, slow]]
    assert space.front() == [(0, 0), (1, 0)]


def test_where_two_ranges_are_visited_every_assignment_is_replayed() -> None:
    # 20 a second: the run begins in range 0 and shifts to range 1, [15, inf), at the first tick with two arrivals.
    # That is the one at 100 ms: requests 0 and 1 arrived before it, 2 at it.  So 2 of 40 are served in range 0, unless
    # a slow request is under way at the tick: the gear in force when it ends is range 1's, which lacks its model.
    space = search_all((2, 2), replays_of(by_hand(requests=40, gap_s=0.05)).replayed)
    assert space.replays == 4
    assert space.points[0, 0].tolist() == [FAST_S, 0.5]
    assert space.points[1, 1].tolist() == [SLOW_S, 1.0]
    assert space.points[0, 1, 0] == SLOW_S
    assert space.points[1, 0, 0] == FAST_S
    assert space.points[1, 0, 1] in (0.5, 0.5 + 1 / 40)
    assert space.points[0, 1, 1] in (1.0 - 1 / 40, 1.0)


def test_a_fixed_range_is_not_searched() -> None:
    space = search_all((2, 1), replays_of(by_hand(requests=40, gap_s=0.05)).replayed)
    assert space.points.shape == (2, 1, 2)
    assert space.replays == 2


def test_the_hypervolume_is_what_it_is_by_hand() -> None:
    request = by_hand(requests=20, gap_s=0.1)
    assert worst_model(request) == 0.5
    # The fast model is no better than the worst; the slow one gains 0.5 over latencies from 40 to 500 ms.
    assert volume([(FAST_S, 0.5), (SLOW_S, 1.0)], request, slo_s=0.05) == pytest.approx(0.5 * np.log(0.5 / 0.04))


def test_a_replay_on_tables_is_the_replay_of_the_plan() -> None:
    request = by_hand(requests=40, gap_s=0.05)
    placement = place_everywhere(request.profile, request.hardware)
    plans = restricted(candidates=single_models(request), placement=placement).frontier(request)
    models = ("fast", "slow")
    for made in plans:
        gears = made.pipelines["task"].gears
        starts_qps = [0.0, *request.upper_ends()[:-1]]
        in_force = [[gear for gear in gears if gear.load_range.from_ <= start][-1] for start in starts_qps]
        assignment = tuple(models.index(gear.cascade.models[0]) for gear in in_force)
        once = replay(made, request, part=PART_A, seeds=1)
        (latency_s, accuracy), _ = replays_of(request).replayed(assignment)
        assert (latency_s, accuracy) == (float(once.latency_s[0]), once.result.accuracy)


Instance = tuple[tuple[int, ...], Callable[[Assignment], tuple[Point, set[int]]]]


@st.composite
def instances(draw: st.DrawFn) -> Instance:
    """Runs that visit range 0, and then up to a range that depends on what is chosen in it."""
    choices = tuple(draw(st.lists(st.integers(1, 3), min_size=1, max_size=4)))
    reach = draw(st.lists(st.integers(1, len(choices)), min_size=3, max_size=3))

    def replayed(assignment: Assignment) -> tuple[Point, set[int]]:
        in_force = assignment[: reach[assignment[0]]]
        latency_s = 1.0 + sum((a * 7 + k * 3) % 5 for k, a in enumerate(in_force))
        accuracy = sum((a * 5 + k) % 7 for k, a in enumerate(in_force)) / 32
        return (latency_s, accuracy), set(range(len(in_force)))

    return choices, replayed


@settings(deadline=None, derandomize=True, max_examples=often(100))
@given(instances())
def test_sharing_replays_changes_no_point(instance: Instance) -> None:
    choices, replayed = instance
    space = search_all(choices, replayed)
    for assignment in product(*map(range, choices)):
        assert tuple(space.points[assignment]) == replayed(assignment)[0]
    assert space.replays <= len(space.flat())


@settings(deadline=None, derandomize=True, max_examples=often(100))
@given(instances(), st.integers(1, 100))
def test_a_plain_search_sees_nothing_twice_and_in_the_end_everything(instance: Instance, replays: int) -> None:
    choices, replayed = instance
    space = search_all(choices, replayed)
    seen = front_search(space, replays, seed=0)
    assert len(seen) == len(set(seen)) == min(replays, len(space.flat()))
    assert set(seen) <= set(product(*map(range, choices)))


@settings(deadline=None, derandomize=True, max_examples=often(100))
@given(st.lists(st.tuples(st.integers(1, 6), st.integers(0, 6)), min_size=1, max_size=30))
def test_the_front_of_many_points_is_that_of_pareto(points: list[tuple[int, int]]) -> None:
    assert front_of(np.array(points, dtype=np.float64)) == undominated(points)
