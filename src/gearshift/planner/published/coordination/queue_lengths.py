"""Minimum queue lengths, raised by simulation until a load range holds (CascadeServe section 4.5)."""

from collections.abc import Mapping
from dataclasses import dataclass

from gearshift.cascade import Cascade
from gearshift.gear import ReplicaSettings
from gearshift.planner.evaluate.assemble import replica_settings
from gearshift.planner.evaluate.steady_state import Cell, SteadyState

PATIENCE = 3
"""So many raises in a row that make latency no better end the search."""
NOT_BUSY = 0.5
"""Below this mean utilisation throughput is not what is lacking, and no length is raised."""
LONGEST_WAIT_FACTOR = 2.0
"""A batch starts anyway after so many times the time in which the queue fills at the load planned for."""


@dataclass(frozen=True, slots=True)
class Tuned:
    """How every replica works in a range, what steady load gives then, and whether that holds."""

    replicas: tuple[ReplicaSettings, ...]
    cell: Cell
    holds: bool


def tune(
    steady: SteadyState, cascade: Cascade, load_qps: float, shares: Mapping[str, float], *, longest: int | None = None
) -> Tuned:
    """The least minimum queue length of the first model's replicas with which the load holds, by rising from 1.

    `shares` are load shares by replica id; `longest` is how far to rise, the largest batch profiled by default.
    Where none holds: the settings with the least latency, stable ones first.
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
