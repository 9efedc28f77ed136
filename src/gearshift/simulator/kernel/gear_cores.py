"""Cores that change with the gear or by a scaler, compiled: each change replaces run times."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gearshift import decisions
from gearshift.clock import NEVER_NS
from gearshift.plans.plan_tables import PlanTables
from gearshift.policies.cores import scaling
from gearshift.policies.cores.demand import SharedCores
from gearshift.simulator.kernel.deadlines import watch
from gearshift.simulator.kernel.queues import Queues
from gearshift.simulator.kernel.state import Outcome, Plan, Settings, State, write
from gearshift.support.compiled import apart, inlined

CORES = int(decisions.Decision.CORES)

cores_in_gear = inlined(scaling.cores_in_gear)
change_holds_ns = inlined(scaling.change_holds_ns)


class Cores(NamedTuple):
    """Cores of replicas and their changes, which take `effect_ns`.

    `in_gear` (gears x replicas) is empty where gears do not change cores. Where cores are
    `scaled`, `wanted` is decided outside at each halt; otherwise at shifts, by the gear. `run_ns`
    (replicas, cores + 1, sizes) are the times to choose from. Per replica: `in_force`, `asked`
    for, and `holds_ns`, when these take effect.
    """

    in_gear: Any
    scaled: bool
    effect_ns: int
    wanted: Any
    run_ns: Any
    in_force: Any
    asked: Any
    holds_ns: Any


def side_by_side(tables: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Stack tables (cores + 1, sizes + 1) into (replicas, cores + 1, sizes + 1), padded with 0."""
    times = np.zeros((len(tables), max(map(len, tables)), tables[0].shape[1]), dtype=np.int64)
    for row, table in zip(times, tables, strict=True):
        row[: len(table)] = table
    return times


def make_cores(
    tables: PlanTables, run_ns: NDArray[np.int64] | None, effect_ns: int, shared: SharedCores | None
) -> Cores:
    """Begin with the cores of the first gear, or with those of `shared`, the scaler.

    Without run times `run_ns` cores never change.
    """
    none = np.zeros(0, dtype=np.int64)
    first = none if run_ns is None else tables.cores[: len(tables.replica_ids)]
    if shared is not None and not len(first):
        first = np.array(shared.first, dtype=np.int64)
    return Cores(
        in_gear=none if run_ns is None else tables.cores,
        scaled=shared is not None,
        effect_ns=effect_ns,
        wanted=first.copy(),
        run_ns=np.zeros((0, 0, 0), dtype=np.int64) if run_ns is None else np.ascontiguousarray(run_ns),
        in_force=first.copy(),
        asked=first.copy(),
        holds_ns=np.full(len(first), NEVER_NS),
    )


@inlined
def reckon_with(
    plan: Plan, settings: Settings, state: State, q: Queues, cores: Cores, replica: int, now_ns: int
) -> None:
    cores.in_force[replica], cores.holds_ns[replica] = cores.asked[replica], NEVER_NS
    for size in range(plan.run_ns.shape[1]):
        plan.run_ns[replica, size] = cores.run_ns[replica, cores.asked[replica], size]
    model = plan.replica_model[replica]
    fastest_ns = NEVER_NS
    for other in range(plan.model_begin[model], plan.model_begin[model + 1]):
        fastest_ns = min(fastest_ns, plan.run_ns[other, 1])
    plan.fastest_ns[model] = fastest_ns
    if settings.by_deadline is not None:
        watch(plan, settings, state, q, replica, now_ns)


@apart
def want_of_gear(settings: Settings, state: State, cores: Cores) -> None:
    for replica in range(settings.replicas):
        cores.wanted[replica] = cores_in_gear(cores.in_gear, state.pipelines[0].gear, settings.replicas, replica)


@apart
def ask(plan: Plan, settings: Settings, state: State, q: Queues, cores: Cores, out: Outcome, now_ns: int) -> None:
    for replica in range(settings.replicas):
        wanted = cores.wanted[replica]
        if wanted == cores.asked[replica]:
            continue
        write(state, out, now_ns, CORES, replica, wanted, cores.asked[replica])
        cores.asked[replica] = wanted
        cores.holds_ns[replica] = change_holds_ns(now_ns, cores.in_force[replica], wanted, cores.effect_ns)
        if cores.holds_ns[replica] == now_ns:
            reckon_with(plan, settings, state, q, cores, replica, now_ns)
        state.run.next_timer_ns = min(state.run.next_timer_ns, cores.holds_ns[replica])


@apart
def take_effect(plan: Plan, settings: Settings, state: State, q: Queues, cores: Cores, now_ns: int) -> None:
    for replica in range(settings.replicas):
        if cores.holds_ns[replica] <= now_ns:
            reckon_with(plan, settings, state, q, cores, replica, now_ns)
        state.run.next_timer_ns = min(state.run.next_timer_ns, cores.holds_ns[replica])
