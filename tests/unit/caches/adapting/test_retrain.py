from copy import deepcopy

import msgspec
import numpy as np
import pytest
import torch

from gearshift.caches.adapting.retrain import (
    NINE_TO_ONE,
    Counted,
    Judged,
    LabelledFeatures,
    Predictions,
    _set_anew,
    contradicted,
    judge,
    offers_of,
    predictions_of,
    weak_class,
    with_prior,
)
from gearshift.caches.network.learned_cache import PRIOR, LearnedCache, learned_cache, restored
from gearshift.caches.network.train import counted_like, threshold_by_level, thresholds_of
from tests.unit.caches.digit_networks import built


def judged(agreement: float) -> Judged:
    return Judged(agreement=agreement, latency_s=1.0, exits=())


def cache() -> LearnedCache:
    torch.manual_seed(0)
    return learned_cache("FC(16)", (12,), 4).eval().requires_grad_(False)


def test_a_prior_makes_a_class_so_many_times_as_likely_against_the_others() -> None:
    one, hidden = cache(), torch.randn((20, 12))
    plain, _ = one(hidden)
    set_anew = with_prior({0: one}, np.log([8.0, 1.0, 1.0, 1.0]))[0]
    raised, _ = set_anew(hidden)
    assert torch.allclose(raised[:, 0] / raised[:, 1], 8 * plain[:, 0] / plain[:, 1], rtol=1e-4)
    assert torch.allclose(raised[:, 2] / raised[:, 3], plain[:, 2] / plain[:, 3], rtol=1e-4)
    assert torch.equal(one(hidden)[0], plain)


def test_a_cache_that_was_saved_before_there_was_a_prior_has_none() -> None:
    one = cache()
    state = {name: tensor for name, tensor in one.state_dict().items() if name != PRIOR}
    hidden = torch.randn((5, 12))
    again = restored(learned_cache("FC(16)", (12,), 4), state)
    assert torch.equal(again(hidden)[0], one(hidden)[0])
    with pytest.raises(RuntimeError, match="Missing key"):
        restored(learned_cache("FC(16)", (12,), 4), {PRIOR: one.prior})


def test_what_predictors_say_is_without_their_prior() -> None:
    one = cache()
    set_anew = with_prior({0: one}, np.array([3.0, 0.0, 0.0, 0.0]))
    features = np.random.default_rng(0).normal(size=(600, 12)).astype(np.float32)
    labelled = LabelledFeatures(
        {0: features}, np.eye(4, dtype=np.float32)[np.zeros(600, dtype=int)], np.zeros(600, dtype=int)
    )
    predictions = predictions_of(set_anew, labelled)
    with torch.no_grad():
        assert predictions.logits[0] == pytest.approx(one.predictor(torch.from_numpy(features)).numpy(), abs=1e-5)
    assert predictions.best.tolist() == [0] * 600


def test_samples_of_different_weight_tell_as_much_as_fewer_alike() -> None:
    assert counted_like(np.ones(50)) == pytest.approx(50)
    assert counted_like(np.array([1.0] * 10 + [0.0] * 90)) == pytest.approx(10)


def test_thresholds_are_set_by_what_samples_count() -> None:
    sure = np.linspace(1, 0, 100, dtype=np.float32)
    agrees = np.arange(100) % 10 != 9
    ((_, plain),) = thresholds_of(sure, agrees, (0.85,))
    assert threshold_by_level(sure, agrees, (0.85,), np.full(100, 7.0)) == {0.85: plain}
    assert not threshold_by_level(sure, agrees, (0.85,), np.where(agrees, 1.0, 4.0))


def test_levels_with_the_same_threshold_are_offered_once_and_known_by_all() -> None:
    sure, agrees = np.linspace(1, 0, 50, dtype=np.float32), np.ones(50, dtype=bool)
    assert thresholds_of(sure, agrees, (0.8, 0.9)) == [(0.9, 0.0)]
    assert threshold_by_level(sure, agrees, (0.8, 0.9), np.ones(50)) == {0.8: 0.0, 0.9: 0.0}


def test_a_sample_counts_as_hit_by_thresholds_that_others_set() -> None:
    rng = np.random.default_rng(0)
    sure = rng.random(400).astype(np.float32)
    right = rng.random(400) < 0.5 + 0.5 * sure
    trained = _set_anew(cache(), sure, right, np.ones(400), rng.permutation(400) % 10)
    for level, threshold, hits in zip(trained.levels, trained.thresholds, trained.hits, strict=True):
        inside = right[sure >= threshold].mean()
        outside = right[hits].mean()
        assert inside >= level - 0.01
        assert outside <= inside + 0.01


def test_of_samples_unknown_half_are_wrong_and_few_samples_prove_little() -> None:
    predictions = Predictions({}, np.zeros(100, dtype=np.int64))
    wrong = np.arange(100) < 2
    share = 2.5 / 101
    assert Counted(predictions, np.ones(100)).share_wrong(wrong) == pytest.approx(
        share + NINE_TO_ONE * (share * (1 - share) / 101) ** 0.5
    )
    assert Counted(predictions, np.ones(100), unknown=100.0).share_wrong(wrong) > 0.25
    few = Counted(predictions, np.full(100, 0.1))
    assert few.share_wrong(np.zeros(100, dtype=bool)) > Counted(predictions, np.ones(100)).share_wrong(wrong)


def test_hits_unknown_are_half_wrong_for_who_is_judged() -> None:
    manifest = msgspec.structs.replace(built().manifest, segment_s=(1.0,) * 6)
    (entry, *_) = manifest.chosen
    one = deepcopy(built().model.caches[entry.layer])
    one.threshold.fill_(-torch.inf)
    logits = np.zeros((50, 10), dtype=np.float32)
    logits[:, 3] = 9.0
    predictions = Predictions({entry.layer: logits}, np.full(50, 3))
    assert judge({entry.layer: one}, Counted(predictions, np.ones(50)), manifest).agreement == 1
    assert judge({entry.layer: one}, Counted(predictions, np.ones(50), unknown=50.0), manifest).agreement == 0.75
    one.threshold.fill_(torch.inf)
    assert judge({entry.layer: one}, Counted(predictions, np.ones(50), unknown=50.0), manifest).agreement == 1


def test_a_class_that_agrees_less_is_found_whatever_the_mean() -> None:
    manifest = msgspec.structs.replace(built().manifest, segment_s=(1.0,) * 6, target=0.9)
    (entry, *_) = manifest.chosen
    one = deepcopy(built().model.caches[entry.layer])
    one.threshold.fill_(-torch.inf)
    best = np.where(np.arange(300) < 20, 5, 3)
    logits = np.zeros((300, 10), dtype=np.float32)
    logits[:, 3] = 9.0
    weak = weak_class({entry.layer: one}, Predictions({entry.layer: logits}, best), manifest)
    assert weak == (5, 0.0)
    assert weak_class({entry.layer: one}, Predictions({entry.layer: logits}, np.full(300, 3)), manifest) is None


def test_what_speaks_against_a_version_is_more_than_luck_and_more_than_against_the_one_in_use() -> None:
    assert contradicted(judged(0.99), judged(0.96), 0.97, counted=100) == ""
    assert (
        contradicted(judged(0.99), judged(0.90), 0.97, counted=100)
        == "agrees on 90.00% of recent samples, needs 97.00%"
    )
    assert contradicted(judged(0.89), judged(0.90), 0.97, counted=100) == ""


def test_a_class_that_dominates_is_told_earlier_by_caches_that_are_set_for_it() -> None:
    """What a predictor is not sure of among all classes it is sure of where one of them hardly comes."""
    manifest = msgspec.structs.replace(built().manifest, segment_s=(1.0,) * 6, target=0.9)
    rng = np.random.default_rng(0)
    labels = np.arange(2000) % 2
    logits = np.zeros((2000, 10), dtype=np.float32)
    logits[:, :2] = 4.0
    logits[np.arange(2000), labels] += rng.normal(1.0, 1.0, 2000).astype(np.float32)
    predictions = Predictions({0: logits}, labels)
    shares = {}
    for name, share in (("even", 0.5), ("one", 0.95)):
        mix = np.array([share, 1 - share] + [1e-9] * 8)
        weights = np.where(labels == 0, share, 1 - share) * 2
        caches = with_prior({0: built().model.caches[0]}, np.log(mix / np.array([0.5, 0.5] + [1e-9] * 8)))
        found = offers_of(caches, Counted(predictions, weights), manifest, 0).chosen(manifest.target)
        shares[name] = judge(found.in_use, Counted(predictions, weights), manifest).exits[0]
        assert judge(found.in_use, Counted(predictions, weights), manifest).agreement >= 0.9
    assert shares["one"] > shares["even"] + 0.1
