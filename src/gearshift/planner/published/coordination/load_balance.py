"""Load balancing: which part of each model's load each device takes (CascadeServe section 4.4, Eq. 1-3)."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.optimize import linprog

FULL = 1.0
SLACK = 1e-9
"""Of the solver: utilisations this close are equal, and shares this small are none."""

MOST_MODELS_IN_SETS = 6

Held = tuple[tuple[str, float], ...]
"""What a device holds: models and their seconds per request."""


@dataclass(frozen=True, slots=True)
class Balance:
    """The utilisation of the busiest device, and each model's load share by (model, device), which add up to 1."""

    utilisation: float
    shares: dict[tuple[str, str], float]


def balance(
    demand_qps: Mapping[str, float], seconds: Mapping[str, Mapping[str, float]], *, most_utilisation: float = FULL
) -> Balance | None:
    """The balance whose busiest device is least busy; None when no balance stays within `most_utilisation`.

    `demand_qps` is each model's load; `seconds` are run times per request by device and model placed there.  Devices
    that hold the same at the same speed get the same.  Lowering u until Eq. 1-3 cannot be solved ends at the least u
    that solves them, so u is a variable here, and one program finds it.  Eq. 1 holds by serving no more than Eq. 2
    asks for.
    """
    groups = _alike(demand_qps, seconds)
    solved = _solved(tuple(demand_qps.items()), tuple((held, len(devices)) for held, devices in groups.items()))
    if solved is None or solved[0] > most_utilisation + SLACK:
        return None
    utilisation, cells = solved
    shares = {
        (model, device): share
        for devices, placed_shares in zip(groups.values(), cells, strict=True)
        for model, share in placed_shares
        for device in devices
    }
    return Balance(utilisation=utilisation, shares=shares)


def least_utilisation(demand_qps: Mapping[str, float], seconds: Mapping[str, Mapping[str, float]]) -> float:
    """The utilisation of `balance`, without the shares; infinite when a model is nowhere.

    Where each model is as fast on all its devices, no program is needed: the fullest set of models, over the devices
    that hold any of them, sets it (the theorem of max-flow and min-cut).
    """
    groups = _alike(demand_qps, seconds)
    speeds = {cell for held in groups for cell in held}
    if len(speeds) > len(demand_qps) or len(demand_qps) > MOST_MODELS_IN_SETS:
        found = balance(demand_qps, seconds, most_utilisation=math.inf)
        return math.inf if found is None else found.utilisation
    bit = {model: 1 << i for i, model in enumerate(demand_qps)}
    busy = {bit[model]: demand_qps[model] * s for model, s in speeds}
    held_by = [(sum(bit[model] for model, _ in held), len(devices)) for held, devices in groups.items()]
    if len(busy) < len(bit):
        return math.inf
    return max(
        sum(s for b, s in busy.items() if b & models) / sum(n for held, n in held_by if held & models)
        for models in range(1, 1 << len(bit))
    )


def _alike(demand_qps: Mapping[str, float], seconds: Mapping[str, Mapping[str, float]]) -> dict[Held, list[str]]:
    """Devices by what they hold of the models in demand."""
    groups: dict[Held, list[str]] = {}
    for device, placed in seconds.items():
        held = tuple((model, placed[model]) for model in demand_qps if model in placed)
        if held:
            groups.setdefault(held, []).append(device)
    return groups


@lru_cache(maxsize=1 << 16)
def _solved(
    demand: tuple[tuple[str, float], ...], groups: tuple[tuple[Held, int], ...]
) -> tuple[float, tuple[Held, ...]] | None:
    """The least u, and per group of devices the models' shares on each of its devices; None without some model."""
    models = [model for model, _ in demand]
    cells = [(g, model, s) for g, (held, _) in enumerate(groups) for model, s in held]
    if {model for _, model, _ in cells} != set(models):
        return None
    qps = dict(demand)
    served = np.zeros((len(models), len(cells) + 1))
    busy = np.zeros((len(groups), len(cells) + 1))
    busy[:, -1] = -1.0
    for c, (g, model, s) in enumerate(cells):
        served[models.index(model), c] = groups[g][1]
        busy[g, c] = qps[model] * s
    found = linprog(
        [0.0] * len(cells) + [1.0],
        A_ub=busy,
        b_ub=np.zeros(len(groups)),
        A_eq=served,
        b_eq=np.ones(len(models)),
        method="highs",
        options={"disp": False},
    )
    if not found.success or found.x is None:
        return None
    share = np.where(found.x[:-1] < SLACK, 0.0, found.x[:-1])
    share /= (served[:, :-1] @ share)[[models.index(model) for _, model, _ in cells]]
    utilisation = float((busy[:, :-1] @ share).max())
    by_group: list[Held] = [
        tuple((model, float(share[c])) for c, (h, model, _) in enumerate(cells) if h == g) for g in range(len(groups))
    ]
    return utilisation, tuple(by_group)
