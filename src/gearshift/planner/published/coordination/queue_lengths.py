"""Minimum queue lengths, raised by simulation until a load range holds (CascadeServe section 4.5)."""

from collections.abc import Mapping
from dataclasses import dataclass

from gearshift.cascade import Cascade
from gearshift.gear import ReplicaSettings
from gearshift.planner.evaluate.assemble import replica_settings
from gearshift.planner.evaluate.cells import Cell
from gearshift.planner.evaluate.steady_state import SteadyState

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
