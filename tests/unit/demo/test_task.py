"""The demo's task: split by image, the same every time, and models that survive the disk."""

from pathlib import Path

import numpy as np
import pytest

from gearshift.demo import task
from gearshift.errors import InvalidInput

FEW_COPIES = {"tiny": 1, "small": 1, "medium": 2, "large": 3}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    directory = tmp_path_factory.mktemp("models")
    told: list[str] = []
    task.train(directory, told.append, copies=FEW_COPIES)
    return directory, told


@pytest.fixture(scope="module")
def samples() -> tuple[task.Floats, np.ndarray, np.ndarray]:
    return task.make_samples()


@pytest.fixture(scope="module")
def inputs(samples: tuple[task.Floats, np.ndarray, np.ndarray]) -> task.Floats:
    return samples[0]


def test_no_image_is_in_both_parts() -> None:
    training, validation = task.split_digits()
    assert not set(training.groups) & set(validation.groups)
    assert set(training.groups) | set(validation.groups) == set(range(1797))


def test_samples_have_their_shapes_and_come_from_validation_images_only(
    samples: tuple[task.Floats, np.ndarray, np.ndarray],
) -> None:
    inputs, labels, groups = samples
    count = task.VALIDATION_IMAGES * task.VALIDATION_COPIES
    assert (inputs.shape, labels.shape, groups.shape) == ((count, 64), (count,), (count,))
    assert (inputs.dtype, labels.dtype, groups.dtype) == (np.float32, np.int64, np.int64)
    assert inputs.min() >= 0
    assert inputs.max() <= 1
    assert set(groups) == set(task.split_digits()[1].groups)
    assert all(np.sum(groups == group) == task.VALIDATION_COPIES for group in set(groups))


def test_samples_of_one_image_share_its_label_and_differ(
    samples: tuple[task.Floats, np.ndarray, np.ndarray],
) -> None:
    inputs, labels, groups = samples
    rows = np.flatnonzero(groups == groups[0])
    assert len(set(labels[rows])) == 1
    assert len(np.unique(inputs[rows], axis=0)) == len(rows)


def test_samples_are_the_same_every_time(samples: tuple[task.Floats, np.ndarray, np.ndarray]) -> None:
    for one, other in zip(samples, task.make_samples(), strict=True):
        np.testing.assert_array_equal(one, other)


def test_fewer_copies_are_a_prefix_of_more() -> None:
    originals = task.split_digits()[0].rows(np.arange(5))
    one, two = (task.distort_all(originals, copies, seed=3) for copies in (1, 2))
    np.testing.assert_array_equal(one.images, two.images[:5])
    assert not np.array_equal(two.images[:5], two.images[5:])


def test_strokes_are_pixels_and_their_differences() -> None:
    image = np.zeros((1, 64), dtype=np.float32)
    image[0, 0] = 1
    seen = task.strokes(image)[0]
    assert seen.shape == (64 + 56 + 56,)
    assert (seen[0], seen[64], seen[64 + 56]) == (1, -1, -1)
    assert np.count_nonzero(seen) == 3


def test_training_tells_of_every_model_and_leaves_only_whole_files(trained: tuple[Path, list[str]]) -> None:
    directory, told = trained
    assert sorted(path.name for path in directory.iterdir()) == sorted(f"{name}.npz" for name in task.MODEL_NAMES)
    assert all(any(name in line for line in told) for name in task.MODEL_NAMES)


@pytest.mark.parametrize("name", task.MODEL_NAMES)
def test_a_loaded_model_answers_as_the_one_that_was_trained(
    trained: tuple[Path, list[str]], inputs: task.Floats, name: str
) -> None:
    originals = task.split_digits()[0]
    examples = task.distort_all(originals, FEW_COPIES[name], task.TRAINING_SEED)
    inputs = inputs[:50]
    fresh = task.LogisticRegression(C=task.REGULARISATION, max_iter=task.MAX_ITERATIONS)
    if name in task.FEATURES:
        fresh = task.rebuilt(name, task.learn(name, examples.images, examples.labels))
    else:
        fresh.fit(examples.images.astype(np.float64), examples.labels)
    loaded = task.load(trained[0], name)
    probabilities = loaded.predict_proba(inputs)
    np.testing.assert_allclose(probabilities, fresh.predict_proba(inputs), atol=1e-5)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-5)
    np.testing.assert_array_equal(loaded.classes_, np.arange(10))


@pytest.mark.parametrize("name", task.MODEL_NAMES)
def test_an_answer_does_not_depend_on_the_rest_of_its_batch(
    trained: tuple[Path, list[str]], inputs: task.Floats, name: str
) -> None:
    inputs = inputs[:8]
    model = task.load(trained[0], name)
    alone = np.concatenate([model.predict_proba(row[None]) for row in inputs])
    np.testing.assert_allclose(model.predict_proba(inputs), alone, atol=1e-5)


def test_even_a_little_training_makes_the_models_rank(
    trained: tuple[Path, list[str]], samples: tuple[task.Floats, np.ndarray, np.ndarray]
) -> None:
    inputs, labels = (each[::3] for each in samples[:2])
    models = [task.load(trained[0], name) for name in ("tiny", "small", "large")]
    accuracies = [np.mean(model.predict_proba(inputs).argmax(axis=1) == labels) for model in models]
    assert accuracies == sorted(accuracies)
    assert accuracies[-1] > accuracies[0] + 0.08


def test_a_missing_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="no such file"):
        task.load(tmp_path, "large")
