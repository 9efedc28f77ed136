"""Which cascade for which load range on the fewest core-seconds, as an integer programme."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, milp

EXACTLY = {"disp": False, "mip_rel_gap": 0.0}
SAME_COST = 5e-7
"""Above what the solver takes for a rounding error, and below one core in a range of the least weight."""


@dataclass(frozen=True, slots=True)
class Option:
    """A cascade in a load range: its number, its models as numbers, its accuracy, and its cores in all."""

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
    """One of each range's `options`, with the fewest cores by `time` (ranges,) of all that reach the accuracy.

    Of equals the most accurate; accuracy is weighted by `requests` (ranges,), and None asks for the highest there is.
    A model that any range uses is loaded in all, where it holds one core at least; no range has more than
    `most_cores`.  None where no choice does.

    One variable per option, then one per model, all 0 or 1:

        minimise   sum over ranges of  time x (models loaded + what its option has beyond one core for each of its own)

    and then once more, for the accuracy at that cost.
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
    if found.x is None and accuracy is not None:  # a cost that the solver rounded
        found = cheapest
    if found.x is None:
        return None
    return [row[int(np.argmax(found.x[[i for i in range(n) if flat[i][0] == r]]))] for r, row in enumerate(options)]


def worth_asking(options: Sequence[Option]) -> list[Option]:
    """Without those beside which another of the same models is as accurate on as few cores."""
    kept: dict[tuple[int, ...], list[Option]] = {}
    for option in sorted(options, key=lambda o: (o.cores, -o.accuracy, o.candidate)):
        rivals = kept.setdefault(option.models, [])
        if not rivals or rivals[-1].accuracy < option.accuracy:
            rivals.append(option)
    return [option for rivals in kept.values() for option in rivals]
