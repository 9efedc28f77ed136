"""The answers to the rows of a chunk."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

ANSWERED, DEGRADED, REFUSED, FAILED, NULL = range(5)
OUTCOMES = ("answered", "degraded", "refused", "failed")
"""Outcomes by code; a row of code `NULL` had no input, and has no outcome."""


@dataclass(slots=True, eq=False)
class Answers:
    """Label, certainty and outcome (n,) of the rows of a chunk.

    The label of a row without an answer (`REFUSED`, `FAILED`, `NULL`) is not to be read, its
    certainty is NaN; so it is for a row that no edge of its graph led to the output, which is
    `DEGRADED`. `label` is None until a row has an answer.
    """

    outcome: NDArray[np.int8]
    certainty: NDArray[np.float64]
    label: NDArray[Any] | None = None

    @classmethod
    def none_yet(cls, rows: int, outcome: int = FAILED) -> "Answers":
        return cls(np.full(rows, outcome, np.int8), np.full(rows, np.nan))

    @property
    def has_label(self) -> NDArray[np.bool_]:
        return (self.outcome <= DEGRADED) & ~np.isnan(self.certainty)

    def keep(self, rows: NDArray[np.int64], label: NDArray[Any], certainty: NDArray[np.float64]) -> None:
        """Keep answers of `rows`, in place of those of an earlier stage."""
        if self.label is None:
            self.label = np.full(len(self.outcome), "" if label.dtype == object else 0, label.dtype)
        elif self.label.dtype != label.dtype:
            self.label = self.label.astype(np.result_type(self.label.dtype, label.dtype))
        self.label[rows] = label
        self.certainty[rows] = certainty
        self.outcome[rows] = ANSWERED

    def end(self, rows: NDArray[np.int64], outcome: int) -> None:
        """End rows otherwise than by an answer of the last model that saw them."""
        self.outcome[rows] = outcome
        if outcome != DEGRADED:
            self.certainty[rows] = np.nan

    def taken(self, rows: NDArray[np.int64]) -> "Answers":
        return Answers(self.outcome[rows], self.certainty[rows], None if self.label is None else self.label[rows])

    def put(self, rows: NDArray[np.int64], others: "Answers") -> None:
        """Take the answers of `rows` from `others`, which has only these."""
        if others.label is not None:
            self.keep(rows, others.label, others.certainty)
        self.certainty[rows], self.outcome[rows] = others.certainty, others.outcome
