"""Local search: more expensive cascades per range, where a replay of the trace holds and gains."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from gearshift.planner.search.capacities import Capacities
from gearshift.planner.search.choices import Choice

IMPROVING_STEPS = (0.1, 0.03, 0.0)
"""Step sizes, as shares of the candidates: how far above the present cascade to try; at least the
next."""
SELDOM = 1e-4
"""Ranges with a smaller share of requests are left alone."""
IMPROVING_REPLAYS = (4, 400)
IMPROVING_REQUESTS = 12_000_000
"""Requests that local search may replay, within the least and most replays above."""


def improved(
    choice: Choice,
    capacities: Capacities,
    replayed: Callable[[Choice], Choice],
    holds: Callable[[Choice], bool],
) -> list[Choice]:
    """Use more expensive cascades where the replay holds and gains accuracy.

    First the cheapest cascade of the plan is replaced everywhere, then one range at a time, those
    with the most requests first; large steps before small ones. With scope `every-range` only
    cascades that hold in steady state with the least margin are tried.
    """
    least, most = IMPROVING_REPLAYS
    weights, candidates = capacities.ranges.weights, capacities.ranges.candidates
    path: list[Choice] = []
    left = min(most, max(least, IMPROVING_REQUESTS // len(capacities.ranges.request.trace)))
    ranges = [k for k in np.argsort(-weights).tolist() if weights[k] > SELDOM and k < len(weights) - 1]
    for step in IMPROVING_STEPS:
        for k in [None, *ranges]:
            while left > 0:
                changed = _dearer(choice.assignment, k, max(1, round(step * len(candidates))), capacities)
                if changed is None:
                    break
                left -= 1
                tried = replayed(replace(choice, assignment=changed))
                if not holds(tried) or tried.accuracy <= choice.accuracy:
                    break
                gain = tried.accuracy - choice.accuracy
                raised = [r for r, (a, b) in enumerate(zip(choice.assignment, changed, strict=True)) if a != b]
                choice = replace(tried, gains=choice.gains | {r: choice.gains.get(r, 0.0) + gain for r in raised})
                path.append(choice)
    return path


def _dearer(assignment: tuple[int, ...], k: int | None, step: int, capacities: Capacities) -> tuple[int, ...] | None:
    """Raise range `k`, or with None the cheapest of visited ranges, by at least `step` candidates.

    Candidates that are not more accurate are skipped. Unvisited higher ranges keep a cascade that
    holds.
    """
    ranges, visited = capacities.ranges, capacities.ranges.highest_visited + 1
    accuracy = [c.accuracy for c in ranges.candidates]
    now = min(assignment[:visited]) if k is None else assignment[k]
    dearer = next((c for c in range(now + step, len(accuracy)) if accuracy[c] > accuracy[now]), None)
    if dearer is None:
        return None
    if ranges.request.objective.scope == "every-range" and not capacities.holds_in(
        visited - 1 if k is None else k, dearer
    ):
        return None
    kept = [r for r in range(visited, len(assignment)) if not capacities.holds_in(r, dearer)]
    return tuple(max(a, dearer) if k in (None, r) and r not in kept else a for r, a in enumerate(assignment))
