from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.caches.ablations import (
    Ablations,
    Candidates,
    Curve,
    by_count,
    candidates_of,
    composition_table,
    curve_of,
    least_at,
    looked,
    memory_table,
    operations,
    right_of,
    with_whole_distribution,
    without_selectors,
)
from benchmarks.shared.bars import Bars
from gearshift.caches.building.exploration import Exploration, explore_module
from gearshift.caches.network.train import Training
from gearshift.caches.store.manifest import Variant
from tests.unit.caches.digit_networks import BLOCKS, digits, network
from tests.unit.caches.instances import instance

SAMPLES = slice(700, 1300)


@cache
def explored() -> Exploration:
    """Little trained variants at the levels of the benchmarks."""
    images, labels = digits()
    variants = "FC(16)", "Pool(32,16)"
    return explore_module(
        network(), images[SAMPLES], labels[SAMPLES], blocks=BLOCKS, variants=variants, training=Training(epochs=15)
    )


def seconds() -> tuple[Any, list[float]]:
    return np.array([1e-3, 1e-3, 4e-3]), [1e-4, 2e-4, 1e-4, 2e-4]


@pytest.mark.parametrize(
    ("agreement", "least"),
    [(1.0, 8.0), (0.98, 4.0), (0.99, 6.0), (0.96, 2.0), (0.97, 3.0), (0.5, 2.0)],
)
def test_at_an_agreement_is_the_best_choice_that_keeps_it_or_mixture_of_two(agreement: float, least: float) -> None:
    """The third is worse than its neighbours' mixture."""
    agreements, seconds = np.array([1.0, 0.98, 0.97, 0.96]), np.array([8.0, 4.0, 3.9, 2.0])
    assert least_at(agreement, agreements, seconds) == pytest.approx(least)


def test_the_model_alone_is_always_there_to_keep_an_agreement() -> None:
    problem = instance(0, 4, 2, samples=50, memory=False)
    curve = curve_of(problem, problem)
    assert curve.right[0].all()
    assert np.unique(curve.seconds[0]) == pytest.approx(problem.base_s)
    every = np.arange(50)
    slowest = [curve.seconds_at(agreement, every) for agreement in (1.0, 0.98, 0.95)]
    assert slowest == sorted(slowest, reverse=True)
    assert Curve(curve.seconds[:1], curve.right[:1]).seconds_at(0.5, every) == pytest.approx(problem.base_s)


def test_an_answer_is_right_where_the_first_cache_that_hits_is_or_none_hits() -> None:
    problem = instance(1, 3, 1, samples=40, memory=False)
    assert problem.hits is not None
    assert problem.right is not None
    hits, right = problem.hits, problem.right
    expected = np.where(hits[0], right[0], np.where(hits[2], right[2], True))
    assert right_of(problem, (0, 2)).tolist() == expected.tolist()
    assert right_of(problem, ()).all()


@pytest.mark.long
def test_tables_have_every_method_and_rows_against_the_first(capsys: pytest.CaptureFixture[str]) -> None:
    problem = instance(2, 5, 2, samples=200, memory=False)
    entries = [
        Variant(
            layer=int(layer),
            block=str(layer),
            variant="FC(16)",
            level=0.98,
            shape=(8,),
            hit_rate=0.5,
            accuracy=1.0,
            lookup_s=1e-4,
            memory_bytes=1,
        )
        for layer in problem.layer
    ]
    among, bars = Candidates(problem, problem, entries), Bars()
    composition_table(among, "in line", bars)
    memory_table(among)
    ablations = Ablations(problem.target)
    ablations.row("all of it", among)
    ablations.row("early ones alone", among.only(lambda entry: entry.layer < 2))
    rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines()]
    named = [row[0].removeprefix("| ").partition(",")[0] for row in rows]
    for method in ("relaxation", "greedy by latency gain", "greedy by hit rate", "exact", "joint", "by price"):
        assert named.count(method) == 1
    assert sum("MiB" in row[0] for row in rows) >= 2
    assert len(bars.judged) == 2
    against_first = {row[0].removeprefix("| "): row[-1] for row in rows}
    assert against_first["all of it"] == "+0.0% (+0.0% to +0.0%) |"
    assert against_first["early ones alone"].startswith("+")


@pytest.mark.long
def test_on_the_validation_samples_every_cache_does_what_exploration_recorded() -> None:
    images, _ = digits()
    made = explored()
    found = candidates_of(made, made.explored, images[SAMPLES][made.split.check], seconds(), 0.97)
    assert found.problem.hits is not None
    assert found.unseen.hits is not None
    assert found.problem.hits.any()
    assert found.unseen.hits.tolist() == found.problem.hits.tolist()
    assert np.asarray(found.unseen.right).tolist() == np.asarray(found.problem.right).tolist()


@pytest.mark.long
def test_what_is_left_out_is_so_in_every_column() -> None:
    images, _ = digits()
    made = explored()
    every = candidates_of(made, made.explored, images[:50], seconds(), 0.97)
    pools: Candidates = every.only(lambda entry: entry.variant.startswith("Pool"))
    rows = [v for v, entry in enumerate(every.entries) if entry.variant.startswith("Pool")]
    assert 0 < len(pools.entries) == len(pools.problem) == len(pools.unseen) == len(rows)
    assert pools.problem.lookup_s.tolist() == every.problem.lookup_s[rows].tolist()
    assert np.asarray(pools.unseen.hits).tolist() == np.asarray(every.unseen.hits)[rows].tolist()
    assert np.asarray(pools.problem.level).tolist() == np.asarray(every.problem.level)[rows].tolist()


@pytest.mark.long
def test_without_a_selector_a_predictor_is_trusted_by_its_highest_probability() -> None:
    images, _ = digits()
    made = explored()
    own = without_selectors(made, images[SAMPLES])
    judged = images[SAMPLES][made.split.judge]
    with_selector, found = (looked(made.chain, each, judged) for each in (made.explored, own))
    assert found.best.tolist() == with_selector.best.tolist()
    assert 0.1 <= found.sure.min() <= found.sure.max() <= 1
    shown = 0
    for i, one in enumerate(own):
        for level, threshold in zip(one.trained.levels, one.trained.thresholds, strict=True):
            hits = found.sure[i] >= np.float32(threshold)
            assert (found.best[i] == found.base)[hits].mean() >= level
            shown += 1
    assert shown
    assert own[0].trained.cache.memory_bytes < made.explored[0].trained.cache.memory_bytes


@pytest.mark.long
def test_selectors_of_the_whole_distribution_judge_the_same_predictors() -> None:
    images, _ = digits()
    made = explored()
    own = with_whole_distribution(made, images[SAMPLES], Training())
    judged = images[SAMPLES][made.split.judge]
    before, found = (looked(made.chain, each, judged) for each in (made.explored, own))
    assert found.best.tolist() == before.best.tolist()
    assert {one.trained.cache.selector[0].in_features for one in own} == {10}
    assert any(one.trained.hits.any() for one in own)
    for i, one in enumerate(own):
        for level, threshold in zip(one.trained.levels, one.trained.thresholds, strict=True):
            assert (found.best[i] == found.base)[found.sure[i] >= np.float32(threshold)].mean() >= level


@pytest.mark.long
def test_operations_share_out_the_models_time_and_charge_lookups_at_its_rate() -> None:
    images, _ = digits()
    made = explored()
    measured = candidates_of(made, made.explored, images[:50], seconds(), 0.97)
    counted = by_count(measured.problem, made.chain, measured.entries, made.explored, images[:1])
    assert counted.base_s == pytest.approx(measured.problem.base_s)
    assert operations(torch.nn.Linear(8, 4), torch.zeros(3, 8))[0] == 2 * 3 * 8 * 4
    counts = [operations(one.trained.cache, torch.zeros(1, *one.shape))[0] for one in made.explored]
    by_name = {(one.layer, one.variant): count for one, count in zip(made.explored, counts, strict=True)}
    rates = [
        lookup_s / by_name[entry.layer, entry.variant]
        for lookup_s, entry in zip(counted.lookup_s, measured.entries, strict=True)
    ]
    assert rates == pytest.approx([rates[0]] * len(rates))
