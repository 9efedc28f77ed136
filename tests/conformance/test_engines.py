"""The router of language models and the compiled simulation take the same decisions, event for event."""

from hypothesis import given, settings

from gearshift.simulator.engines import simulate_language
from tests.conformance.virtual_engines import VirtualEngines
from tests.language_task import language_cases
from tests.often import often


@settings(max_examples=often(150))
@given(language_cases())
def test_router_and_simulation_write_the_same_log(case):
    tables, profile, workload = case
    simulated, virtual = simulate_language(tables, profile, workload, log=True), VirtualEngines(*case)
    virtual.run()
    assert virtual.log == simulated.log
    assert (virtual.shown_ns == simulated.answered_ns).all()
    assert (virtual.finished_ns == simulated.finished_ns).all()
