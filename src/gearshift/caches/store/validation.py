"""The samples that learned caches were built from, stored with them for adaptation."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gearshift.errors import InvalidInput, require
from gearshift.support.files import read_bytes, written_atomically
from gearshift.support.stored_arrays import BROKEN_ZIP, plain_arrays

VALIDATION = "validation.npz"
FIT, JUDGE, CHECK = range(3)
REMEDY = "build the caches anew, with --out or save()"


@dataclass(frozen=True, slots=True, eq=False)
class Validation:
    """Inputs (n, ...), labels (n,), base probabilities (n, classes), and the part of each row (n,).

    `part` is `FIT` for predictors, `JUDGE` for selectors, `CHECK` for the choice of caches.
    """

    inputs: NDArray[Any]
    labels: NDArray[np.int64]
    probabilities: NDArray[np.float32]
    part: NDArray[np.uint8]

    def __post_init__(self) -> None:
        n = len(self.inputs)
        usable = (
            self.labels.shape == self.part.shape == (n,)
            and self.probabilities.ndim == 2
            and len(self.probabilities) == n
            and bool(np.isfinite(self.probabilities).all())
            and bool(((self.labels >= 0) & (self.labels < self.probabilities.shape[1])).all())
        )
        require(usable, "the arrays do not belong together", where=VALIDATION, remedy=REMEDY)

    def __len__(self) -> int:
        return len(self.inputs)

    def rows(self, rows: NDArray[np.integer[Any]]) -> "Validation":
        return Validation(self.inputs[rows], self.labels[rows], self.probabilities[rows], self.part[rows])

    def some(self, most: int, seed: int) -> "Validation":
        """Draw at most `most` rows, if possible equally many for each part."""
        order = np.random.default_rng([seed, 54]).permutation(len(self))
        place = np.zeros(len(self), dtype=np.int64)
        for part in (FIT, JUDGE, CHECK):
            of_part = order[self.part[order] == part]
            place[of_part] = np.arange(len(of_part))
        return self.rows(np.sort(np.argsort(place, kind="stable")[:most]))

    def save(self, folder: Path) -> None:
        with written_atomically(folder / VALIDATION) as file:
            np.savez(file, inputs=self.inputs, labels=self.labels, probabilities=self.probabilities, part=self.part)


def read_validation(folder: Path) -> Validation:
    return Validation(*read_arrays(folder / VALIDATION, "inputs", "labels", "probabilities", "part"))


def read_arrays(path: Path, *names: str) -> list[NDArray[Any]]:
    """Read arrays of a .npz file without unpickling; raises `InvalidInput` if missing or broken."""
    require(path.is_file(), "no such file", where=str(path), remedy=REMEDY)
    try:
        found = plain_arrays(read_bytes(path), names)
        return [found[name] for name in names]
    except BROKEN_ZIP as error:
        raise InvalidInput(f"holds no samples ({error})", where=str(path), remedy=REMEDY) from error
