import numpy as np

from gearshift.planner.joint.candidates import OffFront, likely, tails_s, tuples_of, two_changed
from gearshift.planner.joint.replay import replay
from gearshift.planner.joint.steady import SteadyTuples, most_visits, place
from tests.unit.planner.joint.strips import strips


def test_tuples_that_differ_at_two_nodes_are_all_those() -> None:
    found = {tuple(row) for row in two_changed((0, 1, 2), (2, 3, 4)).tolist()}
    every = {(a, b, c) for a in range(2) for b in range(3) for c in range(4)}
    assert found == {each for each in every if sum(x != y for x, y in zip(each, (0, 1, 2), strict=True)) <= 2}
    assert {tuple(row) for row in two_changed((1,), (3,)).tolist()} == {(1,)}


def test_what_is_likely_follows_from_traits_of_what_was_seen() -> None:
    generator = np.random.default_rng(0)
    seen = generator.random((12, 2))
    latency_s = np.exp(-3 + seen @ [1.0, 2.0])
    of = np.array([[0.0, 0.0], [1.0, 1.0]])
    assert likely(of, seen, latency_s, np.exp(-2.9)).tolist() == [True, False]
    assert likely(of, seen, latency_s, np.exp(0.1)).tolist() == [True, True]


def test_tails_are_percentiles_over_requests() -> None:
    tuples = tuples_of(strips(latency_s=0.1))
    chosen = tuples.front().chosen[[0, -1]]
    found = tails_s(tuples.query, tuples.answers, chosen, 0.9)
    each = {node: tuples.answers[node].of(chosen[1:, i]) for i, node in enumerate(tuples.query.places)}
    assert found[1] == np.percentile(replay(tuples.query, each).work_s, 90)
    assert found[0] <= found[1]


def test_a_tuple_off_the_front_takes_the_place_only_if_it_holds_and_is_more_accurate() -> None:
    request = strips(latency_s=0.1)
    tuples = tuples_of(request)
    front = tuples.candidates(tuples.front().chosen)
    steady = SteadyTuples(request, place(request.profiles.values(), request.hardware, most_visits(front)))
    off_front, load_qps = OffFront(tuples), 20.0
    cheapest, dearest = front[0], front[-1]
    assert off_front.better(steady, cheapest, load_qps, dearest.work_s) is cheapest, "nothing was seen yet"
    for candidate in front[:: max(1, len(front) // 8)]:
        steady.best(candidate, load_qps)
    found = off_front.better(steady, cheapest, load_qps, dearest.work_s)
    assert found.quality > cheapest.quality
    assert steady.holding(found, load_qps) is not None
    assert off_front.better(steady, cheapest, load_qps, cheapest.work_s) is cheapest, "nothing has no more work"


def test_tuples_of_models_that_are_on_no_device_are_not_looked_at() -> None:
    request = strips(latency_s=0.1)
    tuples = tuples_of(request).of_models({"cut", "small", "add"})
    assert {model for of in tuples.cascades.values() for each in of for model in each.models} == {"cut", "small", "add"}
    front = tuples.candidates(tuples.front().chosen)
    steady = SteadyTuples(request, place(request.profiles.values(), request.hardware, most_visits(front)))
    assert "large" not in steady.placement.models
    off_front, load_qps = OffFront(tuples), 20.0
    for largest in steady.sizes():
        for near_qps in (load_qps, 1.05 * load_qps):
            steady.cell(front[-1], near_qps, largest)
    assert off_front.better(steady, front[0], load_qps, front[-1].work_s) is front[0]
