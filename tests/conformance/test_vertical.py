"""With cores that stay, requests end in `simulator/compared/vertical.py` as in the compiled simulator."""

import numpy as np
import pytest

from benchmarks.papers.scalers import StaticScaler
from gearshift.decisions import Ending
from gearshift.plans.plan_tables import plan_tables
from gearshift.simulator.compared.vertical import REFUSED, Setting, simulate_vertical
from gearshift.simulator.simulate import simulate_tables
from gearshift.workload import Workload
from tests.conformance.plans import MS
from tests.conformance.small import small_gear, small_plan

PLACED = {"a0": "d0"}


@pytest.mark.parametrize("load", [0.8, 1.0, 1.3, 2.0])
@pytest.mark.parametrize(("base_ms", "each_ms"), [(3, 3), (4, 2), (8, 1), (12, 1)])
@pytest.mark.parametrize("largest", [4, 16])
def test_each_request_ends_as_in_the_compiled_simulator_where_some_give_way(
    largest: int, base_ms: int, each_ms: int, load: float
) -> None:
    run_ns = [0, *((base_ms + each_ms * size) * MS for size in range(1, largest + 1))]
    workload = crowd(load * largest / run_ns[largest])
    first = Setting(1, largest)
    own, without = (
        simulate_vertical(workload, [[0] * len(run_ns), run_ns], StaticScaler(), first=first, gives_way=gives_way)
        for gives_way in (True, False)
    )
    tables = plan_tables(small_plan(PLACED, small_gear(PLACED, "a", largest=largest)))
    kernel = simulate_tables(tables, np.array([run_ns]), np.ones((1, 1)), workload, late="refuse")
    answered = kernel.ended == Ending.ANSWERED
    assert own.finished_ns.tolist() == np.where(answered, kernel.finished_ns, REFUSED).tolist()
    assert load <= 1 or own.violations.sum() < without.violations.sum()  # so some did give way


def crowd(per_ns: float, requests: int = 400) -> Workload:
    """Arrivals at random, each with 5 to 120 ms left: some have too little even for a batch of one."""
    generator = np.random.default_rng(0)
    arrivals_ns = np.cumsum(generator.exponential(1 / per_ns, requests)).astype(np.int64)
    return Workload(
        arrivals_ns=arrivals_ns,
        record=np.zeros(requests, dtype=np.int32),
        duration_s=float(arrivals_ns[-1]) / 1e9,
        deadline_ns=arrivals_ns + generator.integers(5, 120, requests) * MS,
    )
