import itertools

import numpy as np
import pytest

from gearshift.planner.cores.cores import Option, fewest_core_seconds, worth_asking

POOL = 6
CHAINS = ((0,), (1,), (2,), (0, 1), (0, 2), (0, 1, 2))


def drawn(seed: int) -> tuple[list[list[Option]], np.ndarray, np.ndarray, float]:
    generator = np.random.default_rng(seed)
    options = [
        [
            Option(c, chain, float(generator.integers(50, 100)) / 100, len(chain) + int(generator.integers(0, 4)))
            for c, chain in enumerate(CHAINS)
        ]
        for _ in range(3)
    ]
    time, requests = generator.dirichlet(np.ones(3)), generator.dirichlet(np.ones(3))
    return options, time, requests, float(generator.uniform(0.6, 0.95))


def core_seconds(chosen: tuple[Option, ...], time: np.ndarray) -> tuple[float, int]:
    """The mean cores that are held, and the most in any range."""
    loaded = {model for option in chosen for model in option.models}
    held = [option.cores + len(loaded - set(option.models)) for option in chosen]
    return float(time @ held), max(held)


@pytest.mark.parametrize("seed", range(40))
def test_no_choice_of_all_that_reach_the_accuracy_holds_fewer_cores(seed: int) -> None:
    options, time, requests, accuracy = drawn(seed)
    costs = []
    for chosen in itertools.product(*options):
        cost, most = core_seconds(chosen, time)
        right = sum(w * o.accuracy for w, o in zip(requests, chosen, strict=True))
        if most <= POOL and right >= accuracy:
            costs.append((cost, -right))
    found = fewest_core_seconds(
        [worth_asking(row) for row in options], time, requests, most_cores=POOL, accuracy=accuracy
    )
    if not costs:
        assert found is None
        return
    assert found is not None
    cost, most = core_seconds(tuple(found), time)
    right = sum(w * o.accuracy for w, o in zip(requests, found, strict=True))
    assert most <= POOL
    assert cost == pytest.approx(min(costs)[0])
    assert right == pytest.approx(max(-negative for each, negative in costs if each <= min(costs)[0] + 1e-6))


def test_ranges_that_are_hardly_ever_visited_do_not_make_it_infeasible() -> None:
    """Such weights are below what the solver takes for a rounding error."""
    chains = ((0, 3), (0, 1, 3), (0, 2, 3), (3,))
    accuracies, cores = (0.9451860091459646, 0.8936, 0.9062229637869238, 0.9325), ((3, 3, 4, 5), (3,) * 4, (3,) * 4)
    options = [
        [Option(c, chains[c], accuracies[c], cores[c][r] if c < len(cores) else 2) for c in range(len(chains))]
        for r in range(4)
    ]
    time = np.array([1.66766667e-03, 1.00000000e-06, 9.26667667e-01, 7.16676667e-02])
    requests = np.array([3.46120761e-03, 1.00000000e-06, 9.26183238e-01, 7.03585548e-02])
    found = fewest_core_seconds(options, time, requests, most_cores=16, accuracy=0.9428770238536646)
    assert found is not None
    assert sum(w * o.accuracy for w, o in zip(requests, found, strict=True)) >= 0.9428770238536646 * requests.sum()


def test_without_an_accuracy_the_most_accurate_choice_within_the_cores_is_made() -> None:
    row = [Option(0, (0,), 0.7, 1), Option(1, (0, 1), 0.8, 3), Option(2, (2,), 0.9, 6)]
    ones = np.ones(2)
    assert fewest_core_seconds([row, row], ones, ones, most_cores=5, accuracy=None) == [row[1], row[1]]
    assert fewest_core_seconds([row, row], ones, ones, most_cores=6, accuracy=None) == [row[2], row[2]]


def test_a_loaded_model_holds_a_core_in_every_range() -> None:
    small, large = Option(0, (0,), 0.7, 1), Option(1, (1,), 0.9, 3)
    rows, seldom = [[small, large]] * 2, np.array([0.9, 0.1])
    assert fewest_core_seconds(rows, seldom, np.ones(2), most_cores=4, accuracy=0.75) == [small, large]
    assert fewest_core_seconds(rows, seldom, np.ones(2), most_cores=3, accuracy=0.75) == [large, large]
