import math
from copy import deepcopy
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from torch import nn

from gearshift.caches.adapting import successor
from gearshift.caches.adapting.adapter import MOST_TO_LEARN, SAVED_EVERY, Adapter, open_adapter
from gearshift.caches.adapting.class_mix import Mix
from gearshift.caches.adapting.retrain import Counted, Judged, Offers, Predictions, Retrained, shown, worse
from gearshift.caches.adapting.settings import Counts, adaptation_of
from gearshift.caches.adapting.training_samples import CHECK, JUDGE, TrainingSamples
from gearshift.caches.loading import load_caches
from gearshift.caches.network.learned_cache import LearnedCache, make_predictor, split_predictor
from gearshift.caches.network.tracing import chain_of
from gearshift.caches.network.train import Trained
from gearshift.caches.store.manifest import MANIFEST, read_manifest
from gearshift.caches.store.versions import (
    Claim,
    Off,
    previous_version,
    prune,
    read_state,
    switch_off,
    switch_to,
    version_folder,
    version_numbers,
)
from gearshift.caches.store.weights import save_caches
from gearshift.errors import InvalidInput
from tests.unit.caches.adapters import SETTINGS, adapter_in, dim, images_of, saved_in, stream, work
from tests.unit.caches.digit_networks import built, digits, network

ALIKE = Counted(Predictions({}, np.arange(400) % 10), np.ones(400))
NEVER = msgspec.structs.replace(SETTINGS, interval_s=1e9)


def exits(adapter: Adapter, images: Any) -> list[int]:
    predictions: list[int] = adapter.model.predict(images)["exit_segment"].tolist()
    return predictions


def base_classes(images: Any) -> list[int]:
    with torch.inference_mode():
        return network()(torch.from_numpy(images)).argmax(dim=1).tolist()  # type: ignore[no-any-return]


# Retraining


@pytest.mark.long
def test_after_a_retraining_more_of_what_comes_now_leaves_early_and_the_version_stays(tmp_path: Path) -> None:
    folder = saved_in(tmp_path)
    adapter, told = adapter_in(folder)
    before = stream(adapter, dim(images_of(*range(10), count=300)))
    work(adapter, 600)
    new = dim(images_of(*range(10), count=300))
    after = exits(adapter, new)
    assert np.mean(np.array(after) < 2) > np.mean(np.array(before) < 2) + 0.1
    agreement = np.mean(adapter.model.predict(new)["scores"].argmax(axis=1) == base_classes(new))
    assert agreement >= built().manifest.target
    assert [event["event"] for event in told] == ["cache_retraining", "cache_retrained"]
    assert told[1]["outcome"] == "swapped"
    again = load_caches(folder, network())
    assert again.version == 1
    assert again.predict(new)["exit_segment"].tolist() == after
    adapted = read_manifest(version_folder(folder, 1)).adapted
    assert adapted is not None
    assert (adapted.number, adapted.before, adapted.reason) == (1, 0, "interval")


@pytest.mark.long
def test_training_that_diverges_changes_nothing_and_says_so(tmp_path: Path) -> None:
    folder = saved_in(tmp_path)
    adapter, told = adapter_in(folder, msgspec.structs.replace(SETTINGS, learning_rate=1e30))
    stream(adapter, images_of(1, 2, count=80))
    before = exits(adapter, images_of(1, 2))
    work(adapter, 600)
    assert (told[-1]["outcome"], told[-1]["version"]) == ("diverged", 0)
    assert "training diverged" in told[-1]["why"]
    assert exits(adapter, images_of(1, 2)) == before
    assert version_numbers(folder) == [0]


class Hungry(torch.nn.Module):
    """Asks for more memory than there is, where it is trained."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if torch.is_grad_enabled():
            torch.empty(1 << 55)
        return torch.relu(x)


def test_training_that_runs_out_of_memory_changes_nothing_and_says_so(tmp_path: Path) -> None:
    folder = saved_in(tmp_path)
    written = (folder / MANIFEST).read_bytes().replace(b'"FC(16)"', b'"mine"')
    (folder / MANIFEST).write_bytes(written)

    def mine(shape: tuple[int, ...], classes: int) -> torch.nn.Module:
        flatten, wide, _, narrow = make_predictor("FC(16)", shape, classes)  # type: ignore[misc]
        return torch.nn.Sequential(flatten, wide, Hungry(), narrow)

    told: list[dict[str, Any]] = []
    model = load_caches(folder, network(), own={"mine": mine})
    adapter = open_adapter(model, SETTINGS, tell=lambda event, **facts: told.append(facts))
    stream(adapter, images_of(1, 2, count=80))
    work(adapter, 600)
    assert (told[-1]["outcome"], adapter.model.version) == ("out_of_memory", 0)


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ((0.98, 1.0), (0.98, 0.5), ""),
        ((0.98, 1.0), (0.98, 1.0), "takes 1000.000 ms on recent samples, now 1000.000 ms"),
        ((0.98, 1.0), (0.95, 0.5), "agrees on 95.00% of recent samples, needs 97.00%"),
        ((0.96, 1.0), (0.965, 0.5), "agrees on 96.50% of recent samples, needs 97.00%"),
        ((0.80, 1.0), (0.85, 2.0), ""),
        ((0.80, 1.0), (0.79, 0.5), "agrees on 79.00% of recent samples, needs 97.00%"),
    ],
    ids=[
        "faster",
        "no faster",
        "below the target",
        "misses it as the present one may by luck",
        "mends agreement",
        "worsens it",
    ],
)
def test_a_version_is_swapped_in_where_held_back_samples_show_it_better(before: Any, after: Any, why: str) -> None:
    judged = [Judged(agreement=agreement, latency_s=latency_s, exits=()) for agreement, latency_s in (before, after)]
    manifest = msgspec.structs.replace(built().manifest, target=0.97)
    assert worse(*judged, manifest, counted=150) == why


def test_where_a_confidence_was_asked_for_a_version_must_show_the_target_with_it() -> None:
    manifest = msgspec.structs.replace(built().manifest, target=0.97, confidence=0.95)
    now, faster = (Judged(agreement=0.99, latency_s=latency_s, exits=()) for latency_s in (1.0, 0.5))
    missed = Judged(agreement=0.5, latency_s=1.0, exits=())
    for before in (now, missed):
        why = worse(before, faster, manifest, counted=150)
        assert "shows 94.48%" in why
        assert why.endswith("with confidence 0.95, needs 97.00%")
        assert worse(before, faster, manifest, counted=600) == ""
    assert shown(faster, 500, None) is None


@pytest.mark.long
def test_a_version_keeps_the_confidence_and_says_what_it_shows(tmp_path: Path) -> None:
    folder = saved_in(tmp_path)
    manifest = read_manifest(folder)
    variants = tuple(msgspec.structs.replace(entry, lookup_s=5e-5) for entry in manifest.variants)
    times = {
        "segment_s": (1e-4, 1e-4, 1e-3),
        "variants": variants,
    }  # as measured, it would depend on the machine's load
    asked = msgspec.structs.replace(manifest, confidence=0.6, target=0.6, **times)
    (folder / MANIFEST).write_bytes(msgspec.json.encode(asked))
    adapter, told = adapter_in(folder)
    stream(adapter, dim(images_of(*range(10), count=300)))
    work(adapter, 600)
    assert told[-1]["outcome"] == "swapped"
    adapted = read_manifest(version_folder(folder, 1))
    assert adapted.confidence == 0.6
    assert adapted.lower_bound is not None
    assert 0.6 <= adapted.lower_bound < adapted.accuracy


def test_what_learns_from_features_knows_the_network_s_classes(tmp_path: Path) -> None:
    """The selector sees fewer, the highest alone."""
    adapter, _ = adapter_in(saved_in(tmp_path))
    for cache in adapter.model.caches.values():
        assert split_predictor(cache)[1].classes == cache.classes == 10


def test_a_choice_for_a_higher_target_loses_less(tmp_path: Path) -> None:
    adapter, _ = adapter_in(saved_in(tmp_path), NEVER)
    manifest = msgspec.structs.replace(built().manifest, segment_s=(1.0,) * 6)
    rows = np.arange(400)
    right, hits = rows % 20 != 0, np.array([rows >= 0, rows % 2 == 1])
    trained = Trained(adapter.model.caches[0], (0.9, 0.99), (0.1, 0.9), hits, right)
    offers = Offers(dict(adapter.model.caches), {0: trained}, ALIKE, manifest)
    for target, level, threshold in ((0.9, 0.9, 0.1), (0.99, 0.99, 0.9)):
        found = offers.chosen(target)
        (entry,) = (entry for entry in found.variants if entry.chosen)
        assert (entry.layer, entry.level) == (0, level)
        assert float(found.in_use[0].threshold) == pytest.approx(threshold)


def test_later_versions_keep_the_bound_on_what_lookups_delay(tmp_path: Path) -> None:
    adapter, _ = adapter_in(saved_in(tmp_path), NEVER)
    manifest = msgspec.structs.replace(built().manifest, segment_s=(1.0,) * 6)
    rows, lookup_s = np.arange(400), next(entry.lookup_s for entry in manifest.trained if entry.layer == 0)
    trained = Trained(adapter.model.caches[0], (0.9,), (0.1,), np.array([rows >= 0]), rows % 20 != 0)
    for most_delay, layers in ((1.01 * lookup_s / 6, [0]), (0.99 * lookup_s / 6, [])):
        bounded = msgspec.structs.replace(manifest, most_delay=most_delay)
        found = Offers(dict(adapter.model.caches), {0: trained}, ALIKE, bounded).chosen(0.9)
        assert sorted(found.in_use) == layers


def test_what_one_choice_has_set_does_not_stay_for_the_next(tmp_path: Path) -> None:
    adapter, _ = adapter_in(saved_in(tmp_path), NEVER)
    manifest = msgspec.structs.replace(built().manifest, segment_s=(1.0,) * 6)
    before, rows = float(adapter.model.caches[0].threshold), np.arange(400)
    trained = Trained(adapter.model.caches[0], (0.9,), (before + 1,), np.array([rows >= 0]), rows % 20 != 0)
    offers = Offers(dict(adapter.model.caches), {0: trained}, ALIKE, manifest)
    assert offers.chosen(0.9).in_use
    found = offers.chosen(0.999)
    assert not found.in_use
    assert float(found.networks[0].threshold) == pytest.approx(before)


@pytest.mark.long
def test_a_stricter_choice_is_made_where_the_first_is_not_good(tmp_path: Path, monkeypatch: Any) -> None:
    targets: list[float] = []
    choose = Offers.chosen

    def chosen(offers: Offers, target: float) -> Retrained:
        targets.append(target)
        return choose(offers, target)

    monkeypatch.setattr(Offers, "chosen", chosen)
    monkeypatch.setattr(
        "gearshift.caches.adapting.successor.worse", lambda *judged: "" if len(targets) == 3 else "too slow"
    )
    adapter, told = adapter_in(saved_in(tmp_path))
    stream(adapter, images_of(1, 2))
    work(adapter, 600)
    assert told[-1]["outcome"] == "swapped"
    assert targets == pytest.approx([0.8, 0.9, 0.95])


@pytest.mark.long
def test_a_worse_version_is_dropped_and_says_so(tmp_path: Path, monkeypatch: Any) -> None:
    folder = saved_in(tmp_path)
    adapter, told = adapter_in(folder)
    images = dim(images_of(*range(10), count=300))
    stream(adapter, images)
    work(adapter, 600)
    stream(adapter, images, 700)
    swapped = exits(adapter, images)
    monkeypatch.setattr("gearshift.caches.adapting.successor.worse", lambda *judged: "takes too long")
    work(adapter, 1200)
    assert (told[-1]["outcome"], told[-1]["version"]) == ("worse", 1)
    assert told[-1]["why"] == "takes too long"
    assert exits(adapter, images) == swapped
    assert version_numbers(folder) == [0, 1]


def test_a_hit_rate_that_falls_brings_the_next_retraining_forward(tmp_path: Path) -> None:
    adapter, _ = adapter_in(saved_in(tmp_path))
    row = digits()[0][1300]
    for i in range(200):
        adapter.learn(row, 0, float(i))
    assert adapter.due(200) == ""
    for i in range(100):
        adapter.learn(row, 2, 200.0 + i)
    assert adapter.due(300) == "hit rate"
    assert adapter.due(499) == "hit rate"
    assert adapter.due(500) == "interval"


# Classes

FOLLOWS = msgspec.structs.replace(NEVER, follow_classes=True)


def outcomes(told: Any) -> list[tuple[str, str]]:
    """Of each retraining why it was and what became of it."""
    reasons = [event["reason"] for event in told if event["event"] == "cache_retraining"]
    return list(zip(reasons, (event["outcome"] for event in told if event["event"] == "cache_retrained"), strict=True))


@pytest.mark.long
def test_where_few_classes_come_caches_are_set_for_them_and_nothing_is_trained(tmp_path: Path) -> None:
    folder = saved_in(tmp_path)
    adapter, told = adapter_in(folder, FOLLOWS)
    weights = {layer: deepcopy(one.predictor.state_dict()) for layer, one in adapter.in_use.networks.items()}
    before = stream(adapter, images_of(1, 2))
    assert ("class mix", "set") in outcomes(told)
    assert {reason for reason, _ in outcomes(told)} == {"class mix"}
    new = images_of(1, 2)
    after = exits(adapter, new)
    assert np.mean(np.array(after) < 2) > np.mean(np.array(before) < 2) + 0.1
    agreement = np.mean(adapter.model.predict(new)["scores"].argmax(axis=1) == base_classes(new))
    assert agreement >= built().manifest.target
    for layer, one in adapter.in_use.networks.items():
        assert all(torch.equal(now, weights[layer][name]) for name, now in one.predictor.state_dict().items())
    again = load_caches(folder, network())
    assert again.version == adapter.model.version > 0
    assert again.predict(new)["exit_segment"].tolist() == after
    adapted = read_manifest(version_folder(folder, again.version)).adapted
    assert adapted is not None
    assert (adapted.trained, adapted.reason) == (0, "class mix")
    assert sum(adapted.class_mix[1:3]) > 0.8


def test_when_other_classes_come_caches_are_set_for_those_within_some_twenty_samples(tmp_path: Path) -> None:
    adapter, told = adapter_in(saved_in(tmp_path), FOLLOWS)
    stream(adapter, images_of(1, 2))
    del told[:]
    others = images_of(4, 7, count=40)
    set_at = []
    for i, image in enumerate(others):
        stream(adapter, image[None], 200.0 + i)
        set_at += [i] * sum(event["event"] == "cache_retrained" and event["outcome"] == "set" for event in told)
        del told[:]
    assert set_at
    assert set_at[0] <= 20
    agreement = np.mean(adapter.model.predict(others)["scores"].argmax(axis=1) == base_classes(others))
    assert agreement >= built().manifest.target


def test_where_classes_are_not_followed_nothing_is_set(tmp_path: Path) -> None:
    adapter, told = adapter_in(saved_in(tmp_path), NEVER)
    stream(adapter, images_of(1, 2))
    assert not told
    assert not adapter.window._unnamed  # nothing is kept that nobody looks at


def test_with_a_confidence_only_a_retraining_sets_caches_for_classes(tmp_path: Path) -> None:
    folder = saved_in(tmp_path)
    asked = msgspec.structs.replace(read_manifest(folder), confidence=0.9)
    (folder / MANIFEST).write_bytes(msgspec.json.encode(asked))
    adapter, told = adapter_in(folder, FOLLOWS)
    stream(adapter, images_of(1, 2))
    assert not told


@pytest.mark.long
def test_where_caches_are_set_audits_go_on_and_what_they_switched_off_stays_off_until_a_retraining(
    tmp_path: Path, monkeypatch: Any
) -> None:
    folder = saved_in(tmp_path)
    adapter, told = adapter_in(folder, FOLLOWS)
    images = images_of(1, 2)
    for image, right in zip(images, base_classes(images), strict=True):
        adapter.audit(image, 0, (right + 1) % 10)
    stream(adapter, images)
    assert told[0]["event"] == "cache_off"
    assert ("class mix", "set") in outcomes(told)
    assert adapter.model.version > 0
    assert 0 not in adapter.model.caches
    assert adapter.audited()[0][1] > 0
    assert adapter.model.layers_off == read_state(folder).layers_off == (0,)
    again, _ = adapter_in(folder, FOLLOWS)
    stream(again, images_of(4, 7), 300.0)
    assert 0 not in again.model.caches
    monkeypatch.setattr("gearshift.caches.adapting.successor.worse", lambda *judged: "")
    assert again.retrain("asked", 600.0) == "swapped"
    assert again.model.layers_off == read_state(folder).layers_off == ()


def test_a_restart_goes_on_with_the_classes_that_caches_are_set_for(tmp_path: Path) -> None:
    folder = saved_in(tmp_path)
    adapter, _ = adapter_in(folder, FOLLOWS)
    stream(adapter, images_of(1, 2))
    adapter.save()
    again, told = adapter_in(folder, FOLLOWS)
    assert len(again.window) == 200
    stream(again, images_of(1, 2, count=60), 300.0)
    assert not told


@pytest.mark.long
def test_the_next_version_for_classes_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    folder = saved_in(tmp_path)
    adapter, told = adapter_in(folder, FOLLOWS)
    stream(adapter, images_of(1, 2))
    stream(adapter, images_of(4, 7), 300.0)
    assert outcomes(told).count(("class mix", "set")) > 1
    assert version_numbers(folder) == [0, adapter.model.version]
    assert previous_version(folder) == 0


@pytest.mark.long
def test_a_roll_back_to_the_build_stays_and_one_to_other_classes_is_set_for_those_of_now(tmp_path: Path) -> None:
    folder = saved_in(tmp_path)
    adapter, told = adapter_in(folder, FOLLOWS)
    stream(adapter, images_of(1, 2))
    version = adapter.model.version
    switch_to(folder, 0)
    adapter.refresh()
    work(adapter, 300.0)
    assert adapter.model.version == 0
    switch_to(folder, version)
    adapter.refresh()
    del told[:]
    work(adapter, 301.0)
    assert [reason for reason, _ in outcomes(told)] == ["class mix"]


def test_a_process_that_does_not_keep_the_folder_sets_nothing(tmp_path: Path) -> None:
    adapter, told = adapter_in(saved_in(tmp_path), FOLLOWS, keeps=lambda: False)
    stream(adapter, images_of(1, 2))
    assert [event["event"] for event in told] == ["cache_shared"]


def test_of_several_processes_only_the_one_that_keeps_the_folder_retrains(tmp_path: Path) -> None:
    adapter, _ = adapter_in(saved_in(tmp_path), keeps=lambda: False)
    learn(adapter, 80)
    assert adapter.due(600.0) == ""


def learn(adapter: Adapter, count: int) -> None:
    for i, image in enumerate(images_of(*range(10), count=count)):
        adapter.learn(image, 2, float(i))


@pytest.mark.long
def test_a_class_that_falls_short_keeps_a_version_away_where_classes_are_not_followed(
    tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr("gearshift.caches.adapting.successor.worse", lambda *judged: "")
    monkeypatch.setattr("gearshift.caches.adapting.successor.weak_class", lambda *judged: (3, 0.5))
    for settings, outcome in ((NEVER, "worse"), (FOLLOWS, "swapped")):
        adapter, told = adapter_in(saved_in(tmp_path / outcome), settings)
        stream(adapter, images_of(*range(10)))
        assert adapter.retrain("asked", 600.0) == outcome
    adapter, told = adapter_in(saved_in(tmp_path), NEVER)
    stream(adapter, images_of(*range(10)))
    adapter.retrain("asked", 600.0)
    assert told[-1]["why"] == "agrees on 50.00% of class 3 among the samples of the build"


@pytest.mark.long
def test_where_classes_are_not_followed_any_more_caches_are_set_for_those_of_the_build_once(tmp_path: Path) -> None:
    folder = saved_in(tmp_path)
    adapter, _ = adapter_in(folder, FOLLOWS)
    stream(adapter, images_of(1, 2))
    assert adapter.model.version > 0
    fixed, told = adapter_in(folder, NEVER)
    stream(fixed, images_of(*range(10), count=40), 300.0)
    assert [reason for reason, _ in outcomes(told)] == ["class mix"]
    if outcomes(told)[0][1] == "set":
        assert all(float(one.prior.abs().max()) < 0.01 for one in fixed.model.caches.values())


def test_classes_go_before_a_retraining_and_that_waits_for_samples_of_them(tmp_path: Path) -> None:
    settings = msgspec.structs.replace(SETTINGS, follow_classes=True)
    adapter, _ = adapter_in(saved_in(tmp_path), settings)
    rows = images_of(1, 2, count=100)
    for i, row in enumerate(rows):
        adapter.learn(row, 0, float(i))
    work(adapter, 100.0)
    assert adapter._classes is not None
    adapter._classes.due = True
    assert adapter.due(600.0) == "class mix"
    adapter._classes.taken()
    assert adapter.due(600.0) == "interval"
    for i in range(12):
        adapter._classes.add(9, 550.0 + i)
    adapter._classes.due = False
    assert adapter.due(600.0) == ""
    assert adapter.due(1100.0) == "interval"


def test_of_a_class_that_the_build_lacks_samples_are_unknown_until_there_are_recent_ones(tmp_path: Path) -> None:
    adapter, _ = adapter_in(saved_in(tmp_path), NEVER)
    stream(adapter, images_of(5, count=100))
    training_samples, validation = adapter._samples, adapter._samples._validation
    assert validation is not None
    validation.labels[validation.labels == 5] = 4
    built_of = Mix(np.full(10, 0.1), np.array([0.1] * 5 + [0.0] + [0.125] * 4), -math.inf)
    now = Mix(np.full(10, 0.1), np.array([0.02] * 5 + [0.82] + [0.02] * 4), 1000.0)
    networks = adapter.in_use.networks
    none = training_samples.counted(networks, (JUDGE, CHECK), 100.0, now, built_of)
    some = training_samples.counted(networks, (JUDGE, CHECK), 100.0, now._replace(since_s=0.0), built_of)
    assert none.unknown > 50
    assert some.unknown < none.unknown - 20
    assert training_samples.counted(networks, (JUDGE, CHECK), 100.0, built_of, built_of).unknown == 0


def test_an_adapter_that_audits_alone_retrains_nothing(tmp_path: Path) -> None:
    adapter, told = adapter_in(saved_in(tmp_path), msgspec.structs.replace(SETTINGS, adapt=False))
    assert adapter.retrain("asked", 0.0) == "failed"
    assert "it audits alone; open the adapter with adapt" in told[-1]["why"]


# Labels


def test_labels_are_the_base_models_whatever_a_cache_has_answered(tmp_path: Path) -> None:
    adapter, _ = adapter_in(saved_in(tmp_path), NEVER)
    images = images_of(1, 2, 3, 8)
    left = stream(adapter, images)
    assert adapter.counts.reused == left.count(2) > 0
    learnt = adapter.window
    assert [int(sample.probabilities.argmax()) for sample in learnt if sample.probabilities is not None] == (
        base_classes(images)
    )
    assert adapter.counts.base_runs == left.count(0) + left.count(1)
    samples_of_the_build = 600
    assert adapter.counts.partial_runs == left.count(2) + samples_of_the_build
    assert adapter.counts.base_run_s > 0


@pytest.mark.long
def test_what_is_audited_is_never_learnt_from(tmp_path: Path) -> None:
    settings = msgspec.structs.replace(NEVER, learn_share=0.5, audit_share=0.3)
    adapter, _ = adapter_in(saved_in(tmp_path), settings)
    images = images_of(*range(10), count=400)
    stream(adapter, images)
    assert 60 < adapter.counts.audited < 180
    assert 90 < adapter.counts.learnt < 190
    assert adapter.counts.learnt == len(adapter.window)


def test_a_sample_whose_hidden_output_is_not_a_number_is_a_miss_and_is_not_learnt_from(tmp_path: Path) -> None:
    adapter, _ = adapter_in(saved_in(tmp_path), NEVER)
    images = images_of(1, 2, count=20)
    images[3] = np.nan
    answer = adapter.model.predict(images)
    assert answer["exit_segment"][3] == 2
    assert adapter.model.not_finite >= 1
    adapter.answered(images, answer, 0.0)
    work(adapter, 0.0)
    assert adapter.counts.unusable == 1
    assert len(adapter.window) == 19


def test_rows_of_another_shape_than_the_build_s_are_not_learnt_from(tmp_path: Path) -> None:
    adapter, _ = adapter_in(saved_in(tmp_path), NEVER)
    learn(adapter, 3)
    adapter.learn(np.zeros((1, 9, 9), np.float32), 2, 3.0)
    assert (len(adapter.window), adapter.counts.learnt, adapter.counts.unusable) == (3, 3, 1)


@pytest.mark.parametrize("variant", ["Pool(16,8)", "Conv(3,1)"])
def test_rows_of_different_shapes_are_audited_one_by_one(variant: str) -> None:
    layers = (nn.Conv2d(1, 4, 3), nn.Conv2d(4, 4, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))
    chain, counts = chain_of(nn.Sequential(*layers)), Counts()
    rows = [*np.random.default_rng(0).random((3, 1, 8, 8), np.float32), np.ones((1, 5, 9), np.float32)]
    training_samples = TrainingSamples(chain, NEVER, None, counts, np.random.default_rng(0), logits=True)
    cache = LearnedCache(make_predictor(variant, (4, 6, 6), 3), 3).eval()
    cache.threshold.fill_(-np.inf)  # all hit
    training_samples.use({0: cache}, same_weights=False)
    with torch.inference_mode():
        alone = [int(chain.module(torch.from_numpy(row[None])).argmax()) for row in rows]
    assert training_samples.audit(rows, {0: cache}) == [(0, best) for best in alone]
    assert counts.base_runs == 4


# Audit


def test_a_cache_whose_hits_disagree_is_switched_off_and_stays_off(tmp_path: Path) -> None:
    folder = saved_in(tmp_path)
    changed: list[int] = []
    adapter, told = adapter_in(folder, NEVER, changed=lambda: changed.append(1))
    images = images_of(1, 2)
    assert 0 in exits(adapter, images)
    for image, right in zip(images, base_classes(images), strict=True):
        adapter.audit(image, 0, (right + 1) % 10)
    work(adapter, 7.0)
    assert [event["event"] for event in told] == ["cache_off"]
    assert (told[0]["layer"], told[0]["block"], told[0]["at_s"]) == (0, "blocks.0", 7.0)
    assert told[0]["low"] > 1 - built().manifest.target
    assert told[0]["audited"] < 40
    assert changed
    assert 0 not in exits(adapter, images)
    assert 0 not in load_caches(folder, network()).predict(images)["exit_segment"]


def test_a_cache_whose_hits_agree_stays(tmp_path: Path) -> None:
    adapter, told = adapter_in(saved_in(tmp_path), NEVER)
    images = images_of(*range(10), count=300)
    left = exits(adapter, images)
    for image, exit_segment, right in zip(images, left, base_classes(images), strict=True):
        adapter.audit(image, exit_segment, right)
    work(adapter, 0.0)
    assert not told
    assert adapter.counts.audited == 300
    assert sum(audited for audited, *_ in adapter.audited().values()) == 300 - left.count(2) > 0
    assert all(disagreed == low == 0 for _, disagreed, low, _ in adapter.audited().values())


def test_where_audits_lag_behind_hits_and_misses_drop_out_alike(tmp_path: Path) -> None:
    adapter, _ = adapter_in(saved_in(tmp_path), NEVER)
    images = images_of(1, 2, count=10)
    right = base_classes(images)
    for i in range(1100):
        adapter.audit(images[i // 2 % 10], 0 if i % 2 else 2, right[i // 2 % 10])
    assert (adapter.counts.audited, adapter.counts.dropped) == (0, 100)
    work(adapter, 0.0)
    assert adapter.counts.audited == 1000
    assert sum(audited for audited, *_ in adapter.audited().values()) == 500


@pytest.mark.long
def test_a_new_version_looks_its_caches_up_again(tmp_path: Path) -> None:
    folder = saved_in(tmp_path)
    adapter, told = adapter_in(folder)
    images = images_of(1, 2)
    for image, right in zip(images, base_classes(images), strict=True):
        adapter.audit(image, 0, (right + 1) % 10)
    stream(adapter, images)
    assert [event["event"] for event in told] == ["cache_off", "cache_retraining", "cache_retrained"]
    assert told[1]["reason"] == "audit"
    assert adapter.model.version == 1
    assert adapter.model.layers_off == ()
    assert min(exits(adapter, images)) < 2


# Versions


@pytest.mark.long
def test_a_roll_back_is_taken_up_and_told(tmp_path: Path) -> None:
    folder = saved_in(tmp_path)
    adapter, told = adapter_in(folder)
    images = dim(images_of(*range(10), count=300))
    built_exits = exits(adapter, images)
    stream(adapter, images)
    work(adapter, 600)
    assert exits(adapter, images) != built_exits
    assert previous_version(folder) == 0
    switch_to(folder, previous_version(folder))
    adapter.refresh()
    assert told[-1] == {"event": "cache_rolled_back", "version": 0}
    assert exits(adapter, images) == built_exits
    adapter.refresh()
    assert len(told) == 3
    with pytest.raises(InvalidInput, match="are those that were built; name a version"):
        previous_version(folder)
    with pytest.raises(InvalidInput, match="there is no version 7; use one of 0, 1"):
        switch_to(folder, 7)


def test_a_roll_back_to_the_version_in_use_looks_it_up_again(tmp_path: Path) -> None:
    folder = saved_in(tmp_path)
    adapter, told = adapter_in(folder, NEVER)
    images = images_of(1, 2)
    for image, right in zip(images, base_classes(images), strict=True):
        adapter.audit(image, 0, (right + 1) % 10)
    work(adapter, 7.0)
    adapter.refresh()
    assert ([event["event"] for event in told], adapter.model.layers_off) == (["cache_off"], (0,))
    switch_to(folder, 0)
    adapter.refresh()
    adapter.refresh()
    assert told[1:] == [{"event": "cache_rolled_back", "version": 0}]
    assert adapter.model.layers_off == ()
    assert 0 in exits(adapter, images)


def test_what_another_server_switches_off_is_passed_by_and_counts_go_on(tmp_path: Path) -> None:
    folder = saved_in(tmp_path)
    adapter, told = adapter_in(folder, NEVER)
    audit_rightly(adapter, images_of(*range(10), count=50))
    counting = adapter._auditor.audit
    off = Off(layer=1, block="blocks.1", audited=9, disagreed=9, low=0.5, at_s=0.0)
    switch_off(folder, 0, off)
    adapter._switch_off(0, 1.0)  # before it has seen that
    assert read_state(folder).layers_off == (0, 1)
    adapter.refresh()
    adapter.refresh()
    assert ([event["event"] for event in told], adapter.model.layers_off) == (["cache_off"], (0, 1))
    assert adapter._auditor.audit is counting


@pytest.mark.long
def test_a_roll_back_while_a_version_is_made_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = saved_in(tmp_path)
    adapter, told = adapter_in(folder)
    images = dim(images_of(*range(10), count=300))
    stream(adapter, images)
    work(adapter, 600)
    assert adapter.model.version == 1
    add = successor.add_version

    def add_and_roll_back(*asked: Any, **more: Any) -> Any:
        written = add(*asked, **more)
        switch_to(folder, 0)
        return written

    monkeypatch.setattr(successor, "add_version", add_and_roll_back)
    monkeypatch.setattr("gearshift.caches.adapting.retrain.worse", lambda *asked: "")
    stream(adapter, images_of(1, 2, count=300), 1200.0)
    work(adapter, 1800)
    assert (told[-1]["outcome"], "version 0 was chosen meanwhile" in told[-1]["why"]) == ("failed", True), told
    adapter.refresh()
    assert (told[-1], adapter.model.version) == ({"event": "cache_rolled_back", "version": 0}, 0)
    assert version_numbers(folder) == [0, 1]


def test_another_build_in_the_folder_is_told_once_and_not_taken_up(tmp_path: Path) -> None:
    folder = saved_in(tmp_path)
    adapter, told = adapter_in(folder)
    manifest, weights = adapter.content()
    other = msgspec.structs.replace(read_manifest(folder), file_sha256="0" * 64)
    (folder / MANIFEST).write_bytes(msgspec.json.encode(other))
    for file in folder.glob("*.safetensors"):
        file.unlink()
    adapter.refresh()
    adapter.refresh()
    assert [event["event"] for event in told] == ["cache_version_unusable"]
    assert "the folder holds another build now" in told[0]["why"]
    assert adapter.content() == (manifest, weights)
    for _ in range(3000):
        if adapter._auditor.audit.add(0, agreed=False):
            break
    adapter._switch_off(0, 1.0)
    assert not read_state(folder).layers_off
    assert [event["event"] for event in told[1:]] == ["cache_state_unwritten", "cache_off"]
    with pytest.raises(InvalidInput, match="the folder holds another build now"):
        switch_to(folder, 0, built=adapter.in_use.built)


def test_another_build_between_the_model_and_its_adapter_is_noticed(tmp_path: Path) -> None:
    folder = saved_in(tmp_path)
    model = load_caches(folder, network())
    others = deepcopy({**built().spares, **built().model.caches})
    for cache in others.values():
        cache.threshold += 1
    save_caches(folder, built().manifest, others)
    with pytest.raises(InvalidInput, match="the folder holds another build now; serve it anew"):
        open_adapter(model, SETTINGS)
    open_adapter(load_caches(folder, network()), SETTINGS)


@pytest.mark.long
def test_a_restart_goes_on_with_the_window(tmp_path: Path) -> None:
    folder = saved_in(tmp_path)
    adapter, _ = adapter_in(folder)
    stream(adapter, images_of(1, 2, count=100))
    adapter.save()
    again, told = adapter_in(folder, now_s=150.0)
    assert not told
    work(again, 150.0)
    assert (again.counts.reused, again.counts.base_runs) == (100, 0)
    again.learn(digits()[0][1300], 0, 651.0)
    work(again, 651.0)
    assert (told[0]["event"], told[0]["samples"]) == ("cache_retraining", 101)


def test_a_restart_before_the_interval_has_passed_loses_neither_its_clock_nor_what_is_to_be_learnt(
    tmp_path: Path,
) -> None:
    folder = saved_in(tmp_path)
    settings = msgspec.structs.replace(SETTINGS, least_samples=10)
    adapter, _ = adapter_in(folder, settings)
    row = digits()[0][1300]
    for i in range(20):
        adapter.learn(row, 2, float(i))
    adapter.step(124.0)
    assert not (folder / "window.npz").exists()
    adapter.step(125.0)
    again, _ = adapter_in(folder, settings, now_s=450.0)
    assert len(again.window) == 20
    assert (again.due(499.0), again.due(500.0)) == ("", "interval")
    earlier, _ = adapter_in(folder, settings, now_s=-5.0)
    assert earlier.due(494.0) == ""


@pytest.mark.long
def test_what_was_learnt_before_a_restart_is_no_reason_to_retrain(tmp_path: Path) -> None:
    folder = saved_in(tmp_path)
    adapter, _ = adapter_in(folder)
    stream(adapter, images_of(1, 2, count=80))
    adapter.retrain("asked", 100.0)
    again, _ = adapter_in(folder, now_s=700.0)
    assert len(again.window) == 80
    assert again.due(700.0) == ""


def test_a_retraining_that_is_killed_is_not_begun_anew_before_its_time_and_loses_no_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = saved_in(tmp_path)
    adapter, _ = adapter_in(folder)
    audit_rightly(adapter, images_of(*range(10), count=50))
    learn(adapter, 80)
    assert adapter.due(600.0) == "interval"

    def kill(*asked: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(adapter, "_replaced", kill)
    with pytest.raises(KeyboardInterrupt):
        adapter.retrain("interval", 600.0)
    again, told = adapter_in(folder, now_s=601.0)
    assert (again.audited(), len(again.window), told) == (adapter.audited(), 80, [])
    learn(again, 80)
    assert (again.due(1099.0), again.due(1100.0)) == ("", "interval")


def test_whatever_a_retraining_raises_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    adapter, told = adapter_in(saved_in(tmp_path))

    def fail(*asked: Any) -> Any:
        raise IndexError("too far")

    monkeypatch.setattr(adapter, "_replaced", fail)
    assert adapter.retrain("interval", 600.0) == "failed"
    assert (told[-1]["outcome"], told[-1]["why"]) == ("failed", "IndexError: too far")


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 not really", b"\x80\x04K\x01."])
def test_a_broken_window_is_told_and_forgotten(tmp_path: Path, content: bytes) -> None:
    folder = saved_in(tmp_path)
    (folder / "window.npz").write_bytes(content)
    adapter, told = adapter_in(folder)
    assert [event["event"] for event in told] == ["cache_window_lost"]
    assert len(adapter.window) == 0


def audit_rightly(adapter: Adapter, images: Any) -> None:
    """Have it audit what the model answers them, all of it agreed with."""
    for image, exit_segment, right in zip(images, exits(adapter, images), base_classes(images), strict=True):
        adapter.audit(image, exit_segment, right)
    work(adapter, 0.0)


@pytest.mark.parametrize("adapt", [True, False])
def test_a_restart_goes_on_with_what_audits_have_counted(tmp_path: Path, adapt: bool) -> None:
    folder, settings = saved_in(tmp_path), msgspec.structs.replace(NEVER, adapt=adapt)
    adapter, _ = adapter_in(folder, settings)
    audit_rightly(adapter, images_of(*range(10), count=100))
    assert not (folder / "audits.json").exists()
    adapter.step(SAVED_EVERY * settings.interval_s)
    counted = adapter.audited()
    assert counted
    again, told = adapter_in(folder, settings)
    assert (again.audited(), told) == (counted, [])
    audit_rightly(again, images_of(*range(10), count=100))
    assert all(again.audited()[layer][0] == 2 * audited for layer, (audited, *_) in counted.items())


def test_of_two_processes_for_one_folder_the_first_keeps_its_counts_there_until_it_ends(tmp_path: Path) -> None:
    folder = saved_in(tmp_path)
    rights = Claim(folder), Claim(folder)
    first, _ = adapter_in(folder, NEVER, keeps=rights[0].held)
    audit_rightly(first, images_of(*range(10), count=100))
    first.save()
    second, told = adapter_in(folder, NEVER, keeps=rights[1].held)
    assert [event["event"] for event in told] == ["cache_shared"]
    assert second.audited() == {}
    audit_rightly(second, images_of(*range(10), count=50))
    second.save()
    assert adapter_in(folder, NEVER)[0].audited() == first.audited()
    rights[0].give_up()
    second.save()
    assert adapter_in(folder, NEVER)[0].audited() == second.audited()
    rights[1].give_up()


def test_a_folder_that_cannot_be_written_is_nobody_elses(tmp_path: Path) -> None:
    assert Claim(tmp_path / "missing").held()


def test_the_adapter_of_a_model_claims_its_folder(tmp_path: Path) -> None:
    folder, told = saved_in(tmp_path), list[str]()
    right = Claim(folder)
    assert right.held()
    load_caches(folder, network()).adapter({}, tell=lambda event, **facts: told.append(event))
    assert told == ["cache_shared"]
    right.give_up()


def test_a_cache_that_breaches_across_a_restart_is_switched_off(tmp_path: Path) -> None:
    """Neither server has seen enough by itself."""
    folder = saved_in(tmp_path)
    images = images_of(1, 2)
    wrong = [(image, (right + 1) % 10) for image, right in zip(images, base_classes(images), strict=True)]
    alone, told = adapter_in(folder, NEVER)
    for image, label in wrong:
        alone.audit(image, 0, label)
    work(alone, 0.0)
    needed = told[0]["audited"]
    folder = saved_in(tmp_path / "another")
    for _ in range(2):
        adapter, told = adapter_in(folder, NEVER)
        for image, label in wrong[: needed // 2 + 1]:
            adapter.audit(image, 0, label)
        work(adapter, 0.0)
        adapter.save()
    assert [(event["event"], event["audited"]) for event in told] == [("cache_off", needed)]
    last, _ = adapter_in(folder, NEVER)
    assert last.model.layers_off == (0,)
    assert last.audited()[0][:2] == (needed, needed)


def test_counts_of_another_version_are_not_taken_up(tmp_path: Path) -> None:
    folder = saved_in(tmp_path)
    adapter, _ = adapter_in(folder, NEVER)
    audit_rightly(adapter, images_of(*range(10), count=100))
    adapter.save()
    version_folder(folder, 1).mkdir(parents=True)
    for file in (MANIFEST, read_manifest(folder).file):
        (version_folder(folder, 1) / file).write_bytes((folder / file).read_bytes())
    switch_to(folder, 1)
    again, told = adapter_in(folder, NEVER)
    assert (again.model.version, again.audited(), told) == (1, {}, [])


@pytest.mark.parametrize(
    "content",
    [
        "",
        "nonsense",
        '{"built": "BUILT", "version": 0}',
        '{"built": "BUILT", "version": 0, "layers": {"0": {"audited": -1}}, "whole": {}, "ran": {}}',
        '{"built": "BUILT", "version": 0, "layers": {"0": {"audited": 1, "disagreed": 2}}, "whole": {}, "ran": {}}',
        '{"built": "BUILT", "version": 0, "layers": {"0": {"audited": 9999999}}, "whole": {}, "ran": {}}',
        '{"built": "BUILT", "version": 0, "layers": {"7": {"audited": 1}}, "whole": {}, "ran": {}}',
    ],
)
def test_broken_counts_are_told_and_forgotten(tmp_path: Path, content: str) -> None:
    folder = saved_in(tmp_path)
    (folder / "audits.json").write_text(content.replace("BUILT", read_manifest(folder).file_sha256))
    adapter, told = adapter_in(folder)
    assert [event["event"] for event in told] == ["cache_audits_lost"]
    assert "audits.json" in told[0]["why"]
    assert adapter.audited() == {}


def test_a_version_that_was_never_finished_counts_for_nothing(tmp_path: Path) -> None:
    folder = saved_in(tmp_path)
    (folder / "versions" / "000001").mkdir(parents=True)
    (folder / "versions" / "000001" / "caches-0123456789abcdef.safetensors").write_bytes(b"half")
    assert version_numbers(folder) == [0]
    assert load_caches(folder, network()).version == 0


def test_old_versions_go_but_never_the_one_in_use(tmp_path: Path) -> None:
    folder = saved_in(tmp_path)
    for number in (1, 2, 3, 4):
        version_folder(folder, number).mkdir(parents=True)
        (version_folder(folder, number) / MANIFEST).write_bytes((folder / MANIFEST).read_bytes())
    switch_to(folder, 1)
    prune(folder, 2)
    assert version_numbers(folder) == [0, 1, 3, 4]


def test_what_is_in_use_is_forgotten_with_another_build(tmp_path: Path) -> None:
    folder = saved_in(tmp_path)
    (folder / "state.json").write_bytes(msgspec.json.encode({"built": "another", "current": 3, "off": []}))
    assert read_state(folder).current == 0


# Refused


def test_a_model_from_no_folder_and_a_folder_without_samples_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"was not loaded from a folder; use gearshift\.caches\.load"):
        open_adapter(built().model)
    folder = saved_in(tmp_path)
    (folder / "validation.npz").unlink()
    with pytest.raises(InvalidInput, match=r"validation\.npz: no such file; build the caches anew"):
        adapter_in(folder)
    adapter_in(folder, msgspec.structs.replace(SETTINGS, adapt=False))


def test_settings_that_cannot_be_are_refused_by_name() -> None:
    with pytest.raises(InvalidInput, match=r"\$\.learn_share.*mend that setting"):
        adaptation_of({"learn_share": 2})


@pytest.mark.long
def test_retraining_comes_in_time_where_more_samples_come_than_can_be_run(tmp_path: Path) -> None:
    adapter, told = adapter_in(saved_in(tmp_path))
    stream(adapter, images_of(1, 2))
    rows = images_of(1, 2, count=32)  # with each slice of work, which runs half of them
    for slice_of_work in range(10):
        now_s = SETTINGS.interval_s + slice_of_work
        for row in rows:
            adapter.learn(row, 0, now_s)
        adapter.step(now_s)
    assert adapter.window.waiting > 0
    assert [one["event"] for one in told].count("cache_retrained") == 1


def test_samples_to_learn_from_are_dropped_and_counted_where_too_many_wait(tmp_path: Path) -> None:
    adapter, _ = adapter_in(saved_in(tmp_path))
    for row in images_of(1, 2, count=MOST_TO_LEARN + 7):
        adapter.learn(row, 0, 0.0)
    assert adapter.window.waiting == len(adapter.window) == adapter.counts.learnt == MOST_TO_LEARN
    assert adapter.counts.dropped == 7
    work(adapter, 0.0)
    assert adapter.window.waiting == 0
