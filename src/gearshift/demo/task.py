"""The demo's task: distorted handwritten digits, and four scikit-learn models of rising cost.

The digits are the 1,797 images of 8x8 pixels that scikit-learn ships, split by image before any is
distorted. `tiny` is a logistic regression on the pixels. The others store distorted copies of the
training images, and the nearest ones vote, by city-block distance: `small` compares pixels,
`medium` and `large` also strokes (the differences between neighbouring pixels). Run time is
proportional to the numbers compared, and accuracy rises with it.
"""

import io
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from gearshift.support.files import read_bytes, write_atomically

MODEL_NAMES = ("tiny", "small", "medium", "large")
TRAINING_COPIES: Mapping[str, int] = MappingProxyType({"tiny": 6, "small": 3, "medium": 9, "large": 40})
"""Distorted copies of each training image, per model."""

VALIDATION_IMAGES = 500
VALIDATION_COPIES = 4
SPLIT_SEED = 7
TRAINING_SEED = 2
VALIDATION_SEED = 1

SIDE_PIXELS = 8
BRIGHTEST = 16.0
MAX_ROTATION_DEGREES = 20.0
MAX_SHIFT_PIXELS = 0.5
MAX_SCALE_CHANGE = 0.15
MAX_SHEAR = 0.1
BLOT_PROBABILITY = 0.3
BLOT_PIXELS = 2
MIN_CONTRAST = 0.6
NOISE_DEVIATION = 0.05

NEIGHBOURS = 8
REGULARISATION = 1.0
MAX_ITERATIONS = 2_000

Floats = NDArray[np.float32]
Labels = NDArray[np.int64]


class Classifier(Protocol):
    classes_: NDArray[Any]

    def predict_proba(self, X: NDArray[Any]) -> NDArray[Any]:
        """Return the probability (n, 10) of each class for n rows of 64 pixels."""
        ...


class Digits(NamedTuple):
    """Images (n, 64) in 0 to 1, the digit on each, and the index of the original image of each."""

    images: Floats
    labels: Labels
    groups: Labels

    def rows(self, indices: Labels) -> "Digits":
        return Digits(self.images[indices], self.labels[indices], self.groups[indices])


def make_samples() -> tuple[Floats, Labels, Labels]:
    """Return the validation samples: inputs (n, 64), labels (n,), groups (n,) by original."""
    images, labels, groups = distort_all(split_digits()[1], VALIDATION_COPIES, VALIDATION_SEED)
    return images, labels, groups


def train(directory: Path, progress: Callable[[str], None], *, copies: Mapping[str, int] = TRAINING_COPIES) -> None:
    originals = split_digits()[0]
    most = max(copies[name] for name in MODEL_NAMES)
    progress(f"distorting {len(originals.labels):,} training images {most} times each")
    examples = distort_all(originals, most, TRAINING_SEED)
    for name in MODEL_NAMES:
        count = copies[name] * len(originals.labels)
        progress(f"training {name} on {count:,} distorted images")
        arrays = learn(name, examples.images[:count], examples.labels[:count])
        write_atomically(model_path(directory, name), packed(arrays))


def load(directory: Path, name: str) -> Classifier:
    data = read_bytes(model_path(directory, name), remedy="run `gearshift demo` again, it trains its models")
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        return rebuilt(name, arrays)


def model_path(directory: Path, name: str) -> Path:
    return directory / f"{name}.npz"


def split_digits() -> tuple[Digits, Digits]:
    data = load_digits()
    everything = Digits(
        (data.data / BRIGHTEST).astype(np.float32), data.target.astype(np.int64), np.arange(len(data.target))
    )
    order = np.random.default_rng(SPLIT_SEED).permutation(len(everything.labels))
    validation, training = order[:VALIDATION_IMAGES], order[VALIDATION_IMAGES:]
    return everything.rows(training), everything.rows(validation)


def distort_all(originals: Digits, copies: int, seed: int) -> Digits:
    """Distort every original once per round; fewer `copies` give a prefix of more."""
    rounds = []
    for copy in range(copies):
        random = np.random.default_rng((seed, copy))
        rounds.append(np.stack([distort(image, random) for image in originals.images]))
    return Digits(np.concatenate(rounds), np.tile(originals.labels, copies), np.tile(originals.groups, copies))


def distort(image: Floats, random: np.random.Generator) -> Floats:
    angle = np.deg2rad(random.uniform(-MAX_ROTATION_DEGREES, MAX_ROTATION_DEGREES))
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    shear = np.array([[1.0, random.uniform(-MAX_SHEAR, MAX_SHEAR)], [0.0, 1.0]])
    warp = turn @ shear @ np.diag(random.uniform(1 - MAX_SCALE_CHANGE, 1 + MAX_SCALE_CHANGE, 2))
    centre = np.full(2, (SIDE_PIXELS - 1) / 2)
    offset = centre - warp @ centre + random.uniform(-MAX_SHIFT_PIXELS, MAX_SHIFT_PIXELS, 2)
    square = ndimage.affine_transform(image.reshape(SIDE_PIXELS, SIDE_PIXELS), warp, offset=offset, order=1)
    if random.random() < BLOT_PROBABILITY:
        row, column = random.integers(0, SIDE_PIXELS - BLOT_PIXELS + 1, 2)
        square[row : row + BLOT_PIXELS, column : column + BLOT_PIXELS] = random.random()
    faded = square * random.uniform(MIN_CONTRAST, 1.0)
    noisy = faded + random.normal(0.0, NOISE_DEVIATION, square.shape)
    return np.clip(noisy, 0.0, 1.0).astype(np.float32).ravel()


def pixels(images: NDArray[Any]) -> Floats:
    """Convert images (n, 64) to the type of the stored ones, which makes the search fast."""
    return np.asarray(images, dtype=np.float32)


def strokes(images: NDArray[Any]) -> Floats:
    """Return each image's pixels (n, 64) and their differences across and down: (n, 176)."""
    square = pixels(images).reshape(len(images), SIDE_PIXELS, SIDE_PIXELS)
    parts = (square, np.diff(square, axis=2), np.diff(square, axis=1))
    return np.concatenate([part.reshape(len(images), -1) for part in parts], axis=1)


FEATURES: Mapping[str, Callable[[NDArray[Any]], Floats]] = MappingProxyType(
    {"small": pixels, "medium": strokes, "large": strokes}
)
"""Features that the nearest-neighbour models compare."""


def learn(name: str, images: Floats, labels: Labels) -> dict[str, NDArray[Any]]:
    if name in FEATURES:
        return {"images": images, "labels": labels}
    fitted = LogisticRegression(C=REGULARISATION, max_iter=MAX_ITERATIONS).fit(images.astype(np.float64), labels)
    return {"coefficients": fitted.coef_, "intercepts": fitted.intercept_, "classes": fitted.classes_}


def rebuilt(name: str, arrays: Mapping[str, NDArray[Any]]) -> Classifier:
    if name in FEATURES:
        vote = KNeighborsClassifier(NEIGHBOURS, weights="distance", algorithm="brute", metric="manhattan")
        remembering = make_pipeline(FunctionTransformer(FEATURES[name]), vote)
        return cast("Classifier", remembering.fit(arrays["images"], arrays["labels"]))
    linear = LogisticRegression(C=REGULARISATION, max_iter=MAX_ITERATIONS)
    linear.coef_, linear.intercept_, linear.classes_ = arrays["coefficients"], arrays["intercepts"], arrays["classes"]
    linear.n_features_in_ = linear.coef_.shape[1]
    return cast("Classifier", linear)


def packed(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()
