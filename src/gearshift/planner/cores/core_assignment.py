"""Assign cascades to load ranges on the fewest core-seconds, as an integer programme."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, milp

EXACTLY = {"disp": False, "mip_rel_gap": 0.0}
SAME_COST = 5e-7
"""Above the solver's rounding errors, and below one core in a range of the least weight."""


@dataclass(frozen=True, slots=True)
class Option:
    """A cascade in a load range: its number, its models' numbers, accuracy, and total cores."""

    candidate: int
    models: tuple[int, ...]
    accuracy: float
    cores: int


def fewest_core_seconds(
    options: Sequence[Sequence[Option]],
    time: NDArray[np.float64],
    requests: NDArray[np.float64],
    *,
    most_cores: int,
    accuracy: float | None,
) -> list[Option] | None:
    """One option for each range, with the fewest core-seconds that reach the accuracy.

    `time` (ranges,) weighs cores, `requests` (ranges,) accuracy. Of equal costs the most accurate
    choice is taken; without `accuracy`, the most accurate of all. A model that any range uses holds
    at least one core in all ranges; no range has more than `most_cores`. None if no choice does.

    One variable per option, then one per model, all 0 or 1:

        minimise  sum over ranges of
                  time x (models loaded + cores of its option beyond one for each of its models)

    and then once more, for the highest accuracy at that cost.
    """
    models = 1 + max(model for row in options for option in row for model in option.models)
    flat = [(r, option) for r, row in enumerate(options) for option in row]
    n, ranges = len(flat), len(options)
    of_range, used = np.zeros((ranges, n + models)), np.zeros((ranges * models, n + models))
    for i, (r, option) in enumerate(flat):
        of_range[r, i] = 1.0
        for model in option.models:
            used[r * models + model, i] = 1.0
    used[:, n:] = -np.tile(np.eye(models), (ranges, 1))
    beyond = np.array([option.cores - len(option.models) for _, option in flat], dtype=np.float64)
    held = np.concatenate([of_range[:, :n] * beyond, np.ones((ranges, models))], axis=1)
    right = np.concatenate([[requests[r] * option.accuracy for r, option in flat], np.zeros(models)])
    cost = time @ held
    whole: Any = {"integrality": np.ones(n + models, dtype=np.int64), "bounds": Bounds(0, 1), "options": EXACTLY}
    constraints = [
        LinearConstraint(of_range, 1, 1),
        LinearConstraint(used, -np.inf, 0),
        LinearConstraint(held, -np.inf, most_cores),
    ]
    if accuracy is not None:
        constraints.append(LinearConstraint(right[None, :], accuracy * requests.sum(), np.inf))
        cheapest = milp(cost, constraints=constraints, **whole)
        if cheapest.x is None:
            return None
        constraints.append(LinearConstraint(cost[None, :], -np.inf, cheapest.fun + SAME_COST))
    found = milp(-right, constraints=constraints, **whole)
    if found.x is None and accuracy is not None:  # the solver rounded the cost
        found = cheapest
    if found.x is None:
        return None
    return [row[int(np.argmax(found.x[[i for i in range(n) if flat[i][0] == r]]))] for r, row in enumerate(options)]


def worth_asking(options: Sequence[Option]) -> list[Option]:
    """Drop options for which another of the same models is as accurate on as few cores."""
    kept: dict[tuple[int, ...], list[Option]] = {}
    for option in sorted(options, key=lambda o: (o.cores, -o.accuracy, o.candidate)):
        rivals = kept.setdefault(option.models, [])
        if not rivals or rivals[-1].accuracy < option.accuracy:
            rivals.append(option)
    return [option for rivals in kept.values() for option in rivals]
