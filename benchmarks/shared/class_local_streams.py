"""Streams with class locality: the order of samples, drawn from images outside the training set."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from gearshift.errors import require

WHERE = "stream"


@dataclass(frozen=True, slots=True, eq=False)
class Stream:
    """Rows of the samples in order of arrival (n,), with the window and the dominant class of each.

    `shifted` says which come after the shift, if there is one.
    """

    rows: NDArray[np.int64]
    window: NDArray[np.int64]
    dominant: NDArray[np.int64]
    shifted: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.rows)


def class_local_stream(
    labels: NDArray[np.int64],
    n: int,
    *,
    exponent: float = 1.5,
    window: int = 1000,
    seed: int = 0,
    unseen: tuple[int, ...] = (),
    shift_at: int | None = None,
) -> Stream:
    """Draw `n` samples with classes by Zipf's law, and another dominant class in each window.

    The class of rank r has weight r^-`exponent`: 0 is uniform, larger is more skewed (the paper's
    alpha runs the other way). In each window of `window` samples the ranks are drawn anew, with
    another class first. Within a class, samples are drawn with replacement. Classes in `unseen`
    come only from sample `shift_at` on, where `shifted` begins; without `unseen` the caller
    corrupts the shifted samples.

    Raises `InvalidInput` for fewer than two classes, and for numbers that make no stream.
    """
    require(
        n >= 1 and window >= 1, f"{n} samples in windows of {window}", where=WHERE, remedy="give at least 1 of each"
    )
    require(
        exponent >= 0 and bool(np.isfinite(exponent)), f"exponent is {exponent}", where=WHERE, remedy="give 0 or more"
    )
    classes = np.unique(labels)
    require(len(classes) >= 2, "there are fewer than two classes", where=WHERE, remedy="give samples of more classes")
    missing = sorted(set(unseen) - set(classes.tolist()))
    require(not missing, f"no sample is of class {missing[:1]}", where=WHERE, remedy="name classes that there are")
    require(not unseen or shift_at is not None, "unseen classes need shift_at", where=WHERE)
    seen = classes[~np.isin(classes, unseen)]
    require(len(seen) >= 2, "fewer than two classes are seen before the shift", where=WHERE, remedy="name fewer")
    generator = np.random.default_rng([seed, 7])
    members = {int(c): np.flatnonzero(labels == c) for c in classes}
    after = n if shift_at is None else min(n, max(0, shift_at))
    edges = sorted({n, *range(0, n, window), after})
    drawn: list[NDArray[np.int64]] = []
    dominant = np.empty(n, dtype=np.int64)
    last = -1
    order = seen
    for begin, end in pairwise(edges):
        if begin % window == 0 or begin == after:
            there = seen if begin < after else classes
            order = _ranks(there, last, generator)
            last = int(order[0])
        weights = np.arange(1, len(order) + 1, dtype=np.float64) ** -exponent
        drawn.append(generator.choice(order, size=end - begin, p=weights / weights.sum()))
        dominant[begin:end] = order[0]
    chosen = np.concatenate(drawn)
    rows = np.empty(n, dtype=np.int64)
    for c, of_class in members.items():
        at = np.flatnonzero(chosen == c)
        rows[at] = of_class[generator.integers(0, len(of_class), len(at))]
    places = np.arange(n)
    return Stream(rows, places // window, dominant, places >= after if shift_at is not None else np.zeros(n, np.bool_))


def halves(labels: NDArray[np.int64], seed: int = 0) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Split rows into halves, each with half of every class: one to adapt on, one to score."""
    generator = np.random.default_rng([seed, 8])
    parts = [generator.permutation(np.flatnonzero(labels == c)) for c in np.unique(labels)]
    return (
        np.sort(np.concatenate([part[: len(part) // 2] for part in parts])),
        np.sort(np.concatenate([part[len(part) // 2 :] for part in parts])),
    )


def corrupted(
    images: NDArray[np.float32], *, kind: str = "noise", strength: float = 0.1, seed: int = 0
) -> NDArray[np.float32]:
    """Corrupt images (n, channels, height, width) in [0, 1].

    `kind` is `noise`, lowered `contrast`, `blur`, or `occlusion`. `strength` in [0, 1] is the
    noise's deviation, the contrast lost, the share of blur, or the side of the covered square.
    Raises `InvalidInput` for another kind, and for values outside [0, 1], as normalised images
    have.
    """
    generator = np.random.default_rng([seed, 9])
    require(0 <= strength <= 1, f"strength is {strength}", where="corruption", remedy="give a share from 0 to 1")
    within = bool(np.all((images >= 0) & (images <= 1)))
    require(within, "images have values outside [0, 1]", where="corruption", remedy="corrupt before normalising")
    made: NDArray[np.floating]
    match kind:
        case "noise":
            made = images + generator.normal(0.0, strength, images.shape)
        case "contrast":
            mean = images.mean(axis=(1, 2, 3), keepdims=True)
            made = mean + (images - mean) * (1 - strength)
        case "blur":
            near = [np.roll(images, (dy, dx), axis=(2, 3)) for dy in (-1, 0, 1) for dx in (-1, 0, 1)]
            made = (1 - strength) * images + strength * np.mean(near, axis=0)
        case "occlusion":
            made = images.copy()
            height, width = (max(1, round(strength * side)) for side in images.shape[2:])
            for image in made:
                y = int(generator.integers(0, images.shape[2] - height + 1))
                x = int(generator.integers(0, images.shape[3] - width + 1))
                image[:, y : y + height, x : x + width] = 0.5
        case _:
            require(False, f"there is no corruption {kind!r}", remedy="use noise, contrast, blur or occlusion")
            made = images
    return np.clip(made, 0.0, 1.0).astype(np.float32)


def _ranks(classes: NDArray[np.int64], last: int, generator: np.random.Generator) -> NDArray[np.int64]:
    order = generator.permutation(classes)
    if order[0] == last:
        order[[0, 1]] = order[[1, 0]]
    return np.asarray(order, dtype=np.int64)
