"""The window of recent samples that adaptation learns from, bounded in time, number and bytes."""

import zlib
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gearshift.caches.store.validation import read_arrays
from gearshift.errors import InvalidInput
from gearshift.support.files import written_atomically

FIT, JUDGE, CHECK, HOLD = range(4)
"""Purposes of a sample: predictors, selectors, the choice of caches, and the comparison with
the version in use."""
ROLE_SHARES = (0.5, 0.2, 0.15, 0.15)
WINDOW = "window.npz"


@dataclass(slots=True, eq=False)
class Recent:
    """A sampled input (one row, without the row dimension), its arrival time and its purpose.

    `probabilities` (classes,) are the base model's, None until known. `features` by layer are what
    predictors learn from, empty until the sample has run. `gone` means that it has left the
    window.
    """

    row: NDArray[Any]
    at_s: float
    role: int
    probabilities: NDArray[np.float32] | None = None
    features: dict[int, NDArray[np.float32]] = field(default_factory=dict)
    gone: bool = False

    @property
    def size_bytes(self) -> int:
        return self.row.nbytes + sum(array.nbytes for array in self.features.values())


class Window:
    """Samples of the latest `window_s`, bounded in number and bytes; the oldest leave first.

    `retrained_s` is the time of the last retraining, or of the first possible one; it is saved.
    """

    def __init__(self, *, window_s: float, most_samples: int, most_bytes: int) -> None:
        self._window_s, self._most_samples, self._most_bytes = window_s, most_samples, most_bytes
        self._samples: deque[Recent] = deque()
        self._unnamed: deque[Recent] = deque()
        self.size_bytes = self.waiting = 0
        self.retrained_s = 0.0

    def __len__(self) -> int:
        return len(self._samples)

    def __iter__(self) -> Iterator[Recent]:
        return iter(self._samples)

    def add(self, sample: Recent, now_s: float) -> None:
        self._samples.append(sample)
        self._unnamed.append(sample)
        self.size_bytes += sample.size_bytes
        self.waiting += not sample.features
        self.trim(now_s)

    def learnt(self, sample: Recent, probabilities: NDArray[np.float32], features: dict[int, Any]) -> None:
        before = sample.size_bytes
        self.waiting -= not sample.features
        sample.probabilities, sample.features = probabilities, features
        self.size_bytes += sample.size_bytes - before

    def drop(self, sample: Recent) -> None:
        self._samples.remove(sample)
        self._gone(sample)

    def trim(self, now_s: float) -> None:
        while self._samples and (
            now_s - self._samples[0].at_s > self._window_s
            or len(self._samples) > self._most_samples
            or self.size_bytes > self._most_bytes
        ):
            self._gone(self._samples.popleft())

    def named(self) -> Iterator[tuple[int, float]]:
        """Yield each sample's base model answer and arrival time, once and in order.

        Stop at the first unknown answer: answers that are known early are a biased sample.
        """
        while self._unnamed and (self._unnamed[0].gone or self._unnamed[0].probabilities is not None):
            sample = self._unnamed.popleft()
            if sample.probabilities is not None and not sample.gone:
                yield int(sample.probabilities.argmax()), sample.at_s

    def _gone(self, sample: Recent) -> None:
        sample.gone = True
        self.size_bytes -= sample.size_bytes
        self.waiting -= not sample.features

    def pending(self, most: int, *, until_s: float | None = None) -> list[Recent]:
        """Return the oldest that have not run, all with known probabilities or all without."""
        if not self.waiting:
            return []
        came = self._samples if until_s is None else [sample for sample in self._samples if sample.at_s <= until_s]
        waiting = [sample for sample in came if not sample.features]
        known = bool(waiting) and waiting[0].probabilities is not None
        return [sample for sample in waiting if (sample.probabilities is not None) == known][:most]

    def ready(self, role: int) -> list[Recent]:
        return [sample for sample in self._samples if sample.features and sample.role == role]

    def save(self, folder: Path) -> None:
        path = folder / WINDOW
        for left_by_a_kill in folder.glob(f".{WINDOW}.*"):
            left_by_a_kill.unlink(missing_ok=True)
        if not self._samples:
            path.unlink(missing_ok=True)
            return
        known = np.array([sample.probabilities is not None for sample in self._samples])
        scores = [sample.probabilities for sample in self._samples if sample.probabilities is not None]
        with written_atomically(path, private=True) as file:
            np.savez(
                file,
                inputs=np.stack([sample.row for sample in self._samples]),
                at_s=np.array([sample.at_s for sample in self._samples]),
                role=np.array([sample.role for sample in self._samples], dtype=np.uint8),
                retrained_s=np.array(self.retrained_s),
                known=known,
                probabilities=np.stack(scores) if scores else np.zeros((0, 1), dtype=np.float32),
            )

    def load(self, folder: Path, now_s: float, row_shape: tuple[int, ...] | None, classes: int) -> str:
        """Load what was saved, without unpickling; return why that is impossible, else ""."""
        path = folder / WINDOW
        if not path.is_file():
            return ""
        try:
            rows, at_s, role, known, scores, retrained_s = read_arrays(
                path, "inputs", "at_s", "role", "known", "probabilities", "retrained_s"
            )
        except InvalidInput as error:
            return error.what
        n = len(rows)
        matching = at_s.shape == role.shape == known.shape == (n,) and len(scores) == np.count_nonzero(known)
        matching &= retrained_s.shape == () and bool(np.isfinite(retrained_s))
        matching &= rows.shape[1:] == row_shape and (len(scores) == 0 or scores.shape[1:] == (classes,))
        if not matching or (n and role.max() > HOLD):
            return f"{path} is of another model"
        place = np.cumsum(known) - 1
        for i in range(n):
            sample = Recent(rows[i], float(at_s[i]), int(role[i]), scores[place[i]] if known[i] else None)
            self.add(sample, now_s)
        self.retrained_s = min(float(retrained_s), now_s)
        return ""


def role_of(row: NDArray[Any], seed: int) -> int:
    """Choose by a hash of the content, so a repeated training sample never judges."""
    place = zlib.crc32(np.ascontiguousarray(row).tobytes(), seed & 0xFFFFFFFF) / 2**32
    return int(np.searchsorted(np.cumsum(ROLE_SHARES)[:-1], place, side="right"))


def weights_of(samples: list[Recent], now_s: float, half_life_s: float) -> NDArray[np.float64]:
    """Weight samples (n,) by age: 1 now, half of that `half_life_s` ago."""
    ages = np.array([now_s - sample.at_s for sample in samples], dtype=np.float64)
    return np.asarray(np.exp2(-np.maximum(ages, 0.0) / half_life_s))
