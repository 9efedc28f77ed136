"""Balance each model's load over devices (CascadeServe section 4.4, Eq. 1-3)."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.optimize import linprog

FULL = 1.0
SLACK = 1e-9
"""Solver tolerance: utilisations this close are equal, and shares this small are zero."""

MOST_MODELS_IN_SETS = 6

Held = tuple[tuple[str, float], ...]
"""The models on a device, and their seconds per request."""


@dataclass(frozen=True, slots=True)
class Balance:
    """The highest utilisation, and load shares by (model, device) that add up to 1 per model."""

    utilisation: float
    shares: dict[tuple[str, str], float]


def balance(
    demand_qps: Mapping[str, float], seconds: Mapping[str, Mapping[str, float]], *, most_utilisation: float = FULL
) -> Balance | None:
    """Minimise the highest utilisation; None when it exceeds `most_utilisation`.

    `demand_qps` is each model's load; `seconds` are run times per request by device and model
    placed there. Identical devices get equal shares. The paper lowers u until Eq. 1-3 cannot be
    solved; here u is a variable, so one program finds the least. Eq. 1 holds because no more is
    served than Eq. 2 requires.
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

    Where each model is equally fast on all its devices, it is the highest work of a set of models
    over the number of devices that hold any of them (max-flow and min-cut), without a program.
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
