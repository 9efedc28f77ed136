"""Run time of a batch by its size and its cores: a fitted formula, or the measured grid."""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from gearshift.clock import NS_PER_S
from gearshift.errors import require

LEAST_BATCH_SIZES = 3
LEAST_CORE_COUNTS = 2
LEAST_POINTS = LEAST_BATCH_SIZES * LEAST_CORE_COUNTS
REMEDY = (
    f"measure at least {LEAST_BATCH_SIZES} batch sizes on each of at least {LEAST_CORE_COUNTS} core counts, "
    f"which are {LEAST_POINTS} points"
)

NO_CHOICE_NS = 1 << 61

Statistic = Literal["median", "p95"]
Floats = NDArray[np.float64]
_Predict = Callable[[Floats, Floats], Floats]
"""From batch sizes (n,) and cores (n,) to seconds (n,)."""


class PerformanceModel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Seconds of a batch by batch size and cores, for one model (segment) on one kind of device.

    Overheads are not included. Form `formula` is Sponge Eq. 2, `per_sample_core_s * b / c +
    per_batch_core_s / c + per_sample_s * b + per_batch_s`; form `grid` interpolates `seconds`
    (batch sizes, cores), linearly in b and in 1 / c. Errors are relative, over batch sizes and
    core counts that were left out in turn (`held_out_points` in all).
    """

    model: str
    device_kind: str = "cpu"
    tensor_parallel: int = 1
    segment: int = 0
    statistic: Statistic = "median"
    form: Literal["formula", "grid"]
    batch_sizes: tuple[int, ...]
    cores: tuple[int, ...]
    coefficients_s: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)
    seconds: tuple[tuple[float, ...], ...] = ()
    held_out_error: float
    held_out_worst: float
    held_out_points: int
    other_form_error: float | None = None
    """Held-out error of the other form; None where that form could not be fitted."""

    def __post_init__(self) -> None:
        where = f"performance model of {self.model!r}"
        for name, values in (("batch_sizes", self.batch_sizes), ("cores", self.cores)):
            rising = all(a < b for a, b in pairwise(values))
            require(len(values) >= 1 and values[0] >= 1 and rising, f"{name} must be from 1 on and rise", where=where)
        if self.form == "grid":
            shape = len(self.seconds) == len(self.batch_sizes) and all(len(r) == len(self.cores) for r in self.seconds)
            require(shape, "seconds is not (batch sizes, cores)", where=where)
        require(min(self.coefficients_s) >= 0, "a coefficient is negative", where=where)

    def at(self, batch_sizes: Floats, cores: Floats) -> Floats:
        """Seconds (n,); raises `InvalidInput` outside of the measured range."""
        for name, asked, known in (("batch size", batch_sizes, self.batch_sizes), ("core count", cores, self.cores)):
            require(
                bool(np.all((asked >= known[0]) & (asked <= known[-1]))),
                f"model {self.model!r} was measured from {name} {known[0]} to {known[-1]}",
                remedy=f"ask for a {name} between these, or profile it",
            )
        if self.form == "formula":
            return _formula(self.coefficients_s)(batch_sizes, cores)
        return _grid(self.batch_sizes, self.cores, np.array(self.seconds))(batch_sizes, cores)

    def table_ns(
        self,
        *,
        most_cores: int | None = None,
        largest_batch_size: int | None = None,
        overhead_per_batch_s: float = 0.0,
        overhead_per_request_s: float = 0.0,
    ) -> NDArray[np.int64]:
        """Nanoseconds (cores + 1, sizes + 1) of every batch, overheads included.

        Row and column 0 hold no batch. Core counts below the smallest measured one hold
        `NO_CHOICE_NS`. Batches below the smallest measured size take as long as that size. Raises
        `InvalidInput` past the measured range.
        """
        most, largest = most_cores or self.cores[-1], largest_batch_size or self.batch_sizes[-1]
        table = np.full((most + 1, largest + 1), NO_CHOICE_NS, dtype=np.int64)
        sizes = np.arange(1, largest + 1, dtype=np.float64)
        padded = np.maximum(sizes, self.batch_sizes[0])
        for c in range(self.cores[0], most + 1):
            seconds = self.at(padded, np.full(largest, float(c)))
            seconds = seconds + overhead_per_batch_s + sizes * overhead_per_request_s
            table[c, 1:] = np.maximum(1, np.rint(seconds * NS_PER_S))
        table[:, 0] = 0
        return table


def planned_ns(table_ns: NDArray[np.int64], margin: float) -> list[int]:
    """Flatten a table of `table_ns` row by row, with run times longer by the share `margin`.

    Scaling policies plan with this form.
    """
    planned = np.minimum(table_ns * (1 + margin), float(NO_CHOICE_NS))
    flat: list[int] = np.rint(planned).astype(np.int64).ravel().tolist()
    return flat


def fit_performance_model(
    batch_sizes: Sequence[int],
    cores: Sequence[int],
    seconds: Sequence[float],
    *,
    model: str,
    device_kind: str = "cpu",
    tensor_parallel: int = 1,
    segment: int = 0,
    statistic: Statistic = "median",
) -> PerformanceModel:
    """Fit formula and grid to `seconds` (n,) by `batch_sizes` (n,) and `cores` (n,).

    The formula minimises the sum of absolute relative errors without negative coefficients: one
    slow outlier does not bend it, and a small batch counts as much as a large one. The grid is the
    alternative where every size was measured on every core count. Each inner batch size and core
    count is left out in turn and predicted from the others; the form with the smaller mean
    relative error is returned. Raises `InvalidInput` for too few points.
    """
    b, c, s = (np.asarray(values, dtype=np.float64) for values in (batch_sizes, cores, seconds))
    sizes, counts = np.unique(b), np.unique(c)
    _require_enough(model, len(b), sizes, counts)
    where = f"run times of model {model!r}"
    require(bool(np.all(np.isfinite(s) & (s > 0))), "a run time is not positive and finite", where=where)
    require(len(b) == len({*zip(b, c, strict=True)}), "a batch size is there twice for a core count", where=where)
    complete = len(b) == len(sizes) * len(counts)
    formula_error, formula_worst, points = _held_out(b, c, s, _fit_formula)
    grid_error, grid_worst, _ = _held_out(b, c, s, _fit_grid) if complete else (np.inf, np.inf, 0)
    of_grid = grid_error < formula_error
    ordered = s[np.lexsort((c, b))]
    return PerformanceModel(
        model=model,
        device_kind=device_kind,
        tensor_parallel=tensor_parallel,
        segment=segment,
        statistic=statistic,
        form="grid" if of_grid else "formula",
        batch_sizes=tuple(int(size) for size in sizes),
        cores=tuple(int(count) for count in counts),
        coefficients_s=(0.0, 0.0, 0.0, 0.0) if of_grid else formula_coefficients(b, c, s),
        seconds=tuple(map(tuple, ordered.reshape(len(sizes), len(counts)).tolist())) if of_grid else (),
        held_out_error=grid_error if of_grid else formula_error,
        held_out_worst=grid_worst if of_grid else formula_worst,
        held_out_points=points,
        other_form_error=formula_error if of_grid else grid_error if complete else None,
    )


def formula_coefficients(b: Floats, c: Floats, s: Floats) -> tuple[float, float, float, float]:
    """Fit Sponge Eq. 2 by least absolute relative errors, as a linear programme.

    Coefficients are not negative. Columns are b / c, 1 / c, b and 1, divided by the measured time,
    so that each row should equal 1; there is one slack variable per point.
    """
    from scipy.optimize import linprog

    relative = _columns(b, c) / s[:, None]
    slack, ones = np.eye(len(s)), np.ones(len(s))
    solved = linprog(
        np.concatenate([np.zeros(4), ones]),
        A_ub=np.block([[relative, -slack], [-relative, -slack]]),
        b_ub=np.concatenate([ones, -ones]),
        method="highs",
    )
    per_sample_core, per_batch_core, per_sample, per_batch = np.maximum(np.asarray(solved.x)[:4], 0.0).tolist()
    return per_sample_core, per_batch_core, per_sample, per_batch


def relative_errors(predicted: Floats, measured: Floats) -> tuple[float, float]:
    errors = np.abs(predicted / measured - 1)
    return float(errors.mean()), float(errors.max())


def _require_enough(model: str, points: int, sizes: Floats, counts: Floats) -> None:
    where = f"run times of model {model!r}"
    few_sizes = f"{len(sizes)} batch sizes" if len(sizes) != 1 else f"batch size {sizes[0]:g} alone"
    few_counts = f"{len(counts)} core counts" if len(counts) != 1 else f"{counts[0]:g} cores alone"
    require(
        len(sizes) >= LEAST_BATCH_SIZES and len(counts) >= LEAST_CORE_COUNTS,
        f"{points} points of {few_sizes} and {few_counts} cannot tell what a batch of another size costs elsewhere",
        where=where,
        remedy=REMEDY,
    )
    require(points >= LEAST_POINTS, f"there are {points} points", where=where, remedy=REMEDY)


def _columns(b: Floats, c: Floats) -> Floats:
    return np.stack([b / c, 1 / c, b, np.ones_like(b)], axis=1)


def _formula(coefficients_s: Sequence[float]) -> _Predict:
    return lambda b, c: np.asarray(_columns(b, c) @ np.asarray(coefficients_s))


def _grid(sizes: Sequence[float], counts: Sequence[float], seconds: Floats) -> _Predict:
    """Interpolate `seconds` (sizes, counts) in the size and (Amdahl's law) in 1 / cores."""
    inverse = 1 / np.asarray(counts, dtype=np.float64)[::-1]

    def predict(b: Floats, c: Floats) -> Floats:
        by_count = np.stack([np.interp(b, sizes, column) for column in seconds.T[::-1]], axis=1)
        return np.array([np.interp(1 / one, inverse, row) for one, row in zip(c, by_count, strict=True)])

    return predict


def _fit_formula(b: Floats, c: Floats, s: Floats) -> _Predict:
    return _formula(formula_coefficients(b, c, s))


def _fit_grid(b: Floats, c: Floats, s: Floats) -> _Predict:
    sizes, counts = np.unique(b), np.unique(c)
    return _grid(sizes.tolist(), counts.tolist(), s[np.lexsort((c, b))].reshape(len(sizes), len(counts)))


def _held_out(
    b: Floats, c: Floats, s: Floats, fit: Callable[[Floats, Floats, Floats], _Predict]
) -> tuple[float, float, int]:
    """Predict each inner line from the others: mean and worst relative error, number of points."""
    predicted, measured = [], []
    for out in _inner_lines(b, c):
        predicted.append(fit(b[~out], c[~out], s[~out])(b[out], c[out]))
        measured.append(s[out])
    mean, worst = relative_errors(np.concatenate(predicted), np.concatenate(measured))
    return mean, worst, sum(map(len, measured))


def _inner_lines(b: Floats, c: Floats) -> Iterator[NDArray[np.bool_]]:
    for values in (b, c):
        for value in np.unique(values)[1:-1]:
            yield values == value
