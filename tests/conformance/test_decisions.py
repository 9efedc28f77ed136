"""Decision conformance: the compiled simulator and the real router write the same log, event for event."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from gearshift.decisions import Decision
from gearshift.plan_tables import plan_tables
from gearshift.runtime.virtual import run_virtually
from gearshift.simulator.simulate import simulate_tables
from tests.conformance.plans import Case, cases
from tests.conformance.scenario import long_case


def assert_same_decisions(case: Case) -> list[tuple[int, int, int, int, int]]:
    tables = plan_tables(case.plan, "task")
    run_ns = np.stack(case.run_ns)
    live = run_virtually(tables, case.run_ns, case.certainty, case.workload)
    simulated = simulate_tables(tables, run_ns, case.certainty, case.workload, log_rows=len(live.log) + 10)
    for row, (expected, got) in enumerate(zip(live.log, simulated.log, strict=False)):
        assert got == expected, f"decision {row}: the router {expected}, the simulator {got}"
    assert len(simulated.log) == len(live.log)
    assert simulated.finished_ns.tolist() == live.finished_ns.tolist()
    assert simulated.model.tolist() == live.model.tolist()
    return live.log


@given(cases())
@settings(max_examples=250, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_router_and_simulator_decide_alike_on_random_plans(case: Case) -> None:
    assert_same_decisions(case)


@pytest.mark.long
@given(cases())
@settings(max_examples=5000, deadline=None, suppress_health_check=list(HealthCheck))
def test_router_and_simulator_decide_alike_on_many_random_plans(case: Case) -> None:
    assert_same_decisions(case)


def test_router_and_simulator_decide_alike_on_a_long_trace_with_many_gear_shifts() -> None:
    log = assert_same_decisions(long_case(samples=60_000, seed=1))
    kinds = [row[1] for row in log]
    assert kinds.count(Decision.SHIFT) > 100
    assert kinds.count(Decision.ANSWER) == 60_000
