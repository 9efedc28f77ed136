"""A user's model that stops early: run from exit to exit, or through, with segment times."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gearshift.model import Arrays, Predicted
from gearshift.models.user_model import UserModel


@dataclass(frozen=True, slots=True)
class EarlyExitModel(UserModel):
    """A model whose rows leave after one of several segments."""

    @property
    def segments(self) -> int:
        return int(self.model.segments)

    def exits(self, inputs: Arrays) -> Iterator[tuple[NDArray[np.int64], Predicted]]:
        """Yield row numbers and the model's answer for them as they leave; each of n rows once.

        Raises `ModelFailed` where the user's code raises or yields anything else.
        """
        left = np.ones(len(next(iter(inputs.values()))), dtype=bool)
        leaving = self._call("exits", iter, self._call("exits", self.model.exits, self._decoded(inputs)))
        while (given := self._call("exits", next, leaving, None)) is not None:
            rows, answer = self._pair("exits", given)
            rows = self._array("rows that leave", rows)
            if rows.ndim != 1 or rows.dtype.kind not in "iu" or len(np.unique(rows)) < len(rows):
                raise self._refused(f"gave rows {rows.tolist()} that leave", "give the numbers of rows, each once")
            if len(rows) == 0 or rows.min() < 0 or rows.max() >= len(left) or not left[rows].all():
                raise self._refused(f"gave rows {rows.tolist()} that leave", "let every row of the batch leave once")
            left[rows] = False
            yield rows, self._predicted(answer, len(rows))
        if left.any():
            raise self._refused(f"let {int(left.sum())} rows never leave", "let every row of the batch leave once")

    def through(self, inputs: Arrays) -> tuple[Predicted, Sequence[float]]:
        """Run n rows through all segments; returns the answer and the seconds of each segment."""
        n = len(next(iter(inputs.values())))
        answer, given = self._pair("through", self._call("through", self.model.through, self._decoded(inputs)))
        seconds = self._array("seconds of segments", given)
        if seconds.shape != (self.segments,) or seconds.dtype.kind != "f" or not (seconds >= 0).all():
            raise self._refused(
                f"gave seconds of shape {seconds.shape} for {self.segments} segments", "give one time per segment"
            )
        return self._predicted(answer, n), seconds.tolist()

    def _pair(self, method: str, given: Any) -> tuple[Any, Any]:
        if not isinstance(given, tuple) or len(given) != 2:
            raise self._refused(f"answered {type(given).__name__} in {method}", "answer a pair")
        return given
