"""How the capacity at one batch size grows with cores: such a profile cannot choose batch sizes."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gearshift.errors import require
from gearshift.profiles.performance_model import formula_coefficients, relative_errors


def formula_seconds(coefficients_s: Sequence[float], b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Sponge Eq. 2."""
    per_sample_core, per_batch_core, per_sample, per_batch = coefficients_s
    return (per_sample_core * b + per_batch_core) / c + per_sample * b + per_batch


@dataclass(frozen=True, slots=True)
class CapacityCurve:
    """Amdahl's law fitted to capacity: a request takes `per_core_s / c + fixed_s` on c cores.

    Errors are relative. `falls_at` are core counts with less capacity than fewer cores have.
    """

    per_core_s: float
    fixed_s: float
    mean_error: float
    worst_error: float
    falls_at: tuple[int, ...]


def check_capacity(cores: Sequence[int], capacity_qps: Sequence[float], *, model: str) -> CapacityCurve:
    """Fit the capacity (n,) at one batch size on `cores` (n,) to Amdahl's law (Sponge Eq. 1).

    For profiles of a single batch size, which can show how capacity grows with cores but cannot
    choose a batch size. Raises `InvalidInput` for fewer than three core counts.
    """
    order = np.argsort(cores, kind="stable")
    c, qps = (np.asarray(values, dtype=np.float64)[order] for values in (cores, capacity_qps))
    require(
        len(np.unique(c)) >= 3,
        f"capacity on {len(np.unique(c))} core counts says nothing of how it grows",
        where=f"capacity of model {model!r}",
        remedy="measure at least 3 core counts",
    )
    require(bool(np.all(qps > 0)), "a capacity is not positive", where=f"capacity of model {model!r}")
    _, per_core_s, _, fixed_s = formula_coefficients(np.zeros_like(c), c, 1 / qps)
    mean, worst = relative_errors(1 / (per_core_s / c + fixed_s), qps)
    falls = c[1:][np.diff(qps) < 0]
    return CapacityCurve(per_core_s, fixed_s, mean, worst, tuple(int(count) for count in falls))
