"""What local search tries, on ranges of which the trace does not visit the last."""

from dataclasses import replace

import numpy as np
import pytest

from gearshift.cascade import Cascade
from gearshift.objective import Objective, Scope
from gearshift.planner.search.capacities import Capacities, Ranges
from gearshift.planner.search.choices import Choice, improved
from gearshift.planner.space.cascade_search import CandidateCascade
from tests.unit.planner.little import little_request

DEAREST = 9
SHARES = np.array([0.5, 0.3, 0.2, 0.0])
STEADY = (1, 1, 1, 0)


def capacities(scope: Scope) -> Capacities:
    """The dearest candidate holds in the second range, all in the third but it, and only the cheapest in the last."""
    ends = np.array([100.0, 200.0, 300.0, 400.0])
    candidates = [
        CandidateCascade(cascade=Cascade(models=(f"m{i}",)), accuracy=i / 16, work_s=i + 1.0, reach=(1.0,))
        for i in range(DEAREST + 1)
    ]
    ranges = Ranges(little_request(objective=Objective(latency_s=1.0, scope=scope)), candidates, ends, ends, SHARES)
    return Capacities(ranges, qps=np.zeros(DEAREST + 1), highest=(3, *[2] * (DEAREST - 1), 1))


def searched(scope: Scope, dearest_that_holds: int) -> tuple[list[Choice], list[tuple[int, ...]]]:
    """The path, and all assignments that were tried, where the replay holds up to a candidate."""
    tried: list[tuple[int, ...]] = []

    def replayed(choice: Choice) -> Choice:
        tried.append(choice.assignment)
        return replace(choice, accuracy=float(SHARES @ choice.assignment))

    def holds(choice: Choice) -> bool:
        return max(choice.assignment) <= dearest_that_holds

    start = Choice(STEADY, margin=1.0, alpha=8.0, accuracy=float(SHARES @ STEADY))
    return improved(start, capacities(scope), replayed, holds), tried


@pytest.mark.parametrize(("scope", "reached"), [("trace", DEAREST), ("every-range", DEAREST - 1)])
def test_the_cheapest_of_what_the_trace_visits_climbs_as_far_as_it_holds(scope: Scope, reached: int) -> None:
    path, _ = searched(scope, DEAREST)
    climbed = [choice.assignment for choice in path[: reached - 1]]
    assert climbed == [(c, c, c, 0) for c in range(2, reached + 1)]


@pytest.mark.parametrize("scope", ["trace", "every-range"])
def test_nothing_is_replayed_that_is_there_already(scope: Scope) -> None:
    path, tried = searched(scope, 4)
    assert path[-1].assignment == (4, 4, 4, 0)
    assert STEADY not in tried
    assert all(tried.count(choice.assignment) == 1 for choice in path)
