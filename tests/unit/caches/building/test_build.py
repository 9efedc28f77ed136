import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gearshift.caches.building.build import build
from gearshift.caches.building.choosing import choose, set_for
from gearshift.caches.building.compose import joint
from gearshift.caches.building.evaluation import evaluate, in_turn
from gearshift.caches.building.exploration import class_numbers, explore_module, groups_of, split_rows
from gearshift.caches.building.problem import wrong_of
from gearshift.errors import InvalidInput
from tests.unit.caches.digit_networks import BLOCKS, QUICK, VARIANTS, built, digits, few, network
from tests.unit.caches.instances import instance


def test_every_variant_after_every_block_is_judged_and_the_choice_meets_the_target() -> None:
    manifest = built().manifest
    assert manifest.blocks == (*BLOCKS, "head")
    assert {(entry.block, entry.variant) for entry in manifest.variants} == {
        (block, name) for block in BLOCKS for name in VARIANTS
    }
    assert [choice.method for choice in manifest.choices] == [
        *("relaxation", "greedy by latency gain", "greedy by hit rate", "exact", "joint", "by price"),
    ]
    assert manifest.chosen
    assert manifest.accuracy >= 0.8
    assert manifest.latency_s < manifest.base_s
    assert sum(manifest.exits) == pytest.approx(1)
    assert manifest.samples == 120
    assert all(
        0 <= entry.hit_rate <= 1 and entry.lookup_s > 0 and entry.memory_bytes > 0 for entry in manifest.variants
    )
    assert all(entry.why for entry in manifest.variants)


def test_lookups_that_may_delay_nothing_leave_no_caches_and_the_manifest_holds_the_bound() -> None:
    images, labels = few()
    options: dict[str, Any] = {"variants": ("FC(16)",), "training": QUICK, "blocks": BLOCKS, "accuracy": 0.8}
    manifest = build(network(), images, labels, most_delay=0.0, **options).manifest
    assert manifest.chosen == ()
    assert manifest.most_delay == 0
    assert any(entry.why == "does not fit beside the chosen ones" for entry in manifest.variants)


def test_rows_for_predictors_selectors_and_judging_are_disjoint_and_complete() -> None:
    split = split_rows(1000, seed=3)
    assert (len(split.fit), len(split.judge), len(split.check)) == (600, 200, 200)
    assert sorted(np.concatenate([split.fit, split.judge, split.check]).tolist()) == list(range(1000))
    assert split_rows(1000, seed=4).check.tolist() != split.check.tolist()


def test_what_was_explored_alone_is_neither_asked_nor_trained_again_for_a_build(tmp_path: Path) -> None:
    images, labels = few()
    options: dict[str, Any] = {"variants": ("FC(16)",), "training": QUICK, "blocks": BLOCKS, "out": tmp_path}
    made = explore_module(network(), images, labels, **options)
    assert [(one.layer, one.variant) for one in made.explored] == [(0, "FC(16)"), (1, "FC(16)")]
    told: list[str] = []
    again = build(network(), images, labels, progress=lambda what, share: told.append(what), **options)
    assert not any(what.startswith(("asking", "trained")) for what in told)
    assert again.validation.probabilities.tolist() == made.answers.probabilities.tolist()
    explore_module(network(), images[1:], labels[1:], progress=lambda what, share: told.append(what), **options)
    assert "asking the model" in told


def test_predictors_learn_from_altered_copies_and_from_what_the_model_says_of_them(tmp_path: Path) -> None:
    images, labels = few()
    options: dict[str, Any] = {"variants": ("FC(16)",), "training": QUICK, "blocks": BLOCKS[:1], "out": tmp_path}
    seen: list[int] = []

    def mirrored(rows: Any, generator: np.random.Generator) -> Any:
        seen.append(len(rows))
        return rows[..., ::-1] + generator.normal(0, 0.1, rows.shape).astype(np.float32)

    made = explore_module(network(), images, labels, augment=mirrored, copies=2, **options)
    assert (sum(seen), max(seen)) == (240, 64)
    assert len(made.answers.probabilities) == 200
    assert len(made.explored[0].trained.right) == 40
    folder = tmp_path / "exploration"
    fit, known, said = (np.load(folder / f"{name}.npy") for name in ("fit", "labels", "probabilities"))
    assert fit.tolist() == [*made.split.fit.tolist(), *range(200, 440)]
    assert known[:200].tolist() == labels.tolist()
    assert known[200:].tolist() == said[200:].argmax(axis=1).tolist()
    assert known[200:].tolist() != np.tile(labels[made.split.fit], 2).tolist()
    assert not list(folder.glob("inputs*"))
    again: list[str] = []
    same = explore_module(
        network(),
        images,
        labels,
        augment=mirrored,
        copies=2,
        progress=lambda what, share: again.append(what),
        **options,
    )
    assert not any(what.startswith("trained") for what in again)
    plain = explore_module(network(), images, labels, **options)
    weights = [one.explored[0].trained.cache.state_dict()["predictor.1.weight"] for one in (made, same, plain)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_what_answers_rows_of_another_form_alters_nothing() -> None:
    images, labels = few()
    with pytest.raises(InvalidInput, match=r"augment: answers rows of shape \(64, 1, 8, 7\) and type float32 for"):
        explore_module(network(), images, labels, augment=lambda rows, generator: rows[..., 1:])


@pytest.mark.long
def test_a_run_that_is_broken_off_goes_on_where_it_ended_and_comes_to_the_same(tmp_path: Path) -> None:
    images, labels = few()
    options: dict[str, Any] = {"variants": ("FC(16)",), "training": QUICK, "blocks": BLOCKS, "out": tmp_path}

    class Interrupted(Exception):
        pass

    told: list[str] = []

    def stop(what: str, share: float) -> None:
        told.append(what)
        if what.startswith("trained"):
            raise Interrupted

    with pytest.raises(Interrupted):
        build(network(), images, labels, progress=stop, **options)
    assert len(told) > 1
    assert not (tmp_path / "manifest.json").exists()
    again: list[str] = []
    first = build(network(), images, labels, progress=lambda what, share: again.append(what), **options)
    trained = [what for what in (*told, *again) if what.startswith("trained")]
    assert sorted(trained) == ["trained FC(16) after blocks.0", "trained FC(16) after blocks.1"]
    assert not list(tmp_path.rglob("hidden-*"))
    fresh = build(network(), images, labels, **{**options, "out": None})
    for one, other in zip(first.manifest.variants, fresh.manifest.variants, strict=True):
        assert (one.variant, one.level, one.hit_rate, one.accuracy) == (
            *(other.variant, other.level, other.hit_rate, other.accuracy),
        )


@pytest.mark.long
@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.long)])
def test_no_training_begins_after_the_time_given_and_a_further_run_goes_on(tmp_path: Path, processes: int) -> None:
    images, labels = few()
    options: dict[str, Any] = {"blocks": BLOCKS, "variants": VARIANTS, "training": QUICK, "out": tmp_path}
    few_made = explore_module(network(), images, labels, most_s=1e-9, processes=processes, **options)
    assert 1 <= len(few_made.explored) < len(BLOCKS) * len(VARIANTS) or processes > 1
    assert few_made.left_out == len(BLOCKS) * len(VARIANTS) - len(few_made.explored)
    made = explore_module(network(), images, labels, **options)
    assert made.left_out == 0
    assert [(one.layer, one.variant) for one in made.explored] == [(k, name) for k in (0, 1) for name in VARIANTS]
    assert build(network(), images, labels, accuracy=0.5, most_s=1e-9, **options).left_out == 0


def test_sizes_that_were_measured_are_kept_for_a_run_that_goes_on(tmp_path: Path) -> None:
    images, labels = few()
    options: dict[str, Any] = {"blocks": BLOCKS[:1], "training": QUICK, "out": tmp_path, "most_s": 1e-9}
    explore_module(network(), images, labels, **options)
    path = tmp_path / "exploration" / "variants.json"
    key, worth = json.loads(path.read_text())
    path.write_text(json.dumps([key, [worth[0] | {"variant": "FC(17)"}]]))
    assert [one.variant for one in explore_module(network(), images, labels, **options).explored] == ["FC(17)"]


@pytest.mark.long
def test_processes_come_to_the_same_as_one(tmp_path: Path) -> None:
    images, labels = few()
    options: dict[str, Any] = {"variants": ("FC(16)",), "training": QUICK, "blocks": BLOCKS}
    one = build(network(), images, labels, **options).manifest
    two = build(network(), images, labels, processes=2, out=tmp_path, **options).manifest
    rates = [[(entry.block, entry.level, entry.hit_rate) for entry in manifest.variants] for manifest in (one, two)]
    assert rates[0] == rates[1]


def test_samples_that_cannot_show_the_confidence_are_refused_saying_how_many_do() -> None:
    images, _ = digits()
    with pytest.raises(InvalidInput, match=r"99 samples are too few; give at least 100"):
        build(network(), images[:99])
    with pytest.raises(
        InvalidInput, match=r"500 samples are too few to show accuracy 0\.97 .* 0\.95; give at least 1000"
    ):
        build(network(), images[:500], confidence=0.95)


def test_with_a_confidence_the_choice_is_shown_on_samples_that_did_not_make_it() -> None:
    problem = replace(instance(4, 5, 2, samples=1200, memory=False), target=0.9)
    found = choose(problem, 0.95, seed=0)
    assert found.judged.samples == 600
    assert found.lower_bound is not None
    assert 0.9 <= found.lower_bound < found.accuracy
    assert found.accuracy == 1 - wrong_of(found.judged, found.variants) / 600
    with pytest.raises(InvalidInput, match=r"accuracy 0\.9 cannot be shown with confidence 0\.95: .* of 10 samples"):
        choose(replace(problem, hits=problem.hits[:, :20], right=problem.right[:, :20]), 0.95, seed=0)  # type: ignore[index]


def test_what_is_right_by_luck_alone_is_not_chosen_for_that() -> None:
    """All variants were set for nine in ten, and some look better on few samples."""
    generator = np.random.default_rng(1)
    hits, right = np.ones((60, 100), dtype=np.bool_), generator.random((60, 100)) < 0.9
    lucky = replace(
        instance(0, 10, 6, samples=100, memory=False),
        hits=hits, right=right, hit_rate=np.ones(60), accuracy=right.mean(axis=1), target=0.95, level=np.full(60, 0.9),
    )  # fmt: skip
    assert right.mean(axis=1).max() >= 0.95
    found = choose(lucky, None, seed=0)
    assert found.variants == ()
    assert found.accuracy == 1
    assert joint(lucky).chosen != ()
    honest = replace(lucky, target=0.8)
    assert choose(honest, None, seed=0).accuracy == pytest.approx(0.9, abs=0.07)


def test_hits_may_be_wrong_in_proportion_to_the_time_that_they_save() -> None:
    problem = replace(
        instance(0, 4, 2, memory=False),
        layer_s=np.ones(4), level=np.array([0.96, 0.97, 0.97, 0.98, 0.985, 0.99, 0.99, 1.0]),
    )  # fmt: skip
    assert problem.saved.tolist() == pytest.approx([0.75, 0.75, 0.5, 0.5, 0.25, 0.25, 0, 0])
    assert set_for(problem, 0.04).tolist() == [1, 3, 5, 7]
    assert set_for(problem, 0.06).tolist() == [0, 1, 2, 3, 4, 5, 7]


def test_nine_choices_in_ten_keep_the_target_on_new_samples() -> None:
    """Each variant hits everything, and later ones are the truer, so that what new samples see of a choice is known."""
    kept = []
    for seed in range(20):
        generator = np.random.default_rng(seed)
        truth = np.sort(generator.uniform(0.9, 0.99, 8))
        right = generator.random((8, 300)) < truth[:, None]
        problem = replace(
            instance(0, 8, 1, samples=300, memory=False),
            hits=np.ones((8, 300), dtype=np.bool_), right=right, hit_rate=np.ones(8), accuracy=right.mean(axis=1),
            target=0.95, level=generator.binomial(300, truth) / 300, lookup_s=np.zeros(8),
        )  # fmt: skip
        chosen = choose(problem, None, seed).variants
        kept.append(not chosen or truth[chosen[0]] >= 0.95)
    assert np.mean(kept) >= 0.9


def test_labels_are_numbers_of_classes_or_their_names() -> None:
    module = torch.nn.Linear(2, 3)
    assert class_numbers(module, np.array([0, 2]), 2, 3).tolist() == [0, 2]
    with pytest.raises(
        InvalidInput, match="labels are not among the model's 3 classes; give whole numbers from 0 to 2"
    ):
        class_numbers(module, np.array([0, 3]), 2, 3)
    module.classes_ = np.array(["a", "b", "c"])
    assert class_numbers(module, np.array(["c", "a"]), 2, 3).tolist() == [2, 0]
    assert class_numbers(module, np.array([b"c", b"a"]), 2, 3).tolist() == [2, 0]


@pytest.mark.parametrize("labels", [[0.0, 2.0], ["0", "2"], [b"0", b"2"], ["0.0", "2.0"]])
def test_numbers_of_classes_may_be_written_in_any_way(labels: list[object]) -> None:
    assert class_numbers(torch.nn.Linear(2, 3), np.array(labels), 2, 3).tolist() == [0, 2]


def test_hidden_outputs_are_collected_in_groups_that_fit_on_disk() -> None:
    assert groups_of([5, 5, 5, 9], 10, ("a", "b", "c", "d")) == [range(0, 2), range(2, 3), range(3, 4)]
    with pytest.raises(InvalidInput, match=r"block 'b': its hidden outputs take .* more than"):
        groups_of([5, 11], 10, ("a", "b"))


def test_an_evaluation_compares_with_the_base_model_on_new_samples() -> None:
    images, labels = digits()
    found = evaluate(built().model, images[1300:], labels[1300:], timed_rows=10)
    assert found.samples == 497
    assert found.agreement > 0.7
    assert found.agreement_interval[0] < found.agreement <= found.agreement_interval[1]
    assert found.base_accuracy is not None
    assert found.base_accuracy > 0.3
    assert sum(found.exits.values()) == pytest.approx(1)
    assert found.timed == 10
    assert found.gain == pytest.approx(found.base_latency_s.mean / found.latency_s.mean)
    assert found.gain_over_folded == pytest.approx(found.folded_latency_s.mean / found.latency_s.mean)


def test_what_is_built_is_run_beside_the_module_and_the_module_with_norms_folded() -> None:
    measured = built().manifest.measured
    assert measured is not None
    assert measured.rows == built().manifest.samples
    assert min(measured.module_s, measured.folded_s, measured.cached_s) > 0
    assert in_turn(built().model, digits()[0][:50], most_s=0).shape == (3, 1)
