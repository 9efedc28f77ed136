import math

import numpy as np
import pytest

from gearshift.caches.adapting.class_mix import MORE, ClassMix, labels_of, mix_of, weights_to

LABELS = np.arange(1000) % 10


def mix(answers: np.ndarray = LABELS, **options: tuple[float, ...]) -> ClassMix:
    return ClassMix(answers, LABELS, 10, **options)


def fed(classes: ClassMix, answers: list[int], at_s: float = 0.0) -> ClassMix:
    for i, answer in enumerate(answers):
        classes.add(answer, at_s + i)
    return classes


def test_without_an_answer_it_is_that_of_the_build() -> None:
    classes = mix()
    assert classes.now().answers == pytest.approx(np.full(10, 0.1))
    assert classes.now().labels == pytest.approx(np.full(10, 0.1))
    assert classes.prior(classes.now().answers) == pytest.approx(np.zeros(10))
    assert classes.now().since_s == -math.inf
    assert not classes.due


def test_a_class_that_dominates_is_known_when_it_is_found_and_better_with_time() -> None:
    classes = mix()
    found = next(n for n in range(1, 20) if fed(classes, [3], float(n)).due)
    assert found <= 8
    now = classes.now()
    assert now.answers.argmax() == 3
    assert now.since_s == 1.0
    classes.taken()
    assert not classes.due
    again = next(n for n in range(1, 20) if fed(classes, [3], 100.0 + n).due)
    assert found + again == math.ceil(MORE * found)
    assert classes.now().answers[3] > now.answers[3]


def test_what_came_before_another_mix_is_forgotten() -> None:
    classes = fed(mix(), [3] * 300)
    fed(classes, [7] * 12, 300.0)
    now = classes.now()
    assert now.answers.argmax() == 7
    assert now.answers[7] > 0.6
    assert 290 <= now.since_s <= 306


@pytest.mark.long
def test_very_many_answers_are_forgotten_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gearshift.caches.adapting.class_mix.MOST", 400.0)
    classes = fed(mix(), np.random.default_rng(0).integers(0, 10, 1200).tolist())
    assert 200 <= classes._counts.sum() <= 400
    assert classes.now().answers == pytest.approx(np.full(10, 0.1), abs=0.04)


def test_labels_are_found_behind_answers_that_mistake_a_class_for_another() -> None:
    """Of class 3 a fifth is answered as class 5, here as in the build."""
    answers = np.where((LABELS == 3) & (np.arange(1000) // 10 % 5 == 0), 5, LABELS)
    classes = mix(answers)
    rng = np.random.default_rng(0)
    fed(classes, np.where(rng.random(400) < 0.2, 5, 3).tolist())
    now = classes.now()
    assert now.answers[3] == pytest.approx(0.8, abs=0.06)
    assert now.answers[5] == pytest.approx(0.2, abs=0.06)
    assert now.labels[3] > 0.9
    assert now.labels.sum() == pytest.approx(1)


def test_a_class_that_has_not_come_for_long_is_no_other_mix_by_one_answer() -> None:
    classes = mix()
    classes._counts = np.array([0.0, *[111.0] * 9])  # as much as counts
    fed(classes, [*range(1, 10), 0, *range(1, 10), 0])
    assert not classes.due
    assert np.isfinite(classes.now().answers).all()


def test_many_classes_that_come_alike_are_no_other_mix() -> None:
    labels = np.arange(3000) % 300
    classes = ClassMix(labels, labels, 300)
    fed(classes, np.random.default_rng(0).integers(0, 300, 400).tolist())
    assert not classes.due
    fed(classes, [7] * 12)
    assert classes.due


def test_of_very_many_classes_samples_are_taken_for_what_they_are_answered_as(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gearshift.caches.adapting.class_mix.MOST_CLASSES", 5)
    classes = mix(np.roll(LABELS, 1))
    assert classes.now().labels == pytest.approx(classes.now().answers)
    assert labels_of(LABELS, np.roll(LABELS, 1), 10).tolist() == np.roll(LABELS, 1).tolist()


def test_a_restart_begins_with_the_mix_that_caches_are_set_for() -> None:
    shares = (0.82, *(0.02,) * 9)
    classes = mix(in_use=shares)
    assert classes.now().answers == pytest.approx(shares, abs=0.1)
    fed(classes, [0] * 30)
    assert not classes.due
    assert mix(in_use=(0.5, 0.5)).now().answers == pytest.approx(np.full(10, 0.1))


def test_no_class_is_impossible() -> None:
    shares = mix_of(np.zeros(100, dtype=np.int64), 3)
    assert shares.min() > 0
    assert shares.sum() == pytest.approx(1)


def test_samples_count_such_that_each_class_has_its_share() -> None:
    labels = np.array([0, 0, 0, 1, 2, 2])
    weights = weights_to(np.array([0.6, 0.3, 0.0, 0.1]), labels, np.array([1.0, 1.0, 2.0, 1.0, 1.0, 1.0]))
    assert weights == pytest.approx([0.15, 0.15, 0.3, 0.3, 0.0, 0.0])
