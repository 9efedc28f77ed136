"""Model placement by greedy pruning: from every model on every device to what fits in memory.

CascadeServe, section 4.4.

    util(r) = sum over devices of min(max(0, over-allocated), freed by r) / u_max(r)

is Eq. 4 as its text describes it. As printed, max(0, over-allocated - freed) scores the memory that
stays over-allocated: highest for the replica that frees least, 0 for the one that makes all fit.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gearshift.planner.published.coordination.load_balance import FULL, SLACK, least_utilisation
from gearshift.planner.space.hosts import Held, Host, count_of, seconds_held


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
