"""Balance each model's load over devices (CascadeServe section 4.4, Eq. 1-3)."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.optimize import linprog

from gearshift.cascade import Cascade
from gearshift.gear import ReplicaSettings
from gearshift.planner.evaluate.assemble import replica_settings
from gearshift.planner.evaluate.cells import Cell
from gearshift.planner.evaluate.steady_state import SteadyState
from gearshift.planner.space.hosts import Held, Host, count_of, seconds_held

FULL = 1.0
SLACK = 1e-9
"""Solver tolerance: utilisations this close are equal, and shares this small are zero."""

MOST_MODELS_IN_SETS = 6

Loaded = tuple[tuple[str, float], ...]
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


def _alike(demand_qps: Mapping[str, float], seconds: Mapping[str, Mapping[str, float]]) -> dict[Loaded, list[str]]:
    groups: dict[Loaded, list[str]] = {}
    for device, placed in seconds.items():
        held = tuple((model, placed[model]) for model in demand_qps if model in placed)
        if held:
            groups.setdefault(held, []).append(device)
    return groups


@lru_cache(maxsize=1 << 16)
def _solved(
    demand: tuple[tuple[str, float], ...], groups: tuple[tuple[Loaded, int], ...]
) -> tuple[float, tuple[Loaded, ...]] | None:
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
    by_group: list[Loaded] = [
        tuple((model, float(share[c])) for c, (h, model, _) in enumerate(cells) if h == g) for g in range(len(groups))
    ]
    return utilisation, tuple(by_group)


# Model placement by greedy pruning: from every model on every device to what fits in memory.
#
# CascadeServe, section 4.4.
#
#     util(r) = sum over devices of min(max(0, over-allocated), freed by r) / u_max(r)
#
# is Eq. 4 as its text describes it. As printed, max(0, over-allocated - freed) scores the memory that
# stays over-allocated: highest for the replica that frees least, 0 for the one that makes all fit.


@dataclass(frozen=True, slots=True)
class DoesNotFit:
    """Memory cannot hold these models; balancing `demands` does not allow further pruning."""

    models: tuple[str, ...]
    demands: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Prune:
    """One model to prune from a host, and its utility.

    With that, the demands `forbidden_by` could not be balanced.
    """

    host: str
    model: str
    freed_bytes: int
    utility: float
    forbidden_by: tuple[int, ...] = ()


def utility(freed_bytes: float, over_bytes: float, most_utilisation: float) -> float:
    """Over-allocated memory that is freed, over the utilisation that it leads to (Eq. 4)."""
    useful = min(max(0.0, over_bytes), freed_bytes)
    return useful and (useful / most_utilisation if most_utilisation > 0 else math.inf)


def prune(
    hosts: Sequence[Host], demands: Sequence[Mapping[str, float]], *, at_least: Mapping[str, int] | None = None
) -> Held | DoesNotFit:
    """The models that stay on each host when replicas of greatest utility go until all fit.

    `demands` are loads by model, each of which must stay balanced within full utilisation; models
    in none of them go first. A model in a demand keeps one replica, or `at_least` as many. Of
    equal utilities the replica that frees more goes first.
    """
    held: Held = {host.name: list(host.seconds) for host in hosts}
    used = {model for demand in demands for model in demand}
    kept = {model: max(1, (at_least or {}).get(model, 1)) for model in used}
    while any(host.over_bytes(held[host.name]) > 0 for host in hosts):
        choices = list(_choices(hosts, held, demands, kept))
        best = max(choices, key=lambda choice: (choice.utility, choice.freed_bytes))
        if best.utility <= 0:
            forbidding = {demand for choice in choices for demand in choice.forbidden_by}
            return DoesNotFit(models=tuple(sorted(used)), demands=tuple(sorted(forbidding)))
        held[best.host].remove(best.model)
    return held


def _choices(
    hosts: Sequence[Host], held: Held, demands: Sequence[Mapping[str, float]], kept: Mapping[str, int]
) -> Iterator[_Prune]:
    """Replicas on hosts with too little memory; the first of identical hosts stands for all."""
    seconds = seconds_held(hosts, held)
    count = {model: count_of(held, model) for model in kept}
    seen = set()
    for host in hosts:
        here = held[host.name]
        alike = (len(host.device_ids), host.memory_bytes, *((m, host.seconds[m], host.needs_bytes[m]) for m in here))
        over_bytes = host.over_bytes(here)
        if over_bytes <= 0 or alike in seen:
            continue
        seen.add(alike)
        for model in here:
            freed_bytes = host.needs_bytes[model]
            if model in kept and count[model] <= kept[model]:
                yield _Prune(host.name, model, freed_bytes, -math.inf)
                continue
            rest = {m: s for m, s in seconds[host.name].items() if m != model}
            without = seconds | {host.name: rest}
            busiest = {d: least_utilisation(demand, without) for d, demand in enumerate(demands) if model in demand}
            forbidding = tuple(d for d, utilisation in busiest.items() if utilisation > FULL + SLACK)
            worth = utility(freed_bytes, over_bytes, max(busiest.values(), default=0.0))
            worth = -math.inf if forbidding else worth
            yield _Prune(host.name, model, freed_bytes, worth, forbidding)


# Minimum queue lengths, raised by simulation until a load range holds (CascadeServe section 4.5).

PATIENCE = 3
"""The search ends after this many raises in a row that do not reduce latency."""
NOT_BUSY = 0.5
"""Below this mean utilisation throughput is not the problem, and no length is raised."""
LONGEST_WAIT_FACTOR = 2.0
"""The longest wait, as a multiple of the time in which the queue fills at the planned load."""


@dataclass(frozen=True, slots=True)
class Tuned:
    """The settings of every replica in a range, their cell, and whether that holds."""

    replicas: tuple[ReplicaSettings, ...]
    cell: Cell
    holds: bool


def tune(
    steady: SteadyState, cascade: Cascade, load_qps: float, shares: Mapping[str, float], *, longest: int | None = None
) -> Tuned:
    """The least minimum queue length of the first model with which the load holds, from 1 up.

    `shares` are load shares by replica id; `longest` limits the length, by default to the largest
    batch profiled. Where none holds: the lowest latency, stable cells first.
    """
    first = [r.id for r in steady.placement.replicas if r.model == cascade.models[0] and shares.get(r.id, 0) > 0]
    largest = max(curve.largest_batch_size for curve in steady.profile.whole_curves)
    best: Tuned | None = None
    worse = 0
    for length in range(1, (longest or largest) + 1):
        filled_s = {r: length / (load_qps * shares[r]) for r in first}
        settings = replica_settings(
            steady.profile,
            steady.hardware,
            steady.placement,
            cascade,
            shares=shares,
            largest_batch_size=largest,
            minimum_queue_length=dict.fromkeys(first, length),
            longest_wait_s={r: min(3600.0, LONGEST_WAIT_FACTOR * s) for r, s in filled_s.items()} if length > 1 else {},
        )
        cell = steady.simulate(cascade, load_qps, settings)
        tuned = Tuned(settings, cell, steady.meets(cell))
        if tuned.holds:
            return tuned
        improves = best is None or (not cell.stable, cell.latency_s) < (not best.cell.stable, best.cell.latency_s)
        best, worse = (tuned, 0) if best is None or improves else (best, worse + 1)
        if worse >= PATIENCE or (cell.stable and cell.utilisation < NOT_BUSY):
            break
    return best or tuned
