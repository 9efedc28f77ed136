from dataclasses import replace

import msgspec
import numpy as np
import pytest

from gearshift.caches.building import compose
from gearshift.caches.building.choosing import as_choice
from gearshift.caches.building.problem import Problem, joint_outcome, nested_outcome, wrong_of
from gearshift.errors import InvalidInput
from tests.unit.caches.instances import instance, least_latency_s


def two_layers(**changed: object) -> Problem:
    """Ten samples; the first cache hits four of them, the second seven, one of which wrongly."""
    hits = np.array([[1, 1, 1, 1, 0, 0, 0, 0, 0, 0], [0, 1, 1, 1, 1, 1, 1, 1, 0, 0]], dtype=np.bool_)
    right = np.array([[1, 1, 1, 1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 1, 1, 1, 1, 1]], dtype=np.bool_)
    fields: dict[str, object] = {
        "layer_s": np.array([2.0, 3.0, 5.0]),
        "layer": np.array([0, 1]),
        "hit_rate": hits.mean(axis=1),
        "accuracy": np.array([1.0, 6 / 7]),
        "lookup_s": np.array([1.0, 0.5]),
        "memory_bytes": np.array([10.0, 20.0]),
        "target": 0.9,
        "hits": hits,
        "right": right,
    }
    return Problem(**(fields | changed))  # type: ignore[arg-type]


def test_nested_hits_count_what_a_cache_adds_to_the_best_before_it() -> None:
    found = nested_outcome(two_layers(beside=True), (0, 1))
    assert found.latency_s == pytest.approx(0.4 * (2 + 1) + 0.3 * (5 + 0.5) + 0.3 * 10)
    assert found.accuracy == pytest.approx(1 - 0.3 / 7)


def test_lookups_in_line_delay_those_that_miss_too() -> None:
    found = nested_outcome(two_layers(), (0, 1))
    assert found.latency_s == pytest.approx(0.4 * (2 + 1) + 0.3 * (5 + 1.5) + 0.3 * (10 + 1.5))


def test_joint_hits_count_each_sample_where_it_leaves_first() -> None:
    found = joint_outcome(two_layers(), (0, 1))
    assert found.latency_s == pytest.approx(0.4 * 3 + 0.4 * 6.5 + 0.2 * 11.5)
    assert found.accuracy == pytest.approx(0.9)
    beside = joint_outcome(two_layers(beside=True), (0, 1))
    assert beside.latency_s == pytest.approx(0.4 * 3 + 0.4 * 5.5 + 0.2 * 10)


def test_no_caches_take_as_long_as_the_model_and_err_never() -> None:
    for found in (nested_outcome(two_layers(), ()), joint_outcome(two_layers(), ())):
        assert (found.latency_s, found.accuracy) == (10, 1)


def test_a_cache_that_hits_less_than_one_before_it_does_not_make_later_ones_count_anew() -> None:
    problem = two_layers(
        layer=np.array([0, 1, 2]),
        hit_rate=np.array([0.9, 0.1, 0.9]),
        accuracy=np.ones(3),
        lookup_s=np.zeros(3),
        memory_bytes=np.zeros(3),
        hits=None,
        right=None,
    )
    assert nested_outcome(problem, (0, 1, 2)).latency_s == pytest.approx(0.9 * 2 + 0.1 * 10)


@pytest.mark.parametrize("beside", [False, True])
def test_exact_and_joint_equal_trying_every_choice_on_small_problems(beside: bool) -> None:
    for seed in range(12):
        problem = instance(seed, 1 + seed % 5, 1 + seed % 3, beside=beside, samples=60, memory=seed % 3 > 0)
        found = compose.exact(problem)
        assert found.expected.latency_s == pytest.approx(least_latency_s(problem, joint=False), rel=1e-12)
        assert found.expected.accuracy >= problem.target - 2e-9
        assert problem.fits(found.chosen)
        joint = compose.joint(problem)
        assert joint.gap_s == 0
        assert joint.measured is not None
        assert joint.measured.latency_s == pytest.approx(least_latency_s(problem, joint=True), rel=1e-12)
        assert joint.measured.accuracy >= problem.target - 1e-9


@pytest.mark.parametrize("seeds", [range(8), pytest.param(range(8, 200), marks=pytest.mark.long)])
def test_exact_is_never_worse_than_relaxation_or_greed(seeds: range) -> None:
    better = 0
    for seed in seeds:
        problem = instance(seed, 3 + seed % 9, 1 + seed % 4, beside=bool(seed % 2), memory=seed % 4 > 0)
        *others, exact = compose.compose_all(problem)
        least = min(one.expected.latency_s for one in others)
        assert exact.expected.latency_s <= least * (1 + 1e-12)
        better += exact.expected.latency_s < least * 0.999
        assert all(problem.fits(one.chosen) for one in (*others, exact))
        assert all(one.expected.accuracy >= problem.target - 2e-9 for one in (*others, exact))
    assert better > 0


def test_joint_hits_give_no_worse_choice_than_any_other_method_that_meets_the_target() -> None:
    problem = instance(3, 8, 4, samples=200)
    *others, joint = compose.compose_all(problem, most_nodes=50)
    assert joint.measured is not None
    assert wrong_of(problem, joint.chosen) <= problem.most_wrong
    for other in others:
        assert other.measured is not None
        if wrong_of(problem, other.chosen) <= problem.most_wrong:
            assert joint.measured.latency_s <= other.measured.latency_s


def test_a_search_that_is_cut_short_says_how_much_better_a_choice_might_be() -> None:
    problem = instance(5, 12, 6, samples=200, memory=False)
    cut, whole = compose.joint(problem, most_nodes=1), compose.joint(problem, most_nodes=30)
    assert cut.measured is not None
    assert whole.measured is not None
    assert cut.gap_s > whole.gap_s >= 0
    assert cut.measured.latency_s - cut.gap_s <= whole.measured.latency_s - whole.gap_s + 1e-12
    assert msgspec.json.encode(as_choice(cut)), "a manifest holds it, so it has no numbers of NumPy's"


def test_caches_that_no_sample_reaches_are_left_out() -> None:
    every, problem = np.ones(10, dtype=np.bool_), two_layers()
    problem = replace(problem, hits=np.array([every, every]), right=np.array([every, every]))
    assert compose.joint(problem, [(0, 1)]).chosen == (0,)


def test_memory_bounds_every_method() -> None:
    problem = replace(instance(2, 6, 3, samples=50), memory_budget_bytes=30.0)
    for found in compose.compose_all(problem):
        assert found.memory_bytes <= 30


def test_what_lookups_in_line_may_delay_bounds_joint_choices_and_greedy_ones() -> None:
    chosen = set()
    for seed in range(6):
        problem = replace(instance(seed, 5, 2, samples=60), delay_budget_s=0.3e-3, memory_budget_bytes=np.inf)
        *_, latency_gain, hit_rate, _, joint = compose.compose_all(problem)
        for found in (latency_gain, hit_rate, joint):
            assert problem.lookup_s[list(found.chosen)].sum() <= 0.3e-3
        assert joint.measured is not None
        assert joint.measured.latency_s == pytest.approx(least_latency_s(problem, joint=True), rel=1e-12)
        chosen.update(joint.chosen)
        beside = replace(problem, beside=True)
        assert beside.fits((0,)) == replace(beside, delay_budget_s=np.inf).fits((0,))
    assert chosen


def test_variants_below_the_target_are_left_out_of_the_relaxation_but_not_of_the_exact_choice() -> None:
    problem = two_layers(target=0.95)
    assert 1 not in compose.relaxation(problem).chosen
    assert 1 in compose.exact(problem).chosen  # three tenths beyond the first cache, of which a seventh is wrong


@pytest.mark.long
def test_hundred_layers_of_six_variants_are_composed_exactly() -> None:
    problem = instance(0, 100, 6)
    found = compose.exact(problem)
    others = compose.relaxation(problem), compose.greedy(problem, "latency gain"), compose.greedy(problem, "hit rate")
    assert found.expected.latency_s < min(0.7 * problem.base_s, *(one.expected.latency_s for one in others))


def test_an_impossible_target_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"the accuracy target is 97; give a share above 0, up to 1"):
        two_layers(target=97)
